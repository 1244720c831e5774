//! Sensitive allocations: each node needs its own current attestation that does not contradict the baselines in force
//! at this log index. See `../../../0005-attestations.md`.
//!
//! The signature of an attestation is verified before the command enters the log; here it is trusted like the
//! principal. Class records are not available here. An exact baseline is compared by digest, a partial one by the
//! version that control compared the record with.

use super::{Case, invalid};
use crate::State;
use lattice_quorum_types::{
    AllocationId, NodeId, Refusal,
    attestation::{BaselineVersion, MAX_AGE_MS, Proof},
    baseline::{Baseline, ClassRule, Cohort, Rule, SensitivePolicy, Specificity, most_specific},
    command::AttestedNode,
    id::BaselineName,
    refusal::{NodeProofFault, ProofFault},
};
use std::collections::{BTreeMap, BTreeSet};

/// Rejects an assignment of a sensitive allocation without attestations.
pub(super) fn refuse_without_attestations<'a>(
    id: AllocationId,
    nodes: impl Iterator<Item = &'a NodeId>,
) -> Result<(), Refusal> {
    let fault = |node: &NodeId| NodeProofFault {
        node: node.clone(),
        fault: ProofFault::NoAttestation,
    };
    Refusal::refuse_unproven(id, nodes.map(fault).collect())
}

/// Rejects attestations that are of another node or boot, outdated, or contradict a baseline.
pub(super) fn check(
    case: Case<'_>,
    id: AllocationId,
    nodes: &[AttestedNode],
) -> Result<(), Refusal> {
    Refusal::refuse_unproven(id, faults(case, nodes))
}

/// Rejects malformed attestations.
pub(super) fn check_form(nodes: &[AttestedNode]) -> Result<(), Refusal> {
    for AttestedNode { expected, proof } in nodes {
        let named = |field: &str| format!("nodes.{}.proof.{field}", expected.node);
        let checked = proof.check();
        checked.map_err(|fault| invalid(&named(&fault.field), fault.reason))?;
    }
    Ok(())
}

/// Every strict baseline with which a conformance class of these nodes is compared, as `name v3`.
pub(super) fn strict_baselines(case: Case<'_>, nodes: &[AttestedNode]) -> Vec<String> {
    let baselines = Baselines::of(case);
    let mut asked = BTreeSet::new();
    for AttestedNode { expected, proof } in nodes {
        let speaking =
            baselines.applicable_baselines(&expected.node, proof.attestation.cohort.as_ref());
        for (baseline, rule) in speaking.into_values().flatten() {
            if rule.sensitive == SensitivePolicy::Strict {
                asked.insert((&baseline.name, baseline.version));
            }
        }
    }
    let asked = asked.into_iter();
    asked
        .map(|(name, version)| format!("{name} v{version}"))
        .collect()
}

/// Faults of the attestations: of another node or boot, outdated, or contradicting a baseline. The same rules apply to
/// sensitive allocations and to node claims.
pub(super) fn faults(case: Case<'_>, nodes: &[AttestedNode]) -> Vec<NodeProofFault> {
    let baselines = Baselines::of(case);
    let mut faults = Vec::new();
    for AttestedNode { expected, proof } in nodes {
        let node = &expected.node;
        let mut found = |fault| {
            let node = node.clone();
            faults.push(NodeProofFault { node, fault });
        };
        match check_attestation(case, node, expected.boot.as_ref(), proof) {
            Err(fault) => found(fault),
            Ok(()) => baselines.check(node, proof, &mut found),
        }
    }
    faults
}

/// Checks that an attestation is of this node, of the planned boot, and current.
fn check_attestation(
    case: Case<'_>,
    node: &NodeId,
    planned: Option<&String>,
    proof: &Proof,
) -> Result<(), ProofFault> {
    let claim = &proof.attestation;
    if claim.node != *node {
        let speaks_of = claim.node.clone();
        return Err(ProofFault::AnotherNode { speaks_of });
    }
    if planned != Some(&claim.boot_id) {
        return Err(ProofFault::Boot {
            claimed: claim.boot_id.clone(),
            planned: planned.cloned(),
        });
    }
    match claim.skew_ms(case.now) {
        off_ms if off_ms > MAX_AGE_MS => Err(ProofFault::Age {
            read_at: claim.read_at,
            off_ms,
            limit_ms: MAX_AGE_MS,
        }),
        _ => Ok(()),
    }
}

/// Baselines in force.
struct Baselines<'a> {
    state: &'a State,
    all: Vec<&'a Baseline>,
}

impl<'a> Baselines<'a> {
    fn of(case: Case<'a>) -> Self {
        Self {
            state: case.state,
            all: case.state.baselines.all().collect(),
        }
    }

    fn check(&self, node: &NodeId, proof: &Proof, found: &mut impl FnMut(ProofFault)) {
        let cohort = proof.attestation.cohort.as_ref();
        let speaking = self.applicable_baselines(node, cohort);
        if cohort.is_none() {
            // A baseline that names the node takes precedence over one that selects it by cohort.
            let of_cohorts = self.cohort_classes().into_iter();
            let open = of_cohorts.filter(|(class, _)| !speaking.contains_key(class));
            open.for_each(|(class, baseline)| {
                found(ProofFault::NoCohort {
                    class: class.to_owned(),
                    baseline: baseline.clone(),
                });
            });
        }
        for (class, speak) in speaking {
            let strict = |rule: &ClassRule| rule.sensitive == SensitivePolicy::Strict;
            let is_strict = speak.iter().any(|(_, rule)| strict(rule));
            let fault = match speak.as_slice() {
                _ if !is_strict => None,
                [(baseline, rule)] => check_class(class, baseline, rule, proof).err(),
                equal => Some(ProofFault::Ambiguous {
                    class: class.to_owned(),
                    baselines: equal.iter().map(|(b, _)| b.name.clone()).collect(),
                }),
            };
            fault.into_iter().for_each(&mut *found);
        }
    }

    /// Conformance classes that a cohort baseline marks strict for sensitive allocations, each with the first such
    /// baseline.
    fn cohort_classes(&self) -> BTreeMap<&'a str, &'a BaselineName> {
        let mut first = BTreeMap::new();
        let of_cohorts = self.all.iter().filter(|b| b.definition.cohort.is_some());
        for baseline in of_cohorts {
            for (class, rule) in &baseline.definition.classes {
                if rule.sensitive == SensitivePolicy::Strict {
                    first.entry(class.as_str()).or_insert(&baseline.name);
                }
            }
        }
        first
    }

    /// Most specific baselines that apply to each conformance class of a node.
    fn applicable_baselines(
        &self,
        node: &NodeId,
        cohort: Option<&Cohort>,
    ) -> BTreeMap<&'a str, Vec<(&'a Baseline, &'a ClassRule)>> {
        type Spoken<'a> = (Specificity, (&'a Baseline, &'a ClassRule));
        let mut by_class: BTreeMap<&str, Vec<Spoken<'_>>> = BTreeMap::new();
        for baseline in self.all.iter().copied() {
            let is_named = self.state.baselines.names(&baseline.name, node);
            let Some(rank) = baseline.definition.rank(is_named, cohort) else {
                continue;
            };
            for (class, rule) in &baseline.definition.classes {
                let spoken = by_class.entry(class).or_default();
                spoken.push((rank, (baseline, rule)));
            }
        }
        let chosen = by_class.into_iter();
        chosen
            .map(|(class, spoken)| (class, most_specific(spoken)))
            .collect()
    }
}

/// Checks the attested digest of a conformance class against a rule. If digests cannot decide, control must have
/// compared the class record with this version of the baseline.
fn check_class(
    class: &str,
    baseline: &Baseline,
    rule: &ClassRule,
    proof: &Proof,
) -> Result<(), ProofFault> {
    let asks = || BaselineVersion {
        name: baseline.name.clone(),
        version: baseline.version,
    };
    let class_name = || class.to_owned();
    let said = proof.class(class);
    let said = said.map_err(|_| ProofFault::MadeOfAnother {
        class: class_name(),
    })?;
    let Some(said) = said else {
        return Err(ProofFault::Unknown {
            class: class_name(),
            baseline: asks(),
        });
    };
    // Digests of two schemas are not comparable.
    let comparable = match &rule.rule {
        Rule::Exact { schema, digest, .. } => {
            said.digest_of_schema(*schema).map(|found| (*digest, found))
        }
        Rule::Partial { .. } => None,
    };
    match comparable {
        Some((expected, found)) if expected == found => Ok(()),
        Some((expected, found)) => Err(ProofFault::Differs {
            class: class_name(),
            baseline: asks(),
            expected,
            found,
        }),
        None => match proof.conforms.get(class) {
            Some(judged) if judged.name == baseline.name && judged.version == baseline.version => {
                Ok(())
            }
            judged => Err(ProofFault::NotJudged {
                class: class_name(),
                baseline: asks(),
                judged_by: judged.cloned(),
            }),
        },
    }
}
