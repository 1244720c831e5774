//! A conformance group by the beginning of its digest, as `lattice conformance groups` shows it.

use crate::{Core, View};
use lattice_api::problem::{Kind, Problem};
use lattice_hwprobe::{Class, ClassMark, Digest, Group, Scope, groups, union_digest};
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// Fewest digits that name a group.
const LEAST_DIGITS: usize = 8;
/// Digests that are made to find of which classes together one is: some tenths of a second.
const MOST_DIGESTS: usize = 100_000;

/// Whoever may read may ask for groups that are none: no more cores than this look for them.
static SEARCHES: Semaphore = Semaphore::const_new(2);

/// A group, and what it is a group by.
pub(super) type Found = (Group, Scope);

/// The groups of these scopes whose digest begins so.
pub(super) fn beginning(
    view: &View,
    digits: &str,
    scopes: impl IntoIterator<Item = Scope>,
) -> Vec<Found> {
    let nodes = view.conformance();
    let mut found = Vec::new();
    for scope in scopes {
        let of_scope = groups(&nodes, &scope).groups.into_iter();
        let fitting = of_scope.filter(|group| group.digest.to_string().starts_with(digits));
        found.extend(fitting.map(|group| (group, scope.clone())));
    }
    found
}

/// Those of whole nodes, and of each class.
pub(super) fn plain() -> Vec<Scope> {
    let classes = Class::ALL.into_iter().map(Scope::Class);
    classes.chain([Scope::All]).collect()
}

/// A node, or a group, for which one of its nodes stands: what they share they are equal in.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) node: NodeId,
    pub(super) group: Option<Found>,
}

impl Side {
    /// Reads the name of a node, or else the beginning of a group's digest, given as `field`. A group
    /// is looked for where that keeps no request waiting.
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
        if digits.len() < LEAST_DIGITS {
            let reason = format!(
                "no node is called {text:?}; a group is named by {LEAST_DIGITS} digits of its digest \
                 or more"
            );
            return Err(Problem::field(field, reason));
        }
        let text = text.to_owned();
        // Never closed.
        let permit = SEARCHES.acquire().await;
        let search = spawn_blocking(move || {
            let _permit = permit;
            Self::group(&view, field, &text, &digits)
        });
        match search.await {
            Ok(found) => found,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// The one group whose digest begins so.
    fn group(view: &View, field: &str, text: &str, digits: &str) -> Result<Self, Problem> {
        let mut fitting = beginning(view, digits, plain());
        if fitting.is_empty() {
            fitting = beginning(view, digits, together(view, digits));
        }
        if fitting.len() > 1 {
            let reason = format!("{} groups begin so; give more of it", fitting.len());
            return Err(Problem::field(field, reason));
        }
        let none = || {
            let detail = format!(
                "no node is called {text:?}, and no group's digest begins so; `lattice node list` and \
                 `lattice conformance groups` show those there are"
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

    /// As it is named in an answer.
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

/// The classes that a digest may be of together.
fn together(view: &View, digits: &str) -> Vec<Scope> {
    let entries = view.nodes.values().filter(|entry| entry.seen.is_some());
    let kinds: BTreeSet<Vec<(Class, ClassMark)>> = entries
        .map(|entry| entry.common_marks().iter().map(|(c, m)| (*c, *m)).collect())
        .collect();
    let kinds: Vec<BTreeMap<Class, ClassMark>> = kinds
        .into_iter()
        .map(|kind| kind.into_iter().collect())
        .collect();
    let begins = |digest: Digest| digest.to_string().starts_with(digits);
    let mut found = Vec::new();
    let budget = MOST_DIGESTS.checked_div(kinds.len()).unwrap_or(0);
    for classes in several_of(&Class::ALL).into_iter().take(budget) {
        let mut digests = kinds
            .iter()
            .filter_map(|marks| union_digest(marks, &classes));
        if digests.any(begins) {
            found.push(Scope::Union(classes));
        }
    }
    found
}

/// Every choice of two or more, the smallest first.
fn several_of(all: &[Class]) -> Vec<BTreeSet<Class>> {
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
