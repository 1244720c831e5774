//! Live values of one GPU; none of them enters a digest.

use super::raw::{Code, FabricInfo, RawDevice, reading};
use super::{KeyedReadings, number, to_reading};
use lattice_conformance::{Reading, Value};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::field_id;

/// Fills all vitals except NVLink.
pub(super) fn describe(device: &Device<'_>, raw: RawDevice<'_>, vitals: &mut KeyedReadings) {
    temperatures(device, raw, vitals);
    power(device, vitals);
    memory_errors(device, raw, vitals);
    clocks(device, raw, vitals);
    pcie_link(device, vitals);
    load(device, raw, vitals);
    fabric(raw.fabric(), vitals);
}

/// Temperatures in degrees Celsius. `temperature_limit.<name>` is the temperature at which the board acts. Some boards
/// report instead the remaining degrees, `temperature_margin`, and limits of them, `temperature_margin_limit.<name>`.
fn temperatures(device: &Device<'_>, raw: RawDevice<'_>, vitals: &mut KeyedReadings) {
    vitals.put(
        "temperature",
        number(device.temperature(TemperatureSensor::Gpu)),
    );
    let [memory, shutdown, slowdown, memory_most, most] = raw.fields([
        field_id::NVML_FI_DEV_MEMORY_TEMP,
        field_id::NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT,
        field_id::NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT,
        field_id::NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT,
        field_id::NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT,
    ]);
    let mut field = |key: &str, value| vitals.put(key, reading(value).map(Value::Number));
    field("temperature.memory", memory);
    field("temperature_margin_limit.shutdown", shutdown);
    field("temperature_margin_limit.slowdown", slowdown);
    field("temperature_margin_limit.memory", memory_most);
    field("temperature_margin_limit.operating", most);
    vitals.put(
        "temperature_margin",
        reading(raw.margin_temperature()).map(|margin| Value::Number(margin.into())),
    );
    let limits = [
        (
            "shutdown",
            nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
        ),
        (
            "slowdown",
            nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        ),
        (
            "memory",
            nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
        ),
        (
            "operating",
            nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
        ),
    ];
    for (name, which) in limits {
        vitals.put(
            &format!("temperature_limit.{name}"),
            reading(raw.threshold(which)),
        );
    }
}

/// Power in milliwatts and energy in millijoules, as in NVML.
fn power(device: &Device<'_>, vitals: &mut KeyedReadings) {
    vitals.put("power.draw", number(device.power_usage()));
    vitals.put("power.limit", number(device.power_management_limit()));
    vitals.put(
        "power.enforced_limit",
        number(device.enforced_power_limit()),
    );
    vitals.put(
        "energy",
        to_reading(device.total_energy_consumption()).map(Value::amount),
    );
}

/// Counters of corrected errors, by the last part of their key: since the driver was loaded, and over the lifetime.
const CORRECTED_COUNTERS: [(&str, u32); 2] = [
    ("corrected", nvml::nvmlEccCounterType_enum_NVML_VOLATILE_ECC),
    (
        "corrected_ever",
        nvml::nvmlEccCounterType_enum_NVML_AGGREGATE_ECC,
    ),
];

fn memory_errors(device: &Device<'_>, raw: RawDevice<'_>, vitals: &mut KeyedReadings) {
    let kinds = [
        ("corrected", MemoryError::Corrected),
        ("uncorrected", MemoryError::Uncorrected),
    ];
    for (kind, error) in kinds {
        for (span, counter) in [
            ("volatile", EccCounter::Volatile),
            ("aggregate", EccCounter::Aggregate),
        ] {
            let count = to_reading(device.total_ecc_errors(error, counter));
            vitals.put(&format!("ecc.{kind}.{span}"), count.map(Value::amount));
        }
    }
    let sram = reading(raw.sram_errors());
    let sram = sram.as_ref();
    let kept = [
        sram.clone().and_then(|sram| sram.corrected.clone()),
        sram.clone()
            .and_then(|sram| sram.corrected_aggregate.clone()),
    ];
    for ((span, counter), kept) in CORRECTED_COUNTERS.into_iter().zip(kept) {
        let corrected = nvml::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED;
        let at = |place| raw.memory_errors(corrected, counter, place);
        // Drivers without the SRAM status call report the SRAM count only through this call.
        let sram = match kept {
            Reading::Unsupported => at(nvml::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_SRAM),
            kept => kept,
        };
        let dram = at(nvml::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_DRAM);
        vitals.put(&format!("ecc.sram.{span}"), sram.map(Value::amount));
        vitals.put(&format!("ecc.dram.{span}"), dram.map(Value::amount));
    }
    vitals.put(
        "ecc.sram.uncorrected",
        sram.clone()
            .and_then(|sram| sram.uncorrected.clone().map(Value::amount)),
    );
    vitals.put(
        "ecc.sram.uncorrected_ever",
        sram.clone()
            .and_then(|sram| sram.uncorrected_aggregate.clone().map(Value::amount)),
    );
    vitals.put(
        "ecc.sram.threshold_exceeded",
        sram.map(|sram| sram.threshold_exceeded),
    );
    let rows = reading(raw.remapped_rows());
    let rows = rows.as_ref();
    vitals.put(
        "remapped_rows.correctable",
        rows.clone().map(|r| r.correctable),
    );
    vitals.put(
        "remapped_rows.uncorrectable",
        rows.clone().map(|r| r.uncorrectable),
    );
    vitals.put("remapped_rows.pending", rows.clone().map(|r| r.pending));
    vitals.put("remapped_rows.failure", rows.map(|r| r.failure));
    let single =
        nvml::nvmlPageRetirementCause_enum_NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS;
    let double = nvml::nvmlPageRetirementCause_enum_NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR;
    let [single, double] = [single, double].map(|cause| reading(raw.retired_pages(cause)));
    let total = single.clone().and_then(|single| {
        let both = double.clone();
        both.map(|double| single.saturating_add(double))
    });
    vitals.put("retired_pages.single_bit", single);
    vitals.put("retired_pages.double_bit", double);
    vitals.put("retired_pages.total", total);
    vitals.put(
        "retired_pages.pending",
        to_reading(device.are_pages_pending_retired()),
    );
}

/// Reasons for lowered clocks, by bit.
const EVENT_REASONS: [(u32, &str); 9] = [
    (nvml::nvmlClocksEventReasonGpuIdle, "idle"),
    (
        nvml::nvmlClocksEventReasonApplicationsClocksSetting,
        "application_clocks",
    ),
    (nvml::nvmlClocksEventReasonSwPowerCap, "sw_power_cap"),
    (nvml::nvmlClocksThrottleReasonHwSlowdown, "hw_slowdown"),
    (nvml::nvmlClocksEventReasonSyncBoost, "sync_boost"),
    (nvml::nvmlClocksEventReasonSwThermalSlowdown, "sw_thermal"),
    (
        nvml::nvmlClocksThrottleReasonHwThermalSlowdown,
        "hw_thermal",
    ),
    (
        nvml::nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        "hw_power_brake",
    ),
    (
        nvml::nvmlClocksEventReasonDisplayClockSetting,
        "display_clock",
    ),
];

/// Names of the set bits; a bit without a name is named by its number.
fn reasons(mask: u64) -> Value {
    let named = |bit: u32| {
        let known = EVENT_REASONS
            .iter()
            .find(|(value, _)| u64::from(*value) == 1 << bit);
        known.map_or_else(|| format!("bit_{bit}"), |(_, name)| (*name).to_owned())
    };
    let set = (0..u64::BITS).filter(|bit| mask >> bit & 1 == 1);
    Value::List(set.map(named).collect())
}

fn clocks(device: &Device<'_>, raw: RawDevice<'_>, vitals: &mut KeyedReadings) {
    // As nvml.h's bits for health checks, and by name for operators.
    let mask = reading(raw.clock_event_reasons());
    vitals.put(
        "clocks.event_reasons",
        mask.as_ref().map(|mask| Value::amount(*mask)),
    );
    vitals.put("clocks.events", mask.map(reasons));
    for (name, clock) in [
        ("graphics", Clock::Graphics),
        ("sm", Clock::SM),
        ("memory", Clock::Memory),
    ] {
        vitals.put(
            &format!("clock.{name}.now"),
            super::clock(device.clock_info(clock)),
        );
    }
    vitals.put(
        "performance_state",
        to_reading(device.performance_state()).map(|state| state.as_c()),
    );
}

fn pcie_link(device: &Device<'_>, vitals: &mut KeyedReadings) {
    vitals.put("pcie.generation", number(device.current_pcie_link_gen()));
    vitals.put("pcie.width", number(device.current_pcie_link_width()));
    vitals.put("pcie.replays", number(device.pcie_replay_counter()));
}

/// Utilisation in percent of the last sample period, and used memory in bytes.
fn load(device: &Device<'_>, raw: RawDevice<'_>, vitals: &mut KeyedReadings) {
    let rates = to_reading(device.utilization_rates());
    vitals.put("utilization.gpu", rates.as_ref().map(|rates| rates.gpu));
    vitals.put("utilization.memory", rates.map(|rates| rates.memory));
    vitals.put(
        "memory.used",
        reading(raw.memory()).map(|(_, used)| Value::amount(used)),
    );
}

/// State and status of the fabric. The state *completed* alone does not mean that the fabric works.
fn fabric(info: Result<FabricInfo, Code>, vitals: &mut KeyedReadings) {
    let info = reading(info);
    let state = info.as_ref().and_then(|info| {
        let names = ["", "not_started", "in_progress", "completed"];
        match info.state {
            // The driver's value for a board without a fabric.
            0 => Reading::Unsupported,
            known @ 1..=3 => Reading::Present(names[usize::from(known)].to_owned()),
            other => Reading::Present(format!("state_{other}")),
        }
    });
    // Before registration completes, there is no status.
    let status = info.as_ref().and_then(|info| match info.state {
        3 => Reading::Present(Code(info.status).name()),
        _ => Reading::Unsupported,
    });
    vitals.put("fabric.state", state);
    vitals.put("fabric.status", status);
    vitals.put("fabric.health", info.as_ref().and_then(summary));
    let mask = info.and_then(|info| match (info.state, info.health_mask) {
        (1.., Some(mask)) => Reading::Present(mask),
        _ => Reading::Unsupported,
    });
    for (name, shift) in [
        (
            "degraded_bandwidth",
            nvml::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW,
        ),
        (
            "route_recovery",
            nvml::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY,
        ),
        (
            "route_unhealthy",
            nvml::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY,
        ),
        (
            "access_timeout_recovery",
            nvml::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY,
        ),
    ] {
        // Two bits each: 0 is "not supported", 1 is yes, 2 is no.
        let flag = mask.as_ref().and_then(|mask| match mask >> shift & 0b11 {
            1 => Reading::Present(true),
            2 => Reading::Present(false),
            _ => Reading::Unsupported,
        });
        vitals.put(&format!("fabric.{name}"), flag);
    }
    vitals.put("fabric.misconfigured", mask.and_then(misconfigured));
}

fn summary(info: &FabricInfo) -> Reading<Value> {
    match info.summary.map(u32::from) {
        Some(nvml::NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY) => Reading::Present("healthy".into()),
        Some(nvml::NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY) => {
            Reading::Present("unhealthy".into())
        }
        Some(nvml::NVML_GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY) => {
            Reading::Present("limited_capacity".into())
        }
        _ => Reading::Unsupported,
    }
}

fn misconfigured(mask: u32) -> Reading<Value> {
    let kind = mask >> nvml::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION
        & nvml::NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION;
    match kind {
        nvml::NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NOT_SUPPORTED => {
            Reading::Unsupported
        }
        nvml::NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE => {
            Reading::Present("no".into())
        }
        nvml::NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_INCORRECT_SYSGUID => {
            Reading::Present("system guid".into())
        }
        nvml::NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_INCORRECT_CHASSIS_SN => {
            Reading::Present("chassis serial".into())
        }
        nvml::NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NO_PARTITION => {
            Reading::Present("no partition".into())
        }
        nvml::NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_INSUFFICIENT_NVLINKS => {
            Reading::Present("insufficient nvlinks".into())
        }
        other => Reading::Present(Value::Text(format!("kind {other}"))),
    }
}
