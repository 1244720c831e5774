//! What a request says of itself beside its nodes: what its place in the queue is weighed by.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What work needs, and how ready it is, by the word of who submits it. Whole numbers: they are
/// replicated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demand {
    /// The part of its input data that is on the hot tier, millionths: [`Demand::WHOLE_PPM`] at most.
    /// `None`: not known.
    pub data_ready_ppm: Option<u32>,
    /// How long it takes to write a checkpoint, milliseconds: from 1 to
    /// [`Demand::MAX_CHECKPOINT_MS`]. `None`: as its GPUs' memory makes it.
    pub checkpoint_ms: Option<u64>,
    /// Bandwidth that the whole of it needs of storage systems while it runs, MB/s (millions of bytes a
    /// second) by the system's name.
    pub storage_mb_s: BTreeMap<String, u64>,
}

impl Demand {
    /// All of the input data.
    pub const WHOLE_PPM: u32 = 1_000_000;
    /// Longest time for a checkpoint, milliseconds (7 days): longer than any walltime that one would be
    /// written in.
    pub const MAX_CHECKPOINT_MS: u64 = 7 * 24 * 3_600_000;
    /// Most storage systems that one request names.
    pub const MAX_SYSTEMS: usize = 16;
    /// Longest name of a storage system, bytes.
    pub const MAX_SYSTEM_BYTES: usize = 64;
    /// Most bandwidth of one system, MB/s (1 EB/s): sums over a whole queue stay far from an overflow.
    pub const MAX_MB_S: u64 = 1_000_000_000_000;

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether what is said can be: the first field that cannot.
    ///
    /// # Errors
    /// Which field, and why.
    pub fn check(&self) -> Result<(), InvalidDemand> {
        if let Some(ppm) = self.data_ready_ppm.filter(|ppm| *ppm > Self::WHOLE_PPM) {
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

/// Names of storage systems are written as those of nodes and vClusters are.
fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=Demand::MAX_SYSTEM_BYTES).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(inner)
}

/// What of a [`Demand`] cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDemand {
    /// More than all of it.
    #[error(
        "{ppm} millionths are more than the whole; {} at most",
        Demand::WHOLE_PPM
    )]
    DataReady {
        /// As given.
        ppm: u32,
    },
    /// None, or longer than any.
    #[error(
        "{ms} ms is no time that a checkpoint takes; from 1 to {}, or leave it out",
        Demand::MAX_CHECKPOINT_MS
    )]
    Checkpoint {
        /// As given.
        ms: u64,
    },
    /// More storage systems than one request may name.
    #[error("{given} storage systems are named; {} at most", Demand::MAX_SYSTEMS)]
    TooManySystems {
        /// How many.
        given: usize,
    },
    /// No name of a storage system.
    #[error(
        "{system:?} is no name of a storage system: 1 to {} letters, digits, '.', '_' and '-', a letter or \
         digit first",
        Demand::MAX_SYSTEM_BYTES
    )]
    System {
        /// As given.
        system: String,
    },
    /// Nothing, or more than there is.
    #[error(
        "{mb_s} MB/s of {system}: from 1 to {}, or leave the system out",
        Demand::MAX_MB_S
    )]
    Bandwidth {
        /// Of which system.
        system: String,
        /// As given.
        mb_s: u64,
    },
}

impl InvalidDemand {
    /// The field of [`Demand`].
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
            ready(Demand::WHOLE_PPM),
            checkpoint(1),
            checkpoint(Demand::MAX_CHECKPOINT_MS),
            many(Demand::MAX_SYSTEMS),
            storage(&"a".repeat(Demand::MAX_SYSTEM_BYTES), 1),
            storage("scratch-2.fast_tier", Demand::MAX_MB_S),
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for (bad, field, part) in [
            (ready(Demand::WHOLE_PPM + 1), "data_ready_ppm", "1000001"),
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
