//! What drivers report while they run, as a log with sequence and time: XIDs of NVIDIA's GPUs, what
//! AMD's driver tells instead, and of NICs what mlx5_core does.
//!
//! Two sources tell of the same XID: the driver's own events ([`GpuEventWatch`] listens to them in a
//! child process) and the kernel's log ([`line`]). Each alone loses some: the library reports only
//! what it takes for critical, and the kernel's log may be overwritten or forbidden. [`GpuEventLog`]
//! makes one event of an occurrence that both tell, and keeps who told it. The others tell
//! through the kernel's log alone.
//!
//! Begin at [`GpuEventLog::record`]; the rule of merging is there. [`GpuEventWatch`] is the edge.

mod amd;
mod code;
mod kmsg;
mod mlx5;
mod watch;

pub use code::{AmdEvent, EventCode, Mlx5Event};
pub use kmsg::{KernelLine, KernelRecord, line, record};
pub use watch::{GpuEventSources, GpuEventWatch, KernelLog, SourceState};

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// How far apart the two sources may tell of one occurrence, milliseconds. The kernel writes its
/// line before it wakes the library; a node under load is late by seconds, not by minutes.
pub const SAME_WITHIN_MS: u64 = 10_000;

/// Who told of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuEventSource {
    /// The driver's events.
    Nvml,
    /// The kernel's log.
    KernelLog,
    /// Both.
    Both,
}

impl GpuEventSource {
    /// The stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::KernelLog => "kernel_log",
            Self::Both => "both",
        }
    }
}

impl fmt::Display for GpuEventSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What one source tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// When it happened, Unix milliseconds; for the driver's events, when they arrived.
    pub at_ms: u64,
    /// The PCI address of the GPU or NIC, as sysfs writes it.
    pub address: String,
    /// What happened.
    pub code: EventCode,
    /// [`GpuEventSource::Nvml`] or [`GpuEventSource::KernelLog`].
    pub source: GpuEventSource,
    /// What the kernel's line says beside that; empty for the driver's events.
    pub detail: String,
    /// The number of the kernel's record ([`KernelRecord::seq`]); none for the driver's events.
    pub kernel_seq: Option<u64>,
}

/// One occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEvent {
    /// Counts up by one from 1 as long as the log lives: who polls sees what was lost.
    pub seq: u64,
    /// When it happened, Unix milliseconds, by the source that told first.
    pub at_ms: u64,
    /// The PCI address of the GPU or NIC, as sysfs writes it.
    pub address: String,
    /// What happened.
    pub code: EventCode,
    /// Who told of it so far.
    pub source: GpuEventSource,
    /// What the kernel's line says beside that.
    pub detail: String,
    /// The number of the kernel's record, once it told of it: unlike the time it is the same to
    /// whoever reads the log again in this boot.
    #[serde(default)]
    pub kernel_seq: Option<u64>,
}

/// What became of a sighting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// A new event with this sequence number.
    New(u64),
    /// The other source's word for an event that is there.
    Confirms(u64),
}

/// The last occurrences, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuEventLog {
    most: usize,
    next: u64,
    events: VecDeque<GpuEvent>,
}

impl GpuEventLog {
    /// An empty log that keeps the last `most` events.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            next: 1,
            events: VecDeque::new(),
        }
    }

    /// Takes a sighting in. It belongs to the oldest event of the same GPU and kind that only
    /// the other source told within [`SAME_WITHIN_MS`]; so the third of one source meets the
    /// third of the other, and nothing is counted twice or swallowed.
    pub fn record(&mut self, sighting: Sighting) -> Recorded {
        let other = match sighting.source {
            GpuEventSource::Nvml => GpuEventSource::KernelLog,
            GpuEventSource::KernelLog | GpuEventSource::Both => GpuEventSource::Nvml,
        };
        let is_same = |event: &&mut GpuEvent| {
            event.source == other
                && event.code == sighting.code
                && event.address == sighting.address
                && event.at_ms.abs_diff(sighting.at_ms) <= SAME_WITHIN_MS
        };
        if let Some(event) = self.events.iter_mut().find(is_same) {
            event.source = GpuEventSource::Both;
            event.at_ms = event.at_ms.min(sighting.at_ms);
            if event.detail.is_empty() {
                event.detail = sighting.detail;
            }
            event.kernel_seq = event.kernel_seq.or(sighting.kernel_seq);
            return Recorded::Confirms(event.seq);
        }
        let seq = self.next;
        self.next += 1;
        self.events.push_back(GpuEvent {
            seq,
            at_ms: sighting.at_ms,
            address: sighting.address,
            code: sighting.code,
            source: sighting.source,
            detail: sighting.detail,
            kernel_seq: sighting.kernel_seq,
        });
        while self.events.len() > self.most {
            self.events.pop_front();
        }
        Recorded::New(seq)
    }

    /// The event with this number, while it is kept.
    #[must_use]
    pub fn get(&self, seq: u64) -> Option<&GpuEvent> {
        let first = self.events.front()?.seq;
        self.events
            .get(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    /// What happened after `seq`, oldest first. A first number that is not the next one says how
    /// many are no longer kept.
    pub fn since(&self, seq: u64) -> impl Iterator<Item = &GpuEvent> {
        self.events.iter().filter(move |event| event.seq > seq)
    }

    /// The number of the last event; 0 without any.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.next - 1
    }
}

#[cfg(test)]
mod tests;
