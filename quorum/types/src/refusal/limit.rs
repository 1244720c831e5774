//! Refusals of requests above limits: violated levels of the tree, and the sensitive pool.

use crate::{ProjectPath, limit::Resource};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of request that exceeds limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitRequest {
    /// A new allocation, or the assignment of its nodes.
    Allocation,
    /// Resumption of a suspended allocation.
    Resumption,
    /// More nodes for an allocation that holds some.
    Growth,
    /// A node claim of a user.
    Claim,
    /// A new allocation that exceeds limits by itself, whatever else holds nodes: it could never start.
    Infeasible,
}

impl LimitRequest {
    /// Word for the rejected request.
    fn word(self) -> &'static str {
        match self {
            Self::Allocation | Self::Infeasible => "allocation",
            Self::Resumption => "resume",
            Self::Growth => "grow",
            Self::Claim => "claim",
        }
    }

    /// Remedy when a level is above its limit already.
    fn hint(self) -> &'static str {
        match self {
            Self::Allocation | Self::Resumption | Self::Growth => {
                "Wait for running allocations to complete, or contact your tenant admin."
            }
            Self::Infeasible => "Request less, or contact your tenant admin.",
            Self::Claim => {
                "Release claimed nodes, wait for running allocations to complete, or contact your \
                 tenant admin."
            }
        }
    }
}

/// A level of the tree with a limit that a request would exceed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolatedLevel {
    /// Path of the project or tenant.
    pub path: ProjectPath,
    /// Resource of the violated limit.
    pub resource: Resource,
    /// Usage before the request that counts against the limit.
    pub current: u64,
    /// Requested amount.
    pub requested: u64,
    /// The limit.
    pub limit: u64,
}

/// Formats every violated level, the project first, one block each. The two texts for allocations are the public
/// contract.
pub(super) fn fmt_exceeded(
    f: &mut fmt::Formatter<'_>,
    levels: &[ViolatedLevel],
    asked: LimitRequest,
) -> fmt::Result {
    for (i, level) in levels.iter().enumerate() {
        if i > 0 {
            f.write_str("\n")?;
        }
        fmt_level(f, level, asked)?;
    }
    Ok(())
}

fn fmt_level(
    f: &mut fmt::Formatter<'_>,
    level: &ViolatedLevel,
    asked: LimitRequest,
) -> fmt::Result {
    let ViolatedLevel {
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
    if asked == LimitRequest::Infeasible {
        return write!(
            f,
            "{what} rejected: {kind} \"{path}\" would exceed {name} quota (current: {current}, \
             requested: {requested}, limit: {limit}); the request exceeds the limit by itself and \
             could never start\n  Hint: {}",
            asked.hint()
        );
    }
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

/// Formats the refusal of sensitive use above the pool size.
pub(super) fn fmt_pool(
    f: &mut fmt::Formatter<'_>,
    (current, requested, limit): (u64, u64, u64),
) -> fmt::Result {
    if current > limit {
        write!(
            f,
            "sensitive use rejected: the cluster exceeds sensitive_pool_size quota\n  Current usage: \
             {current} nodes\n  New limit: {limit} nodes\n  Hint: "
        )?;
        return match requested > limit {
            true => write!(
                f,
                "The request of {requested} nodes exceeds the limit by itself."
            ),
            false => write!(
                f,
                "{requested} more fit once claimed nodes are released or sensitive work has ended."
            ),
        };
    }
    write!(
        f,
        "sensitive use rejected: the cluster would exceed sensitive_pool_size quota (current: \
         {current}, requested: {requested}, limit: {limit}); "
    )?;
    f.write_str(match requested > limit {
        true => "the request exceeds the limit by itself and could never start",
        false => "wait until claimed nodes are wiped or sensitive work has ended",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    fn told(current: u64, asked: LimitRequest) -> String {
        refusal_text(current, 10, asked)
    }

    fn refusal_text(current: u64, requested: u64, asked: LimitRequest) -> String {
        let path = ProjectPath::new("physics");
        let levels = path.into_iter().map(|path| ViolatedLevel {
            path,
            resource: Resource::Nodes,
            current,
            requested,
            limit: 200,
        });
        let levels = levels.collect();
        Refusal::LimitExceeded { levels, asked }.to_string()
    }

    /// Exact texts: other systems parse them.
    #[test]
    fn an_allocation_is_refused_in_the_two_texts_of_the_contract() {
        assert_eq!(
            told(195, LimitRequest::Allocation),
            "allocation rejected: tenant \"physics\" would exceed max_nodes quota (current: 195, \
             requested: 10, limit: 200)"
        );
        assert_eq!(
            told(250, LimitRequest::Allocation),
            "allocation rejected: tenant \"physics\" exceeds max_nodes quota\n  Current usage: 250 \
             nodes\n  New limit: 200 nodes\n  Hint: Wait for running allocations to complete, or \
             contact your tenant admin."
        );
    }

    /// The request and the limit are in the text at any usage, since their relation is the cause.
    #[test]
    fn infeasible_request_names_request_and_limit() {
        for current in [0, 195, 250] {
            assert_eq!(
                refusal_text(current, 300, LimitRequest::Infeasible),
                format!(
                    "allocation rejected: tenant \"physics\" would exceed max_nodes quota (current: \
                     {current}, requested: 300, limit: 200); the request exceeds the limit by itself and \
                     could never start\n  Hint: Request less, or contact your tenant admin."
                )
            );
        }
    }

    #[test]
    fn what_else_is_refused_is_called_what_was_asked_for() {
        assert_eq!(
            told(195, LimitRequest::Claim),
            "claim rejected: tenant \"physics\" would exceed max_nodes quota (current: 195, \
             requested: 10, limit: 200)"
        );
        assert_eq!(
            told(250, LimitRequest::Claim),
            "claim rejected: tenant \"physics\" exceeds max_nodes quota\n  Current usage: 250 \
             nodes\n  New limit: 200 nodes\n  Hint: Release claimed nodes, wait for running \
             allocations to complete, or contact your tenant admin."
        );
        for (asked, word) in [
            (LimitRequest::Growth, "grow"),
            (LimitRequest::Resumption, "resume"),
        ] {
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
