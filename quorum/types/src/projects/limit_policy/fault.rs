//! Violations of a limit policy by a limit change.

use crate::{ProjectPath, limit::Resource};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Reason why a limit change is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitFault {
    /// The children's limits would add up to more than this project's limit.
    ChildrenExceed {
        /// Parent project.
        parent: ProjectPath,
        /// Resource of the limit.
        resource: Resource,
        /// Sum of the children's finite limits. Wide, so that different sums stay different.
        children: u128,
        /// Number of children that would have no limit.
        unlimited: u64,
        /// Limit of the parent project.
        limit: u64,
    },
    /// The limit must be finite for this project.
    MustBeFinite {
        /// Path of the project.
        path: ProjectPath,
        /// Resource of the limit.
        resource: Resource,
    },
}

impl LimitFault {
    /// Checks whether an administrator may force the change. Requests must still fit at every level.
    pub fn may_be_forced(&self) -> bool {
        matches!(self, LimitFault::ChildrenExceed { .. })
    }

    /// Checks whether this is the same fault as `before` and not larger: no more unlimited children, and no larger
    /// excess of the others over the limit.
    pub fn is_no_worse_than(&self, before: &LimitFault) -> bool {
        match (self, before) {
            (
                LimitFault::ChildrenExceed {
                    parent,
                    resource,
                    children,
                    unlimited,
                    limit,
                },
                LimitFault::ChildrenExceed {
                    parent: of,
                    resource: then_of,
                    children: then_children,
                    unlimited: then_unlimited,
                    limit: then_limit,
                },
            ) => {
                let excess = children.saturating_sub(u128::from(*limit));
                let then_excess = then_children.saturating_sub(u128::from(*then_limit));
                (parent, resource) == (of, then_of)
                    && unlimited <= then_unlimited
                    && excess <= then_excess
            }
            _ => self == before,
        }
    }
}

/// Formats the refusal of a limit change.
pub(crate) fn fmt_fault(f: &mut fmt::Formatter<'_>, fault: &LimitFault) -> fmt::Result {
    match fault {
        LimitFault::ChildrenExceed {
            parent,
            resource,
            children,
            unlimited,
            limit,
        } => {
            let name = resource.limit_name();
            if *unlimited == 0 {
                return write!(
                    f,
                    "limit rejected: the {name} of the children of \"{parent}\" would add up to \
                     {children}, more than its own {limit}; raise \"{parent}\" or lower a child first"
                );
            }
            match unlimited {
                1 => write!(
                    f,
                    "limit rejected: a child of \"{parent}\" would have no {name}, but \
                     \"{parent}\" itself has {limit}; give the child a number"
                )?,
                more => write!(
                    f,
                    "limit rejected: {more} children of \"{parent}\" would have no {name}, but \
                     \"{parent}\" itself has {limit}; give each of them a number"
                )?,
            }
            if *children > u128::from(*limit) {
                write!(
                    f,
                    ", and lower others: those with a number would add up to {children}"
                )?;
            }
            Ok(())
        }
        LimitFault::MustBeFinite { path, resource } => {
            write!(
                f,
                "limit rejected: {} of \"{path}\" must be a number",
                resource.limit_name()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    #[test]
    fn reports_children_above_parent_limit() {
        let text = |children, unlimited| {
            let fault = ProjectPath::new("t").map(|parent| LimitFault::ChildrenExceed {
                parent,
                resource: Resource::Allocations,
                children,
                unlimited,
                limit: 10,
            });
            let faults = fault.into_iter().collect();
            Refusal::LimitConflict { faults }.to_string()
        };
        let name = "max_concurrent_allocations";
        assert_eq!(
            text(11, 0),
            format!(
                "limit rejected: the {name} of the children of \"t\" would add up to 11, more than its \
                 own 10; raise \"t\" or lower a child first"
            )
        );
        assert_eq!(
            text(5, 1),
            format!(
                "limit rejected: a child of \"t\" would have no {name}, but \"t\" itself has 10; give \
                 the child a number"
            )
        );
        assert_eq!(
            text(11, 2),
            format!(
                "limit rejected: 2 children of \"t\" would have no {name}, but \"t\" itself has 10; \
                 give each of them a number, and lower others: those with a number would add up to 11"
            )
        );
    }
}
