//! Lookup of conformance groups by the first digits of their digest, as shown by `lattice conformance groups`.

use lattice_api::problem::{Kind, Problem};
use lattice_conformance::{Class, ClassMark, Digest, Group, Scope, groups, union_digest};
use lattice_engine::Core;
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use lattice_view::View;
use std::collections::{BTreeMap, BTreeSet};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// Minimum number of digits that identify a group.
const MIN_DIGEST_DIGITS: usize = 8;
/// Maximum number of digests computed to find the set of classes of a group; computing them takes some tenths of a
/// second.
const MAX_DIGESTS: usize = 100_000;

/// Limits searches to two cores, because every reader may request groups that do not exist.
static SEARCH_PERMITS: Semaphore = Semaphore::const_new(2);

/// A group, and the scope that defines it.
pub(super) type GroupMatch = (Group, Scope);

/// Groups of these scopes with a digest that starts with `digits`.
pub(super) fn groups_by_prefix(
    view: &View,
    digits: &str,
    scopes: impl IntoIterator<Item = Scope>,
) -> Vec<GroupMatch> {
    let nodes = view.conformance();
    let mut found = Vec::new();
    for scope in scopes {
        let of_scope = groups(&nodes, &scope).groups.into_iter();
        let fitting = of_scope.filter(|group| group.digest.to_string().starts_with(digits));
        found.extend(fitting.map(|group| (group, scope.clone())));
    }
    found
}

/// Scope of each single class, and the scope of all classes together (fingerprint).
pub(super) fn basic_scopes() -> Vec<Scope> {
    let classes = Class::ALL.into_iter().map(Scope::Class);
    classes.chain([Scope::All]).collect()
}

/// One side of a comparison: a node, or a group represented by one of its nodes. All members are equal in the scope of
/// the group.
#[derive(Debug)]
pub(super) struct ComparisonSide {
    pub(super) node: NodeId,
    pub(super) group: Option<GroupMatch>,
}

impl ComparisonSide {
    /// Parses a node name, or else the first digits of a group digest, given as `field`. The search for a group runs on
    /// a blocking thread and delays no other request.
    pub(super) async fn read(
        core: &Core,
        field: &'static str,
        text: &str,
    ) -> Result<Self, Problem> {
        let view = core.view();
        let node = NodeId::new(text).ok();
        if let Some(node) = node.filter(|node| view.node(node).is_some()) {
            return Ok(Self { node, group: None });
        }
        let digits = text.to_ascii_lowercase();
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_hex || digits.is_empty() || digits.len() > 64 {
            return Err(Problem::unknown_node(text));
        }
        if digits.len() < MIN_DIGEST_DIGITS {
            let reason = format!(
                "{text:?} is not the name of a node; to name a group, give at least \
                 {MIN_DIGEST_DIGITS} digits of its digest"
            );
            return Err(Problem::field(field, reason));
        }
        let text = text.to_owned();
        // The semaphore is never closed.
        let permit = SEARCH_PERMITS.acquire().await;
        let search = spawn_blocking(move || {
            let _permit = permit;
            Self::group(&view, field, &text, &digits)
        });
        match search.await {
            Ok(found) => found,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Finds the only group with a digest that starts with `digits`.
    fn group(view: &View, field: &str, text: &str, digits: &str) -> Result<Self, Problem> {
        let mut fitting = groups_by_prefix(view, digits, basic_scopes());
        if fitting.is_empty() {
            fitting = groups_by_prefix(view, digits, union_scopes(view, digits));
        }
        if fitting.len() > 1 {
            let reason = format!(
                "{} groups begin with these digits; give more digits",
                fitting.len()
            );
            return Err(Problem::field(field, reason));
        }
        let none = || {
            let detail = format!(
                "{text:?} is not the name of a node or the start of a group's digest; `lattice \
                 node list` and `lattice conformance groups` list both"
            );
            Problem::new(Kind::NotFound, "unknown_node", detail)
        };
        let group = fitting.pop().ok_or_else(none)?;
        let members = group
            .0
            .nodes
            .iter()
            .filter_map(|name| NodeId::new(name).ok());
        let members: Vec<NodeId> = members.collect();
        let answers = |id: &&NodeId| {
            let entry = view.node(id);
            entry.is_some_and(|entry| entry.liveness == Liveness::Alive)
        };
        let node = members.iter().find(answers).or(members.first());
        Ok(Self {
            node: node.cloned().ok_or_else(none)?,
            group: Some(group),
        })
    }

    /// Name of the side in an answer.
    pub(super) fn label(&self) -> String {
        let Some((group, scope)) = &self.group else {
            return self.node.to_string();
        };
        let (digest, node) = (group.digest.short(), &self.node);
        let nodes = match group.nodes.len() {
            1 => "1 node".to_owned(),
            several => format!("{several} nodes"),
        };
        format!("group {digest} of {scope} ({nodes}, by {node})")
    }
}

/// Scopes of several classes in which the digest of a group starts with `digits`.
fn union_scopes(view: &View, digits: &str) -> Vec<Scope> {
    let entries = view.nodes.values().filter(|entry| entry.gossip.is_some());
    let kinds: BTreeSet<Vec<(Class, ClassMark)>> = entries
        .map(|entry| {
            entry
                .conformance()
                .common_marks()
                .iter()
                .map(|(c, m)| (*c, *m))
                .collect()
        })
        .collect();
    let kinds: Vec<BTreeMap<Class, ClassMark>> = kinds
        .into_iter()
        .map(|kind| kind.into_iter().collect())
        .collect();
    let begins = |digest: Digest| digest.to_string().starts_with(digits);
    let mut found = Vec::new();
    let budget = MAX_DIGESTS.checked_div(kinds.len()).unwrap_or(0);
    for classes in class_subsets(&Class::ALL).into_iter().take(budget) {
        let mut digests = kinds
            .iter()
            .filter_map(|marks| union_digest(marks, &classes));
        if digests.any(begins) {
            found.push(Scope::Union(classes));
        }
    }
    found
}

/// Every subset of two or more classes, the smallest first.
fn class_subsets(all: &[Class]) -> Vec<BTreeSet<Class>> {
    let mut choices: Vec<BTreeSet<Class>> = vec![BTreeSet::new()];
    for class in all {
        let with = choices.iter().map(|choice| {
            let mut choice = choice.clone();
            choice.insert(*class);
            choice
        });
        choices.extend(with.collect::<Vec<_>>());
    }
    choices.retain(|choice| choice.len() > 1);
    choices.sort_by_key(BTreeSet::len);
    choices
}
