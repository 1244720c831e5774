//! Events of a node other than class changes, so that a query for the time of a change also shows other events of that
//! time.

use super::{Entry, RecordingLimit};
use crate::health::{Action, Reason, Severity};
use serde::{Deserialize, Serialize};

/// Maximum length in characters of a text from a driver, a device or an operator. This crate depends on no other crate
/// of the project, so it truncates texts here and not with `lattice_quorum_types::text`.
const MAX_TEXT_CHARS: usize = 300;

/// One event, or several equal events folded into one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Sequence number of the node's entries and events, rising by one with each; shared with [`Entry::seq`].
    pub seq: u64,
    /// Time of the event, or of the last one if folded, in Unix milliseconds by the node's clock. The time may be
    /// earlier than that of a lower sequence number, because the kernel log reports late.
    pub at: u64,
    /// Boot id of the host when the event was recorded.
    pub boot_id: String,
    /// Number of occurrences that this event stands for.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Time of the first occurrence in Unix milliseconds, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_at: Option<u64>,
    /// Number of earlier events of the same rate-limit share that were not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
    /// The event itself.
    pub event: EventKind,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_one(count: &u32) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Kinds of events. The serialised `kind` is stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// The host runs under a new boot id.
    Boot {
        /// The previous boot id.
        before: Option<String>,
        /// Time at which the kernel started, in Unix milliseconds, if known.
        booted_at: Option<u64>,
    },
    /// The agent started.
    Agent {
        /// Version of the agent.
        version: String,
    },
    /// The agent stopped as requested. An agent that was killed, or lost power with its host, leaves no such event.
    #[serde(rename = "agent_stopped")]
    Stopped {
        /// Version of the agent.
        version: String,
    },
    /// A kernel module was loaded or unloaded.
    Driver {
        /// Name of the module; during a storm, `others` for each module after the first ones.
        module: String,
    },
    /// The kernel reported a device event.
    Device {
        /// The reported event; during a storm, `others` for each event after the first ones.
        what: String,
    },
    /// A driver reported an error of a GPU, NIC or NVSwitch: an XID, a fatal SXid, or an event of amdgpu or mlx5_core.
    #[serde(rename = "xid")]
    GpuEvent {
        /// `gpu.3`, or the PCI address if the slot is unknown or the device is a NIC or an NVSwitch.
        gpu: String,
        /// PCI address, as sysfs writes it.
        address: String,
        /// Stable reason code: `gpu.xid.79`, `gpu.amd.fatal`.
        code: String,
        /// Source of the report: `nvml`, `kernel_log`, `both`.
        source: String,
        /// Description from the table of driver events, and the text of the kernel line.
        detail: String,
        /// Severity by the table of driver events.
        severity: Severity,
        /// Action by the table of driver events.
        action: Action,
    },
    /// A reason of the health checks began, changed or ended.
    Health {
        /// Whether the reason began, changed or ended.
        turn: ReasonChange,
        /// Stable code of the reason.
        code: String,
        /// Affected part.
        entity: String,
        /// Evidence; for an ended reason, the last evidence before the end.
        evidence: String,
        /// Severity of the reason.
        severity: Severity,
        /// Remedy for the reason.
        action: Action,
        /// Observe-only: the reason counts in no verdict.
        #[serde(default)]
        observe_only: bool,
    },
    /// An operator cleared reasons of the health checks.
    Cleared {
        /// Name of the operator.
        by: String,
        /// Code of the cleared reasons.
        code: String,
        /// Affected part; without it, the reasons of all parts.
        entity: Option<String>,
        /// Number of reasons that ended.
        reasons: u32,
    },
}

/// Change of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonChange {
    /// The reason is new.
    Began,
    /// The reason persists with another severity.
    Changed,
    /// The reason ended.
    Ended,
}

/// Window within which repeats are folded into one line, in milliseconds; it doubles while the repeats continue.
const WINDOW_MS: u64 = 600_000;
const HOUR_MS: u64 = 3_600_000;

impl EventKind {
    /// The stable name of the kind; start and stop of the agent share `agent`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Boot { .. } => "boot",
            Self::Agent { .. } | Self::Stopped { .. } => "agent",
            Self::Driver { .. } => "driver",
            Self::Device { .. } => "device",
            Self::GpuEvent { .. } => "xid",
            Self::Health { .. } => "health",
            Self::Cleared { .. } => "cleared",
        }
    }

    /// The event for a reason of the health checks that began, changed or ended.
    #[must_use]
    pub fn from_reason(reason: &Reason, turn: ReasonChange) -> Self {
        Self::Health {
            turn,
            code: reason.code.clone(),
            entity: reason.entity.clone(),
            evidence: reason.evidence.clone(),
            severity: reason.severity,
            action: reason.action,
            observe_only: reason.observe_only,
        }
    }

    /// Identity of the event: repeats with the same key and [`RecordingLimit::share`] are folded.
    #[must_use]
    pub fn key(&self) -> String {
        let kind = self.kind();
        match self {
            Self::Boot { .. } | Self::Agent { .. } => kind.to_owned(),
            Self::Stopped { .. } => format!("{kind} stopped"),
            Self::Driver { module } => format!("{kind} {module}"),
            Self::Device { what } => format!("{kind} {what}"),
            Self::GpuEvent { address, code, .. } => format!("{kind} {address} {code}"),
            Self::Health { code, entity, .. } => format!("{kind} {code} {entity}"),
            Self::Cleared {
                by, code, entity, ..
            } => {
                let entity = entity.as_deref().unwrap_or_default();
                format!("{kind} {by} {code} {entity}")
            }
        }
    }

    /// Rate limit for recording the event. Faulty events have their own share: they must not be hidden by a storm of
    /// harmless events, nor by repeats of the same event from before it became faulty.
    #[must_use]
    pub const fn recording_limit(&self) -> RecordingLimit {
        let (share, hourly, burst, longest_ms) = match self {
            Self::Boot { .. } => ("boot", 12, 12, HOUR_MS),
            Self::Agent { .. } => ("agent", 12, 12, HOUR_MS),
            Self::Stopped { .. } => ("agent stopped", 12, 12, HOUR_MS),
            Self::Driver { .. } => ("driver", 30, 2, HOUR_MS),
            Self::Device { .. } => ("device", 30, 2, HOUR_MS),
            Self::GpuEvent { severity, .. } => match severity {
                Severity::Faulty => ("xid faulty", 30, 1, 6 * HOUR_MS),
                Severity::Inform | Severity::Degraded => ("xid", 30, 1, 6 * HOUR_MS),
            },
            Self::Health { severity, .. } => match severity {
                Severity::Faulty => ("health faulty", 30, 4, HOUR_MS),
                Severity::Inform | Severity::Degraded => ("health", 30, 4, HOUR_MS),
            },
            Self::Cleared { .. } => ("cleared", 60, 10, HOUR_MS),
        };
        RecordingLimit {
            share,
            hourly,
            burst,
            window_ms: WINDOW_MS,
            longest_ms,
        }
    }

    /// Truncates every text, so that the size of an event is bounded.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        let texts: Vec<&mut String> = match &mut self {
            Self::Boot { before, .. } => before.iter_mut().collect(),
            Self::Agent { version } | Self::Stopped { version } => vec![version],
            Self::Driver { module } => vec![module],
            Self::Device { what } => vec![what],
            Self::GpuEvent {
                gpu,
                address,
                code,
                source,
                detail,
                ..
            } => vec![gpu, address, code, source, detail],
            Self::Health {
                code,
                entity,
                evidence,
                ..
            } => vec![code, entity, evidence],
            Self::Cleared {
                by, code, entity, ..
            } => {
                let mut texts = vec![by, code];
                texts.extend(entity.iter_mut());
                texts
            }
        };
        for text in texts {
            if let Some((end, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
                text.truncate(end);
            }
        }
        self
    }
}

/// One journal line as published to readers: a class change or another event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HistoryRecord {
    /// An event other than a publication.
    Event(Event),
    /// A class was published.
    Entry(Entry),
    /// A line that a newer agent wrote, in a form unknown to this version; it is kept unchanged.
    Other(serde_json::Value),
}

impl HistoryRecord {
    /// Sequence number of the line, if it has one.
    #[must_use]
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Event(event) => Some(event.seq),
            Self::Entry(entry) => Some(entry.seq),
            Self::Other(value) => value.get("seq")?.as_u64(),
        }
    }

    /// Time of the line in Unix milliseconds, by the node's clock; 0 if unknown.
    #[must_use]
    pub fn at(&self) -> u64 {
        match self {
            Self::Event(event) => event.at,
            Self::Entry(entry) => entry.at,
            Self::Other(value) => {
                let at = value.get("at").and_then(serde_json::Value::as_u64);
                at.unwrap_or_default()
            }
        }
    }
}

impl From<Entry> for HistoryRecord {
    fn from(entry: Entry) -> Self {
        Self::Entry(entry)
    }
}

#[cfg(test)]
mod tests;
