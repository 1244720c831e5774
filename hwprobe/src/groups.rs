//! Conformance groups: the nodes that share a digest.

use crate::{Class, ClassMark, Digest, Fingerprint, NodeView, UnknownClass, fingerprint};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What nodes are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One class.
    Class(Class),
    /// The node fingerprint.
    All,
}

impl fmt::Display for Scope {
    /// As [`Scope::from_str`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("all"),
            Self::Class(class) => class.fmt(f),
        }
    }
}

impl FromStr for Scope {
    type Err = UnknownClass;

    /// A class name, or `all`.
    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        match name {
            "all" => Ok(Self::All),
            name => name.parse().map(Self::Class),
        }
    }
}

/// Nodes that share a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The class, or none for the node fingerprint.
    pub class: Option<Class>,
    /// The shared digest.
    pub digest: Digest,
    /// Its members, sorted.
    pub nodes: Vec<String>,
}

/// The groups of a scope, and the nodes that are in none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Largest first, then by digest.
    pub groups: Vec<Group>,
    /// Nodes whose digest is unknown: equal to nobody, not even to each other.
    pub unknown: Vec<String>,
}

/// Groups nodes by digest.
#[must_use]
pub fn groups(nodes: &[NodeView], scope: Scope) -> Groups {
    let mut by_digest: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for node in nodes {
        let digest = match scope {
            Scope::Class(class) => node.classes.get(&class).and_then(ClassMark::digest),
            Scope::All => match fingerprint(&node.classes) {
                Fingerprint::Complete { digest, .. } => Some(digest),
                Fingerprint::Unknown { .. } | Fingerprint::Empty => None,
            },
        };
        match digest {
            Some(digest) => by_digest.entry(digest).or_default().push(node.node.clone()),
            None => unknown.push(node.node.clone()),
        }
    }
    let class = match scope {
        Scope::Class(class) => Some(class),
        Scope::All => None,
    };
    let mut groups: Vec<Group> = by_digest
        .into_iter()
        .map(|(digest, mut nodes)| {
            nodes.sort();
            Group {
                class,
                digest,
                nodes,
            }
        })
        .collect();
    groups.sort_by(|a, b| {
        b.nodes
            .len()
            .cmp(&a.nodes.len())
            .then(a.digest.cmp(&b.digest))
    });
    unknown.sort();
    Groups { groups, unknown }
}
