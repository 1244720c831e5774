//! What others use of a storage system.
//!
//! A site measures a whole system, our jobs' traffic with it; what each of our jobs moves is not known,
//! only what it was promised. So of a number that counts all, what running work was promised when it was
//! measured is taken for ours, and the rest for others'. It is taken off once, when the number comes:
//! what starts later is a promise beside it and takes nothing off it again. Work that moves less than it
//! was promised makes others look smaller by so much; a site that can tell its clients apart says
//! `counts: others`, and nothing is taken off.

use super::{
    answer::{self, AnswerError},
    fetch::FetchError,
};
use crate::config::scheduling::{BandwidthUnit, Counts};

/// Why a source did not say what is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsedError {
    /// It gave nothing.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// It gave something else.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// It does not know.
    #[error("{pointer} is null: it does not know")]
    Unknown {
        /// The place, as a JSON pointer.
        pointer: String,
    },
}

/// What is used, MB/s, rounded up.
pub(crate) fn used(body: &[u8], pointer: &str, unit: BandwidthUnit) -> Result<u64, UsedError> {
    let number = answer::number(body, pointer, "a number of at least 0", |n| n >= 0.0)?;
    let number = number.ok_or_else(|| UsedError::Unknown {
        pointer: pointer.to_owned(),
    })?;
    // What is more than a number of 64 bits holds is the largest.
    Ok((number * unit.mb_s()).ceil() as u64)
}

/// What others use, of what is `used`: `promised` to running work when it was measured.
pub(crate) fn others(used_mb_s: u64, counts: Counts, promised_mb_s: u128) -> u64 {
    let ours = u64::try_from(promised_mb_s).unwrap_or(u64::MAX);
    match counts {
        Counts::Others => used_mb_s,
        Counts::All => used_mb_s.saturating_sub(ours),
    }
}
