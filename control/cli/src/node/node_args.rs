//! Node names on a command line.

use crate::{connect::Connection, failure::Failure};
use lattice_api::node::NodeView;
use lattice_quorum_types::{NodeId, hostlist};
use std::collections::BTreeSet;

/// Expands hostlists to node names.
pub fn expand(texts: &[String]) -> Result<Vec<NodeId>, Failure> {
    let mut all = Vec::new();
    for text in texts {
        let nodes = hostlist::expand(text).map_err(|e| Failure::usage(e.to_string()))?;
        all.extend(nodes);
    }
    Ok(all)
}

/// Selection of nodes, where no name means all nodes.
pub struct NodeSelection(Option<BTreeSet<NodeId>>);

impl NodeSelection {
    /// Reads the selection. An unknown name is an error: a report without entries for it would look like a good result.
    pub async fn read(texts: &[String], connection: &Connection) -> Result<Self, Failure> {
        if texts.is_empty() {
            return Ok(Self(None));
        }
        let there = connection.client.nodes().await?;
        Self::checked(expand(texts)?, &there)
    }

    /// Creates the selection of `nodes`, each of which must be among the existing nodes `there`.
    pub fn checked(nodes: Vec<NodeId>, there: &[NodeView]) -> Result<Self, Failure> {
        check(&nodes, there, "")?;
        Ok(Self::of_nodes(nodes))
    }

    /// Creates the selection of these nodes, or of all nodes if there are none.
    pub fn of_nodes(nodes: Vec<NodeId>) -> Self {
        Self((!nodes.is_empty()).then(|| nodes.into_iter().collect()))
    }

    /// Whether the node is selected.
    pub fn has(&self, node: &str) -> bool {
        let Some(meant) = &self.0 else {
            return true;
        };
        NodeId::new(node).is_ok_and(|node| meant.contains(&node))
    }

    /// Returns the selected nodes of a hostlist, and their number.
    pub fn selected_in(&self, list: &str) -> (String, usize) {
        let nodes = hostlist::expand(list).unwrap_or_default();
        let kept: Vec<_> = nodes.iter().filter(|n| self.has(n.as_str())).collect();
        (hostlist::fold(kept.iter().copied()), kept.len())
    }
}

/// Checks that each of several nodes exists before an action starts, so that the action is not done on half of them.
/// For a single node the server rejects an unknown name.
pub async fn check_all_exist(
    nodes: &[NodeId],
    undone: &str,
    connection: &Connection,
) -> Result<(), Failure> {
    match nodes {
        [] | [_] => Ok(()),
        several => {
            let there = connection.client.nodes().await?;
            check(several, &there, &format!("; {undone}"))
        }
    }
}

fn check(nodes: &[NodeId], there: &[NodeView], undone: &str) -> Result<(), Failure> {
    let there: BTreeSet<&str> = there.iter().map(|node| node.name.as_str()).collect();
    let unknown: Vec<_> = nodes
        .iter()
        .filter(|node| !there.contains(node.as_str()))
        .collect();
    match unknown.len() {
        0 => Ok(()),
        count => {
            let noun = if count == 1 { "node" } else { "nodes" };
            let unknown = hostlist::fold(unknown);
            Err(Failure::not_found(format!(
                "unknown {noun} {unknown}{undone}; `lattice node list` lists the known nodes"
            )))
        }
    }
}

/// Returns the name of one node; for several the error names the command to use instead.
pub fn single_node(text: &str, instead: impl Fn(&str) -> String) -> Result<&str, Failure> {
    let several = text.contains(['[', ',']);
    match several {
        false => Ok(text),
        true => Err(Failure::usage(format!(
            "expected one node, got {text}; for several: {}",
            instead(text)
        ))),
    }
}

/// Adds the node name to a failure, unless the server's text has it already.
pub fn with_node_name(node: &NodeId, mut failure: Failure) -> Failure {
    if !failure.text.contains(node.as_str()) {
        failure.text = format!("{node}: {}", failure.text);
    }
    failure
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn of_a_list_those_are_kept_that_are_meant() {
        let all = NodeSelection::of_nodes(Vec::new());
        assert!(all.has("gpu001"));
        assert_eq!(
            all.selected_in("gpu[001-003]"),
            ("gpu[001-003]".to_owned(), 3)
        );
        let nodes = expand(&["gpu[002-004]".to_owned()]).unwrap();
        let some = NodeSelection::of_nodes(nodes);
        assert!(some.has("gpu002") && !some.has("gpu001"));
        assert_eq!(
            some.selected_in("gpu[001-003]"),
            ("gpu[002-003]".to_owned(), 2)
        );
        assert_eq!(some.selected_in("gpu001"), (String::new(), 0));
    }

    #[test]
    fn node_list_in_place_of_node_is_explained() {
        let ask = |text: &str| format!("`lattice node list '{text}'`");
        assert_eq!(single_node("gpu001", ask).unwrap(), "gpu001");
        let several = single_node("gpu[001-002]", ask).unwrap_err();
        assert_eq!(several.code, 2);
        assert_eq!(
            several.text,
            "expected one node, got gpu[001-002]; for several: `lattice node list 'gpu[001-002]'`"
        );
    }
}
