//! NVML calls that nvml-wrapper lacks, or for which it hides a state that matters here. They go through the
//! library that nvml-wrapper loaded. A call that the library does not export is *not supported*.

mod fabric;
mod link;

pub(super) use fabric::{FabricInfo, Platform};

use lattice_conformance::Reading;
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlReturn_t};

/// An NVML code that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub nvmlReturn_t);

impl Code {
    const FUNCTION_NOT_FOUND: Self = Self(nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND);
    const ARGUMENT_VERSION_MISMATCH: Self =
        Self(nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);

    /// Name of the code in nvml.h, in lower case and without its prefix; the number for an unknown code.
    pub(super) fn name(self) -> String {
        let names = [
            (nvml::nvmlReturn_enum_NVML_SUCCESS, "success"),
            (
                nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
                "uninitialized",
            ),
            (
                nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
                "invalid argument",
            ),
            (
                nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
                "not supported",
            ),
            (
                nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION,
                "no permission",
            ),
            (nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND, "not found"),
            (nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT, "timeout"),
            (nvml::nvmlReturn_enum_NVML_ERROR_IRQ_ISSUE, "irq issue"),
            (
                nvml::nvmlReturn_enum_NVML_ERROR_CORRUPTED_INFOROM,
                "corrupted inforom",
            ),
            (nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST, "gpu is lost"),
            (
                nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED,
                "reset required",
            ),
            (nvml::nvmlReturn_enum_NVML_ERROR_IN_USE, "in use"),
            (nvml::nvmlReturn_enum_NVML_ERROR_NO_DATA, "no data"),
            (
                nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES,
                "insufficient resources",
            ),
            (nvml::nvmlReturn_enum_NVML_ERROR_NOT_READY, "not ready"),
            (
                nvml::nvmlReturn_enum_NVML_ERROR_INVALID_STATE,
                "invalid state",
            ),
            (nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN, "unknown"),
        ];
        let known = names.iter().find(|(code, _)| *code == self.0);
        known.map_or_else(
            || format!("code {}", self.0),
            |(_, name)| (*name).to_owned(),
        )
    }
}

/// Converts the result of a call to a reading.
pub(super) fn reading<T>(result: Result<T, Code>) -> Reading<T> {
    let Code(code) = match result {
        Ok(value) => return Reading::Present(value),
        Err(code) => code,
    };
    match code {
        nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
        | nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND
        | nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        | nvml::nvmlReturn_enum_NVML_ERROR_DEPRECATED => Reading::Unsupported,
        nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => Reading::denied("NVML: no permission"),
        _ => Reading::failed(format!("NVML: {}", Code(code).name())),
    }
}

/// One device, with the library that returned its handle.
#[derive(Clone, Copy)]
pub(super) struct RawDevice<'a> {
    library: &'a NvmlLib,
    device: nvmlDevice_t,
}

/// Calls a function of NVML on the device. A symbol that the library lacks gives [`Code::FUNCTION_NOT_FOUND`].
macro_rules! ask {
    ($raw:expr, $call:ident, $($argument:expr),*) => {
        match &$raw.library.$call {
            Ok(call) => {
                // SAFETY: the device handle came from this library, which stays loaded as long as `RawDevice` borrows
                // it. Every pointer argument points to a live local of the type that nvml.h declares.
                #[expect(unsafe_code, reason = "a C call without a safe wrapper")]
                let code = unsafe { call($raw.device, $($argument),*) };
                if code == nvml::nvmlReturn_enum_NVML_SUCCESS { Ok(()) } else { Err(Code(code)) }
            }
            Err(_) => Err(Code::FUNCTION_NOT_FOUND),
        }
    };
}
use ask;

/// Remapped memory rows.
pub(super) struct RemappedRows {
    pub correctable: u32,
    pub uncorrectable: u32,
    pub pending: bool,
    pub failure: bool,
}

/// ECC error counts of SRAM.
pub(super) struct SramErrors {
    /// Corrected errors since the driver was loaded.
    pub corrected: Reading<u64>,
    pub corrected_aggregate: Reading<u64>,
    /// Uncorrected errors since the driver was loaded.
    pub uncorrected: Reading<u64>,
    pub uncorrected_aggregate: Reading<u64>,
    /// The driver reports that the error count exceeds its threshold.
    pub threshold_exceeded: bool,
}

impl<'a> RawDevice<'a> {
    /// The device behind a safe handle.
    pub(super) fn of(library: &'a NvmlLib, device: &Device<'_>) -> Self {
        // SAFETY: the handle is only passed back to the library that returned it, below.
        #[expect(unsafe_code, reason = "nvml-wrapper marks its handle unsafe")]
        let device = unsafe { device.handle() };
        Self { library, device }
    }

    /// Whether both refer to the same device.
    pub(super) fn is_same(self, other: Self) -> bool {
        std::ptr::eq(self.device, other.device)
    }

    /// Total and used memory, in bytes. The second version of the call excludes the driver's own reserve from the used
    /// memory; drivers without that version include it.
    pub(super) fn memory(self) -> Result<(u64, u64), Code> {
        let mut info = nvml::nvmlMemory_v2_t {
            version: struct_version::<nvml::nvmlMemory_v2_t>(2),
            total: 0,
            reserved: 0,
            free: 0,
            used: 0,
        };
        match ask!(self, nvmlDeviceGetMemoryInfo_v2, &mut info) {
            Err(Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION_MISMATCH) => {}
            other => return other.map(|()| (info.total, info.used)),
        }
        let mut info = nvml::nvmlMemory_t {
            total: 0,
            free: 0,
            used: 0,
        };
        ask!(self, nvmlDeviceGetMemoryInfo, &mut info)?;
        Ok((info.total, info.used))
    }

    /// Highest PCIe generation of the GPU alone, whatever its slot.
    pub(super) fn own_link_generation(self) -> Result<u32, Code> {
        let mut generation = 0;
        ask!(self, nvmlDeviceGetGpuMaxPcieLinkGeneration, &mut generation)?;
        Ok(generation)
    }

    pub(super) fn remapped_rows(self) -> Result<RemappedRows, Code> {
        let (mut correctable, mut uncorrectable, mut pending, mut failure) = (0, 0, 0, 0);
        ask!(
            self,
            nvmlDeviceGetRemappedRows,
            &mut correctable,
            &mut uncorrectable,
            &mut pending,
            &mut failure
        )?;
        Ok(RemappedRows {
            correctable,
            uncorrectable,
            pending: pending != 0,
            failure: failure != 0,
        })
    }

    pub(super) fn sram_errors(self) -> Result<SramErrors, Code> {
        let mut status = nvml::nvmlEccSramErrorStatus_v1_t {
            version: struct_version::<nvml::nvmlEccSramErrorStatus_v1_t>(1),
            aggregateUncParity: 0,
            aggregateUncSecDed: 0,
            aggregateCor: 0,
            volatileUncParity: 0,
            volatileUncSecDed: 0,
            volatileCor: 0,
            aggregateUncBucketL2: 0,
            aggregateUncBucketSm: 0,
            aggregateUncBucketPcie: 0,
            aggregateUncBucketMcu: 0,
            aggregateUncBucketOther: 0,
            bThresholdExceeded: 0,
        };
        ask!(self, nvmlDeviceGetSramEccErrorStatus, &mut status)?;
        Ok(SramErrors {
            corrected: counter_value(status.volatileCor),
            corrected_aggregate: counter_value(status.aggregateCor),
            uncorrected: counter_sum(status.volatileUncParity, status.volatileUncSecDed),
            uncorrected_aggregate: counter_sum(
                status.aggregateUncParity,
                status.aggregateUncSecDed,
            ),
            threshold_exceeded: status.bThresholdExceeded != 0,
        })
    }

    /// Error count by error type, counter type and memory location, as numbered by nvml.h.
    pub(super) fn memory_errors(self, error: u32, counter: u32, at: u32) -> Reading<u64> {
        let mut count = 0;
        let asked = ask!(
            self,
            nvmlDeviceGetMemoryErrorCounter,
            error,
            counter,
            at,
            &mut count
        );
        reading(asked).and_then(|()| counter_value(count))
    }

    /// Number of pages retired for `cause`; their addresses are not requested.
    pub(super) fn retired_pages(self, cause: u32) -> Result<u32, Code> {
        let mut count = 0;
        let asked = ask!(
            self,
            nvmlDeviceGetRetiredPages,
            cause,
            &mut count,
            std::ptr::null_mut()
        );
        match asked {
            // NVML returns this code for a query without a buffer if any page is retired.
            Err(Code(nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE)) | Ok(()) => Ok(count),
            Err(code) => Err(code),
        }
    }

    /// Reasons why clocks are lowered now, as a bit mask. Old drivers are queried by the call's old name.
    pub(super) fn clock_event_reasons(self) -> Result<u64, Code> {
        let mut mask = 0;
        match ask!(self, nvmlDeviceGetCurrentClocksEventReasons, &mut mask) {
            Err(Code::FUNCTION_NOT_FOUND) => {
                ask!(self, nvmlDeviceGetCurrentClocksThrottleReasons, &mut mask)?;
            }
            other => other?,
        }
        Ok(mask)
    }

    /// Degrees Celsius left before the driver lowers the clocks.
    pub(super) fn margin_temperature(self) -> Result<i32, Code> {
        let mut margin = nvml::nvmlMarginTemperature_t {
            version: struct_version::<nvml::nvmlMarginTemperature_t>(1),
            marginTemperature: 0,
        };
        ask!(self, nvmlDeviceGetMarginTemperature, &mut margin)?;
        Ok(margin.marginTemperature)
    }

    /// A temperature threshold in degrees Celsius.
    pub(super) fn threshold(self, which: u32) -> Result<u32, Code> {
        let mut celsius = 0;
        ask!(self, nvmlDeviceGetTemperatureThreshold, which, &mut celsius)?;
        Ok(celsius)
    }

    /// Field values by field id, each with its own result.
    pub(super) fn fields<const N: usize>(self, ids: [u32; N]) -> [Result<i64, Code>; N] {
        self.fields_of(0, ids)
    }

    /// Field values of a part of the device, such as an NVLink by its number.
    pub(super) fn fields_of<const N: usize>(
        self,
        scope: u32,
        ids: [u32; N],
    ) -> [Result<i64, Code>; N] {
        let mut values = ids.map(|id| nvml::nvmlFieldValue_t {
            fieldId: id,
            scopeId: scope,
            timestamp: 0,
            latencyUsec: 0,
            valueType: nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT,
            nvmlReturn: nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN,
            value: nvml::nvmlValue_t { ullVal: 0 },
        });
        let count = i32::try_from(N).unwrap_or(i32::MAX);
        let asked = ask!(self, nvmlDeviceGetFieldValues, count, values.as_mut_ptr());
        values.map(|value| asked.and_then(|()| field(&value)))
    }

    /// Common ancestor of this GPU and `other`, as a level of nvml.h.
    pub(super) fn common_ancestor(self, other: Self) -> Result<u32, Code> {
        let mut level = 0;
        ask!(
            self,
            nvmlDeviceGetTopologyCommonAncestor,
            other.device,
            &mut level
        )?;
        Ok(level)
    }
}

/// The value of nvml.h's `NVML_STRUCT_VERSION`: the size, with the version in the bits above it.
const fn struct_version<T>(version: u32) -> u32 {
    // The size of each of these structs fits into 24 bits.
    size_of::<T>() as u32 | version << 24
}

/// Converts a counter. The driver returns all ones for a counter that it does not have.
fn counter_value(count: u64) -> Reading<u64> {
    match count {
        u64::MAX => Reading::failed("NVML returned no value for the counter"),
        count => Reading::Present(count),
    }
}

/// The sum of two counters.
fn counter_sum(first: u64, second: u64) -> Reading<u64> {
    let second = counter_value(second);
    let sum = counter_value(first).and_then(|first| second.map(|second| first.checked_add(second)));
    sum.and_then(|sum| counter_value(sum.unwrap_or(u64::MAX)))
}

fn field(value: &nvml::nvmlFieldValue_t) -> Result<i64, Code> {
    if value.nvmlReturn != nvml::nvmlReturn_enum_NVML_SUCCESS {
        return Err(Code(value.nvmlReturn));
    }
    // SAFETY: all members are plain numbers that start at the same byte, and the union was initialised as its longest
    // member, so each member may be read.
    #[expect(unsafe_code, reason = "the value is a C union")]
    let number = unsafe {
        match value.valueType {
            nvml::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => value.value.siVal.into(),
            nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => value.value.uiVal.into(),
            nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => value.value.usVal.into(),
            nvml::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => value.value.sllVal,
            nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG
            | nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => {
                i64::try_from(value.value.ullVal).unwrap_or(i64::MAX)
            }
            _ => return Err(Code(nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED)),
        }
    };
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_counter_is_unknown() {
        assert_eq!(counter_sum(2, 3), Reading::Present(5));
        for (one, other) in [
            (u64::MAX, 0),
            (0, u64::MAX),
            (u64::MAX, 1),
            (u64::MAX - 1, 2),
        ] {
            assert!(!counter_sum(one, other).is_known(), "{one} {other}");
        }
        assert_eq!(super::counter_value(7), Reading::Present(7));
        assert!(!super::counter_value(u64::MAX).is_known());
    }
}
