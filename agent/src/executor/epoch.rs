//! Highest lease epoch of all dispatchers: fences stale dispatchers, also after a restart of the agent.
//!
//! A new epoch is held in memory as soon as it is received, and on disk as soon as a write succeeds.
//!
//! A quorum restored from a backup may count from a lower epoch. An operator then stops the agent and moves
//! `epoch.json` away; the epoch of the next dispatcher becomes the highest.

use crate::attempt::{RecordError, write_durably_from_reserve};
use lattice_agent_rpc::LaunchRefused;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct EpochFile {
    version: u32,
    highest: u64,
}

/// Highest lease epoch received.
#[derive(Debug)]
pub(super) struct HighestEpoch {
    path: PathBuf,
    highest: u64,
    /// Epoch that is on disk.
    written: u64,
    /// Last rejected epoch: an immediate repeat of it is not logged.
    refused: Option<u64>,
}

impl HighestEpoch {
    /// Reads the epoch from disk; 0 if none is recorded.
    pub(super) fn open(path: PathBuf) -> Result<Self, RecordError> {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::new(path, 0));
            }
            Err(source) => return Err(RecordError::Io { path, source }),
        };
        match serde_json::from_slice::<EpochFile>(&bytes) {
            Ok(file) if file.version == FORMAT => Ok(Self::new(path, file.highest)),
            Ok(file) => Err(RecordError::OtherFormat {
                path,
                found: file.version,
            }),
            Err(source) => Err(RecordError::DamagedEpoch { path, source }),
        }
    }

    fn new(path: PathBuf, highest: u64) -> Self {
        Self {
            path,
            highest,
            written: highest,
            refused: None,
        }
    }

    /// Rejects a stale epoch and keeps a new one in memory: sufficient to end a rank, not to start one.
    pub(super) fn accept(&mut self, given: u64) -> Result<(), LaunchRefused> {
        let current = self.highest;
        if given >= current {
            self.highest = given;
            return Ok(());
        }
        if self.refused.replace(given) != Some(given) {
            tracing::warn!(
                given,
                current,
                "stale lease epoch refused; if the quorum was restored from a backup, stop the \
                 agent, move {} away and start it again",
                self.path.display()
            );
        }
        Err(LaunchRefused::StaleEpoch { given, current })
    }

    /// Writes the highest epoch durably; no rank starts under an epoch before this. Blocks on the disk.
    pub(super) fn write(&mut self) -> Result<(), RecordError> {
        if self.written == self.highest {
            return Ok(());
        }
        let file = EpochFile {
            version: FORMAT,
            highest: self.highest,
        };
        let written = serde_json::to_vec(&file)
            .map_err(io::Error::from)
            .and_then(|bytes| write_durably_from_reserve(&self.path, &bytes));
        written.map_err(|source| RecordError::Io {
            path: self.path.clone(),
            source,
        })?;
        self.written = self.highest;
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
        epoch.accept(5).unwrap();
        epoch.accept(5).unwrap();
        epoch.write().unwrap();
        let mut again = HighestEpoch::open(path.clone()).unwrap();
        assert_eq!(
            again.accept(4),
            Err(LaunchRefused::StaleEpoch {
                given: 4,
                current: 5
            })
        );
        again.accept(6).unwrap();
        std::fs::write(&path, br#"{"version":9,"highest":1}"#).unwrap();
        assert!(matches!(
            HighestEpoch::open(path),
            Err(RecordError::OtherFormat { found: 9, .. })
        ));
    }

    #[test]
    fn what_cannot_be_written_still_counts_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        let mut epoch = HighestEpoch::open(gone.join("epoch.json")).unwrap();
        epoch.accept(7).unwrap();
        assert!(epoch.write().is_err());
        assert!(matches!(
            epoch.accept(6),
            Err(LaunchRefused::StaleEpoch { current: 7, .. })
        ));
        std::fs::create_dir(&gone).unwrap();
        epoch.write().unwrap();
        let again = HighestEpoch::open(gone.join("epoch.json")).unwrap();
        assert_eq!(again.highest, 7);
    }

    #[test]
    fn damaged_file_names_remedy_and_restarts_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch.json");
        std::fs::write(&path, br#"{"version":1,"hig"#).unwrap();
        let error = HighestEpoch::open(path.clone()).unwrap_err();
        assert!(matches!(error, RecordError::DamagedEpoch { .. }));
        assert!(error.to_string().contains("move this file away"), "{error}");
        std::fs::rename(&path, folder.path().join("epoch.json.old")).unwrap();
        HighestEpoch::open(path).unwrap().accept(2).unwrap();
    }
}
