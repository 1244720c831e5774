//! Refusals for limits: which levels of the tree are violated, by what, and what is wrong with limits
//! that somebody would set.

use crate::{ProjectPath, limit::Resource};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What would take more than limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// New work, or its nodes.
    Allocation,
    /// What was suspended is to wait for nodes again.
    Resumption,
    /// More nodes for work that has some.
    Growth,
    /// Nodes for one person.
    Claim,
}

impl Asked {
    /// What is rejected.
    fn word(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Resumption => "resume",
            Self::Growth => "grow",
            Self::Claim => "claim",
        }
    }

    /// What to do where a level is above its limit already.
    fn hint(self) -> &'static str {
        match self {
            Self::Allocation | Self::Resumption | Self::Growth => {
                "Wait for running allocations to complete, or contact your tenant admin."
            }
            Self::Claim => {
                "Release claimed nodes, wait for running allocations to complete, or contact your \
                 tenant admin."
            }
        }
    }
}

/// One level of the tree that a request would violate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// The project, or tenant.
    pub path: ProjectPath,
    /// Which of its limits.
    pub resource: Resource,
    /// Own plus subtree usage before the request.
    pub current: u64,
    /// What was asked for.
    pub requested: u64,
    /// The ceiling.
    pub limit: u64,
}

/// Every violated level, the project first, a block for each. The two texts for allocations are the
/// public contract.
pub(super) fn fmt_exceeded(
    f: &mut fmt::Formatter<'_>,
    levels: &[Level],
    asked: Asked,
) -> fmt::Result {
    for (i, level) in levels.iter().enumerate() {
        if i > 0 {
            f.write_str("\n")?;
        }
        fmt_level(f, level, asked)?;
    }
    Ok(())
}

fn fmt_level(f: &mut fmt::Formatter<'_>, level: &Level, asked: Asked) -> fmt::Result {
    let Level {
        path,
        resource,
        current,
        requested,
        limit,
    } = level;
    let kind = match path.is_tenant() {
        true => "tenant",
        false => "project",
    };
    let (what, name, unit) = (asked.word(), resource.limit_name(), resource.unit());
    if current > limit {
        write!(
            f,
            "{what} rejected: {kind} \"{path}\" exceeds {name} quota\n  Current usage: {current} \
             {unit}\n  New limit: {limit} {unit}\n  Hint: {}",
            asked.hint()
        )
    } else {
        write!(
            f,
            "{what} rejected: {kind} \"{path}\" would exceed {name} quota (current: {current}, \
             requested: {requested}, limit: {limit})"
        )
    }
}

/// Why a limit change is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitFault {
    /// The children's limits would add up to more than this project's.
    ChildrenExceed {
        /// The project whose children do not fit.
        parent: ProjectPath,
        /// Which limit.
        resource: Resource,
        /// Sum of the children's limits that are numbers. Wide, so that no sum looks like another.
        children: u128,
        /// How many children would have no limit.
        unlimited: u64,
        /// The project's own limit.
        limit: u64,
    },
    /// This limit must be a number here.
    MustBeFinite {
        /// The project.
        path: ProjectPath,
        /// Which limit.
        resource: Resource,
    },
}

impl LimitFault {
    /// Whether an administrator may have it so by force: what is asked for is held against every level
    /// all the same.
    pub fn may_be_forced(&self) -> bool {
        matches!(self, LimitFault::ChildrenExceed { .. })
    }

    /// Whether it is what was wrong before, and no more of it: neither are there more children without
    /// a limit, nor do the others add up to more above the limit.
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

pub(super) fn fmt_fault(f: &mut fmt::Formatter<'_>, fault: &LimitFault) -> fmt::Result {
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

/// More sensitive use than the cluster allows.
pub(super) fn fmt_pool(
    f: &mut fmt::Formatter<'_>,
    (current, requested, limit): (u64, u64, u64),
) -> fmt::Result {
    if current > limit {
        write!(
            f,
            "sensitive use rejected: the cluster exceeds sensitive_pool_size quota\n  Current usage: \
             {current} nodes\n  New limit: {limit} nodes\n  Hint: {requested} more fit once claimed \
             nodes are released or sensitive work has ended."
        )
    } else {
        write!(
            f,
            "sensitive use rejected: the cluster would exceed sensitive_pool_size quota (current: \
             {current}, requested: {requested}, limit: {limit}); wait until claimed nodes are wiped or \
             sensitive work has ended"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    fn told(current: u64, asked: Asked) -> String {
        let path = ProjectPath::new("physics");
        let levels = path.into_iter().map(|path| Level {
            path,
            resource: Resource::Nodes,
            current,
            requested: 10,
            limit: 200,
        });
        let levels = levels.collect();
        Refusal::LimitExceeded { levels, asked }.to_string()
    }

    /// To the letter: other systems read it.
    #[test]
    fn an_allocation_is_refused_in_the_two_texts_of_the_contract() {
        assert_eq!(
            told(195, Asked::Allocation),
            "allocation rejected: tenant \"physics\" would exceed max_nodes quota (current: 195, \
             requested: 10, limit: 200)"
        );
        assert_eq!(
            told(250, Asked::Allocation),
            "allocation rejected: tenant \"physics\" exceeds max_nodes quota\n  Current usage: 250 \
             nodes\n  New limit: 200 nodes\n  Hint: Wait for running allocations to complete, or \
             contact your tenant admin."
        );
    }

    #[test]
    fn children_above_their_parent_are_told_with_those_that_have_no_limit() {
        let told = |children, unlimited| {
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
            told(11, 0),
            format!(
                "limit rejected: the {name} of the children of \"t\" would add up to 11, more than its \
                 own 10; raise \"t\" or lower a child first"
            )
        );
        assert_eq!(
            told(5, 1),
            format!(
                "limit rejected: a child of \"t\" would have no {name}, but \"t\" itself has 10; give \
                 the child a number"
            )
        );
        assert_eq!(
            told(11, 2),
            format!(
                "limit rejected: 2 children of \"t\" would have no {name}, but \"t\" itself has 10; \
                 give each of them a number, and lower others: those with a number would add up to 11"
            )
        );
    }

    #[test]
    fn what_else_is_refused_is_called_what_was_asked_for() {
        assert_eq!(
            told(195, Asked::Claim),
            "claim rejected: tenant \"physics\" would exceed max_nodes quota (current: 195, \
             requested: 10, limit: 200)"
        );
        assert_eq!(
            told(250, Asked::Claim),
            "claim rejected: tenant \"physics\" exceeds max_nodes quota\n  Current usage: 250 \
             nodes\n  New limit: 200 nodes\n  Hint: Release claimed nodes, wait for running \
             allocations to complete, or contact your tenant admin."
        );
        for (asked, word) in [(Asked::Growth, "grow"), (Asked::Resumption, "resume")] {
            for current in [195, 250] {
                let told = told(current, asked);
                assert!(
                    told.starts_with(&format!("{word} rejected: tenant")),
                    "{told}"
                );
            }
        }
    }
}
