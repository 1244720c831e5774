//! Log of driver events, which merges the reports of two sources on one occurrence.

use super::EventCode;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// Maximum time between the reports of both sources on one occurrence, in milliseconds. The kernel writes its line
/// before it wakes the library; a loaded node is late by seconds, not by minutes.
pub const MERGE_WINDOW_MS: u64 = 10_000;

/// Source of the report on an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuEventSource {
    /// The driver's events.
    Nvml,
    /// The kernel log.
    KernelLog,
    /// Both sources.
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

/// One report by one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// Time of the event in Unix milliseconds; for the driver's events, time of arrival.
    pub at_ms: u64,
    /// PCI address of the GPU or NIC, as sysfs writes it.
    pub address: String,
    /// Code of the event.
    pub code: EventCode,
    /// [`GpuEventSource::Nvml`] or [`GpuEventSource::KernelLog`].
    pub source: GpuEventSource,
    /// Further text of the kernel line; empty for the driver's events.
    pub detail: String,
    /// Sequence number of the kernel record (`/dev/kmsg`); none for the driver's events.
    pub kernel_seq: Option<u64>,
}

/// One occurrence, reported by one or both sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEvent {
    /// Sequence number, rising by one from 1 during the life of the log; a gap shows a poller that events were lost.
    pub seq: u64,
    /// Time of the event in Unix milliseconds; the earlier one if both sources reported it.
    pub at_ms: u64,
    /// PCI address of the GPU or NIC, as sysfs writes it.
    pub address: String,
    /// Code of the event.
    pub code: EventCode,
    /// Sources that have reported the event so far.
    pub source: GpuEventSource,
    /// Further text of the kernel line.
    pub detail: String,
    /// Sequence number of the kernel record, if the kernel log reported the event. Unlike the time, the number is the
    /// same for every reader of the log in this boot.
    #[serde(default)]
    pub kernel_seq: Option<u64>,
}

/// Result of recording a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// A new event with this sequence number.
    New(u64),
    /// The other source already reported the event with this sequence number.
    Confirms(u64),
}

/// The most recent events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuEventLog {
    capacity: usize,
    next_seq: u64,
    events: VecDeque<GpuEvent>,
}

impl GpuEventLog {
    /// An empty log that keeps the last `most` events.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            capacity: most,
            next_seq: 1,
            events: VecDeque::new(),
        }
    }

    /// Records a report. The report matches the oldest event of the same device and code that only the other source
    /// reported within [`MERGE_WINDOW_MS`]. So the third report of one source matches the third of the other, and no
    /// event is counted twice or lost.
    pub fn record(&mut self, sighting: EventReport) -> RecordOutcome {
        let other = match sighting.source {
            GpuEventSource::Nvml => GpuEventSource::KernelLog,
            GpuEventSource::KernelLog | GpuEventSource::Both => GpuEventSource::Nvml,
        };
        let is_same = |event: &&mut GpuEvent| {
            event.source == other
                && event.code == sighting.code
                && event.address == sighting.address
                && event.at_ms.abs_diff(sighting.at_ms) <= MERGE_WINDOW_MS
        };
        if let Some(event) = self.events.iter_mut().find(is_same) {
            event.source = GpuEventSource::Both;
            event.at_ms = event.at_ms.min(sighting.at_ms);
            if event.detail.is_empty() {
                event.detail = sighting.detail;
            }
            event.kernel_seq = event.kernel_seq.or(sighting.kernel_seq);
            return RecordOutcome::Confirms(event.seq);
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        self.events.push_back(GpuEvent {
            seq,
            at_ms: sighting.at_ms,
            address: sighting.address,
            code: sighting.code,
            source: sighting.source,
            detail: sighting.detail,
            kernel_seq: sighting.kernel_seq,
        });
        while self.events.len() > self.capacity {
            self.events.pop_front();
        }
        RecordOutcome::New(seq)
    }

    /// The event with this sequence number, if the log still keeps it.
    #[must_use]
    pub fn get(&self, seq: u64) -> Option<&GpuEvent> {
        let first = self.events.front()?.seq;
        self.events
            .get(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    /// Events after `seq`, oldest first. If the first returned number is not `seq + 1`, the events between them are no
    /// longer kept.
    pub fn since(&self, seq: u64) -> impl Iterator<Item = &GpuEvent> {
        self.events.iter().filter(move |event| event.seq > seq)
    }

    /// Sequence number of the last event; 0 without any.
    #[must_use]
    pub const fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }
}

#[cfg(test)]
mod tests;
