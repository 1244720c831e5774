//! Resource demand of a request, and conversion of its units.

use super::{AllocationRequest, FieldError, duration, field_error};
use lattice_quorum_types::spec::{Demand, InvalidDemand};
use std::collections::BTreeMap;

/// MB/s per GB/s.
const MB_IN_GB: f64 = 1_000.0;

/// Text that is not a bandwidth.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a bandwidth; write it like 40GB/s, 500MB/s or 1.5TB/s")]
pub struct InvalidBandwidth {
    /// Text as given.
    pub text: String,
}

/// Bandwidth units and their value in GB/s. The units are decimal, as for storage systems.
const UNITS: [(&str, f64); 3] = [("MB/s", 0.001), ("GB/s", 1.0), ("TB/s", 1_000.0)];

/// Reads a bandwidth such as `40GB/s` and returns it in GB/s.
///
/// # Errors
/// A text without a number above 0 and a unit.
pub fn read_bandwidth(text: &str) -> Result<f64, InvalidBandwidth> {
    let fail = || InvalidBandwidth {
        text: text.to_owned(),
    };
    let read = |(unit, gb_s): (&str, f64)| {
        let digits = text.trim().strip_suffix(unit)?.trim_end();
        // Only digits and a decimal point; other forms of a float, such as `1e3` and `inf`, are rejected.
        let is_plain = digits.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        let value: f64 = digits.parse().ok().filter(|_| is_plain)?;
        Some(value * gb_s).filter(|value| value.is_finite() && *value > 0.0)
    };
    UNITS.into_iter().find_map(read).ok_or_else(fail)
}

/// Formats a bandwidth in GB/s so that [`read_bandwidth`] reads it back.
pub fn write_bandwidth(gb_s: f64) -> String {
    match gb_s {
        below if below < 1.0 => format!("{}MB/s", (below * MB_IN_GB).round()),
        gb_s => format!("{gb_s}GB/s"),
    }
}

fn data_ready_ppm(part: f64) -> Result<u32, FieldError> {
    if !(0.0..=1.0).contains(&part) {
        let reason = format!("{part} is not a valid fraction; it must be a number from 0 to 1");
        return Err(field_error("data_ready")(reason));
    }
    // At most a million, so the cast is exact.
    Ok((part * f64::from(Demand::ONE_PPM)).round() as u32)
}

/// Rounds to the nearest whole MB/s, at least 1.
fn mb_s(system: &str, gb_s: f64) -> Result<u64, FieldError> {
    if !(gb_s.is_finite() && gb_s > 0.0) {
        let reason = format!("{gb_s} GB/s of {system:?}; it must be a number above 0");
        return Err(field_error("storage_gb_s")(reason));
    }
    // The cast saturates; `Demand::check` then rejects the value as too large.
    Ok((gb_s * MB_IN_GB).round().max(1.0) as u64)
}

impl AllocationRequest {
    pub(super) fn demand(&self) -> Result<Demand, FieldError> {
        let systems = self.storage_gb_s.iter();
        let demand = Demand {
            data_ready_ppm: self.data_ready.map(data_ready_ppm).transpose()?,
            checkpoint_ms: (self.checkpoint_time.as_ref())
                .map(|text| duration::parse(text).map_err(field_error("checkpoint_time")))
                .transpose()?,
            storage_mb_s: systems
                .map(|(system, gb_s)| Ok((system.clone(), mb_s(system, *gb_s)?)))
                .collect::<Result<_, FieldError>>()?,
        };
        demand.check().map_err(request_error)?;
        Ok(demand)
    }
}

/// Turns an error about the stored integers into one about the request's field, in the unit of the request.
fn request_error(error: InvalidDemand) -> FieldError {
    match error {
        InvalidDemand::DataReady { .. } => field_error("data_ready")(error),
        InvalidDemand::Checkpoint { ms } => {
            let (given, most) = (
                duration::format(ms),
                duration::format(Demand::MAX_CHECKPOINT_MS),
            );
            field_error("checkpoint_time")(format!("{given} exceeds the maximum of {most}"))
        }
        InvalidDemand::Bandwidth { system, mb_s } => {
            let shown = |mb_s: u64| write_bandwidth(mb_s as f64 / MB_IN_GB);
            let (given, most) = (shown(mb_s), shown(Demand::MAX_MB_S));
            field_error("storage_gb_s")(format!(
                "{given} of {system} exceeds the maximum of {most}"
            ))
        }
        InvalidDemand::TooManySystems { .. } | InvalidDemand::System { .. } => {
            field_error("storage_gb_s")(error)
        }
    }
}

/// Converts a demand to the form of a request: data fraction, checkpoint time, bandwidths.
pub(super) fn to_request_form(
    demand: &Demand,
) -> (Option<f64>, Option<String>, BTreeMap<String, f64>) {
    let part = |ppm| f64::from(ppm) / f64::from(Demand::ONE_PPM);
    let systems = demand.storage_mb_s.iter();
    let storage = systems.map(|(system, mb_s)| (system.clone(), *mb_s as f64 / MB_IN_GB));
    (
        demand.data_ready_ppm.map(part),
        demand.checkpoint_ms.map(duration::format),
        storage.collect(),
    )
}
