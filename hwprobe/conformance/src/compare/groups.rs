//! Conformance groups: the nodes that share a digest.

use crate::{Class, ClassMark, Digest, Fingerprint, Levels, NodeView, UnknownClass, fingerprint};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Scope of a grouping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One class.
    Class(Class),
    /// Two or more classes together, as a job or a vCluster may require.
    Union(BTreeSet<Class>),
    /// The node fingerprint.
    All,
}

impl Scope {
    /// The classes in scope; empty for the node fingerprint, which covers every class that is not disabled.
    #[must_use]
    pub fn classes(&self) -> Vec<Class> {
        match self {
            Self::Class(class) => vec![*class],
            Self::Union(classes) => classes.iter().copied().collect(),
            Self::All => Vec::new(),
        }
    }
}

impl fmt::Display for Scope {
    /// Formats the scope as [`Scope::from_str`] parses it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("all"),
            Self::Class(class) => class.fmt(f),
            Self::Union(classes) => {
                let names: Vec<&str> = classes.iter().map(|class| class.name()).collect();
                f.pad(&names.join(","))
            }
        }
    }
}

impl FromStr for Scope {
    type Err = UnknownClass;

    /// Parses a class name, several separated by commas, or `all`.
    fn from_str(names: &str) -> Result<Self, UnknownClass> {
        if names == "all" {
            return Ok(Self::All);
        }
        let classes = names.split(',').map(|name| name.trim().parse());
        let classes: BTreeSet<Class> = classes.collect::<Result<_, _>>()?;
        Ok(match (classes.first(), classes.len()) {
            (Some(one), 1) => Self::Class(*one),
            _ => Self::Union(classes),
        })
    }
}

/// Nodes that share a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The class if the scope is one class; none for several, and for the node fingerprint.
    pub class: Option<Class>,
    /// The shared digest.
    pub digest: Digest,
    /// Members of the group, sorted.
    pub nodes: Vec<String>,
}

/// The groups of a scope, and the nodes without a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Groups, largest first, then by digest.
    pub groups: Vec<Group>,
    /// Nodes without a digest of the scope, because a class is unknown or disabled: equal to no other node, not even to
    /// each other.
    pub unknown: Vec<String>,
}

/// The combined digest of several classes of one node: over the ordered list of class, schema and digest. `None` if one
/// of the classes is unknown or disabled, because then no comparison is possible.
#[must_use]
pub fn union_digest(
    marks: &BTreeMap<Class, ClassMark>,
    classes: &BTreeSet<Class>,
) -> Option<Digest> {
    let mut list = Vec::with_capacity(classes.len() * 48);
    for class in classes {
        let ClassMark::Complete { schema, digest } = marks.get(class)? else {
            return None;
        };
        // Class names are all shorter than 256 bytes.
        list.push(class.name().len() as u8);
        list.extend_from_slice(class.name().as_bytes());
        list.extend_from_slice(&schema.to_le_bytes());
        list.extend_from_slice(&digest.0);
    }
    (!classes.is_empty()).then(|| Digest::derive("lattice conformance classes", &list))
}

/// Groups nodes by digest, each class in the schema that these nodes share: see [`Levels`].
#[must_use]
pub fn groups(nodes: &[NodeView], scope: &Scope) -> Groups {
    let mut by_digest: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
    let mut unknown = Vec::new();
    let levels = Levels::of(nodes.iter().map(NodeView::published_digests));
    for node in nodes {
        let marks = levels.marks(&node.classes, &node.earlier);
        let digest = match scope {
            Scope::Class(class) => marks.get(class).and_then(ClassMark::digest),
            Scope::Union(classes) => union_digest(&marks, classes),
            Scope::All => match fingerprint(&marks) {
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
        Scope::Class(class) => Some(*class),
        Scope::Union(_) | Scope::All => None,
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
