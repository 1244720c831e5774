//! Faults of attestations: the reasons why a node gets no sensitive allocation. A fault concerns the whole attestation
//! or one conformance class.

use super::Refusal;
use crate::{
    AllocationId, NodeId, UnixMillis, attestation::BaselineVersion, baseline::SensitivePolicy,
    id::BaselineName,
};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of a digest that are shown.
const SHOWN_BYTES: usize = 6;
/// Largest number of faults that a refusal names.
const MAX_FAULTS: usize = 16;

/// A node that cannot run sensitive allocations, because of its attestation or of one conformance class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProofFault {
    /// Name of the node.
    pub node: NodeId,
    /// The fault.
    pub fault: ProofFault,
}

/// A fault in the proof for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofFault {
    /// The node's attestation is missing.
    NoAttestation,
    /// The attestation is that of another node.
    AnotherNode {
        /// Node that the attestation names.
        speaks_of: NodeId,
    },
    /// The signature is not a valid signature of the node.
    Signature {
        /// Description of the error.
        reason: String,
    },
    /// The reading is too old, or in the future, by state time.
    Age {
        /// Time of the reading, as attested.
        read_at: UnixMillis,
        /// Distance from state time, milliseconds.
        off_ms: u64,
        /// Largest permitted distance, milliseconds.
        limit_ms: u64,
    },
    /// The reading is from another boot than the assignment, or the assignment names no boot.
    Boot {
        /// Boot id, as attested.
        claimed: String,
        /// Boot id of the plan.
        planned: Option<String>,
    },
    /// The attestation has no cohort, and no baseline for the class names the node. The cohort's baseline is therefore
    /// not known.
    NoCohort {
        /// Name of the class.
        class: String,
        /// A baseline that may apply.
        baseline: BaselineName,
    },
    /// Several baselines apply with equal rank.
    Ambiguous {
        /// Name of the class.
        class: String,
        /// All these baselines, sorted by name.
        baselines: Vec<BaselineName>,
    },
    /// Neither the attestation nor control has the class.
    Unknown {
        /// Name of the class.
        class: String,
        /// Baseline that requires the class.
        baseline: BaselineVersion,
    },
    /// The class differs from its baseline.
    Differs {
        /// Name of the class.
        class: String,
        /// Baseline that was compared.
        baseline: BaselineVersion,
        /// Digest that the baseline requires.
        expected: [u8; 32],
        /// Digest of the node.
        found: [u8; 32],
    },
    /// Control did not compare the class with the baseline that is in force now.
    NotJudged {
        /// Name of the class.
        class: String,
        /// Baseline in force.
        baseline: BaselineVersion,
        /// Baseline that control compared; `None`: none.
        judged_by: Option<BaselineVersion>,
    },
    /// Control completed the class from other digests than those in the attestation.
    MadeOfAnother {
        /// Name of the class.
        class: String,
    },
}

impl Refusal {
    /// Refuses a sensitive allocation if there are faults, and names the first of them.
    ///
    /// # Errors
    /// [`Refusal::Unproven`].
    pub fn refuse_unproven(id: AllocationId, mut faults: Vec<NodeProofFault>) -> Result<(), Self> {
        match first_of(&mut faults) {
            None => Ok(()),
            Some(more) => Err(Self::Unproven { id, faults, more }),
        }
    }

    /// Refuses a user's node claim if there are faults, and names the first of them.
    ///
    /// # Errors
    /// [`Refusal::NotConforming`].
    pub fn refuse_nonconforming(mut faults: Vec<NodeProofFault>) -> Result<(), Self> {
        match first_of(&mut faults) {
            None => Ok(()),
            Some(more) => Err(Self::NotConforming { faults, more }),
        }
    }
}

/// Truncates the faults to those that a refusal names. Returns the number of removed faults; `None` if there are no
/// faults.
fn first_of(faults: &mut Vec<NodeProofFault>) -> Option<u64> {
    let more = faults.len().saturating_sub(MAX_FAULTS) as u64;
    faults.truncate(MAX_FAULTS);
    (!faults.is_empty()).then_some(more)
}

impl ProofFault {
    /// Checks whether a new attestation and a new comparison may resolve the fault, without a change to the node or its
    /// baselines.
    pub fn is_stale(&self) -> bool {
        match self {
            Self::NoAttestation
            | Self::Age { .. }
            | Self::Boot { .. }
            | Self::NotJudged { .. }
            | Self::MadeOfAnother { .. } => true,
            Self::AnotherNode { .. }
            | Self::Signature { .. }
            | Self::NoCohort { .. }
            | Self::Ambiguous { .. }
            | Self::Unknown { .. }
            | Self::Differs { .. } => false,
        }
    }

    /// Text of the remedy.
    fn advice(&self, node: &NodeId) -> String {
        match self {
            Self::NoAttestation
            | Self::AnotherNode { .. }
            | Self::Age { .. }
            | Self::Boot { .. }
            | Self::NotJudged { .. }
            | Self::MadeOfAnother { .. } => {
                "request a new attestation from the node and compare it again".to_owned()
            }
            Self::Signature { .. } => format!(
                "`lattice admin certificate list` shows whether {node} is enrolled; enrol it again"
            ),
            Self::NoCohort { .. } | Self::Unknown { .. } => format!(
                "`lattice node show {node}` shows what it cannot read; repair that, or name the \
                 node in a baseline with `sensitive: {}` for the class",
                SensitivePolicy::Ignore
            ),
            Self::Ambiguous { .. } => {
                "name the node in the intended baseline, or remove the class from the others"
                    .to_owned()
            }
            Self::Differs { baseline, .. } => format!(
                "`lattice conformance baseline diff {} {node}` shows the keys; repair the node, or \
                 set the baseline again",
                baseline.name
            ),
        }
    }
}

impl fmt::Display for BaselineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "baseline \"{}\" v{}", self.name, self.version)
    }
}

impl fmt::Display for NodeProofFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, fault } = self;
        write!(
            f,
            "node {node} cannot run sensitive allocations: {fault}; {}",
            fault.advice(node)
        )
    }
}

impl fmt::Display for ProofFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAttestation => f.write_str("it has no signed attestation"),
            Self::AnotherNode { speaks_of } => {
                write!(f, "the attestation names node {speaks_of}")
            }
            Self::Signature { reason } => {
                write!(f, "its attestation is not signed by the node: {reason}")
            }
            Self::Age {
                off_ms, limit_ms, ..
            } => write!(
                f,
                "its attestation was made {} s from state time; at most {} s are allowed",
                off_ms / 1000,
                limit_ms / 1000
            ),
            Self::Boot {
                claimed,
                planned: Some(planned),
            } => write!(
                f,
                "it attests boot id {claimed}, but the plan has boot id {planned}"
            ),
            Self::Boot {
                claimed,
                planned: None,
            } => write!(
                f,
                "it attests boot id {claimed}, but the assignment has no boot id"
            ),
            Self::NoCohort { class, baseline } => write!(
                f,
                "class {class}: its attestation does not name vendor, product and GPUs, so \
                 baseline \"{baseline}\" may apply"
            ),
            Self::Ambiguous { class, baselines } => {
                let names: Vec<&str> = baselines.iter().map(|name| name.as_str()).collect();
                write!(
                    f,
                    "class {class}: baselines {} apply with equal rank",
                    names.join(" and ")
                )
            }
            Self::Unknown { class, baseline } => {
                write!(f, "class {class} is unknown, but {baseline} requires it")
            }
            Self::Differs {
                class,
                baseline,
                expected,
                found,
            } => write!(
                f,
                "class {class} is {}, but {baseline} requires {}",
                shown(found),
                shown(expected)
            ),
            Self::NotJudged {
                class,
                baseline,
                judged_by: Some(other),
            } => write!(
                f,
                "class {class} was compared with {other}, but {baseline} is in force"
            ),
            Self::NotJudged {
                class,
                baseline,
                judged_by: None,
            } => write!(f, "class {class} was not compared with {baseline}"),
            Self::MadeOfAnother { class } => write!(
                f,
                "class {class} was completed by control from another reading than the attested one"
            ),
        }
    }
}

fn shown(digest: &[u8; 32]) -> String {
    HEXLOWER.encode(&digest[..SHOWN_BYTES])
}
