//! The highest epoch a dispatcher has spoken with, on disk: an older dispatcher is refused also
//! after the agent was restarted.

use crate::attempt::{RecordError, write_durably};
use lattice_quorum_types::wire::LaunchRefused;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    highest: u64,
}

/// The highest epoch seen.
#[derive(Debug)]
pub(super) struct HighestEpoch {
    path: PathBuf,
    highest: u64,
}

impl HighestEpoch {
    /// Reads it; 0 where none was recorded.
    pub(super) fn open(path: PathBuf) -> Result<Self, RecordError> {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, highest: 0 });
            }
            Err(source) => return Err(RecordError::Io { path, source }),
        };
        match serde_json::from_slice::<File>(&bytes) {
            Ok(file) if file.version <= FORMAT => Ok(Self {
                path,
                highest: file.highest,
            }),
            Ok(file) => Err(RecordError::Newer {
                path,
                found: file.version,
            }),
            Err(source) => Err(RecordError::Damaged { path, source }),
        }
    }

    /// Refuses what is over; remembers, durably, what is new. Blocks on the disk.
    pub(super) fn admit(&mut self, given: u64) -> Result<(), LaunchRefused> {
        if given < self.highest {
            return Err(LaunchRefused::StaleEpoch {
                given,
                current: self.highest,
            });
        }
        if given > self.highest {
            let file = File {
                version: FORMAT,
                highest: given,
            };
            let written = serde_json::to_vec(&file)
                .map_err(io::Error::from)
                .and_then(|bytes| write_durably(&self.path, &bytes));
            written.map_err(|error| LaunchRefused::JournalFailed {
                reason: format!("{}: {error}", self.path.display()),
            })?;
            self.highest = given;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_lower_epoch_is_refused_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch.json");
        let mut epoch = HighestEpoch::open(path.clone()).unwrap();
        epoch.admit(5).unwrap();
        epoch.admit(5).unwrap();
        let mut again = HighestEpoch::open(path.clone()).unwrap();
        assert_eq!(
            again.admit(4),
            Err(LaunchRefused::StaleEpoch {
                given: 4,
                current: 5
            })
        );
        again.admit(6).unwrap();
        std::fs::write(&path, br#"{"version":9,"highest":1}"#).unwrap();
        assert!(matches!(
            HighestEpoch::open(path),
            Err(RecordError::Newer { found: 9, .. })
        ));
    }
}
