//! Outcome of one probe, with the reason if the probe gave no result.

use crate::{Class, ClassRecord, ClassState, Reading, Value};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOutcome {
    /// Name of the probe in the list.
    pub name: String,
    /// The class that the probe fills.
    pub class: Class,
    /// Elapsed wall-clock time, in microseconds.
    pub duration_us: u64,
    /// Result of the probe.
    pub outcome: ProbeStatus,
    /// Number of keys in the record.
    pub keys: u32,
    /// Number of unknown keys in the record.
    pub unknown: u32,
    /// The reason, if the probe gave no result.
    #[serde(default)]
    pub loss: Option<ProbeFailure>,
    /// The reason as text for operators.
    #[serde(default)]
    pub why: Option<String>,
}

/// Reason why a probe gave no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeFailure {
    /// The probe did not answer within its deadline.
    Hung {
        /// The deadline, in milliseconds.
        after_ms: u64,
    },
    /// The probe was not started: too many of its earlier processes cannot be killed.
    Stuck {
        /// Number of earlier processes that cannot be killed.
        processes: u32,
        /// The deadline that each earlier process missed, in milliseconds.
        after_ms: u64,
    },
    /// The probe panicked, or its process could not be started, ended without an answer, or sent an invalid or too long
    /// one.
    Failed {
        /// Description of the failure.
        why: String,
    },
}

impl ProbeFailure {
    /// The reason as text for operators: `probe hung: nic did not answer within 10000 ms`.
    #[must_use]
    pub fn why(&self, probe: &str) -> String {
        match self {
            Self::Hung { after_ms } => {
                format!("probe hung: {probe} did not answer within {after_ms} ms")
            }
            Self::Stuck { processes, .. } => format!(
                "probe hung: {probe} is not started again while {processes} processes of earlier \
                 runs are stuck"
            ),
            Self::Failed { why } => format!("probe failed: {probe}: {why}"),
        }
    }

    pub(super) fn reading(&self, probe: &str) -> Reading<Value> {
        match self {
            Self::Hung { after_ms } | Self::Stuck { after_ms, .. } => Reading::Timeout {
                after_ms: *after_ms,
            },
            Self::Failed { .. } => Reading::failed(self.why(probe)),
        }
    }
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeStatus {
    /// The class has a digest.
    Complete,
    /// A required key is unknown, or another key timed out.
    Incomplete,
    /// The probe, or the driver that it queried, timed out; or too many of its earlier processes are stuck.
    Hung,
    /// The probe gave no valid answer ([`ProbeFailure::Failed`]).
    Failed,
    /// The class is disabled.
    Disabled,
}

impl fmt::Display for ProbeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Hung => "hung",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
        })
    }
}

/// A key that timed out counts as a hung probe only if it is required, because the probe then waited for the driver. A
/// timeout of a single optional key of a device does not.
impl From<&ClassRecord> for ProbeStatus {
    fn from(record: &ClassRecord) -> Self {
        let is_late = |key: &String| record.get(key).is_timeout();
        match record.state() {
            ClassState::Complete { .. } => Self::Complete,
            ClassState::Incomplete { .. } if record.required.iter().any(is_late) => Self::Hung,
            ClassState::Incomplete { .. } => Self::Incomplete,
            ClassState::Disabled { .. } => Self::Disabled,
        }
    }
}
