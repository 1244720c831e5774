//! Demand of an allocation in addition to nodes: input data, checkpoint time and storage bandwidth, as scheduling
//! weights use them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Resource demand and data readiness of an allocation, as stated by the user. Whole numbers, because they are
/// replicated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demand {
    /// Part of the input data that is on the hot tier, millionths, at most [`Demand::ONE_PPM`]. `None`: not known.
    pub data_ready_ppm: Option<u32>,
    /// Time to write a checkpoint, milliseconds: from 1 to [`Demand::MAX_CHECKPOINT_MS`]. `None`: derived from the
    /// memory of the GPUs.
    pub checkpoint_ms: Option<u64>,
    /// Storage bandwidth of the whole allocation while it runs, MB/s (millions of bytes a second), by name of the
    /// storage system.
    pub storage_mb_s: BTreeMap<String, u64>,
}

impl Demand {
    /// All of the input data.
    pub const ONE_PPM: u32 = 1_000_000;
    /// Longest time for a checkpoint, milliseconds (7 days). It exceeds any walltime in which a checkpoint would be
    /// written.
    pub const MAX_CHECKPOINT_MS: u64 = 7 * 24 * 3_600_000;
    /// Largest number of storage systems in one request.
    pub const MAX_SYSTEMS: usize = 16;
    /// Longest name of a storage system, bytes.
    pub const MAX_SYSTEM_BYTES: usize = 64;
    /// Largest bandwidth of one system, MB/s (1 EB/s). Sums over a whole queue stay far from an overflow.
    pub const MAX_MB_S: u64 = 1_000_000_000_000;

    /// Checks whether no demand is stated.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the ranges of all fields.
    ///
    /// # Errors
    /// The first invalid field, with the reason.
    pub fn check(&self) -> Result<(), InvalidDemand> {
        if let Some(ppm) = self.data_ready_ppm.filter(|ppm| *ppm > Self::ONE_PPM) {
            return Err(InvalidDemand::DataReady { ppm });
        }
        let bad = |ms: &u64| *ms == 0 || *ms > Self::MAX_CHECKPOINT_MS;
        if let Some(ms) = self.checkpoint_ms.filter(bad) {
            return Err(InvalidDemand::Checkpoint { ms });
        }
        let given = self.storage_mb_s.len();
        if given > Self::MAX_SYSTEMS {
            return Err(InvalidDemand::TooManySystems { given });
        }
        for (system, mb_s) in &self.storage_mb_s {
            let system = || system.clone();
            if !is_name(&system()) {
                return Err(InvalidDemand::System { system: system() });
            }
            if *mb_s == 0 || *mb_s > Self::MAX_MB_S {
                let mb_s = *mb_s;
                return Err(InvalidDemand::Bandwidth {
                    system: system(),
                    mb_s,
                });
            }
        }
        Ok(())
    }
}

/// Checks a storage system's name, which has the form of node and vCluster names.
fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=Demand::MAX_SYSTEM_BYTES).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(inner)
}

/// Reasons why a [`Demand`] is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDemand {
    /// More than all of the input data.
    #[error(
        "{ppm} millionths are more than the whole; use {} at most",
        Demand::ONE_PPM
    )]
    DataReady {
        /// Value as given, millionths.
        ppm: u32,
    },
    /// A checkpoint time of 0, or above the limit.
    #[error(
        "{ms} ms is not a valid checkpoint time; use 1 to {}, or omit it",
        Demand::MAX_CHECKPOINT_MS
    )]
    Checkpoint {
        /// Value as given, milliseconds.
        ms: u64,
    },
    /// More storage systems than one request may name.
    #[error("{given} storage systems are named; {} at most", Demand::MAX_SYSTEMS)]
    TooManySystems {
        /// Number of storage systems.
        given: usize,
    },
    /// The name of a storage system is invalid.
    #[error(
        "{system:?} is not a valid storage system name: use 1 to {} letters, digits, '.', '_' and \
         '-', a letter or digit first",
        Demand::MAX_SYSTEM_BYTES
    )]
    System {
        /// Name as given.
        system: String,
    },
    /// A bandwidth of 0, or above the limit.
    #[error(
        "{mb_s} MB/s of {system} is not a valid rate; use 1 to {}, or omit the system",
        Demand::MAX_MB_S
    )]
    Bandwidth {
        /// Name of the storage system.
        system: String,
        /// Value as given, MB/s.
        mb_s: u64,
    },
}

impl InvalidDemand {
    /// Name of the invalid field of [`Demand`].
    pub fn field(&self) -> &'static str {
        match self {
            Self::DataReady { .. } => "data_ready_ppm",
            Self::Checkpoint { .. } => "checkpoint_ms",
            Self::TooManySystems { .. } | Self::System { .. } | Self::Bandwidth { .. } => {
                "storage_mb_s"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn storage(name: &str, mb_s: u64) -> Demand {
        Demand {
            storage_mb_s: [(name.to_owned(), mb_s)].into(),
            ..Demand::default()
        }
    }

    #[test]
    fn what_cannot_be_is_named_by_its_field() {
        let ready = |ppm| Demand {
            data_ready_ppm: Some(ppm),
            ..Demand::default()
        };
        let checkpoint = |ms| Demand {
            checkpoint_ms: Some(ms),
            ..Demand::default()
        };
        let many = |count: usize| Demand {
            storage_mb_s: (0..count).map(|n| (format!("s{n}"), 1)).collect(),
            ..Demand::default()
        };
        for good in [
            Demand::default(),
            ready(0),
            ready(Demand::ONE_PPM),
            checkpoint(1),
            checkpoint(Demand::MAX_CHECKPOINT_MS),
            many(Demand::MAX_SYSTEMS),
            storage(&"a".repeat(Demand::MAX_SYSTEM_BYTES), 1),
            storage("scratch-2.fast_tier", Demand::MAX_MB_S),
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for (bad, field, part) in [
            (ready(Demand::ONE_PPM + 1), "data_ready_ppm", "1000001"),
            (checkpoint(0), "checkpoint_ms", "0 ms"),
            (
                checkpoint(Demand::MAX_CHECKPOINT_MS + 1),
                "checkpoint_ms",
                "604800001",
            ),
            (many(Demand::MAX_SYSTEMS + 1), "storage_mb_s", "17"),
            (storage("", 1), "storage_mb_s", "\"\""),
            (storage("two words", 1), "storage_mb_s", "two words"),
            (storage("-x", 1), "storage_mb_s", "-x"),
            (storage("ö", 1), "storage_mb_s", "ö"),
            (
                storage(&"a".repeat(Demand::MAX_SYSTEM_BYTES + 1), 1),
                "storage_mb_s",
                "aaa",
            ),
            (storage("scratch", 0), "storage_mb_s", "0 MB/s of scratch"),
            (
                storage("scratch", Demand::MAX_MB_S + 1),
                "storage_mb_s",
                "scratch",
            ),
        ] {
            let error = bad.check().unwrap_err();
            assert_eq!(error.field(), field, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
