//! Attempts of allocations on a node: their keys and their status.

use lattice_quorum_types::{
    AllocationId, NameLookup,
    command::RankReport,
    origin::AttemptOrigin,
    rpc::{Role, Rpc},
};
use serde::{Deserialize, Serialize};

/// Identifies one attempt of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// Number of the allocation.
    pub allocation: AllocationId,
    /// Number of the attempt.
    pub attempt: u32,
}

/// Maximum number of attempts named in a text; the others are only counted.
const MAX_NAMED: usize = 4;

/// Readable list of attempts; `name`: names of their allocations.
#[must_use]
pub fn attempt_names(attempts: &[AttemptKey], name: NameLookup<'_>) -> String {
    let text = |key: &AttemptKey| {
        let name = name(key.allocation);
        format!("allocation {name} attempt {}", key.attempt)
    };
    let names: Vec<String> = attempts.iter().take(MAX_NAMED).map(text).collect();
    let names = names.join(", ");
    match attempts.len().saturating_sub(MAX_NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// Status of an attempt on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStatus {
    /// The attempt.
    pub key: AttemptKey,
    /// Last report; `None`: the attempt is recorded, but its process has not been seen yet.
    pub report: Option<RankReport>,
}

/// Lists the recorded attempts without an acknowledged end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListAttempts;
impl Rpc for ListAttempts {
    const METHOD: &'static str = "agent.attempts";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Vec<AttemptStatus>;
}

/// Returns the origin of an attempt, which control requests if the quorum has no record of its allocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetOrigin {
    /// The attempt.
    pub key: AttemptKey,
}
impl Rpc for GetOrigin {
    const METHOD: &'static str = "agent.origin";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// `None`: the node has no readable record of the launch.
    type Reply = Option<AttemptOrigin>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_quorum_types::{AllocationName, progress::ArrayElement};

    #[test]
    fn few_are_named_however_many_are_given() {
        let attempts = |n| -> Vec<AttemptKey> {
            let key = |attempt| AttemptKey {
                allocation: AllocationId(7),
                attempt,
            };
            (1..=n).map(key).collect()
        };
        let number = AllocationName::of_id;
        let one = attempts(1);
        assert_eq!(attempt_names(&one, &number), "allocation 7 attempt 1");
        let element = ArrayElement {
            array: AllocationId(3),
            index: 50,
        };
        let of_array = |id| AllocationName::new(id, Some(element));
        assert_eq!(attempt_names(&one, &of_array), "allocation 3_50 attempt 1");
        let many = attempt_names(&attempts(10_000), &number);
        assert!(many.ends_with("attempt 4 and 9996 more"), "{many}");
        assert!(many.len() < 200);
    }
}
