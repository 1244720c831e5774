//! Refusals of requests above limits: violated levels of the tree, and the sensitive pool. The forms of their texts, and
//! the reason for two of them, are in `../../0001-limit-refusal-texts.md`.

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

    /// Remedy when a level is above its limit already, or the request could never start.
    fn hint(self) -> &'static str {
        match self {
            Self::Allocation | Self::Resumption | Self::Growth => {
                "Wait for running allocations to complete, or contact your tenant admin."
            }
            Self::Infeasible => {
                "The request exceeds the limit by itself and could never start: request less, or contact \
                 your tenant admin."
            }
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

impl ViolatedLevel {
    /// Owner of the limit.
    pub fn owner(&self) -> LimitOwner<'_> {
        LimitOwner::Project(&self.path)
    }

    /// Numbers of the limit.
    pub fn numbers(&self) -> LimitNumbers {
        LimitNumbers {
            current: self.current,
            requested: self.requested,
            limit: self.limit,
        }
    }
}

/// Owner of a limit, as texts name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOwner<'a> {
    /// Project or tenant.
    Project(&'a ProjectPath),
    /// The whole cluster.
    Cluster,
}

impl fmt::Display for LimitOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(path) if path.is_tenant() => write!(f, "tenant \"{path}\""),
            Self::Project(path) => write!(f, "project \"{path}\""),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

/// Numbers of a limit that does not fit a request. Every text about a limit has them in this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitNumbers {
    /// Usage before the request that counts against the limit.
    pub current: u64,
    /// Requested amount.
    pub requested: u64,
    /// The limit.
    pub limit: u64,
}

impl fmt::Display for LimitNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            current,
            requested,
            limit,
        } = self;
        write!(
            f,
            "(current: {current}, requested: {requested}, limit: {limit})"
        )
    }
}

/// Name of the limit of nodes in sensitive use.
pub const SENSITIVE_POOL_LIMIT: &str = "sensitive_pool_size";

/// Refusal by one limit. Its text is the only one of a refusal by a limit.
struct LimitBlock<'a> {
    /// Rejected request, such as `allocation`.
    request: &'static str,
    owner: LimitOwner<'a>,
    limit_name: &'static str,
    unit: &'static str,
    numbers: LimitNumbers,
    cause: LimitCause,
    hint: Option<&'static str>,
}

/// Cause of a refusal by a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitCause {
    /// The request does not fit the limit with the present usage, or by itself.
    Request,
    /// The usage is above the limit, which was lowered.
    LoweredLimit,
}

impl fmt::Display for LimitBlock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, name, unit) = (self.owner, self.limit_name, self.unit);
        let numbers @ LimitNumbers { current, limit, .. } = self.numbers;
        write!(f, "{} rejected: {owner} ", self.request)?;
        match self.cause {
            LimitCause::Request => write!(f, "would exceed {name} quota {numbers}")?,
            LimitCause::LoweredLimit => write!(
                f,
                "exceeds {name} quota\n  Current usage: {current} {unit}\n  New limit: {limit} {unit}"
            )?,
        }
        match self.hint {
            Some(hint) => write!(f, "\n  Hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl<'a> LimitBlock<'a> {
    fn of_level(level: &'a ViolatedLevel, asked: LimitRequest) -> Self {
        let is_infeasible = asked == LimitRequest::Infeasible;
        let cause = match level.current > level.limit && !is_infeasible {
            true => LimitCause::LoweredLimit,
            false => LimitCause::Request,
        };
        let has_hint = is_infeasible || cause == LimitCause::LoweredLimit;
        Self {
            request: asked.word(),
            owner: level.owner(),
            limit_name: level.resource.limit_name(),
            unit: level.resource.unit(),
            numbers: level.numbers(),
            cause,
            hint: has_hint.then(|| asked.hint()),
        }
    }

    fn of_pool(numbers: LimitNumbers) -> Self {
        let is_infeasible = numbers.requested > numbers.limit;
        Self {
            request: "sensitive use",
            owner: LimitOwner::Cluster,
            limit_name: SENSITIVE_POOL_LIMIT,
            unit: "nodes",
            numbers,
            cause: match numbers.current > numbers.limit && !is_infeasible {
                true => LimitCause::LoweredLimit,
                false => LimitCause::Request,
            },
            hint: Some(match is_infeasible {
                true => {
                    "The request exceeds the limit by itself: request less, or contact an \
                     administrator of the cluster."
                }
                false => "Wait until claimed nodes are wiped or sensitive work has ended.",
            }),
        }
    }
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
        write!(f, "{}", LimitBlock::of_level(level, asked))?;
    }
    Ok(())
}

/// Formats the refusal of sensitive use above the pool size.
pub(super) fn fmt_pool(f: &mut fmt::Formatter<'_>, numbers: LimitNumbers) -> fmt::Result {
    write!(f, "{}", LimitBlock::of_pool(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    fn text(current: u64, asked: LimitRequest) -> String {
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

    fn pool_text(current: u64, requested: u64) -> String {
        let refusal = Refusal::SensitivePool {
            current,
            requested,
            limit: 4,
        };
        refusal.to_string()
    }

    /// Exact texts: other systems parse them.
    #[test]
    fn an_allocation_is_refused_in_the_two_texts_of_the_contract() {
        assert_eq!(
            text(195, LimitRequest::Allocation),
            "allocation rejected: tenant \"physics\" would exceed max_nodes quota (current: 195, \
             requested: 10, limit: 200)"
        );
        assert_eq!(
            text(250, LimitRequest::Allocation),
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
                     {current}, requested: 300, limit: 200)\n  Hint: The request exceeds the limit by \
                     itself and could never start: request less, or contact your tenant admin."
                )
            );
        }
    }

    #[test]
    fn what_else_is_refused_is_called_what_was_asked_for() {
        assert_eq!(
            text(195, LimitRequest::Claim),
            "claim rejected: tenant \"physics\" would exceed max_nodes quota (current: 195, \
             requested: 10, limit: 200)"
        );
        assert_eq!(
            text(250, LimitRequest::Claim),
            "claim rejected: tenant \"physics\" exceeds max_nodes quota\n  Current usage: 250 \
             nodes\n  New limit: 200 nodes\n  Hint: Release claimed nodes, wait for running \
             allocations to complete, or contact your tenant admin."
        );
        for (asked, word) in [
            (LimitRequest::Growth, "grow"),
            (LimitRequest::Resumption, "resume"),
        ] {
            for current in [195, 250] {
                let text = text(current, asked);
                let begins = format!("{word} rejected: tenant");
                assert!(text.starts_with(&begins), "{text}");
            }
        }
    }

    /// The same two forms, with the cluster as the owner of the limit.
    #[test]
    fn sensitive_pool_is_refused_in_the_same_forms() {
        let wait = "\n  Hint: Wait until claimed nodes are wiped or sensitive work has ended.";
        let never = "\n  Hint: The request exceeds the limit by itself: request less, or contact \
                     an administrator of the cluster.";
        for (current, requested, text) in [
            (
                4,
                1,
                format!(
                    "would exceed sensitive_pool_size quota (current: 4, requested: 1, limit: 4){wait}"
                ),
            ),
            (
                5,
                1,
                format!(
                    "exceeds sensitive_pool_size quota\n  Current usage: 5 nodes\n  New limit: 4 nodes{wait}"
                ),
            ),
            (
                5,
                6,
                format!(
                    "would exceed sensitive_pool_size quota (current: 5, requested: 6, limit: 4){never}"
                ),
            ),
        ] {
            assert_eq!(
                pool_text(current, requested),
                format!("sensitive use rejected: the cluster {text}")
            );
        }
    }

    /// Every text of a refusal by a limit has this form: the first line names request, owner and limit, and is followed
    /// by indented lines with a name and a value only.
    #[test]
    fn every_text_has_one_form() {
        let mut texts = Vec::new();
        for current in [0, 195, 250] {
            for requested in [10, 300] {
                for asked in [
                    LimitRequest::Allocation,
                    LimitRequest::Resumption,
                    LimitRequest::Growth,
                    LimitRequest::Claim,
                    LimitRequest::Infeasible,
                ] {
                    texts.push(refusal_text(current, requested, asked));
                }
            }
        }
        texts.extend([(4, 1), (5, 1), (4, 6), (5, 6)].map(|(used, more)| pool_text(used, more)));
        for text in texts {
            let mut lines = text.lines();
            let first = lines.next().unwrap_or_default();
            let numbers = first.split_once(" would exceed ").is_some();
            assert_ne!(numbers, first.contains(" exceeds "), "{text}");
            assert_eq!(first.ends_with(')'), numbers, "{text}");
            assert!(first.contains(" rejected: "), "{text}");
            let names: Vec<&str> = lines
                .map(|line| {
                    let line = line.strip_prefix("  ").unwrap_or("not indented");
                    line.split_once(": ").map_or("no name", |(name, _)| name)
                })
                .collect();
            match numbers {
                true => assert!(matches!(names[..], [] | ["Hint"]), "{text}"),
                false => assert_eq!(names, ["Current usage", "New limit", "Hint"], "{text}"),
            }
        }
    }
}
