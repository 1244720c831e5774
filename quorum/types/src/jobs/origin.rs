//! Origin of an attempt: the part of the submit that its node has recorded. It names lost work: an attempt of an
//! allocation without a record.

use super::name::{AllocationName, ArrayElement};
use crate::{AllocationId, ProjectPath};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest user name and job name that a report may contain, bytes.
const MAX_TEXT_BYTES: usize = 256;

/// Origin of an attempt, as its node reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptOrigin {
    /// User that submitted the allocation.
    pub user: String,
    /// Project of the allocation.
    pub project: ProjectPath,
    /// Job name, if the request had one.
    pub name: Option<String>,
    /// Place of the allocation in a job array.
    pub element: Option<ArrayElement>,
}

impl AttemptOrigin {
    /// Name of the allocation `id`, which is that of the attempt.
    pub fn allocation_name(&self, id: AllocationId) -> AllocationName {
        AllocationName::new(id, self.element)
    }

    /// Name of the first field with a value that no accepted submit has; `None` if all are usable.
    pub fn invalid_field(&self) -> Option<&'static str> {
        let is_usable = |text: &str| {
            !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control)
        };
        if !is_usable(&self.user) {
            return Some("user");
        }
        let has_usable_name = self.name.as_deref().is_none_or(is_usable);
        (!has_usable_name).then_some("name")
    }
}

impl fmt::Display for AttemptOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name:?} ")?;
        }
        write!(f, "of {}, project {}", self.user, self.project)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn origin(user: &str, name: Option<&str>) -> AttemptOrigin {
        AttemptOrigin {
            user: user.to_owned(),
            project: ProjectPath::new("atlas/web").unwrap(),
            name: name.map(str::to_owned),
            element: None,
        }
    }

    #[test]
    fn origin_names_job_user_and_project() {
        let texts = [Some("train"), None].map(|name| origin("alice", name).to_string());
        assert_eq!(
            texts,
            [
                "\"train\" of alice, project atlas/web",
                "of alice, project atlas/web"
            ]
        );
        let element = Some(ArrayElement {
            array: AllocationId(232),
            index: 50,
        });
        let of_array = AttemptOrigin {
            element,
            ..origin("alice", None)
        };
        assert_eq!(
            of_array.allocation_name(AllocationId(239)).to_string(),
            "232_50"
        );
    }

    #[test]
    fn texts_that_no_submit_has_are_invalid() {
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        for (user, name, field) in [
            ("alice", Some("train"), None),
            ("alice", None, None),
            ("", None, Some("user")),
            ("al\nice", None, Some("user")),
            (&*long, None, Some("user")),
            ("alice", Some("tr\u{1b}ain"), Some("name")),
            ("alice", Some(&*long), Some("name")),
        ] {
            assert_eq!(
                origin(user, name).invalid_field(),
                field,
                "{user:?} {name:?}"
            );
        }
    }
}
