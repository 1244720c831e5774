//! What one probe may read.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest file a probe reads: `/proc/cpuinfo` of a node with 768 threads is near
/// 2 MiB, everything else far smaller.
pub const LONGEST_FILE: u64 = 8 << 20;

/// The most entries of one folder: 16 GPUs and NICs with all virtual functions are 5,000.
pub const MOST_ENTRIES: usize = 1 << 14;

/// What one probe may read in all: ten times what the largest node has.
pub const MOST_BYTES: u64 = 64 << 20;

/// How often one probe may open something: 768 processors with ten attributes each are 7,680.
pub const MOST_ACCESSES: u64 = 1 << 17;

/// What is left of what one probe may read.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: AtomicU64,
    accesses: AtomicU64,
}

impl Budget {
    pub(super) const fn new() -> Self {
        Self {
            bytes: AtomicU64::new(MOST_BYTES),
            accesses: AtomicU64::new(MOST_ACCESSES),
        }
    }

    /// Counts one access.
    pub(super) fn access(&self) -> io::Result<()> {
        match take(&self.accesses, 1) {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "this probe opened more than {MOST_ACCESSES} files and folders"
            ))),
        }
    }

    /// Counts what was read.
    pub(super) fn read(&self, bytes: &[u8]) -> io::Result<()> {
        match take(&self.bytes, bytes.len() as u64) {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "this probe read more than {MOST_BYTES} bytes"
            ))),
        }
    }
}

fn take(left: &AtomicU64, amount: u64) -> bool {
    let less = |left: u64| Some(left.saturating_sub(amount));
    let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    before.is_ok_and(|before| before >= amount)
}
