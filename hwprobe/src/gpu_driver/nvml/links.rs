//! NVLink: number and features of links (conformance), their state (vitals) and their far ends (topology).

use super::raw::{Code, RawDevice, reading};
use super::{KeyedReadings, without_value};
use crate::gpu_driver::LinkReport;
use crate::pci;
use lattice_conformance::{Reading, Value};
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::field_id;

/// Maximum number of links queried per device; the largest GPU so far has 18.
const MAX_NVLINKS: u32 = 36;

/// Error counters of a link: last part of the key, and NVML's counter.
const ERRORS: [(&str, u32); 4] = [
    (
        "replay",
        nvml::nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_REPLAY,
    ),
    (
        "recovery",
        nvml::nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_RECOVERY,
    ),
    (
        "crc_flit",
        nvml::nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_CRC_FLIT,
    ),
    (
        "crc_data",
        nvml::nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_CRC_DATA,
    ),
];

/// Error counters of NVLink 5 (Blackwell): NVML's fields with the link as scope.
const COUNTS: [(&str, u32); 4] = [
    (
        "effective",
        field_id::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
    ),
    ("symbol", field_id::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS),
    (
        "link_recovery",
        field_id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
    ),
    (
        "link_recovery_failed",
        field_id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
    ),
];

/// Bit error rates of NVLink 5.
const RATES: [(&str, u32); 2] = [
    (
        "effective",
        field_id::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER,
    ),
    ("symbol", field_id::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER),
];

const CAPABILITIES: [(&str, u32); 5] = [
    (
        "p2p",
        nvml::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_P2P_SUPPORTED,
    ),
    (
        "sysmem",
        nvml::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_SYSMEM_ACCESS,
    ),
    (
        "p2p_atomics",
        nvml::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_P2P_ATOMICS,
    ),
    (
        "sysmem_atomics",
        nvml::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_SYSMEM_ATOMICS,
    ),
    (
        "sli_bridge",
        nvml::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_SLI_BRIDGE,
    ),
];

/// The links of a board.
struct Links {
    numbers: Vec<u32>,
    version: Reading<u32>,
    /// Error code of the first missing link.
    first_missing_code: Option<Code>,
}

/// A link exists if the driver returns its version or its state.
fn find_links(raw: RawDevice<'_>) -> Links {
    let mut links = Links {
        numbers: Vec::new(),
        version: Reading::Unsupported,
        first_missing_code: None,
    };
    for link in 0..MAX_NVLINKS {
        let version = raw.link_version(link);
        match version.or_else(|_| raw.link_active(link).map(u32::from)) {
            Ok(_) => {
                links.numbers.push(link);
                if let Ok(version) = version {
                    links.version = Reading::Present(version);
                } else if links.version.present().is_none() {
                    links.version = reading(version);
                }
            }
            // Past the last link of the chip.
            Err(Code(nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)) => break,
            // A board may omit some of its chip's links, including the first ones.
            Err(code) => {
                links.first_missing_code.get_or_insert(code);
            }
        }
    }
    links
}

/// Fills conformance values and vitals, and returns the far end of each link. `is_mig`: the GPU is partitioned.
pub(super) fn describe(
    raw: RawDevice<'_>,
    is_mig: bool,
    values: &mut KeyedReadings,
    vitals: &mut KeyedReadings,
) -> Vec<LinkReport> {
    let links = find_links(raw);
    let none = || match links.first_missing_code {
        Some(code) => reading::<Value>(Err(code)),
        None => Reading::Unsupported,
    };
    if links.numbers.is_empty() {
        for key in ["nvlink.links", "nvlink.version", "nvlink.capabilities"] {
            values.put(key, none());
        }
        return Vec::new();
    }
    let count = u32::try_from(links.numbers.len()).unwrap_or(u32::MAX);
    values.put("nvlink.links", Reading::Present(count));
    values.put("nvlink.version", links.version.map(version_name));
    values.put("nvlink.capabilities", capabilities(raw, &links.numbers));
    health(raw, is_mig, &links.numbers, vitals);
    links
        .numbers
        .iter()
        .map(|link| remote_end(raw, *link))
        .collect()
}

/// Capabilities common to all links of the board; if one of them cannot be read, the state of that reading.
fn capabilities(raw: RawDevice<'_>, links: &[u32]) -> Reading<Value> {
    let mut common = Vec::new();
    for (name, capability) in CAPABILITIES {
        let mut all = true;
        for link in links {
            match reading(raw.link_can(*link, capability)) {
                Reading::Present(can) => all &= can,
                unknown => return without_value(&unknown),
            }
        }
        if all {
            common.push(name.to_owned());
        }
    }
    Reading::Present(Value::List(common))
}

fn health(raw: RawDevice<'_>, is_mig: bool, links: &[u32], vitals: &mut KeyedReadings) {
    let mut active = Reading::Present(0_u32);
    for link in links {
        let is_active = reading(raw.link_active(*link));
        active = match (active, &is_active) {
            (Reading::Present(count), Reading::Present(up)) => {
                Reading::Present(count + u32::from(*up))
            }
            // If one link is unknown, the sum is unknown.
            (Reading::Present(_), unknown) => unknown.clone().and_then(|_| Reading::Absent),
            (unknown, _) => unknown,
        };
        let word = is_active.and_then(|up| match up {
            true => Reading::Present("active"),
            // An A100 takes its links down in MIG mode, so their state is unknown and not a fault.
            false if is_mig => Reading::disabled("MIG mode is on"),
            false => Reading::Present("inactive"),
        });
        vitals.put(&format!("nvlink.{link}.state"), word);
        for (name, counter) in ERRORS {
            let count = reading(raw.link_errors(*link, counter)).map(Value::amount);
            vitals.put(&format!("nvlink.{link}.errors.{name}"), count);
        }
        error_rates(raw, *link, vitals);
    }
    vitals.put("nvlink.active", active);
}

fn error_rates(raw: RawDevice<'_>, link: u32, vitals: &mut KeyedReadings) {
    let counts = raw.fields_of(link, COUNTS.map(|(_, id)| id));
    for ((name, _), count) in COUNTS.iter().zip(counts) {
        let count = reading(count).map(Value::Number);
        vitals.put(&format!("nvlink.{link}.errors.{name}"), count);
    }
    let rates = raw.fields_of(link, RATES.map(|(_, id)| id));
    for ((name, _), rate) in RATES.iter().zip(rates) {
        let rate = reading(rate).map(|packed| Value::Number(errors_per_exabit(packed)));
        vitals.put(&format!("nvlink.{link}.bit_error_rate.{name}"), rate);
    }
}

/// Unpacks a bit error rate, `mantissa * 10^-exponent`, into errors per 10^18 bits, a comparable integer. The driver
/// reports zero as its smallest rate, 15 * 10^-255.
fn errors_per_exabit(packed: i64) -> i64 {
    const SCALE: u32 = 18;
    let part = |shift: u32, width: u32| packed >> shift & i64::from(width);
    let mantissa = part(
        nvml::NVML_NVLINK_BER_MANTISSA_SHIFT,
        nvml::NVML_NVLINK_BER_MANTISSA_WIDTH,
    );
    let exponent = part(
        nvml::NVML_NVLINK_BER_EXP_SHIFT,
        nvml::NVML_NVLINK_BER_EXP_WIDTH,
    );
    let exponent = u32::try_from(exponent).unwrap_or(u32::MAX);
    match SCALE.checked_sub(exponent) {
        Some(up) => mantissa.saturating_mul(10_i64.pow(up)),
        None => {
            let down = 10_i64.checked_pow(exponent - SCALE);
            down.map_or(0, |down| mantissa / down)
        }
    }
}

fn remote_end(raw: RawDevice<'_>, link: u32) -> LinkReport {
    let kind = reading(raw.link_remote_kind(link)).and_then(|kind| match kind {
        nvml::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => word("gpu"),
        nvml::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_IBMNPU => word("cpu"),
        nvml::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => word("switch"),
        _ => Reading::Unsupported,
    });
    LinkReport {
        link,
        kind,
        remote: reading(raw.link_remote(link)).and_then(|remote| pci::address(&remote.bus_id)),
    }
}

fn word(word: &str) -> Reading<String> {
    Reading::Present(word.to_owned())
}

/// Public NVLink version of a generation that NVML numbers from 1.
fn version_name(number: u32) -> Value {
    const VERSIONS: [&str; 7] = ["1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0"];
    let known = usize::try_from(number)
        .ok()
        .and_then(|number| VERSIONS.get(number.checked_sub(1)?));
    known.map_or(Value::from(number), |&version| Value::from(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_error_rates_are_unpacked_into_a_number_that_can_be_compared() {
        let packed = |mantissa: i64, exponent: i64| mantissa << 8 | exponent;
        for (mantissa, exponent, errors) in [
            (15, 255, 0),
            (0, 0, 0),
            (1, 12, 1_000_000),
            (11, 13, 1_100_000),
            (2, 12, 2_000_000),
            (1, 18, 1),
            (15, 19, 1),
            (9, 19, 0),
            (15, 37, 0),
            (9, 0, 9_000_000_000_000_000_000),
            (15, 0, i64::MAX),
        ] {
            let found = errors_per_exabit(packed(mantissa, exponent));
            assert_eq!(found, errors, "{mantissa} * 10^-{exponent}");
        }
        // Bits outside the two fields are ignored.
        assert_eq!(errors_per_exabit(1 << 20 | packed(1, 12)), 1_000_000);
        assert_eq!(errors_per_exabit(-1), 0);
    }
}
