//! Counters of a gossip cell.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the cell was joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellStats {
    /// Messages passed to the mesh.
    pub sent: u64,
    /// Bytes of these messages, without the mesh's overhead.
    pub sent_bytes: u64,
    /// Messages not sent: the peer's queue was full, or the address has no known identity.
    pub unsent: u64,
    /// Messages of this cell received from the mesh.
    pub received: u64,
    /// Bytes of these messages.
    pub received_bytes: u64,
    /// Received messages dropped because their sender exceeded the rate limit.
    pub over_rate: u64,
    /// Received messages dropped because the inbox was full or closed.
    pub overflowed: u64,
    /// Received messages dropped because they were not valid gossip.
    pub garbage: u64,
    /// Messages lost in the codec's local sockets; 0 in normal operation.
    pub codec_late: u64,
    /// Restarts of the gossip server after it died.
    pub restarts: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// Counters in atomic form.
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

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
