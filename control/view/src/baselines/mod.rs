//! Baselines in force: selection of the baseline for each class of a node, and its expectation.
//!
//! The most specific baseline applies. A baseline that lists the node comes before one that selects its cohort; among
//! cohort selectors the one with more parts comes first. If two equally specific baselines come first for a class of a
//! node, none applies and the class of that node is unknown: an operator must resolve the conflict.

#[cfg(test)]
mod tests;

use lattice_conformance::{
    Class, CohortKey, Digest, Value,
    baseline::{Constraint, Expectation},
    verify,
};
use lattice_quorum_types::{
    NodeId,
    baseline::{
        self, Baseline, ClassRule, Cohort, DriftPolicy, Rule, Scalar, SensitivePolicy, Specificity,
        most_specific,
    },
    hostlist,
    id::BaselineName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// All baselines in force.
#[derive(Debug, Clone, Default)]
pub struct Baselines {
    by_name: BTreeMap<BaselineName, Arc<ParsedBaseline>>,
    /// Revision, incremented with each change. A verdict made under another revision is computed again.
    pub generation: u64,
}

/// One baseline, parsed.
#[derive(Debug)]
pub struct ParsedBaseline {
    /// The record as the quorum stores it.
    pub record: Baseline,
    named: BTreeSet<NodeId>,
    classes: BTreeMap<Class, ClassBaseline>,
    /// Classes unknown to this build, which this control does not check.
    pub unknown_classes: Vec<String>,
}

/// Rule of a baseline for one class.
#[derive(Debug)]
pub struct ClassBaseline {
    /// Policy applied when a node drifts.
    pub policy: DriftPolicy,
    /// Effect of drift on sensitive allocations.
    pub sensitive: SensitivePolicy,
    /// Expected content of the class, or why this build cannot read the rule.
    pub expectation: Result<Expectation, String>,
}

/// Outcome of the selection of a baseline for one class of one node.
#[derive(Debug, Clone)]
pub enum BaselineChoice {
    /// This baseline applies.
    One(Arc<ParsedBaseline>),
    /// No baseline applies, because these are equally specific.
    Ambiguous(Vec<Arc<ParsedBaseline>>),
}

impl ParsedBaseline {
    /// Parses the record that the quorum stores.
    pub fn new(record: Baseline) -> Self {
        let definition = &record.definition;
        // The quorum accepts only valid host lists. An empty text selects no node.
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

    /// Rules of this baseline, by class.
    pub fn classes(&self) -> &BTreeMap<Class, ClassBaseline> {
        &self.classes
    }

    fn rank(&self, node: &NodeId, cohort: Option<&Cohort>) -> Option<Specificity> {
        let is_named = self.named.contains(node);
        self.record.definition.rank(is_named, cohort)
    }

    /// Whether the selector matches this node. A more specific baseline may still take precedence.
    pub fn selects_node(&self, node: &NodeId, key: Option<&CohortKey>) -> bool {
        self.rank(node, key.map(cohort).as_ref()).is_some()
    }

    /// Name and version as reports show them, such as `h100 v3`.
    pub fn label(&self) -> String {
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

/// Converts a rule into the expectation for a class.
///
/// # Errors
/// Returns the reason when the rule cannot be read: its record is damaged or of another class, or a key is invalid.
pub fn expectation(class: Class, rule: &Rule) -> Result<Expectation, String> {
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
                        |error: lattice_conformance::baseline::InvalidPattern| error.to_string(),
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

/// Converts a scalar into a value as probes write it.
pub fn value(scalar: &Scalar) -> Value {
    match scalar {
        Scalar::Flag(flag) => Value::Flag(*flag),
        Scalar::Number(number) => Value::Number(*number),
        Scalar::Text(text) => Value::Text(text.clone()),
        Scalar::List(items) => Value::List(items.clone()),
    }
}

/// Converts a cohort key of a node into the quorum's cohort type.
pub fn cohort(key: &CohortKey) -> Cohort {
    Cohort {
        vendor: key.vendor.clone(),
        product: key.product.clone(),
        gpu_model: key.gpu_model.clone(),
        gpu_count: key.gpu_count,
    }
}

impl Baselines {
    /// Replaces all baselines.
    pub fn replace(&mut self, records: Vec<Baseline>) {
        let kept = records
            .into_iter()
            .map(|record| (record.name.clone(), Arc::new(ParsedBaseline::new(record))));
        self.by_name = kept.collect();
        self.generation += 1;
    }

    /// Stores the newest version of a baseline.
    pub fn set(&mut self, record: Baseline) {
        let name = record.name.clone();
        self.by_name
            .insert(name, Arc::new(ParsedBaseline::new(record)));
        self.generation += 1;
    }

    /// Removes a baseline.
    pub fn remove(&mut self, name: &BaselineName) {
        self.by_name.remove(name);
        self.generation += 1;
    }

    /// The baseline with this name.
    pub fn get(&self, name: &BaselineName) -> Option<&Arc<ParsedBaseline>> {
        self.by_name.get(name)
    }

    /// All baselines, ordered by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ParsedBaseline>> {
        self.by_name.values()
    }

    /// Whether there are no baselines.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Selects the baseline for each class of a node. Without a cohort only baselines that list the node can match.
    pub fn choose_for(
        &self,
        node: &NodeId,
        cohort: Option<&CohortKey>,
    ) -> BTreeMap<Class, BaselineChoice> {
        let cohort = cohort.map(self::cohort);
        let mut by_class: BTreeMap<Class, Vec<(Specificity, Arc<ParsedBaseline>)>> =
            BTreeMap::new();
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
                (Some(one), true) => BaselineChoice::One(one),
                (last, _) => {
                    speak.extend(last);
                    BaselineChoice::Ambiguous(speak)
                }
            };
            (class, chosen)
        });
        chosen.collect()
    }

    /// Whether a node of unknown cohort might match a cohort baseline with policy drain.
    pub fn might_drain(&self) -> bool {
        let of_cohorts = self.by_name.values();
        let mut of_cohorts = of_cohorts.filter(|kept| kept.record.definition.cohort.is_some());
        of_cohorts.any(|kept| {
            kept.classes
                .values()
                .any(|c| c.policy == DriftPolicy::Drain)
        })
    }

    /// Whether a node of unknown cohort might match a cohort baseline that is strict for sensitive allocations, in a
    /// class that no entry of `choices` covers.
    pub fn might_be_strict(&self, choices: &BTreeMap<Class, BaselineChoice>) -> bool {
        let of_cohorts = self.by_name.values();
        let mut of_cohorts = of_cohorts.filter(|kept| kept.record.definition.cohort.is_some());
        of_cohorts.any(|kept| {
            let mut rules = kept.classes.iter();
            rules.any(|(class, rule)| {
                rule.sensitive == SensitivePolicy::Strict && !choices.contains_key(class)
            })
        })
    }
}
