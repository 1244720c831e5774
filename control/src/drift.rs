//! Who is not what it is meant to be: judged by a baseline where there is one, else by the majority
//! of its cohort. A function of the view and the records at hand.

#[cfg(test)]
mod tests;

use crate::{
    baselines::{Baselines, Chosen, ClassBaseline, Kept},
    view::{NodeEntry, View},
};
use lattice_hwprobe::{
    Class, ClassMark, DriftReport, Earlier, NoMajority, Preimages, Verdict,
    baseline::{Deviation, Standing},
    drift,
};
use lattice_quorum_types::{
    NodeId, UnixMillis,
    baseline::{Policy, Sensitive},
    id::BaselineName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Why nothing is said of a class whose record is still to come.
const NOT_AT_HAND: &str = "preimage not at hand";

/// What a node was judged by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// A baseline.
    Baseline {
        /// Its name.
        name: BaselineName,
        /// Its version.
        version: u32,
        /// What follows.
        policy: Policy,
        /// What it means to sensitive work.
        sensitive: Sensitive,
    },
    /// The majority of its cohort.
    Cohort {
        /// Like nodes whose value is known, this one too.
        of: usize,
        /// Those that have the majority's.
        like: usize,
    },
}

/// A node that differs in one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Drifted {
    /// The node.
    pub node: NodeId,
    /// The class.
    pub class: Class,
    /// The key.
    pub key: String,
    /// What it is meant to be.
    pub expected: String,
    /// What it is.
    pub found: String,
    /// By what.
    pub by: By,
    /// Since when the node is known to have this record of the class.
    pub since: Option<UnixMillis>,
}

/// A class of a node of which nothing can be said.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    /// The node.
    pub node: NodeId,
    /// The class.
    pub class: Class,
    /// Why.
    pub why: String,
    /// The baseline it would be judged by.
    pub baseline: Option<BaselineName>,
}

/// Everything there is to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// By node, class, key.
    pub drifted: Vec<Drifted>,
    /// Keys on which a cohort has no majority.
    pub no_majority: Vec<NoMajority>,
    /// What is not known, by node.
    pub unknown: Vec<Unknown>,
    /// Nodes judged by nothing: without a baseline, and without a cohort large enough.
    pub alone: Vec<String>,
    /// Nodes that were held against something.
    pub compared: BTreeSet<NodeId>,
    /// Nodes of which something that was announced is not at hand yet.
    pub pending: BTreeSet<NodeId>,
    /// Nodes each baseline speaks for, in one class at least.
    pub judged: BTreeMap<BaselineName, BTreeSet<NodeId>>,
    /// Of the baselines with this number.
    pub(crate) number: u64,
}

/// What follows for one node from the baselines that speak for it, and what that was judged on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effect {
    /// Why it gets no sensitive work.
    pub no_sensitive: Option<String>,
    /// It gets new work where no other node will do.
    pub deprioritised: bool,
    /// How it differs from baselines that say to drain it.
    pub drain: Option<String>,
    /// Classes of those of which nothing can be said.
    pub(crate) drain_unknown: bool,
    pub(crate) marks: BTreeMap<Class, ClassMark>,
    pub(crate) earlier: BTreeMap<Class, Earlier>,
    pub(crate) has_cohort: bool,
    pub(crate) number: u64,
}

/// What one comparison came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Judged {
    pub(crate) report: Report,
    /// Without baselines.
    pub(crate) cohorts: DriftReport,
    /// Of every node that gossips, while there are baselines.
    pub(crate) effects: BTreeMap<NodeId, Arc<Effect>>,
}

impl Effect {
    /// Whether it was judged on what is known of the node now.
    pub(crate) fn is_of(&self, entry: &NodeEntry, baselines: &Baselines) -> bool {
        self.number == baselines.number
            && self.marks == *entry.marks()
            && self.earlier == *entry.earlier()
            && self.has_cohort == entry.cohort().is_some()
    }

    fn note(&mut self, kept: &Kept, class: Class, rule: &ClassBaseline, standing: &Standing) {
        let label = kept.label();
        let no_sensitive = match standing {
            Standing::Conforms => return,
            Standing::Differs(found) => {
                let words = differs(found);
                if rule.policy >= Policy::Deprioritise {
                    self.deprioritised = true;
                }
                if rule.policy == Policy::Drain {
                    let words = format!("differs from baseline {label}: {words}");
                    self.drain = Some(match self.drain.take() {
                        Some(before) => format!("{before}; {words}"),
                        None => words.clone(),
                    });
                }
                format!("it differs from baseline {label}: {words}")
            }
            Standing::Unknown { why } => {
                self.drain_unknown |= rule.policy == Policy::Drain;
                format!("baseline {label} cannot be checked in class {class}: {why}")
            }
        };
        if rule.sensitive == Sensitive::Strict {
            self.no_sensitive.get_or_insert(no_sensitive);
        }
    }
}

/// `nic.0.firmware is 28.39, not 28.41, and 2 keys more`.
pub(crate) fn differs(found: &[Deviation]) -> String {
    let mut differ = found.iter().filter(|d| d.verdict == Verdict::Differs);
    let Some(first) = differ.next() else {
        return "nothing that is known".to_owned();
    };
    let words = format!("{} is {}, not {}", first.key, first.found, first.expected);
    match differ.count() {
        0 => words,
        1 => format!("{words}, and 1 key more"),
        more => format!("{words}, and {more} keys more"),
    }
}

/// Judges every node that gossips, and as they were those that do no more: of these nothing follows.
pub(crate) fn judge(view: &View, preimages: &impl Preimages) -> Judged {
    let compared: Vec<_> = view.as_known_all().map(NodeEntry::conformance).collect();
    let cohorts = drift(&compared, preimages);
    let mut judged = Judged::default();
    judged.report.number = view.baselines.number;
    let mut spoken_for = SpokenFor::default();
    if !view.baselines.is_empty() {
        let mut seen = BTreeMap::new();
        for entry in view.as_known_all() {
            let effect = judge_node(
                view,
                entry,
                preimages,
                &mut seen,
                &mut judged,
                &mut spoken_for,
            );
            let gossips = |entry: &Arc<NodeEntry>| entry.seen.is_some();
            if view.node(&entry.id).is_some_and(gossips) {
                judged.effects.insert(entry.id.clone(), Arc::new(effect));
            }
        }
    }
    add_cohorts(view, &cohorts, &spoken_for, &mut judged.report);
    judged.report.drifted.sort();
    judged.report.unknown.sort();
    note_compared(view, &mut judged.report);
    judged.cohorts = cohorts;
    judged
}

/// Who was held against anything, and of whom something is still to come.
fn note_compared(view: &View, report: &mut Report) {
    let lacks_document = |entry: &NodeEntry| {
        let announced = entry.seen.as_ref().and_then(|seen| seen.document);
        announced.is_some() && entry.document.is_none()
    };
    let known = || view.as_known_all();
    let waits = known().filter(|entry| lacks_document(entry));
    report.pending = waits.map(|entry| entry.id.clone()).collect();
    let not_at_hand = report.unknown.iter().filter(|u| u.why == NOT_AT_HAND);
    report.pending.extend(not_at_hand.map(|u| u.node.clone()));
    // Nothing is known of who was never heard of.
    let unheard = view.nodes.keys().filter(|id| view.as_known(id).is_none());
    report.pending.extend(unheard.cloned());
    let alone: BTreeSet<&str> = report.alone.iter().map(String::as_str).collect();
    let compared = known().filter(|entry| !alone.contains(entry.id.as_str()));
    report.compared = compared.map(|entry| entry.id.clone()).collect();
    let pending: BTreeSet<&str> = report.pending.iter().map(NodeId::as_str).collect();
    report.alone.retain(|name| !pending.contains(name.as_str()));
}

/// The rule that speaks for a class of a node, or that something does and cannot be read.
#[derive(Default)]
struct SpokenFor(BTreeMap<(NodeId, Class), Option<Arc<Kept>>>);

impl SpokenFor {
    /// Whether a baseline speaks of this key, so that the cohort has no say.
    fn covers(&self, node: &NodeId, class: Class, key: &str) -> bool {
        match self.0.get(&(node.clone(), class)) {
            None => false,
            Some(None) => true,
            Some(Some(kept)) => match kept.classes().get(&class).map(|rule| &rule.expectation) {
                Some(Ok(expectation)) => expectation.covers(key),
                _ => true,
            },
        }
    }

    fn has(&self, node: &NodeId, class: Class) -> bool {
        self.0.contains_key(&(node.clone(), class))
    }
}

/// Everything that a standing depends on: two nodes that differ in any of it are judged each by its
/// own word.
type Asked = (BaselineName, Class, ClassMark, Option<Earlier>);

fn judge_node(
    view: &View,
    entry: &NodeEntry,
    preimages: &impl Preimages,
    seen: &mut BTreeMap<Asked, Standing>,
    judged: &mut Judged,
    spoken_for: &mut SpokenFor,
) -> Effect {
    let cohort = entry.cohort();
    let mut effect = Effect {
        marks: entry.marks().clone(),
        earlier: entry.earlier().clone(),
        // Then no baseline of a cohort speaks below, which does not mean that none is for it.
        drain_unknown: cohort.is_none() && view.baselines.might_drain(),
        has_cohort: cohort.is_some(),
        number: view.baselines.number,
        ..Effect::default()
    };
    let speaking = view.baselines.of(&entry.id, cohort.as_ref());
    if cohort.is_none() && view.baselines.might_concern_sensitive(&speaking) {
        let why = "its cohort is not known, and so not which baseline it has";
        effect.no_sensitive = Some(why.to_owned());
    }
    for (class, chosen) in speaking {
        let kept = match chosen {
            Chosen::One(kept) => kept,
            Chosen::Ambiguous(both) => {
                ambiguous(entry, class, &both, &mut effect, &mut judged.report);
                spoken_for.0.insert((entry.id.clone(), class), None);
                continue;
            }
        };
        let name = &kept.record.name;
        let nodes = judged.report.judged.entry(name.clone()).or_default();
        nodes.insert(entry.id.clone());
        spoken_for
            .0
            .insert((entry.id.clone(), class), Some(kept.clone()));
        let Some(rule) = kept.classes().get(&class) else {
            continue;
        };
        let mark = entry.marks().get(&class);
        let earlier = entry.earlier().get(&class);
        let standing = match (&rule.expectation, mark) {
            (Err(why), _) => Standing::Unknown {
                why: format!("the baseline cannot be read: {why}"),
            },
            // Ten thousand equal nodes are compared once.
            (Ok(expectation), Some(said)) => seen
                .entry((name.clone(), class, *said, earlier.copied()))
                .or_insert_with(|| expectation.judge(mark, earlier, preimages))
                .clone(),
            (Ok(expectation), None) => expectation.judge(None, earlier, preimages),
        };
        effect.note(&kept, class, rule, &standing);
        tell(entry, &kept, class, rule, standing, &mut judged.report);
    }
    effect
}

fn ambiguous(
    entry: &NodeEntry,
    class: Class,
    both: &[Arc<Kept>],
    effect: &mut Effect,
    report: &mut Report,
) {
    let names: Vec<String> = both
        .iter()
        .map(|kept| kept.record.name.to_string())
        .collect();
    let why = format!(
        "baselines {} speak for it equally: name the node in one of them",
        names.join(" and ")
    );
    let rules = || both.iter().filter_map(|kept| kept.classes().get(&class));
    effect.drain_unknown |= rules().any(|rule| rule.policy == Policy::Drain);
    if rules().any(|rule| rule.sensitive == Sensitive::Strict) {
        effect.no_sensitive.get_or_insert_with(|| why.clone());
    }
    report.unknown.push(Unknown {
        node: entry.id.clone(),
        class,
        why,
        baseline: None,
    });
}

fn tell(
    entry: &NodeEntry,
    kept: &Kept,
    class: Class,
    rule: &ClassBaseline,
    standing: Standing,
    report: &mut Report,
) {
    let node = &entry.id;
    match standing {
        Standing::Conforms => {}
        Standing::Unknown { why } => report.unknown.push(Unknown {
            node: node.clone(),
            class,
            why,
            baseline: Some(kept.record.name.clone()),
        }),
        Standing::Differs(found) => {
            let by = By::Baseline {
                name: kept.record.name.clone(),
                version: kept.record.version,
                policy: rule.policy,
                sensitive: rule.sensitive,
            };
            let differs = found.into_iter().filter(|d| d.verdict == Verdict::Differs);
            report.drifted.extend(differs.map(|d| Drifted {
                node: node.clone(),
                class,
                key: d.key,
                expected: d.expected,
                found: d.found.to_string(),
                by: by.clone(),
                since: entry.since(class),
            }));
        }
    }
}

/// What cohorts say of those, and of those keys, for which no baseline speaks.
fn add_cohorts(view: &View, cohorts: &DriftReport, spoken_for: &SpokenFor, report: &mut Report) {
    let id = |name: &str| NodeId::new(name).ok();
    for drift in &cohorts.drifts {
        let Some(node) = id(&drift.node) else {
            continue;
        };
        if spoken_for.covers(&node, drift.class, &drift.key) {
            continue;
        }
        let since = view.as_known(&node);
        let since = since.and_then(|entry| entry.since(drift.class));
        report.drifted.push(Drifted {
            node,
            class: drift.class,
            key: drift.key.clone(),
            expected: drift.expected.clone(),
            found: drift.found.clone(),
            by: By::Cohort {
                of: drift.of,
                like: drift.like,
            },
            since,
        });
    }
    for unknown in &cohorts.unknown {
        let Some(node) = id(&unknown.node) else {
            continue;
        };
        if !spoken_for.has(&node, unknown.class) {
            report.unknown.push(Unknown {
                node,
                class: unknown.class,
                why: unknown.why.clone(),
                baseline: None,
            });
        }
    }
    report.no_majority.clone_from(&cohorts.no_majority);
    let has_baseline: BTreeSet<&NodeId> = report.judged.values().flatten().collect();
    let alone = cohorts.alone.iter();
    let alone = alone.filter(|name| id(name).is_none_or(|node| !has_baseline.contains(&node)));
    report.alone = alone.cloned().collect();
}
