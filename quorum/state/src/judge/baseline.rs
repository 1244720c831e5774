//! Baseline commands: form and size checks, and rejection of two baselines that choose the same nodes for one
//! conformance class. See `../../0005-baselines.md`.

use super::{Case, audited, invalid, truncated_text};
use crate::{
    State,
    change::{Change, Verdict},
};
use lattice_quorum_types::{
    NodeId, Outcome, Refusal, Revision,
    audit::AuditAction,
    baseline::{
        Baseline, BaselineDefinition, Brake, ClassRule, Constraint, MAX_BASELINES, MAX_BYTES,
        MAX_CONSTRAINTS, MAX_NODES, MAX_TOTAL_BYTES, MAX_TOTAL_NODES, Rule, Scalar,
    },
    hostlist::{self, Hosts},
    id::BaselineName,
    size,
    text::{MAX_FREE_TEXT_BYTES, truncated},
};
use std::{collections::BTreeSet, sync::Arc};

/// Longest constraint key, and longest class name, bytes.
const MAX_KEY_BYTES: usize = 256;
/// Maximum number of values that one constraint may accept.
const MAX_VALUES: usize = 64;
/// Maximum number of conformance classes in one baseline; more than exist today.
const MAX_CLASSES: usize = 32;

/// Sets a new version of a baseline; no change if the definition equals the version in force.
pub(super) fn set(
    case: Case<'_>,
    name: &BaselineName,
    asked: &BaselineDefinition,
    expected: Option<u32>,
) -> Result<Verdict, Refusal> {
    check_form(asked)?;
    if asked.nodes.len() as u64 > MAX_BYTES {
        let reason = format!("at most {MAX_BYTES} bytes are allowed");
        return Err(invalid("nodes", reason));
    }
    let nodes = expand(&asked.nodes)?;
    let definition = BaselineDefinition {
        nodes: match nodes.is_empty() {
            true => String::new(),
            false => hostlist::fold(&nodes),
        },
        ..asked.clone()
    };
    let present = case.state.baselines.current(name);
    check_expected(case.state, name, expected)?;
    if let Some(present) = present
        && present.definition == definition
    {
        let version = present.version;
        return Ok(Verdict {
            outcome: Outcome::BaselineSet { version },
            changes: Vec::new(),
        });
    }
    let bytes = check_size(case.state, name, &definition, nodes.len())?;
    check_ambiguity(case.state, name, &definition, &nodes)?;
    let version = case.state.baselines.next_version(name);
    let action = AuditAction::BaselineSet {
        name: name.clone(),
        version,
        classes: classes(&definition),
        digest: digest(&definition),
    };
    let baseline = Baseline {
        name: name.clone(),
        version,
        definition,
        by: case.principal.name.clone(),
        at: case.now,
        revision: Revision(0),
        bytes,
    };
    let hosts = Arc::new(Hosts::of(&nodes));
    let changes = vec![Change::Baseline(Box::new(baseline), hosts)];
    Ok(Verdict {
        outcome: Outcome::BaselineSet { version },
        changes: audited(case, action, changes),
    })
}

/// Deletes a baseline: no node is compared with the baseline any more.
pub(super) fn delete(
    case: Case<'_>,
    name: &BaselineName,
    expected: Option<u32>,
) -> Result<Verdict, Refusal> {
    let Some(present) = case.state.baselines.current(name) else {
        return Err(Refusal::UnknownBaseline { name: name.clone() });
    };
    check_expected(case.state, name, expected)?;
    let action = AuditAction::BaselineDeleted {
        name: name.clone(),
        version: present.version,
    };
    let changes = vec![Change::DeleteBaseline(name.clone())];
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Holds automatic draining. The first reason stays.
pub(super) fn hold_brake(case: Case<'_>, reason: &str) -> Result<Verdict, Refusal> {
    if case.state.baselines.brake().is_some() {
        return Ok(Verdict::unchanged());
    }
    let reason = truncated_text(reason);
    let brake = Brake {
        reason: reason.clone(),
        since: case.now,
        by: case.principal.name.clone(),
    };
    let action = AuditAction::BrakeHeld { reason };
    let changes = vec![Change::Brake(Some(brake))];
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Releases the brake on automatic draining; a person gives the reason.
pub(super) fn release_brake(case: Case<'_>, reason: &str) -> Result<Verdict, Refusal> {
    if reason.trim().is_empty() {
        return Err(invalid(
            "reason",
            "must not be empty; give the cause that you found (the audit records it)",
        ));
    }
    let Some(held) = case.state.baselines.brake() else {
        return Ok(Verdict::unchanged());
    };
    let action = AuditAction::BrakeReleased {
        reason: truncated_text(reason),
        held_for: held.reason.clone(),
    };
    Ok(Verdict::done(audited(
        case,
        action,
        vec![Change::Brake(None)],
    )))
}

fn check_expected(
    state: &State,
    name: &BaselineName,
    expected: Option<u32>,
) -> Result<(), Refusal> {
    let current = state.baselines.current(name);
    let current = current.map_or(0, |baseline| baseline.version);
    match expected {
        Some(expected) if expected != current => Err(Refusal::BaselineChanged {
            name: name.clone(),
            expected,
            current,
        }),
        _ => Ok(()),
    }
}

fn check_form(definition: &BaselineDefinition) -> Result<(), Refusal> {
    if definition.description.len() > MAX_FREE_TEXT_BYTES {
        let reason = format!("at most {MAX_FREE_TEXT_BYTES} bytes are allowed");
        return Err(invalid("description", reason));
    }
    match &definition.cohort {
        None if definition.nodes.is_empty() => {
            let reason = "choose nodes by name, or a cohort: otherwise the baseline applies to no \
                          node";
            return Err(invalid("nodes", reason));
        }
        Some(cohort) if cohort.parts() == 0 => {
            let reason = "give at least one of vendor, product, gpu_model, gpu_count";
            return Err(invalid("cohort", reason));
        }
        Some(cohort) => {
            let texts = [&cohort.vendor, &cohort.product, &cohort.gpu_model];
            let mut texts = texts.into_iter().flatten();
            if texts.any(|text| text.is_empty() || text.len() > MAX_FREE_TEXT_BYTES) {
                let reason = format!("each given part must have 1 to {MAX_FREE_TEXT_BYTES} bytes");
                return Err(invalid("cohort", reason));
            }
        }
        None => {}
    }
    if definition.classes.is_empty() || definition.classes.len() > MAX_CLASSES {
        let reason = format!("give rules for 1 to {MAX_CLASSES} classes");
        return Err(invalid("classes", reason));
    }
    for (class, rule) in &definition.classes {
        let is_name = !class.is_empty()
            && class.len() <= MAX_KEY_BYTES
            && class.bytes().all(|b| b.is_ascii_lowercase());
        if !is_name {
            return Err(invalid(
                "classes",
                format!(
                    "{:?} is not a valid class",
                    truncated(class, MAX_FREE_TEXT_BYTES)
                ),
            ));
        }
        check_rule(class, rule)?;
    }
    Ok(())
}

fn check_rule(class: &str, rule: &ClassRule) -> Result<(), Refusal> {
    let field = format!("classes.{class}");
    match &rule.rule {
        Rule::Exact { preimage, .. } if preimage.is_empty() => {
            Err(invalid(&field, "the record to compare with is missing"))
        }
        Rule::Exact { .. } => Ok(()),
        Rule::Partial { constraints } => {
            if constraints.is_empty() || constraints.len() > MAX_CONSTRAINTS {
                let reason = format!("give 1 to {MAX_CONSTRAINTS} keys");
                return Err(invalid(&format!("{field}.keys"), reason));
            }
            let mut keys = BTreeSet::new();
            for constraint in constraints {
                let key = &constraint.key;
                let field = format!("{field}.keys.{}", truncated(key, 64));
                if let Some(reason) = fault(constraint) {
                    return Err(invalid(&field, reason));
                }
                if !keys.insert(key) {
                    return Err(invalid(&field, "the key is given twice"));
                }
            }
            Ok(())
        }
    }
}

fn fault(constraint: &Constraint) -> Option<String> {
    let Constraint {
        key,
        any_of,
        or_absent,
    } = constraint;
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Some(format!("a key has 1 to {MAX_KEY_BYTES} bytes"));
    }
    if any_of.len() > MAX_VALUES {
        return Some(format!("at most {MAX_VALUES} values are allowed"));
    }
    if any_of.is_empty() && !or_absent {
        return Some("give a value, or absent".to_owned());
    }
    let is_empty = |value: &Scalar| matches!(value, Scalar::Text(text) if text.is_empty());
    any_of
        .iter()
        .any(is_empty)
        .then(|| "an empty value is not valid; use absent for a missing key".to_owned())
}

/// Expands the hostlist of a baseline, in name order.
fn expand(list: &str) -> Result<Vec<NodeId>, Refusal> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let mut nodes = hostlist::expand(list)
        .map_err(|error| invalid("nodes", truncated(&error.to_string(), MAX_FREE_TEXT_BYTES)))?;
    nodes.sort();
    Ok(nodes)
}

/// Returns the size of the definition in bytes, if all limits on baselines allow it.
fn check_size(
    state: &State,
    name: &BaselineName,
    definition: &BaselineDefinition,
    named: usize,
) -> Result<u64, Refusal> {
    let baselines = &state.baselines;
    let bytes = size::encoded_bytes(definition) as u64;
    let is_new = baselines.current(name).is_none();
    let count = baselines.all().count() + usize::from(is_new);
    let all_named = baselines.named_without(name) + named;
    let all_bytes = baselines.bytes_with(name, bytes);
    let bounds = [
        ("bytes of one baseline", bytes, MAX_BYTES),
        (
            "bytes of all baselines with the versions that are kept",
            all_bytes,
            MAX_TOTAL_BYTES,
        ),
        ("baselines", count as u64, MAX_BASELINES as u64),
        (
            "nodes that one baseline names",
            named as u64,
            MAX_NODES as u64,
        ),
        (
            "nodes that all baselines name",
            all_named as u64,
            MAX_TOTAL_NODES as u64,
        ),
    ];
    for (resource, requested, limit) in bounds {
        if requested > limit {
            return Err(Refusal::BaselineLimit {
                name: name.clone(),
                resource: resource.to_owned(),
                requested,
                limit,
            });
        }
    }
    Ok(bytes)
}

/// Rejects a baseline that names the same node as another baseline, or has an equal cohort, for a shared class. Two
/// different cohorts may still meet in one node. Only the comparison on that node detects this: it applies neither
/// baseline and reports both.
fn check_ambiguity(
    state: &State,
    name: &BaselineName,
    definition: &BaselineDefinition,
    nodes: &[NodeId],
) -> Result<(), Refusal> {
    for other in state.baselines.all().filter(|other| other.name != *name) {
        let theirs = &other.definition;
        let mut shared = definition.classes.keys();
        let shared = shared.find(|class| theirs.classes.contains_key(*class));
        let Some(class) = shared else { continue };
        let chosen = if definition.cohort.is_some() && definition.cohort == theirs.cohort {
            definition
                .cohort
                .as_ref()
                .map(|cohort| format!("cohort {cohort}"))
        } else {
            let is_named = |node: &&NodeId| state.baselines.names(&other.name, node);
            let both: Vec<&NodeId> = nodes.iter().filter(is_named).collect();
            (!both.is_empty()).then(|| hostlist::fold(both))
        };
        if let Some(chosen) = chosen {
            return Err(Refusal::BaselineAmbiguous {
                name: name.clone(),
                other: other.name.clone(),
                class: class.clone(),
                chosen: truncated(&chosen, MAX_FREE_TEXT_BYTES).to_owned(),
            });
        }
    }
    Ok(())
}

/// Each class with its rule kind and policy, as stored in the audit.
fn classes(definition: &BaselineDefinition) -> Vec<String> {
    let of = |(class, rule): (&String, &ClassRule)| {
        let kind = match &rule.rule {
            Rule::Exact { .. } => "exact",
            Rule::Partial { .. } => "partial",
        };
        format!("{class}: {kind}, {}", rule.policy)
    };
    definition.classes.iter().map(of).collect()
}

fn digest(definition: &BaselineDefinition) -> [u8; 32] {
    #[expect(
        clippy::expect_used,
        reason = "plain data serialised into memory cannot fail"
    )]
    let bytes = postcard::to_stdvec(definition).expect("a definition serialises");
    blake3::derive_key("lattice baseline 1", &bytes)
}
