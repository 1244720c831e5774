//! Bandwidth that others use on a storage system.
//!
//! A site measures the total traffic of a system, including jobs of this cluster. The traffic of each job is unknown;
//! only the bandwidth granted to it is known. From a number that counts all traffic, control subtracts the bandwidth
//! granted to running allocations at the time of the measurement. The rest counts as used by others. The subtraction
//! happens once, when the number arrives: bandwidth granted later is added separately and is not subtracted again. A
//! job that uses less than its granted bandwidth makes the traffic of others appear smaller by the difference. A site
//! that can separate its clients sets `counts: others`, and nothing is subtracted.

use super::answer::{self, AnswerError};
use crate::{
    scheduling_config::{BandwidthUnit, Counts},
    web_client::FetchError,
};

/// Reason why a source returned no bandwidth.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsedError {
    /// The request failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The reply contains no valid number.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The source has no data.
    #[error("{pointer} is null: the value is unknown")]
    Unknown {
        /// JSON pointer of the number.
        pointer: String,
    },
}

/// Bandwidth in use, in MB/s, rounded up.
pub(crate) fn used(body: &[u8], pointer: &str, unit: BandwidthUnit) -> Result<u64, UsedError> {
    let number = answer::number(body, pointer, "a number of at least 0", |n| n >= 0.0)?;
    let number = number.ok_or_else(|| UsedError::Unknown {
        pointer: pointer.to_owned(),
    })?;
    // A value beyond 64 bits becomes the largest number.
    Ok((number * unit.mb_s()).ceil() as u64)
}

/// Bandwidth used by others, in MB/s; `promised_mb_s` was granted to running allocations at the time of the
/// measurement.
pub(crate) fn others(used_mb_s: u64, counts: Counts, promised_mb_s: u128) -> u64 {
    let ours = u64::try_from(promised_mb_s).unwrap_or(u64::MAX);
    match counts {
        Counts::Others => used_mb_s,
        Counts::All => used_mb_s.saturating_sub(ours),
    }
}
