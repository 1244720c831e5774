//! `lattice node drain` and `undrain`.

use super::node_args::{check_all_exist, expand, with_node_name};
use crate::{
    connect::Connection,
    failure::Failure,
    output::{Columns, ResultList},
};
use clap::Args;
use lattice_api::{
    allocation::name_text,
    node::{DrainResult, UndrainResult},
};
use lattice_quorum_types::NodeId;
use serde::Serialize;

#[derive(Args)]
pub struct DrainArgs {
    /// Nodes: gpu007, gpu[001-004].
    #[arg(required = true, value_name = "NODES")]
    nodes: Vec<String>,
    /// Reason; shown to all users, and kept in the audit.
    #[arg(long)]
    reason: String,
    /// Take the nodes from the allocations that hold them, although it is unconfirmed that their processes have ended.
    /// You take responsibility: processes that still run may run concurrently with, or overwrite data of, later
    /// allocations. Nodes that are confirmed off or rebooted are released without this option.
    #[arg(long)]
    force_release: bool,
}

#[derive(Args)]
pub struct UndrainArgs {
    /// Nodes: gpu007, gpu[001-004].
    #[arg(required = true, value_name = "NODES")]
    nodes: Vec<String>,
    /// Skip the site's health gate. For administrators; kept in the audit.
    #[arg(long)]
    skip_gate: bool,
}

/// Result for one of the nodes.
#[derive(Serialize)]
struct NodeResult<T> {
    node: NodeId,
    #[serde(flatten)]
    done: T,
}

/// Describes the result of a drain, with the attempt that lost the node in a force release.
fn in_words(node: &NodeId, args: &DrainArgs, drained: &DrainResult) -> String {
    match (&drained.force_released_from, args.force_release) {
        (Some(held), _) => format!(
            "{node}: released by force from allocation {} attempt {}; the rank on {node} counts as lost, and its \
             processes may still run there; the node stays drained",
            name_text(held.allocation, held.element.as_ref()),
            held.attempt
        ),
        (None, true) => format!("{node}: drained; no allocation held it, so none was released"),
        (None, false) => format!("{node}: drained; running allocations continue"),
    }
}

/// Drains the nodes, after a check that each exists. All are tried; the first failure determines the exit code.
pub async fn drain(args: &DrainArgs, connection: &Connection) -> Result<(), Failure> {
    let nodes = expand(&args.nodes)?;
    if args.reason.trim().is_empty() {
        let why = match args.force_release {
            true => {
                "--reason: give the reason, and the proof that no process of the allocation runs on the node"
            }
            false => "--reason: give the reason, which is shown with the node",
        };
        return Err(Failure::usage(why));
    }
    check_all_exist(&nodes, "nothing is drained", connection).await?;
    let client = &connection.client;
    let mut all = ResultList::new(connection.format);
    for node in nodes {
        let done = match args.force_release {
            true => client.force_release(node.as_str(), &args.reason).await,
            false => client.drain(node.as_str(), &args.reason).await,
        };
        match done {
            Ok(done) => {
                let words = in_words(&node, args, &done);
                all.add(NodeResult { node, done }, &words);
            }
            Err(error) => all.refuse(node.as_str(), with_node_name(&node, error.into())),
        }
    }
    let columns = Columns::only(&["node", "revision", "force_released_from"]);
    all.finish(columns, drain_row)
}

fn drain_row(of: &NodeResult<DrainResult>) -> Vec<String> {
    let held = of.done.force_released_from.as_ref().map(|held| {
        let name = name_text(held.allocation, held.element.as_ref());
        format!("{name} attempt {}", held.attempt)
    });
    let revision = of.done.revision.to_string();
    vec![of.node.to_string(), revision, held.unwrap_or_default()]
}

/// Undrains the nodes, after a check that each exists. All are tried; the first failure determines the exit code.
pub async fn undrain(args: &UndrainArgs, connection: &Connection) -> Result<(), Failure> {
    let nodes = expand(&args.nodes)?;
    check_all_exist(&nodes, "nothing is undrained", connection).await?;
    let client = &connection.client;
    let mut all = ResultList::new(connection.format);
    for node in nodes {
        let done = match args.skip_gate {
            true => client.undrain_without_gate(node.as_str()).await,
            false => client.undrain(node.as_str()).await,
        };
        match done {
            Ok(done) => {
                let words = match all.prints_sentences() {
                    true => format!("{node}: {}", undrain_text(&node, &done, connection).await),
                    false => String::new(),
                };
                all.add(NodeResult { node, done }, &words);
            }
            Err(error) => all.refuse(node.as_str(), with_node_name(&node, error.into())),
        }
    }
    let columns = Columns::only(&["node", "revision", "cleared"]);
    all.finish(columns, |of| {
        let revision = of.done.revision.to_string();
        vec![of.node.to_string(), revision, of.done.cleared.join("; ")]
    })
}

/// Describes the result of an undrain, with the drain reasons that still keep the node out of service.
async fn undrain_text(node: &NodeId, done: &UndrainResult, connection: &Connection) -> String {
    // The undrain succeeded, even if the node's state cannot be read now.
    let shown = connection.client.node(node.as_str()).await.ok();
    if done.cleared.is_empty() {
        let lifecycle = shown.map_or_else(String::new, |n| format!("; it is {}", n.lifecycle));
        return format!("was not drained, so nothing is cleared{lifecycle}");
    }
    let cleared = cleared_text(done);
    let Some(shown) = shown else {
        return cleared;
    };
    let others = shown
        .drain
        .iter()
        .map(|d| format!("{}: {}", d.owner, d.reason));
    match others.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => format!("{cleared}; it is {}", shown.lifecycle),
        others => {
            let advice = service_advice(shown.drain.iter().map(|d| d.owner.as_str()));
            format!("{cleared}; it stays drained by {others}{advice}")
        }
    }
}

/// Returns what becomes of the drain reasons that services own: an operator cannot clear them, and need not.
fn service_advice<'a>(mut owners: impl Iterator<Item = &'a str>) -> &'static str {
    match owners.any(|owner| owner.starts_with("service:")) {
        true => {
            "; a service clears its own reason once the cause is gone (see `lattice node show`)"
        }
        false => "",
    }
}

/// Lists the cleared reasons, each with its owner: an operator also clears the drain reason of a failed hook.
fn cleared_text(done: &UndrainResult) -> String {
    format!("cleared: {}", done.cleared.join("; "))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_api::{allocation::ElementView, node::HolderView};
    use lattice_quorum_types::{AllocationId, Revision};

    #[test]
    fn row_of_a_drain_names_the_element() {
        let held = |element| HolderView {
            allocation: AllocationId(239),
            attempt: 2,
            element,
        };
        let element = ElementView {
            array: AllocationId(232),
            index: 50,
        };
        for (held, cell) in [
            (Some(held(Some(element))), "232_50 attempt 2"),
            (Some(held(None)), "239 attempt 2"),
            (None, ""),
        ] {
            let result = NodeResult {
                node: NodeId::new("gpu007").unwrap(),
                done: DrainResult {
                    revision: Revision(7),
                    force_released_from: held,
                },
            };
            assert_eq!(drain_row(&result), ["gpu007", "7", cell]);
        }
    }

    #[test]
    fn remaining_reason_of_a_service_clears_itself() {
        let advice = service_advice(["ada", "service:dispatch"].into_iter());
        assert!(
            advice.contains("a service clears its own reason"),
            "{advice}"
        );
        assert_eq!(service_advice(["ada"].into_iter()), "");
    }

    #[test]
    fn cleared_reason_names_author() {
        let done = UndrainResult {
            revision: Revision(7),
            cleared: vec!["service:hooks: epilog: exit code 1".to_owned()],
        };
        assert_eq!(
            cleared_text(&done),
            "cleared: service:hooks: epilog: exit code 1"
        );
    }
}
