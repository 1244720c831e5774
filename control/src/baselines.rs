//! Baselines as this control reads them: which one speaks for a class of a node, and what it asks.
//!
//! The most specific one speaks: one that names the node before one of its cohort, and of those the
//! one whose selector gives more parts. Where two of one rank meet in a node neither speaks, and
//! the class is unknown there: a person has to say which is meant.

pub(crate) mod form;
#[cfg(test)]
mod tests;

use lattice_hwprobe::{
    Class, CohortKey, Digest, Value,
    baseline::{Constraint, Expectation},
    verify,
};
use lattice_quorum_types::{
    NodeId,
    baseline::{
        self, Baseline, ClassRule, Cohort, Policy, Rank, Rule, Scalar, Sensitive, most_specific,
    },
    hostlist,
    id::BaselineName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Every baseline in force.
#[derive(Debug, Clone, Default)]
pub struct Baselines {
    by_name: BTreeMap<BaselineName, Arc<Kept>>,
    /// Grows with each change: what was judged under another number is judged anew.
    pub(crate) number: u64,
}

/// One baseline, read.
#[derive(Debug)]
pub struct Kept {
    /// As the quorum keeps it.
    pub record: Baseline,
    named: BTreeSet<NodeId>,
    classes: BTreeMap<Class, ClassBaseline>,
    /// Classes that this build does not know: nobody is judged by them here.
    pub(crate) unknown_classes: Vec<String>,
}

/// What a baseline says of one class.
#[derive(Debug)]
pub struct ClassBaseline {
    /// What follows where a node differs.
    pub policy: Policy,
    /// What that means to sensitive work.
    pub sensitive: Sensitive,
    /// What is asked, or why that cannot be read here.
    pub expectation: Result<Expectation, String>,
}

/// Which baseline speaks for one class of one node.
#[derive(Debug, Clone)]
pub(crate) enum Chosen {
    /// This one.
    One(Arc<Kept>),
    /// None, for these are equally specific.
    Ambiguous(Vec<Arc<Kept>>),
}

impl Kept {
    /// Reads what the quorum keeps.
    pub(crate) fn new(record: Baseline) -> Self {
        let definition = &record.definition;
        // The quorum took no other; an empty text names nobody.
        let named = hostlist::expand(&definition.nodes).unwrap_or_default();
        let mut classes = BTreeMap::new();
        let mut unknown_classes = Vec::new();
        for (name, rule) in &definition.classes {
            match name.parse::<Class>() {
                Ok(class) => {
                    classes.insert(class, ClassBaseline::new(class, rule));
                }
                Err(_) => unknown_classes.push(name.clone()),
            }
        }
        Self {
            named: named.into_iter().collect(),
            classes,
            unknown_classes,
            record,
        }
    }

    /// What it asks, class by class.
    pub fn classes(&self) -> &BTreeMap<Class, ClassBaseline> {
        &self.classes
    }

    fn rank(&self, node: &NodeId, cohort: Option<&Cohort>) -> Option<Rank> {
        let is_named = self.named.contains(node);
        self.record.definition.rank(is_named, cohort)
    }

    /// Whether its selector is for this node. A more specific one may speak before it.
    pub(crate) fn is_for(&self, node: &NodeId, key: Option<&CohortKey>) -> bool {
        self.rank(node, key.map(cohort).as_ref()).is_some()
    }

    /// `h100 v3`, as reports name it.
    pub(crate) fn label(&self) -> String {
        format!("{} v{}", self.record.name, self.record.version)
    }
}

impl ClassBaseline {
    fn new(class: Class, rule: &ClassRule) -> Self {
        Self {
            policy: rule.policy,
            sensitive: rule.sensitive,
            expectation: expectation(class, &rule.rule),
        }
    }
}

/// What a rule asks of a class.
///
/// # Errors
/// Why it cannot be read: its record is damaged, of another class, or a key is none.
pub(crate) fn expectation(class: Class, rule: &Rule) -> Result<Expectation, String> {
    match rule {
        Rule::Exact {
            digest, preimage, ..
        } => {
            let digest = Digest(*digest);
            let record = verify(&digest, preimage).map_err(|error| error.to_string())?;
            if record.class != class {
                return Err(format!("its record is of class {}", record.class));
            }
            let record = Box::new(record);
            Ok(Expectation::Exact { digest, record })
        }
        Rule::Partial { constraints } => {
            let read = |constraint: &baseline::Constraint| {
                Ok(Constraint {
                    key: constraint.key.parse().map_err(
                        |error: lattice_hwprobe::baseline::BadPattern| error.to_string(),
                    )?,
                    any_of: constraint.any_of.iter().map(value).collect(),
                    or_absent: constraint.or_absent,
                })
            };
            let read: Result<Vec<Constraint>, String> = constraints.iter().map(read).collect();
            read.map(Expectation::Partial)
        }
    }
}

/// A value as probes write it.
pub(crate) fn value(scalar: &Scalar) -> Value {
    match scalar {
        Scalar::Flag(flag) => Value::Flag(*flag),
        Scalar::Number(number) => Value::Number(*number),
        Scalar::Text(text) => Value::Text(text.clone()),
        Scalar::List(items) => Value::List(items.clone()),
    }
}

/// What a node is by construction, as the quorum reads it.
pub(crate) fn cohort(key: &CohortKey) -> Cohort {
    Cohort {
        vendor: key.vendor.clone(),
        product: key.product.clone(),
        gpu_model: key.gpu_model.clone(),
        gpu_count: key.gpu_count,
    }
}

impl Baselines {
    /// Everything anew.
    pub(crate) fn replace(&mut self, records: Vec<Baseline>) {
        let kept = records
            .into_iter()
            .map(|record| (record.name.clone(), Arc::new(Kept::new(record))));
        self.by_name = kept.collect();
        self.number += 1;
    }

    /// Puts the newest version in place.
    pub(crate) fn set(&mut self, record: Baseline) {
        let name = record.name.clone();
        self.by_name.insert(name, Arc::new(Kept::new(record)));
        self.number += 1;
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, name: &BaselineName) {
        self.by_name.remove(name);
        self.number += 1;
    }

    /// One of them.
    pub fn get(&self, name: &BaselineName) -> Option<&Arc<Kept>> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Kept>> {
        self.by_name.values()
    }

    /// Whether nobody has one.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Which one speaks for each class of a node. Without a cohort only those that name it may.
    pub(crate) fn of(&self, node: &NodeId, cohort: Option<&CohortKey>) -> BTreeMap<Class, Chosen> {
        let cohort = cohort.map(self::cohort);
        let mut by_class: BTreeMap<Class, Vec<(Rank, Arc<Kept>)>> = BTreeMap::new();
        for kept in self.by_name.values() {
            let Some(rank) = kept.rank(node, cohort.as_ref()) else {
                continue;
            };
            for class in kept.classes.keys() {
                let spoken = by_class.entry(*class).or_default();
                spoken.push((rank, kept.clone()));
            }
        }
        let chosen = by_class.into_iter().map(|(class, spoken)| {
            let mut speak = most_specific(spoken);
            let chosen = match (speak.pop(), speak.is_empty()) {
                (Some(one), true) => Chosen::One(one),
                (last, _) => {
                    speak.extend(last);
                    Chosen::Ambiguous(speak)
                }
            };
            (class, chosen)
        });
        chosen.collect()
    }

    /// Whether a node whose cohort is not known might have one that says to drain it.
    pub(crate) fn might_drain(&self) -> bool {
        let of_cohorts = self.by_name.values();
        let mut of_cohorts = of_cohorts.filter(|kept| kept.record.definition.cohort.is_some());
        of_cohorts.any(|kept| kept.classes.values().any(|c| c.policy == Policy::Drain))
    }

    /// Whether a node whose cohort is not known might have one that matters to sensitive work, in a
    /// class for which none is `speaking` that names it.
    pub(crate) fn might_concern_sensitive(&self, speaking: &BTreeMap<Class, Chosen>) -> bool {
        let of_cohorts = self.by_name.values();
        let mut of_cohorts = of_cohorts.filter(|kept| kept.record.definition.cohort.is_some());
        of_cohorts.any(|kept| {
            let mut rules = kept.classes.iter();
            rules.any(|(class, rule)| {
                rule.sensitive == Sensitive::Strict && !speaking.contains_key(class)
            })
        })
    }
}
