//! What a cell has seen of its own work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the cell was joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellStats {
    /// Messages handed to the mesh.
    pub sent: u64,
    /// Their bytes, without the mesh's own.
    pub sent_bytes: u64,
    /// Messages not sent: the peer's queue was full, or nobody is known at the address.
    pub unsent: u64,
    /// Messages of this cell that came from the mesh.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Of those, dropped because their sender sent too many.
    pub over_rate: u64,
    /// Of those, dropped because this process was too slow.
    pub overflowed: u64,
    /// Of those, dropped because they were no gossip.
    pub garbage: u64,
    /// Times the codec's local sockets lost something; 0 in good health.
    pub codec_late: u64,
    /// Times the gossip server died and was started again.
    pub restarts: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// The counters as they are counted.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64),* }
        impl Counters {
            pub(crate) fn read(&self) -> CellStats {
                CellStats { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters!(
    sent,
    sent_bytes,
    unsent,
    received,
    received_bytes,
    over_rate,
    overflowed,
    garbage,
    codec_late,
    restarts
);

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
