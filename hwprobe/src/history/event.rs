//! What happened on a node beside changes of its classes: so that "when did it change" can be
//! answered together with "and what else happened then".

use super::{Entry, Rule};
use crate::health::{Action, Reason, Severity};
use serde::{Deserialize, Serialize};

/// Most characters of a text that comes from a driver, a device or a person. This crate uses no other of ours, so the
/// texts are cut here and not by `lattice_quorum_types::text`.
const MOST_CHARS: usize = 300;

/// One thing that happened, or one that happened again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Rises by one with each line of the node, in one sequence with [`Entry::seq`].
    pub seq: u64,
    /// When it happened, the last time where it did so often, Unix milliseconds by the node's
    /// clock. It may lie before what has a lower number: the kernel's log tells late.
    pub at: u64,
    /// Under which boot of the host it was written down.
    pub boot_id: String,
    /// For how many occurrences it stands.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// The first of them, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_at: Option<u64>,
    /// Events of this kind that happened before it and are not written down: too many.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u32,
    /// What it was.
    pub event: Happening,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_one(count: &u32) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_none(count: &u32) -> bool {
    *count == 0
}

/// What may happen. Its `kind` is stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Happening {
    /// The host runs under another boot than before.
    Boot {
        /// The boot id before.
        before: Option<String>,
        /// When the kernel began to run, Unix milliseconds, where that is known.
        booted_at: Option<u64>,
    },
    /// The agent began to run.
    Agent {
        /// Its version.
        version: String,
    },
    /// The agent ended as it was told to. Of one that was killed, or went with its host, there is
    /// none.
    #[serde(rename = "agent_stopped")]
    Stopped {
        /// Its version.
        version: String,
    },
    /// A kernel module was loaded or unloaded.
    Driver {
        /// Which.
        module: String,
    },
    /// The kernel told of a device.
    Device {
        /// What it told.
        what: String,
    },
    /// A GPU's driver reported an error: an XID, or what AMD's driver tells instead.
    #[serde(rename = "xid")]
    GpuEvent {
        /// `gpu.3`, or the PCI address where the slot is not known, and of a NIC.
        gpu: String,
        /// The PCI address as sysfs writes it.
        address: String,
        /// The stable code of its reason: `gpu.xid.79`, `gpu.amd.fatal`.
        code: String,
        /// Who told: `nvml`, `kernel_log`, `both`.
        source: String,
        /// What the table says of it, and what the kernel's line says.
        detail: String,
        /// How bad it is by the table.
        severity: Severity,
        /// What helps by the table.
        action: Action,
    },
    /// A reason of the health checks came or went.
    Health {
        /// What became of it.
        turn: Turn,
        /// Its stable code.
        code: String,
        /// The part.
        entity: String,
        /// What was read; of one that ended, the last time it was there.
        evidence: String,
        /// How bad it is.
        severity: Severity,
        /// What helps.
        action: Action,
        /// Only watched: it counts in no verdict.
        #[serde(default)]
        observe_only: bool,
    },
    /// Somebody ended reasons of the health checks.
    Cleared {
        /// Who.
        by: String,
        /// Which.
        code: String,
        /// Of which part; of all of them without.
        entity: Option<String>,
        /// How many ended.
        reasons: u32,
    },
}

/// What became of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// It is there.
    Began,
    /// It is there still, and is better or worse than before.
    Changed,
    /// It is over.
    Ended,
}

/// Repeats of the same within this are one line, and of those the next ones within twice as long.
const WINDOW_MS: u64 = 600_000;
const HOUR_MS: u64 = 3_600_000;

impl Happening {
    /// The stable name.
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

    /// A reason of the health checks that came or went.
    #[must_use]
    pub fn of_reason(reason: &Reason, turn: Turn) -> Self {
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

    /// What is the same thing when it happens again, as long as it has the same share.
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

    /// How often it is written down. What is faulty has a share of its own: a storm of what does
    /// no harm must not hide it, nor what it was before it turned faulty.
    #[must_use]
    pub const fn rule(&self) -> Rule {
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
        Rule {
            share,
            hourly,
            burst,
            window_ms: WINDOW_MS,
            longest_ms,
        }
    }

    /// Cuts every text, so that an event has a bound.
    #[must_use]
    pub fn bounded(mut self) -> Self {
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
            if let Some((end, _)) = text.char_indices().nth(MOST_CHARS) {
                text.truncate(end);
            }
        }
        self
    }
}

/// One line as it is told to others: a change of a class, or something else that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// Something happened.
    Event(Event),
    /// A class was published.
    Entry(Entry),
    /// What a newer agent writes and this version does not know: kept as it is.
    Other(serde_json::Value),
}

impl Record {
    /// Its number; none for something that has none.
    #[must_use]
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Event(event) => Some(event.seq),
            Self::Entry(entry) => Some(entry.seq),
            Self::Other(value) => value.get("seq")?.as_u64(),
        }
    }

    /// When it happened, Unix milliseconds by the node's clock; 0 where that is not known.
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

impl From<Entry> for Record {
    fn from(entry: Entry) -> Self {
        Self::Entry(entry)
    }
}

#[cfg(test)]
mod tests;
