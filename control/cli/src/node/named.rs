//! Nodes as they are named on a command line.

use crate::{connect::Connection, failure::Failure};
use lattice_api::node::NodeView;
use lattice_quorum_types::{NodeId, hostlist};
use std::collections::BTreeSet;

/// Every node that hostlists name.
pub fn expand(texts: &[String]) -> Result<Vec<NodeId>, Failure> {
    let mut all = Vec::new();
    for text in texts {
        let nodes = hostlist::expand(text).map_err(|e| Failure::usage(e.to_string()))?;
        all.extend(nodes);
    }
    Ok(all)
}

/// The nodes that are meant where naming none means all of them.
pub struct Meant(Option<BTreeSet<NodeId>>);

impl Meant {
    /// Reads them; a name that no node has is a failure: nothing would be found wrong with it.
    pub async fn read(texts: &[String], connection: &Connection) -> Result<Self, Failure> {
        if texts.is_empty() {
            return Ok(Self(None));
        }
        let there = connection.client.nodes().await?;
        Self::among(expand(texts)?, &there)
    }

    /// The same where it is known which nodes there are.
    pub fn among(nodes: Vec<NodeId>, there: &[NodeView]) -> Result<Self, Failure> {
        check(&nodes, there, "")?;
        Ok(Self::these(nodes))
    }

    /// These, or all where there are none.
    pub fn these(nodes: Vec<NodeId>) -> Self {
        Self((!nodes.is_empty()).then(|| nodes.into_iter().collect()))
    }

    /// Whether this node is one of them.
    pub fn has(&self, node: &str) -> bool {
        let Some(meant) = &self.0 else {
            return true;
        };
        NodeId::new(node).is_ok_and(|node| meant.contains(&node))
    }

    /// Those of a hostlist that are meant, and how many.
    pub fn of(&self, list: &str) -> (String, usize) {
        let nodes = hostlist::expand(list).unwrap_or_default();
        let kept: Vec<_> = nodes.iter().filter(|n| self.has(n.as_str())).collect();
        (hostlist::fold(kept.iter().copied()), kept.len())
    }
}

/// Of several nodes each must be one before anything is done to the first: half of what was asked is
/// not what was asked. A single one the cluster refuses itself.
pub async fn known(nodes: &[NodeId], undone: &str, connection: &Connection) -> Result<(), Failure> {
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
                "unknown {noun} {unknown}{undone} (`lattice node list` shows those there are)"
            )))
        }
    }
}

/// One node; of several the failure says what to ask instead.
pub fn one(text: &str, instead: impl Fn(&str) -> String) -> Result<&str, Failure> {
    let several = text.contains(['[', ',']);
    match several {
        false => Ok(text),
        true => Err(Failure::usage(format!(
            "one node, not {text}; for several: {}",
            instead(text)
        ))),
    }
}

/// The server names the node where the node is the matter; it is named once.
pub fn about(node: &NodeId, mut failure: Failure) -> Failure {
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
        let all = Meant::these(Vec::new());
        assert!(all.has("gpu001"));
        assert_eq!(all.of("gpu[001-003]"), ("gpu[001-003]".to_owned(), 3));
        let nodes = expand(&["gpu[002-004]".to_owned()]).unwrap();
        let some = Meant::these(nodes);
        assert!(some.has("gpu002") && !some.has("gpu001"));
        assert_eq!(some.of("gpu[001-003]"), ("gpu[002-003]".to_owned(), 2));
        assert_eq!(some.of("gpu001"), (String::new(), 0));
    }

    #[test]
    fn a_list_where_one_node_is_meant_is_told_what_to_ask() {
        let ask = |text: &str| format!("`lattice node list '{text}'`");
        assert_eq!(one("gpu001", ask).unwrap(), "gpu001");
        let several = one("gpu[001-002]", ask).unwrap_err();
        assert_eq!(several.code, 2);
        assert_eq!(
            several.text,
            "one node, not gpu[001-002]; for several: `lattice node list 'gpu[001-002]'`"
        );
    }
}
