//! Comparison of nodes and groups with each other, or of a node with its earlier state.

use super::{
    groups::ComparisonSide,
    history,
    nodes::{self, MAJORITY},
};
use crate::state::Api;
use lattice_api::{conformance::DiffView, problem::Problem};
use lattice_conformance::Class;

/// Compares two nodes or groups, a node with the majority of its cohort, or a node with its earlier state. Exactly one
/// of `with` and `since` is required.
pub(crate) async fn diff(
    api: &Api,
    node: &str,
    with: Option<&str>,
    since: Option<&str>,
) -> Result<DiffView, Problem> {
    match (with, since) {
        (Some(with), None) => compare_sides(api, node, with).await,
        (None, Some(since)) => history::diff_since(api, node, since).await,
        _ => Err(Problem::field("with", "give either `with` or `since`")),
    }
}

/// Compares two sides. A group is represented by one of its nodes, and is compared only in the classes that define the
/// group.
async fn compare_sides(api: &Api, left: &str, right: &str) -> Result<DiffView, Problem> {
    let core = api.core();
    let left = ComparisonSide::read(core, "node", left).await?;
    let right = match right {
        MAJORITY => None,
        right => Some(ComparisonSide::read(core, "with", right).await?),
    };
    let with = right.as_ref().map_or(MAJORITY, |side| side.node.as_str());
    let group = |side: &ComparisonSide| side.group.as_ref().map(|(_, scope)| scope.clone());
    let scope = match (group(&left), right.as_ref().and_then(group)) {
        (Some(one), Some(other)) if one != other => {
            let reason = format!(
                "a group by {one} cannot be compared with a group by {other}; compare two \
                 groups by the same classes"
            );
            return Err(Problem::field("with", reason));
        }
        (one, other) => one.or(other),
    };
    let mut diff = nodes::diff(api, left.node.as_str(), with).await?;
    let classes = scope.map(|scope| scope.classes()).unwrap_or_default();
    if !classes.is_empty() {
        let is_asked = |class: &str| class.parse().is_ok_and(|c: Class| classes.contains(&c));
        diff.differences.retain(|d| is_asked(&d.class));
    }
    diff.left = left.label();
    if let Some(right) = &right {
        diff.right = right.label();
    }
    Ok(diff)
}
