//! Audit actions as sentences.

use lattice_quorum_types::{
    AllocationName, NodeId, ProjectPath,
    audit::{AuditAction, ChangedLimit, NamedLimit},
    budget::{HOUR_MS, ONE_PPM},
    hostlist,
    limit::OnLimit,
};

/// Describes an action in one sentence.
pub fn summary(action: &AuditAction) -> String {
    match action {
        AuditAction::ForceReleased {
            node,
            allocation,
            element,
            attempt,
            reason,
        } => match allocation {
            Some(id) => {
                let name = AllocationName::new(*id, *element);
                format!(
                    "took node {node} from allocation {name} attempt {attempt} by force: {reason}"
                )
            }
            None => format!("released node {node}, which nobody held, by force: {reason}"),
        },
        AuditAction::TokenCreated {
            id,
            role,
            uses,
            replace,
        } => {
            let names = match replace {
                true => ", which may take existing names",
                false => "",
            };
            format!("made join token {id} for {uses} of role {role}{names}")
        }
        AuditAction::TokenRevoked { id } => format!("withdrew join token {id}"),
        AuditAction::Enrolled {
            role,
            name,
            token,
            replaced,
            held,
            element,
        } => {
            let how = match replaced {
                true => "enrolled, taking over the name,",
                false => "enrolled",
            };
            let held = held.map_or(String::new(), |id| {
                let name = AllocationName::new(id, *element);
                format!("; allocation {name} held the node then")
            });
            format!("{role}/{name} {how} with join token {token}{held}")
        }
        AuditAction::CertificatesRevoked { role, name, reason } => {
            format!("revoked the certificates of {role}/{name}: {reason}")
        }
        AuditAction::AuthorityAdded { pin } => format!("trusts authority {}", short(pin)),
        AuditAction::AuthorityPromoted { pin } => format!("lets authority {} issue", short(pin)),
        AuditAction::AuthorityRetired { pin } => {
            format!("trusts authority {} no more", short(pin))
        }
        AuditAction::GateSkipped { node, cleared } => format!(
            "undrained node {node} without its health gate; cleared {}",
            cleared.join("; ")
        ),
        AuditAction::BaselineSet {
            name,
            version,
            classes,
            ..
        } => format!("set baseline {name} v{version}: {}", classes.join("; ")),
        AuditAction::BaselineDeleted { name, version } => {
            format!("deleted baseline {name}, which was at v{version}")
        }
        AuditAction::BrakeHeld { reason } => format!("stopped automatic draining: {reason}"),
        AuditAction::BrakeReleased { reason, held_for } => {
            format!("let automatic draining go on: {reason} (it stood still for: {held_for})")
        }
        AuditAction::NodesClaimed {
            nodes,
            user,
            project,
            purpose,
            baselines,
        } => {
            let conforming = match baselines.is_empty() {
                true => String::new(),
                false => format!("; conforming to {}", baselines.join(", ")),
            };
            let nodes = node_list(nodes);
            let purpose = reason_suffix(purpose);
            format!("claimed {nodes} for {user} in project {project}{purpose}{conforming}")
        }
        AuditAction::NodesReleased {
            nodes,
            user,
            project,
            reason,
        } => format!(
            "released {}, which {user} had claimed in project {project}, to be wiped{}",
            node_list(nodes),
            reason_suffix(reason)
        ),
        AuditAction::NodeWiped {
            node,
            user,
            evidence,
        } => format!(
            "node {node}{} was wiped: {evidence}",
            after_user(user.as_ref())
        ),
        AuditAction::NodeQuarantined { node, user, reason } => {
            format!(
                "quarantined node {node}{}: {reason}",
                after_user(user.as_ref())
            )
        }
        AuditAction::SensitiveAssigned {
            allocation,
            element,
            attempt,
            user,
            project,
            nodes,
        } => format!(
            "gave {} to sensitive allocation {} attempt {attempt} of {user} in project \
             {project}",
            node_list(nodes),
            AllocationName::new(*allocation, *element)
        ),
        AuditAction::SensitiveStarted {
            allocation,
            element,
            attempt,
            user,
            project,
            nodes,
        } => format!(
            "sensitive allocation {} attempt {attempt} of {user} in project {project} \
             runs on {}",
            AllocationName::new(*allocation, *element),
            node_list(nodes)
        ),
        AuditAction::SensitiveEnded {
            allocation,
            element,
            attempt,
            user,
            project,
            nodes,
            state,
            cause,
        } => format!(
            "sensitive allocation {} attempt {attempt} of {user} in project {project} \
             ended on {}: {state}{}",
            AllocationName::new(*allocation, *element),
            node_list(nodes),
            cause
                .as_ref()
                .map_or(String::new(), |why| format!(" ({why})"))
        ),
        AuditAction::SensitiveResized {
            allocation,
            element,
            attempt,
            user,
            project,
            taken,
            given_back,
        } => {
            let change = |verb: &str, nodes: &[NodeId]| match nodes.is_empty() {
                true => String::new(),
                false => format!(" {verb} {}", node_list(nodes)),
            };
            format!(
                "sensitive allocation {} attempt {attempt} of {user} in project \
                 {project}{}{}",
                AllocationName::new(*allocation, *element),
                change("took", taken),
                change("gave back", given_back)
            )
        }
        AuditAction::LimitsChanged { levels } => {
            let levels = levels.iter().map(|level| {
                let limits = changed(&level.limits);
                format!("{} {limits}", level.project)
            });
            format!("changed limits: {}", levels.collect::<Vec<_>>().join("; "))
        }
        AuditAction::LimitsForced {
            levels,
            overcommitted,
        } => {
            let levels = levels.iter().map(|level| {
                let limits = changed(&level.limits);
                format!("{} {limits}", level.project)
            });
            let levels = levels.collect::<Vec<_>>().join("; ");
            let over = overcommitted.iter().map(ToString::to_string);
            let over = over.collect::<Vec<_>>().join(", ");
            format!("changed limits by force: {levels}; overcommitted since: {over}")
        }
        AuditAction::LimitPolicyChanged { before, after } => {
            format!("changed what limits mean from {before} to {after}")
        }
        AuditAction::SystemLimitsChanged { limits } => {
            format!("changed limits of the whole cluster: {}", changed(limits))
        }
        AuditAction::ProjectCreated {
            project,
            limits,
            admins,
        } => {
            let admins = match admins.is_empty() {
                true => String::new(),
                false => format!(", administered by {}", admins.join(", ")),
            };
            let (kind, limits) = (kind(project), limit_list(limits));
            format!("created {kind} {project} with {limits}{admins}")
        }
        AuditAction::ProjectDeleted { project, limits } => {
            let (kind, limits) = (kind(project), limit_list(limits));
            format!("deleted {kind} {project}, which had {limits}")
        }
        AuditAction::LifecycleSet {
            node,
            before,
            after,
            cleared,
        } => {
            let cleared = match cleared.is_empty() {
                true => String::new(),
                false => format!("; overrode {}", cleared.join("; ")),
            };
            format!("set node {node} from {before} to {after}{cleared}")
        }
        AuditAction::Drained { node, reason } => format!("drained node {node}: {reason}"),
        AuditAction::Undrained { node, reason } => {
            format!("undrained node {node}; the reason was: {reason}")
        }
        AuditAction::AllocationActedOn {
            allocation,
            element,
            user,
            project,
            what,
        } => format!(
            "{what}: allocation {} of {user} in project {project}",
            AllocationName::new(*allocation, *element)
        ),
        AuditAction::VclusterSet {
            vcluster,
            before,
            after,
        } => match before.is_empty() {
            true => format!("created vCluster {vcluster}: {}", after.join("; ")),
            false => format!(
                "changed vCluster {vcluster} from {} to {}",
                before.join("; "),
                after.join("; ")
            ),
        },
        AuditAction::VclusterDeleted { vcluster } => format!("deleted vCluster {vcluster}"),
        AuditAction::NodesMoved {
            nodes,
            from,
            to,
            home,
        } => {
            let how = match home {
                true => "moved",
                false => "lent",
            };
            format!("{how} {} from vCluster {from} to {to}", node_list(nodes))
        }
        AuditAction::ReservationSet {
            name,
            nodes,
            before,
            after,
        } => match before.is_empty() {
            true => format!(
                "made reservation {name} of {}: {}",
                node_list(nodes),
                after.join("; ")
            ),
            false => format!(
                "changed reservation {name} of {} from {} to {}",
                node_list(nodes),
                before.join("; "),
                after.join("; ")
            ),
        },
        AuditAction::ReservationDeleted { name, nodes } => {
            format!("deleted reservation {name} of {}", node_list(nodes))
        }
        AuditAction::SensitiveCheckpointed {
            allocation,
            element,
            attempt,
            user,
            project,
            number,
            ..
        } => format!(
            "sensitive allocation {} attempt {attempt} of {user} in project {project} wrote checkpoint \
             {number}",
            AllocationName::new(*allocation, *element)
        ),
        AuditAction::MemberAdded { member, addr } => {
            format!("quorum member {member} at {addr} joined")
        }
        AuditAction::MemberRemoved {
            member,
            addr,
            reason,
        } => format!(
            "quorum member {member} at {addr} left{}",
            reason_suffix(reason)
        ),
        AuditAction::SteppedDown { member, to } => {
            let to = to.map_or("another".to_owned(), |to| to.to_string());
            format!("told quorum member {member} to let member {to} lead")
        }
        AuditAction::BackedUp {
            revision,
            number,
            digest,
        } => format!(
            "wrote backup {} of revision {revision}, audit up to entry {number}",
            short(&digest.to_string())
        ),
        AuditAction::Restored {
            cluster,
            revision,
            number,
            digest,
        } => format!(
            "restored backup {} of cluster {cluster}, revision {revision}, audit up to entry \
             {number}",
            short(&digest.to_string())
        ),
        AuditAction::NumbersSkipped {
            after,
            until,
            revision,
        } => format!(
            "skipped the allocation numbers {} to {until}: allocations submitted after revision {revision}, the backup, \
             have no record here",
            after.0.saturating_add(1)
        ),
        AuditAction::UnknownAttemptEnded {
            node,
            allocation,
            attempt,
            origin,
        } => match origin {
            Some(origin) => format!(
                "ended allocation {} attempt {attempt} ({origin}) on node {node}: the cluster has no record of it",
                origin.allocation_name(*allocation)
            ),
            None => format!(
                "ended allocation {allocation} attempt {attempt} on node {node}: the cluster has no record of it"
            ),
        },
        AuditAction::MonthAccepted { month, differences } => {
            let (totals, differ) = match differences {
                1 => ("total", "differs"),
                _ => ("totals", "differ"),
            };
            format!(
                "accepted that {differences} {totals} of {month} in the accounting system {differ} from the recorded usage"
            )
        }
        AuditAction::SignedHead { of, signer, .. } => format!(
            "{signer} signed the audit of cluster {} up to entry {}",
            of.cluster, of.number
        ),
        AuditAction::WipeRepeated { node, user, reason } => {
            format!("has node {node} wiped again after {user}: {reason}")
        }
        AuditAction::UnwipedAccepted { node, user, reason } => {
            format!("answers for node {node}, which was not wiped after {user}: {reason}")
        }
        AuditAction::SensitiveAsked {
            allocation,
            element,
            user,
            project,
            what,
            nodes,
            state,
            cause,
            ..
        } => {
            let on = match nodes.is_empty() {
                true => String::new(),
                false => format!(", {}", node_list(nodes)),
            };
            let cause = cause
                .as_ref()
                .map_or(String::new(), |why| format!(" ({why})"));
            format!(
                "{what}: sensitive allocation {} of {user} in project {project}{on}; now \
                 {state}{cause}",
                AllocationName::new(*allocation, *element)
            )
        }
    }
}

/// Names nodes: `node gpu1`, `nodes gpu[1-4]`.
fn node_list(nodes: &[NodeId]) -> String {
    let kind = match nodes {
        [_] => "node",
        _ => "nodes",
    };
    format!("{kind} {}", hostlist::fold(nodes))
}

fn reason_suffix(reason: &str) -> String {
    match reason.is_empty() {
        true => String::new(),
        false => format!(": {reason}"),
    }
}

fn after_user(user: Option<&String>) -> String {
    user.map_or(String::new(), |user| format!(", after {user},"))
}

fn number(limit: Option<u64>) -> String {
    limit.map_or("unlimited".to_owned(), |limit| limit.to_string())
}

fn limit_list(limits: &[NamedLimit]) -> String {
    let each = limits.iter().map(|limit| {
        let value = number(limit.value);
        format!("{} {value}", limit.name)
    });
    each.collect::<Vec<_>>().join(", ")
}

fn changed(limits: &[ChangedLimit]) -> String {
    let each = limits.iter().map(|limit| {
        let (name, written) = public_limit(&limit.name);
        let said = |value: Option<u64>| value.map_or("unlimited".to_owned(), written);
        let (before, after) = (said(limit.before), said(limit.after));
        format!("{name} from {before} to {after}")
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the public name of a limit and the format of its values. Limits stored as integers of a small unit are shown
/// in their public unit.
fn public_limit(name: &str) -> (&str, fn(u64) -> String) {
    let hours = |ms: u64| (ms as f64 / HOUR_MS as f64).to_string();
    let parts = |ppm: u64| (ppm as f64 / ONE_PPM as f64).to_string();
    let handling = |number: u64| match OnLimit::of_number(number) {
        Some(on_limit) => on_limit.to_string(),
        None => number.to_string(),
    };
    match name {
        OnLimit::NAME => (name, handling),
        "gpu_ms_budget" => ("gpu_hours_budget", hours),
        "node_ms_budget" => ("node_hours_budget", hours),
        "fair_share_ppm" => ("fair_share_target", parts),
        "burst_ppm" => ("burst_allowance", parts),
        other => (other, |value| value.to_string()),
    }
}

fn kind(project: &ProjectPath) -> &'static str {
    match project.is_tenant() {
        true => "tenant",
        false => "project",
    }
}

fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}
