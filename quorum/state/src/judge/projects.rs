//! Project commands: create, delete, set limits.

use super::{Case, access::forbidden, audited, invalid};
use crate::{
    change::{Change, Verdict},
    policy::ChildSums,
    tree::Entry,
};
use lattice_quorum_types::{
    ProjectPath, Refusal, Revision,
    audit::{AuditAction, ChangedLimit, LevelLimits, NamedLimit},
    command::{LimitChange, Privilege},
    id::MAX_NAME_BYTES,
    limit::{Limits, OnLimit, Resource, Usage},
    limit_policy::LimitFault,
    project::Project,
    text::MAX_FREE_TEXT_BYTES,
    vcluster::Vcluster,
};
use std::collections::{BTreeMap, BTreeSet};

/// Longest project path, bytes: each check compares the path at every level.
const MAX_PATH_BYTES: usize = 4096;
/// Last path segment that the REST interface uses for the headroom of a project.
const RESERVED_NAME: &str = "headroom";
/// Maximum number of administrators of one project.
const MAX_ADMINS: usize = 256;

/// Creates a tenant or a project. Without `limits`, the project is closed for every resource that a level above limits,
/// which always fits.
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
    check_fields(path, admins, description)?;
    if let Some(taken) = tree.project_with_name(path) {
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
        overcommitted: false,
    };
    let rules = case.state.policy.rules();
    let mut faults = rules.faults(path, &limits, &ChildSums::default());
    if let Some(parent) = parent {
        let mut sums = parent.child_limits;
        let above = &parent.record;
        let before = rules.faults(&above.path, &above.limits, &sums);
        sums.add(&limits);
        let after = rules.faults(&above.path, &above.limits, &sums);
        faults.extend(rejecting_faults(&before, after, OvercommitMode::No));
    }
    if !faults.is_empty() {
        return Err(Refusal::LimitConflict { faults });
    }
    let action = AuditAction::ProjectCreated {
        project: path.clone(),
        limits: NamedLimit::of(&limits),
        admins: admins.to_vec(),
    };
    let changes = vec![Change::Project(Box::new(project))];
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Whether limits may be set although they overcommit a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OvercommitMode {
    /// Overcommitting limits are rejected.
    No,
    /// An administrator forces the limits and is accountable for them.
    ByForce,
}

/// Returns the faults that reject a change of limits. A fault that existed before and gets no worse does not reject the
/// change: an administrator has forced it earlier.
fn rejecting_faults(
    before: &[LimitFault],
    after: Vec<LimitFault>,
    mode: OvercommitMode,
) -> Vec<LimitFault> {
    let stands = |fault: &LimitFault| {
        let is_forced = mode == OvercommitMode::ByForce && fault.may_be_forced();
        !is_forced && !before.iter().any(|before| fault.is_no_worse_than(before))
    };
    after.into_iter().filter(stands).collect()
}

/// Returns the change of a deleted project's parent, if the parent is no longer overcommitted without that project.
fn clear_overcommitted(case: Case<'_>, gone: &Entry) -> Option<Change> {
    let parent = case.state.tree.get(&gone.record.path.parent()?)?;
    let record = &parent.record;
    let mut sums = parent.child_limits;
    sums.remove(&gone.record.limits);
    let rules = case.state.policy.rules();
    let is_over = !rules.faults(&record.path, &record.limits, &sums).is_empty();
    (record.overcommitted && !is_over).then(|| {
        Change::Project(Box::new(Project {
            overcommitted: false,
            ..record.clone()
        }))
    })
}

/// Limits of a level that differ from `after`, with their values before and after.
fn changed_limits(record: &Project, after: &Limits) -> LevelLimits {
    let is_other = |resource: &Resource| record.limits.get(*resource) != after.get(*resource);
    let changed = Resource::ALL.into_iter().filter(is_other);
    let limits = changed.map(|resource| ChangedLimit {
        name: resource.limit_name().to_owned(),
        before: record.limits.get(resource),
        after: after.get(resource),
    });
    LevelLimits {
        project: record.path.clone(),
        limits: limits.collect(),
    }
}

/// Rejects fields that are invalid in every state. These fields are kept as long as the project, and printed.
fn check_fields(path: &ProjectPath, admins: &[String], description: &str) -> Result<(), Refusal> {
    let within = |field: &str, found: usize, most: usize, unit: &str| match found <= most {
        true => Ok(()),
        false => Err(invalid(
            field,
            format!("has {found} {unit}; at most {most} are allowed"),
        )),
    };
    within("path", path.as_str().len(), MAX_PATH_BYTES, "bytes")?;
    if path.name() == RESERVED_NAME {
        let reason = format!(
            "{RESERVED_NAME} is not a valid project name: /projects/a/{RESERVED_NAME} is a resource of \
             project a"
        );
        return Err(invalid("path", reason));
    }
    within("admins", admins.len(), MAX_ADMINS, "names")?;
    for admin in admins {
        within("admins", admin.len(), MAX_NAME_BYTES, "bytes in one name")?;
        if admin.is_empty() || admin.chars().any(char::is_control) {
            let reason = "a name must not be empty and must not contain control characters";
            return Err(invalid("admins", reason));
        }
    }
    within(
        "description",
        description.len(),
        MAX_FREE_TEXT_BYTES,
        "bytes",
    )
}

/// Deletes a project without children, unfinished allocations and claimed nodes. Rejected while a vCluster names it as
/// a tenant.
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
    if entry.record.own.nodes > 0 {
        let claimed = entry.record.own.nodes;
        let reason = format!("{claimed} nodes are claimed for {path}; release them first");
        return Err(invalid("path", reason));
    }
    // A later tenant of that name would otherwise inherit access to the vCluster.
    let names = |vcluster: &&Vcluster| {
        let tenants = vcluster.definition.tenants.as_ref();
        tenants.is_some_and(|tenants| tenants.contains(path))
    };
    if let Some(Vcluster { name, .. }) = case.state.vclusters.all().find(names) {
        let reason = format!(
            "vCluster {name} is open to tenant {path}; remove the tenant from the vCluster first"
        );
        return Err(invalid("path", reason));
    }
    let action = AuditAction::ProjectDeleted {
        project: path.clone(),
        limits: NamedLimit::of(&entry.record.limits),
    };
    let mut changes = vec![Change::DeleteProject(path.clone())];
    if case.state.budgets.contains_key(path) {
        changes.push(Change::DeleteBudget(path.clone()));
    }
    // A later tenant of that name starts with the default.
    if case.state.on_limit(path) != OnLimit::default() {
        changes.push(Change::OnLimit {
            tenant: path.clone(),
            on_limit: OnLimit::default(),
        });
    }
    changes.extend(clear_overcommitted(case, entry));
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Sets limits, all or none, judged on the resulting tree. A limit may go below usage: running allocations continue,
/// but new ones are rejected. A limit below the sum of the children's limits needs force, which marks the level as
/// overcommitted until they fit.
pub(super) fn set_limits(
    case: Case<'_>,
    changes: &[LimitChange],
    insist: OvercommitMode,
) -> Result<Verdict, Refusal> {
    for LimitChange { path, .. } in changes {
        case.state.tree.require(path)?;
        check_administers(case, path)?;
    }
    set_limits_unchecked(case, changes, insist)
}

/// Like [`set_limits`], without the check that the principal administers the projects.
pub(super) fn set_limits_unchecked(
    case: Case<'_>,
    changes: &[LimitChange],
    insist: OvercommitMode,
) -> Result<Verdict, Refusal> {
    if insist == OvercommitMode::ByForce && case.principal.privilege != Privilege::Admin {
        let needs = "the role admin (forced limits may overcommit a project)";
        return Err(forbidden(case.principal, needs.to_owned()));
    }
    if changes.is_empty() {
        return Err(invalid(
            "changes",
            "name at least one project with a limit change",
        ));
    }
    let tree = &case.state.tree;
    let mut wanted: BTreeMap<&ProjectPath, Limits> = BTreeMap::new();
    for LimitChange { path, patch } in changes {
        let present = tree.require(path)?.record.limits;
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
    let rules = case.state.policy.rules();
    let (mut faults, mut changes) = (Vec::new(), Vec::new());
    let (mut levels, mut forced) = (Vec::new(), Vec::new());
    for path in &touched {
        let Entry {
            record,
            child_limits,
            ..
        } = tree.require(path)?;
        let limits = *wanted.get(path).unwrap_or(&record.limits);
        let children = sums.get(path).unwrap_or(child_limits);
        let before = rules.faults(path, &record.limits, child_limits);
        let after = rules.faults(path, &limits, children);
        let overcommitted = !after.is_empty();
        if !rejecting_faults(&before, after.clone(), OvercommitMode::No).is_empty() {
            forced.push(path.clone());
        }
        faults.extend(rejecting_faults(&before, after, insist));
        if record.limits != limits {
            levels.push(changed_limits(record, &limits));
        }
        if (record.limits, record.overcommitted) != (limits, overcommitted) {
            changes.push(Change::Project(Box::new(Project {
                limits,
                overcommitted,
                ..record.clone()
            })));
        }
    }
    if !faults.is_empty() {
        return Err(Refusal::LimitConflict { faults });
    }
    if levels.is_empty() {
        return Ok(Verdict::unchanged());
    }
    let action = match forced.is_empty() {
        true => AuditAction::LimitsChanged { levels },
        false => AuditAction::LimitsForced {
            levels,
            overcommitted: forced,
        },
    };
    Ok(Verdict::done(audited(case, action, changes)))
}

fn check_administers(case: Case<'_>, path: &ProjectPath) -> Result<(), Refusal> {
    let up = path.parent();
    let parent = up
        .as_ref()
        .and_then(|up| case.state.tree.get(up))
        .map(|entry| &entry.record);
    let rules = case.state.policy.rules();
    if rules.may_administer(case.principal, parent) {
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
