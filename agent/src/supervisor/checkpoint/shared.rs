//! Checkpoint mode `shared_memory`: the file that the job maps. All numbers are little endian; offsets in bytes:
//!
//! ```c
//! struct lattice_checkpoint {       /* 4096 bytes */
//!     char     magic[8];            /*  0: "LATTCKPT"                                                        */
//!     uint32_t version;             /*  8: 1                                                                 */
//!     uint32_t reserved;            /* 12: 0                                                                 */
//!     uint32_t requested;           /* 16: supervisor: number of the requested checkpoint; 0: none           */
//!     uint32_t requested_not;       /* 20: supervisor: ~requested; if the two disagree, read again           */
//!     uint32_t acknowledged;        /* 24: job: number of the checkpoint that it has begun                   */
//!     uint32_t completed;           /* 28: job: number of the checkpoint that is complete                    */
//!     uint32_t failed;              /* 32: job: number of the checkpoint that it cannot write                */
//!     uint32_t reserved2;           /* 36: 0                                                                 */
//!     uint64_t heartbeat;           /* 40: job: any change is a sign of life                                 */
//!     char     reserved3[16];       /* 48                                                                    */
//!     char     folder[4032];        /* 64: supervisor, before `requested`: destination folder; ends with NUL */
//! };
//! ```
//!
//! The job uses atomic loads and stores. The supervisor reads and writes the file and does not map it: a job that
//! truncates its file must not end its supervisor (SIGBUS). The kernel may then copy a number byte by byte. The
//! supervisor compares each number of the job with the one expected number. A mixture of the expected and an older
//! number equals the expected one only if the job has stored it. For the number that the job loads, the file also holds
//! the complement.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Length of the file, bytes.
const BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"LATTCKPT";
const VERSION: u32 = 1;
const REQUESTED: u64 = 16;
const ACKNOWLEDGED: u64 = 24;
const FOLDER: u64 = 64;
/// Longest folder path, including its NUL, bytes.
const MAX_FOLDER_BYTES: usize = 4032;

/// Supervisor's side of the file.
#[derive(Debug)]
pub(super) struct SharedFile {
    file: File,
}

/// Numbers that the job has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredNumbers {
    pub(super) acknowledged: u32,
    pub(super) completed: u32,
    pub(super) failed: u32,
    pub(super) heartbeat: u64,
}

impl SharedFile {
    /// Creates the file at `path`, which must not exist.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(MAGIC);
        for number in [VERSION, 0, 0, !0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(BYTES, 0);
        file.write_all_at(&bytes, 0)?;
        Ok(Self { file })
    }

    /// Requests a checkpoint.
    pub(super) fn request(&self, number: u32, folder: &str) -> io::Result<()> {
        let mut text = folder.as_bytes().to_vec();
        text.push(0);
        if text.len() > MAX_FOLDER_BYTES || folder.contains('\0') {
            return Err(io::Error::other(format!(
                "the folder path exceeds {} bytes or contains NUL",
                MAX_FOLDER_BYTES - 1
            )));
        }
        self.file.write_all_at(&text, FOLDER)?;
        let [a, b] = [number, !number].map(u32::to_le_bytes);
        self.file.write_all_at(&[a, b].concat(), REQUESTED)
    }

    /// Reads the job's numbers.
    pub(super) fn read(&self) -> io::Result<StoredNumbers> {
        let mut bytes = [0; 24];
        self.file.read_exact_at(&mut bytes, ACKNOWLEDGED)?;
        let word = |at: usize| {
            let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
            u32::from_le_bytes(word.unwrap_or_default())
        };
        let heartbeat = u64::from(word(16)) | u64::from(word(20)) << 32;
        Ok(StoredNumbers {
            acknowledged: word(0),
            completed: word(4),
            failed: word(8),
            heartbeat,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn numbers_match_documented_layout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.shm");
        let shared = SharedFile::make(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), 4096);
        assert_eq!(&whole[..12], b"LATTCKPT\x01\0\0\0");
        assert_eq!(&whole[16..24], [0, 0, 0, 0, 255, 255, 255, 255]);
        shared.request(0x0102_0304, "/scratch/7/3/rank-0").unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(&whole[16..24], [4, 3, 2, 1, !4, !3, !2, !1]);
        assert_eq!(&whole[64..84], b"/scratch/7/3/rank-0\0");
        let job = OpenOptions::new().write(true).open(&path).unwrap();
        for (at, value) in [(24, 7_u32), (28, 8), (32, 9), (40, 10), (44, 11)] {
            job.write_all_at(&value.to_le_bytes(), at).unwrap();
        }
        let stored = StoredNumbers {
            acknowledged: 7,
            completed: 8,
            failed: 9,
            heartbeat: 10 | 11 << 32,
        };
        assert_eq!(shared.read().unwrap(), stored);
    }

    #[test]
    fn one_that_the_job_cut_short_cannot_be_read_and_does_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.shm");
        let shared = SharedFile::make(&path).unwrap();
        let job = OpenOptions::new().write(true).open(&path).unwrap();
        job.set_len(30).unwrap();
        assert!(shared.read().is_err());
        assert!(shared.request(1, &"x".repeat(5000)).is_err());
        assert!(SharedFile::make(&path).is_err(), "it is there already");
    }
}
