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
        /// Sum of the children's limits; `None` when one of them would be unlimited.
        children: Option<u64>,
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

    /// Whether it is what was wrong before, and no more of it.
    pub fn is_no_worse_than(&self, before: &LimitFault) -> bool {
        match (self, before) {
            (
                LimitFault::ChildrenExceed {
                    parent,
                    resource,
                    children,
                    limit,
                },
                LimitFault::ChildrenExceed {
                    parent: of,
                    resource: then_of,
                    children: then_children,
                    limit: then_limit,
                },
            ) => {
                let no_more = match (children, then_children) {
                    (_, None) => true,
                    (None, Some(_)) => false,
                    (Some(now), Some(then)) => {
                        now.saturating_sub(*limit) <= then.saturating_sub(*then_limit)
                    }
                };
                (parent, resource) == (of, then_of) && no_more
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
            limit,
        } => {
            let name = resource.limit_name();
            match children {
                Some(sum) => write!(
                    f,
                    "limit rejected: the {name} of the children of \"{parent}\" would add up to \
                     {sum}, more than its own {limit}; raise \"{parent}\" or lower a child first"
                ),
                None => write!(
                    f,
                    "limit rejected: a child of \"{parent}\" would have no {name}, but \
                     \"{parent}\" itself has {limit}; give the child a number"
                ),
            }
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
