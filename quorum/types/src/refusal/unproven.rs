//! Why a node gets no sensitive work: one fault for each class that is not as it must be.

use super::Refusal;
use crate::{
    AllocationId, NodeId, UnixMillis, baseline::Sensitive, claim::BaselineVersion, id::BaselineName,
};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of a digest that are shown.
const SHOWN_BYTES: usize = 6;
/// Faults that a refusal names.
const MAX_FAULTS: usize = 16;

/// One node, in one class or as a whole, on which sensitive work may not rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unproven {
    /// The node.
    pub node: NodeId,
    /// What is wrong.
    pub fault: ProofFault,
}

/// What is wrong with what a node's assignment rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofFault {
    /// Its own word is missing.
    NoClaim,
    /// The claim is another node's.
    AnotherNode {
        /// Of whom it speaks.
        speaks_of: NodeId,
    },
    /// The node did not sign it.
    Signature {
        /// In words.
        reason: String,
    },
    /// Read too long ago, or in the future, by state time.
    Age {
        /// As claimed.
        read_at: UnixMillis,
        /// How far that is from now, milliseconds.
        off_ms: u64,
        /// The most that is allowed.
        limit_ms: u64,
    },
    /// Read under another boot than it is assigned under, or it is assigned under none.
    Boot {
        /// As claimed.
        claimed: String,
        /// As planned.
        planned: Option<String>,
    },
    /// It does not say what it is, so it is not known which baseline of a cohort speaks for a class
    /// for which none speaks that names the node.
    NoCohort {
        /// Which class.
        class: String,
        /// One that may speak for it.
        baseline: BaselineName,
    },
    /// These speak for it equally.
    Ambiguous {
        /// Of which class.
        class: String,
        /// All of them, by name.
        baselines: Vec<BaselineName>,
    },
    /// Neither its claim nor control knows the class.
    Unknown {
        /// Which class.
        class: String,
        /// What it is to be held against.
        baseline: BaselineVersion,
    },
    /// It is not what its baseline asks.
    Differs {
        /// In which class.
        class: String,
        /// What it was held against.
        baseline: BaselineVersion,
        /// What that asks for.
        expected: [u8; 32],
        /// What the node is.
        found: [u8; 32],
    },
    /// The class was not held against the baseline that is in force now.
    NotJudged {
        /// Which class.
        class: String,
        /// The baseline in force.
        baseline: BaselineVersion,
        /// What it was held against.
        judged_by: Option<BaselineVersion>,
    },
    /// What control's own sources tell was put together with another word of the node.
    MadeOfAnother {
        /// In which class.
        class: String,
    },
}

impl Refusal {
    /// Refuses where there are faults; the first of them are named.
    ///
    /// # Errors
    /// [`Refusal::Unproven`].
    pub fn where_unproven(id: AllocationId, mut faults: Vec<Unproven>) -> Result<(), Self> {
        match first_of(&mut faults) {
            None => Ok(()),
            Some(more) => Err(Self::Unproven { id, faults, more }),
        }
    }

    /// The same for a claim of a user.
    ///
    /// # Errors
    /// [`Refusal::NotConforming`].
    pub fn where_not_conforming(mut faults: Vec<Unproven>) -> Result<(), Self> {
        match first_of(&mut faults) {
            None => Ok(()),
            Some(more) => Err(Self::NotConforming { faults, more }),
        }
    }
}

/// Leaves those that are named; how many there are besides. `None`: there are none at all.
fn first_of(faults: &mut Vec<Unproven>) -> Option<u64> {
    let more = faults.len().saturating_sub(MAX_FAULTS) as u64;
    faults.truncate(MAX_FAULTS);
    (!faults.is_empty()).then_some(more)
}

impl ProofFault {
    /// Whether asking the node and judging anew may end it, without anybody changing the node or
    /// its baselines.
    pub fn is_stale(&self) -> bool {
        match self {
            Self::NoClaim
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

    /// What to do about it.
    fn advice(&self, node: &NodeId) -> String {
        match self {
            Self::NoClaim
            | Self::AnotherNode { .. }
            | Self::Age { .. }
            | Self::Boot { .. }
            | Self::NotJudged { .. }
            | Self::MadeOfAnother { .. } => {
                "ask the node for its claim and judge it anew".to_owned()
            }
            Self::Signature { .. } => format!(
                "`lattice admin certificate list` shows whether {node} is enrolled; enrol it anew"
            ),
            Self::NoCohort { .. } | Self::Unknown { .. } => format!(
                "`lattice node show {node}` says what it cannot read; repair that, or name the \
                 node in a baseline with `sensitive: {}` for the class",
                Sensitive::Ignore
            ),
            Self::Ambiguous { .. } => {
                "name the node in the baseline that is meant, or take the class out of one"
                    .to_owned()
            }
            Self::Differs { baseline, .. } => format!(
                "`lattice conformance baseline diff {} {node}` shows the keys; repair the node, or \
                 set the baseline anew",
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

impl fmt::Display for Unproven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, fault } = self;
        write!(
            f,
            "node {node} gets no sensitive work: {fault}; {}",
            fault.advice(node)
        )
    }
}

impl fmt::Display for ProofFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClaim => f.write_str("it has not claimed, signed, what it is"),
            Self::AnotherNode { speaks_of } => {
                write!(f, "the claim in its place speaks of {speaks_of}")
            }
            Self::Signature { reason } => write!(f, "its claim is not signed by it: {reason}"),
            Self::Age {
                off_ms, limit_ms, ..
            } => write!(
                f,
                "its claim was read {} s from state time; at most {} s are allowed",
                off_ms / 1000,
                limit_ms / 1000
            ),
            Self::Boot {
                claimed,
                planned: Some(planned),
            } => write!(
                f,
                "it claims under boot {claimed}, and was planned on under {planned}"
            ),
            Self::Boot {
                claimed,
                planned: None,
            } => write!(
                f,
                "it claims under boot {claimed}, and is assigned under none"
            ),
            Self::NoCohort { class, baseline } => write!(
                f,
                "class {class}: it does not claim what vendor, product and GPUs it has, so it may \
                 be meant by baseline \"{baseline}\""
            ),
            Self::Ambiguous { class, baselines } => {
                let names: Vec<&str> = baselines.iter().map(|name| name.as_str()).collect();
                write!(
                    f,
                    "class {class}: baselines {} speak for it equally",
                    names.join(" and ")
                )
            }
            Self::Unknown { class, baseline } => {
                write!(f, "class {class} is not known, and {baseline} asks for it")
            }
            Self::Differs {
                class,
                baseline,
                expected,
                found,
            } => write!(
                f,
                "class {class} is {}, and {baseline} asks for {}",
                shown(found),
                shown(expected)
            ),
            Self::NotJudged {
                class,
                baseline,
                judged_by: Some(other),
            } => write!(
                f,
                "class {class} was held against {other}, and {baseline} is in force"
            ),
            Self::NotJudged {
                class,
                baseline,
                judged_by: None,
            } => write!(f, "class {class} was not held against {baseline}"),
            Self::MadeOfAnother { class } => write!(
                f,
                "class {class} as its BMC completes it was made of another reading than it claims"
            ),
        }
    }
}

fn shown(digest: &[u8; 32]) -> String {
    HEXLOWER.encode(&digest[..SHOWN_BYTES])
}
