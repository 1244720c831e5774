//! Read limits of one probe.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum size of a file, in bytes: `/proc/cpuinfo` of a node with 768 threads is near 2 MiB, every other file is much
/// smaller.
pub const MAX_FILE_BYTES: u64 = 8 << 20;

/// Maximum number of entries of one folder: 16 GPUs and NICs with all virtual functions make 5,000.
pub const MAX_FOLDER_ENTRIES: usize = 1 << 14;

/// Maximum bytes read by one probe in total: ten times the need of the largest node.
pub const MAX_PROBE_BYTES: u64 = 64 << 20;

/// Maximum number of accesses of one probe: 768 processors with ten attributes each make 7,680.
pub const MAX_PROBE_ACCESSES: u64 = 1 << 17;

/// Remaining read budget of one probe.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: AtomicU64,
    accesses: AtomicU64,
}

impl Budget {
    pub(super) const fn new() -> Self {
        Self {
            bytes: AtomicU64::new(MAX_PROBE_BYTES),
            accesses: AtomicU64::new(MAX_PROBE_ACCESSES),
        }
    }

    /// Counts one access.
    pub(super) fn access(&self) -> io::Result<()> {
        match take(&self.accesses, 1) {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "this probe opened more than {MAX_PROBE_ACCESSES} files and folders"
            ))),
        }
    }

    /// Counts the bytes read.
    pub(super) fn read(&self, bytes: &[u8]) -> io::Result<()> {
        match take(&self.bytes, bytes.len() as u64) {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "this probe read more than {MAX_PROBE_BYTES} bytes"
            ))),
        }
    }
}

fn take(left: &AtomicU64, amount: u64) -> bool {
    let less = |left: u64| Some(left.saturating_sub(amount));
    let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    before.is_ok_and(|before| before >= amount)
}
