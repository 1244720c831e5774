//! Projects and their limits.

use super::{Case, access::forbidden, invalid};
use crate::{
    change::{Change, Verdict},
    policy::ChildSums,
};
use lattice_quorum_types::{
    ProjectPath, Refusal, Revision,
    command::LimitChange,
    limit::{Limits, Usage},
    project::Project,
};
use std::collections::{BTreeMap, BTreeSet};

/// Creates a tenant or a project. Without limits it is closed, which always fits its parent.
pub(super) fn create(
    case: Case<'_>,
    path: &ProjectPath,
    limits: Option<Limits>,
    admins: &[String],
    description: &str,
) -> Result<Verdict, Refusal> {
    let tree = &case.state.tree;
    let parent = path.parent().map(|up| tree.require(&up)).transpose()?;
    check_administers(case, path)?;
    if let Some(taken) = tree.namesake(path) {
        return Err(Refusal::ProjectExists {
            path: taken.clone(),
        });
    }
    let limits = limits.unwrap_or_else(|| case.state.default_limits(path));
    let project = Project {
        path: path.clone(),
        limits,
        own: Usage::default(),
        subtree: Usage::default(),
        admins: admins.to_vec(),
        description: description.to_owned(),
        created_at: case.now,
        revision: Revision(0),
    };
    let policy = case.state.policy;
    let mut faults = policy.faults(&project, &limits, &ChildSums::default());
    if let Some(parent) = parent {
        let mut sums = parent.child_limits;
        sums.add(&limits);
        faults.extend(policy.faults(&parent.record, &parent.record.limits, &sums));
    }
    if !faults.is_empty() {
        return Err(Refusal::LimitConflict { faults });
    }
    Ok(Verdict::done(vec![Change::Project(Box::new(project))]))
}

/// Deletes a project without children and without unfinished allocations.
pub(super) fn delete(case: Case<'_>, path: &ProjectPath) -> Result<Verdict, Refusal> {
    let entry = case.state.tree.require(path)?;
    check_administers(case, path)?;
    let (children, allocations) = (entry.children, entry.unfinished);
    if children > 0 || allocations > 0 {
        return Err(Refusal::ProjectNotEmpty {
            path: path.clone(),
            children,
            allocations,
        });
    }
    Ok(Verdict::done(vec![Change::DeleteProject(path.clone())]))
}

/// Sets limits, all or none, judged on the tree as it would be. A limit may go below usage, which
/// ends nothing and only keeps new work out; it may not go below the sum of the children's.
pub(super) fn set_limits(case: Case<'_>, changes: &[LimitChange]) -> Result<Verdict, Refusal> {
    if changes.is_empty() {
        return Err(invalid(
            "changes",
            "name at least one project whose limits change",
        ));
    }
    let tree = &case.state.tree;
    let mut wanted: BTreeMap<&ProjectPath, Limits> = BTreeMap::new();
    for LimitChange { path, patch } in changes {
        let present = tree.require(path)?.record.limits;
        check_administers(case, path)?;
        let limits = wanted.entry(path).or_insert(present);
        *limits = limits.patched(patch);
    }
    let mut touched: BTreeSet<ProjectPath> = BTreeSet::new();
    let mut sums: BTreeMap<ProjectPath, ChildSums> = BTreeMap::new();
    for (path, limits) in &wanted {
        touched.insert((*path).clone());
        if let Some(parent) = path.parent() {
            let before = tree.require(path)?.record.limits;
            let kept = tree.require(&parent)?.child_limits;
            let sum = sums.entry(parent.clone()).or_insert(kept);
            sum.remove(&before);
            sum.add(limits);
            touched.insert(parent);
        }
    }
    let mut faults = Vec::new();
    for path in &touched {
        let entry = tree.require(path)?;
        let limits = wanted.get(path).unwrap_or(&entry.record.limits);
        let children = sums.get(path).unwrap_or(&entry.child_limits);
        faults.extend(case.state.policy.faults(&entry.record, limits, children));
    }
    if !faults.is_empty() {
        return Err(Refusal::LimitConflict { faults });
    }
    let mut changes = Vec::new();
    for (path, limits) in wanted {
        let record = &tree.require(path)?.record;
        if record.limits != limits {
            changes.push(Change::Project(Box::new(Project {
                limits,
                ..record.clone()
            })));
        }
    }
    Ok(Verdict::done(changes))
}

fn check_administers(case: Case<'_>, path: &ProjectPath) -> Result<(), Refusal> {
    let up = path.parent();
    let parent = up
        .as_ref()
        .and_then(|up| case.state.tree.get(up))
        .map(|entry| &entry.record);
    if case.state.policy.may_administer(case.principal, parent) {
        return Ok(());
    }
    Err(forbidden(
        case.principal,
        match up {
            Some(up) => format!("an administrator of project \"{up}\", or the role admin"),
            None => "the role admin".to_owned(),
        },
    ))
}
