//! Refusals: expected answers of the state machine, as data with numbers.
//!
//! A refusal is not an error: the command was understood, judged and not applied. The texts are
//! the public contract; each says which rule, which levels, the numbers, and what to do next.

mod unproven;

use crate::{
    AllocationId, AllocationState, NodeId, ProjectPath,
    cidr::{self, Cidr},
    id::{BaselineName, LeaseName, VclusterName},
    limit::Resource,
    tenure::{Taken, fmt_taken},
};
use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr};
pub use unproven::{ProofFault, Unproven};

/// One level of the tree that a request would violate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// The project, or tenant.
    pub path: ProjectPath,
    /// Which of its limits.
    pub resource: Resource,
    /// Own plus subtree usage before the request.
    pub current: u64,
    /// What was asked for.
    pub requested: u64,
    /// The ceiling.
    pub limit: u64,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.path.is_tenant() {
            "tenant"
        } else {
            "project"
        };
        let (path, name, unit) = (&self.path, self.resource.limit_name(), self.resource.unit());
        if self.current > self.limit {
            write!(
                f,
                "allocation rejected: {kind} \"{path}\" exceeds {name} quota\n  Current usage: {} \
                 {unit}\n  New limit: {} {unit}\n  Hint: Wait for running allocations to \
                 complete, or contact your tenant admin.",
                self.current, self.limit
            )
        } else {
            write!(
                f,
                "allocation rejected: {kind} \"{path}\" would exceed {name} quota (current: {}, \
                 requested: {}, limit: {})",
                self.current, self.requested, self.limit
            )
        }
    }
}

/// Why a limit change is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitFault {
    /// The children's limits would add up to more than this project's.
    ChildrenExceed {
        /// The project whose children do not fit.
        parent: ProjectPath,
        /// Which limit.
        resource: Resource,
        /// Sum of the children's limits; `None` when one of them would be unlimited.
        children: Option<u64>,
        /// The project's own limit.
        limit: u64,
    },
    /// This limit must be a number here.
    MustBeFinite {
        /// The project.
        path: ProjectPath,
        /// Which limit.
        resource: Resource,
    },
}

/// An expected "no".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Hard limits: every violated level, from the project up to the tenant.
    LimitExceeded {
        /// Never empty.
        levels: Vec<Level>,
    },
    /// A limit change that would break the tree.
    LimitConflict {
        /// Every fault found.
        faults: Vec<LimitFault>,
    },
    /// No such project or tenant.
    UnknownProject {
        /// As asked for.
        path: ProjectPath,
    },
    /// It exists already.
    ProjectExists {
        /// The path that exists; for a name that is taken elsewhere in the tenant, that path.
        path: ProjectPath,
    },
    /// It still has children or allocations.
    ProjectNotEmpty {
        /// The project.
        path: ProjectPath,
        /// Child projects.
        children: u64,
        /// Allocations that are not terminal.
        allocations: u64,
    },
    /// No such node.
    UnknownNode {
        /// As asked for.
        node: NodeId,
    },
    /// No such allocation.
    UnknownAllocation {
        /// As asked for.
        id: AllocationId,
    },
    /// The allocation is in a state in which this cannot be done.
    WrongState {
        /// The allocation.
        id: AllocationId,
        /// Its state.
        state: AllocationState,
        /// What was to be done, e.g. "assign".
        action: String,
    },
    /// Somebody else holds the node, or it changed since the plan was made.
    OwnershipConflict {
        /// Each node that is not as expected, with its present holder.
        nodes: Vec<(NodeId, Option<AllocationId>)>,
    },
    /// The proposer's lease has passed to somebody else.
    StaleEpoch {
        /// Which lease.
        lease: LeaseName,
        /// The epoch the command carried.
        given: u64,
        /// The present one.
        current: u64,
    },
    /// Somebody else holds the lease.
    LeaseHeld {
        /// Which lease.
        lease: LeaseName,
        /// By whom.
        holder: String,
    },
    /// A report of an attempt that is not the current one.
    StaleAttempt {
        /// The allocation.
        id: AllocationId,
        /// The attempt reported.
        given: u32,
        /// The current one.
        current: u32,
    },
    /// The principal may not do this.
    Forbidden {
        /// Who asked.
        principal: String,
        /// What would be needed.
        needs: String,
    },
    /// A value that no state could accept.
    Invalid {
        /// The field.
        field: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The request can never fit this cluster.
    TooLarge {
        /// Nodes asked for.
        requested: u32,
        /// Nodes registered and not retired.
        registered: u64,
    },
    /// A join token that is unknown, expired, used up, or not for this name.
    TokenRefused {
        /// Which of these.
        reason: String,
    },
    /// The same idempotency key came before with another command.
    KeyReused {
        /// The key.
        key: String,
    },
    /// The proposer speaks a newer schema than this member.
    UnsupportedSchema {
        /// Of the command.
        given: u16,
        /// Newest supported.
        supported: u16,
    },
    /// Somebody of that name is a member already.
    NameTaken {
        /// The name.
        name: String,
        /// What would allow to take it over.
        needs: String,
    },
    /// The certificates of that name hold no more.
    CertificateRevoked {
        /// The name.
        name: String,
    },
    /// The node is not as it was when the asker looked.
    NodeChanged {
        /// The node.
        node: NodeId,
        /// Who holds it now.
        holder: Option<AllocationId>,
    },
    /// No such authority, token or certificate.
    UnknownTrust {
        /// What it is, e.g. "authority".
        kind: String,
        /// As asked for.
        id: String,
    },
    /// A join token that is good, but not at this address.
    TokenNetwork {
        /// Where the request came from.
        from: IpAddr,
        /// What the token is for.
        networks: Vec<Cidr>,
    },
    /// No such baseline, or no such version of it any more.
    UnknownBaseline {
        /// As asked for.
        name: BaselineName,
    },
    /// The baseline is not at the version the asker saw.
    BaselineChanged {
        /// Which.
        name: BaselineName,
        /// The version the command rests on; 0 for none.
        expected: u32,
        /// The present one; 0 when there is none.
        current: u32,
    },
    /// Baselines are bounded, for every member keeps all of them.
    BaselineLimit {
        /// The one that does not fit.
        name: BaselineName,
        /// What is bounded, e.g. "bytes of one baseline".
        resource: String,
        /// What it would come to.
        requested: u64,
        /// The ceiling.
        limit: u64,
    },
    /// Two baselines would speak for the same nodes and class.
    BaselineAmbiguous {
        /// The one that is refused.
        name: BaselineName,
        /// The one that is there.
        other: BaselineName,
        /// The class of which both speak.
        class: String,
        /// The nodes, or the cohort, that both choose.
        chosen: String,
    },
    /// Sensitive work would rest on what its nodes do not say of themselves, or on nodes that are
    /// not what their baselines ask.
    Unproven {
        /// The allocation.
        id: AllocationId,
        /// The first faults, in the order of the ranks; never empty.
        faults: Vec<Unproven>,
        /// How many there are besides.
        more: u64,
    },
    /// Nodes that were asked for are somebody's, or not in service; none of them was given.
    NodesTaken {
        /// Each of them, with whose it is.
        nodes: Vec<Taken>,
    },
    /// More nodes would be in sensitive use than the cluster allows.
    SensitivePool {
        /// In sensitive use before the request.
        current: u64,
        /// What was asked for.
        requested: u64,
        /// The ceiling.
        limit: u64,
    },
    /// A claim would rest on what its nodes do not say of themselves, or on nodes that are not what
    /// their baselines ask.
    NotConforming {
        /// The first faults, in the order of the nodes; never empty.
        faults: Vec<Unproven>,
        /// How many there are besides.
        more: u64,
    },
    /// Claimed nodes that still run something cannot be given back.
    StillHeld {
        /// Each of them, with what runs there.
        nodes: Vec<(NodeId, AllocationId)>,
    },
    /// A vCluster that is not for this tenant.
    VclusterClosed {
        /// Which.
        vcluster: VclusterName,
        /// Whose.
        tenant: ProjectPath,
    },
    /// The vCluster is not at the version the asker saw.
    VclusterChanged {
        /// Which.
        vcluster: VclusterName,
        /// The version the command rests on; 0 for none.
        expected: u32,
        /// The present one; 0 when there is none.
        current: u32,
    },
    /// A vCluster of which nobody has said what it is.
    UnknownVcluster {
        /// As asked for.
        vcluster: VclusterName,
    },
    /// Nodes belong to the vCluster that is to go, or serve it.
    VclusterInUse {
        /// Which.
        vcluster: VclusterName,
        /// All of them.
        nodes: Vec<NodeId>,
    },
}

impl Refusal {
    /// A stable, machine-readable word for the kind.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::LimitExceeded { .. } => "limit_exceeded",
            Refusal::LimitConflict { .. } => "limit_conflict",
            Refusal::UnknownProject { .. } => "unknown_project",
            Refusal::ProjectExists { .. } => "project_exists",
            Refusal::ProjectNotEmpty { .. } => "project_not_empty",
            Refusal::UnknownNode { .. } => "unknown_node",
            Refusal::UnknownAllocation { .. } => "unknown_allocation",
            Refusal::WrongState { .. } => "wrong_state",
            Refusal::OwnershipConflict { .. } => "ownership_conflict",
            Refusal::StaleEpoch { .. } => "stale_epoch",
            Refusal::LeaseHeld { .. } => "lease_held",
            Refusal::StaleAttempt { .. } => "stale_attempt",
            Refusal::Forbidden { .. } => "forbidden",
            Refusal::Invalid { .. } => "invalid",
            Refusal::TooLarge { .. } => "too_large",
            Refusal::TokenRefused { .. } => "token_refused",
            Refusal::KeyReused { .. } => "key_reused",
            Refusal::UnsupportedSchema { .. } => "unsupported_schema",
            Refusal::NameTaken { .. } => "name_taken",
            Refusal::CertificateRevoked { .. } => "certificate_revoked",
            Refusal::NodeChanged { .. } => "node_changed",
            Refusal::UnknownTrust { .. } => "unknown_trust",
            Refusal::TokenNetwork { .. } => "token_network",
            Refusal::UnknownBaseline { .. } => "unknown_baseline",
            Refusal::BaselineChanged { .. } => "baseline_changed",
            Refusal::BaselineLimit { .. } => "baseline_limit",
            Refusal::BaselineAmbiguous { .. } => "baseline_ambiguous",
            Refusal::Unproven { .. } => "unproven",
            Refusal::NodesTaken { .. } => "ownership_conflict",
            Refusal::SensitivePool { .. } => "sensitive_pool",
            Refusal::NotConforming { .. } => "not_conforming",
            Refusal::StillHeld { .. } => "still_held",
            Refusal::VclusterClosed { .. } => "vcluster_closed",
            Refusal::VclusterChanged { .. } => "vcluster_changed",
            Refusal::UnknownVcluster { .. } => "unknown_vcluster",
            Refusal::VclusterInUse { .. } => "vcluster_in_use",
        }
    }
}

fn fmt_fault(f: &mut fmt::Formatter<'_>, fault: &LimitFault) -> fmt::Result {
    match fault {
        LimitFault::ChildrenExceed {
            parent,
            resource,
            children,
            limit,
        } => {
            let name = resource.limit_name();
            match children {
                Some(sum) => write!(
                    f,
                    "limit rejected: the {name} of the children of \"{parent}\" would add up to \
                     {sum}, more than its own {limit}; raise \"{parent}\" or lower a child first"
                ),
                None => write!(
                    f,
                    "limit rejected: a child of \"{parent}\" would have no {name}, but \
                     \"{parent}\" itself has {limit}; give the child a number"
                ),
            }
        }
        LimitFault::MustBeFinite { path, resource } => {
            write!(
                f,
                "limit rejected: {} of \"{path}\" must be a number",
                resource.limit_name()
            )
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::LimitExceeded { levels } => {
                for (i, level) in levels.iter().enumerate() {
                    if i > 0 {
                        f.write_str("\n")?;
                    }
                    write!(f, "{level}")?;
                }
                Ok(())
            }
            Refusal::LimitConflict { faults } => {
                for (i, fault) in faults.iter().enumerate() {
                    if i > 0 {
                        f.write_str("\n")?;
                    }
                    fmt_fault(f, fault)?;
                }
                Ok(())
            }
            Refusal::UnknownProject { path } => write!(
                f,
                "unknown project \"{path}\"; `lattice project tree` shows the projects there are"
            ),
            Refusal::ProjectExists { path } => write!(f, "project \"{path}\" exists already"),
            Refusal::ProjectNotEmpty {
                path,
                children,
                allocations,
            } => write!(
                f,
                "project \"{path}\" is not empty: {children} child projects, {allocations} \
                 unfinished allocations; delete or finish them first"
            ),
            Refusal::UnknownNode { node } => {
                write!(
                    f,
                    "unknown node \"{node}\"; `lattice node list` shows the nodes there are"
                )
            }
            Refusal::UnknownAllocation { id } => write!(
                f,
                "unknown allocation {id}; `lattice status` shows the allocations there are"
            ),
            Refusal::WrongState { id, state, action } => {
                write!(f, "cannot {action} allocation {id}: it is {state}")
            }
            Refusal::OwnershipConflict { nodes } => {
                f.write_str("ownership conflict:")?;
                for (node, holder) in nodes {
                    match holder {
                        Some(id) => write!(f, " {node} is held by allocation {id};")?,
                        None => write!(f, " {node} has changed;")?,
                    }
                }
                f.write_str(" plan again on the present state")
            }
            Refusal::StaleEpoch {
                lease,
                given,
                current,
            } => write!(
                f,
                "lease {lease} has moved on: epoch {given} is over, {current} is current"
            ),
            Refusal::LeaseHeld { lease, holder } => {
                write!(f, "lease {lease} is held by {holder}")
            }
            Refusal::StaleAttempt { id, given, current } => write!(
                f,
                "report of attempt {given} of allocation {id}, which is at attempt {current}"
            ),
            Refusal::Forbidden { principal, needs } => {
                write!(f, "{principal} may not do this: it needs {needs}")
            }
            Refusal::Invalid { field, reason } => write!(f, "{field}: {reason}"),
            Refusal::TooLarge { registered: 0, .. } => f.write_str(
                "the cluster has no nodes yet; `lattice node list` shows them when their agents \
                 have joined",
            ),
            Refusal::TooLarge {
                requested,
                registered,
            } => write!(
                f,
                "{requested} nodes were asked for, but the cluster has {registered}; ask for at \
                 most {registered}"
            ),
            Refusal::TokenRefused { reason } => write!(f, "join token refused: {reason}"),
            Refusal::KeyReused { key } => write!(
                f,
                "idempotency key {key:?} was used before with another request; use a new key"
            ),
            Refusal::UnsupportedSchema { given, supported } => write!(
                f,
                "command schema {given} is newer than {supported}, the newest this member knows; \
                 upgrade the quorum before the other services"
            ),
            Refusal::NameTaken { name, needs } => {
                write!(f, "the name {name} is enrolled already; {needs}")
            }
            Refusal::CertificateRevoked { name } => write!(
                f,
                "the certificates of {name} were revoked; it must enrol again with a new token"
            ),
            Refusal::NodeChanged { node, holder } => {
                let now =
                    holder.map_or("by nothing".to_owned(), |id| format!("by allocation {id}"));
                write!(
                    f,
                    "node {node} has changed since it was looked at, and is held {now}; look again \
                     and repeat"
                )
            }
            Refusal::UnknownTrust { kind, id } => write!(f, "there is no {kind} {id}"),
            Refusal::TokenNetwork { from, networks } => write!(
                f,
                "join token refused: it is not for use from {from}, but from {}",
                cidr::list(networks)
            ),
            Refusal::UnknownBaseline { name } => write!(
                f,
                "unknown baseline \"{name}\"; `lattice conformance baseline list` shows the \
                 baselines there are"
            ),
            Refusal::BaselineChanged {
                name,
                expected,
                current: 0,
            } => write!(
                f,
                "baseline \"{name}\" was at version {expected} and is deleted now; look again"
            ),
            Refusal::BaselineChanged {
                name,
                expected: 0,
                current,
            } => write!(
                f,
                "baseline \"{name}\" exists already, at version {current}; name that version to \
                 replace it"
            ),
            Refusal::BaselineChanged {
                name,
                expected,
                current,
            } => write!(
                f,
                "baseline \"{name}\" is at version {current}, not at {expected} any more; look \
                 again and repeat"
            ),
            Refusal::BaselineLimit {
                name,
                resource,
                requested,
                limit,
            } => write!(
                f,
                "baseline \"{name}\" does not fit: {resource} would be {requested}, at most \
                 {limit} are allowed; delete baselines that are not needed, or choose fewer \
                 classes or nodes"
            ),
            Refusal::BaselineAmbiguous {
                name,
                other,
                class,
                chosen,
            } => write!(
                f,
                "baseline \"{name}\" is ambiguous: \"{other}\" speaks for class {class} of \
                 {chosen} already; take the class or the nodes out of one of them"
            ),
            Refusal::Unproven { id, faults, more } => {
                write!(
                    f,
                    "allocation {id} is sensitive and cannot be given these nodes:"
                )?;
                for fault in faults {
                    write!(f, "\n{fault}")?;
                }
                match more {
                    0 => Ok(()),
                    more => write!(f, "\nand {more} faults more"),
                }
            }
            Refusal::NodesTaken { nodes } => {
                f.write_str("ownership conflict:")?;
                fmt_taken(f, nodes)?;
                f.write_str(
                    "; none of the nodes was given: name others, or wait until these are free",
                )
            }
            Refusal::SensitivePool {
                current,
                requested,
                limit,
            } if current > limit => write!(
                f,
                "sensitive use rejected: the cluster exceeds sensitive_pool_size quota\n  Current usage: \
                 {current} nodes\n  New limit: {limit} nodes\n  Hint: {requested} more fit once \
                 claimed nodes are released or sensitive work has ended."
            ),
            Refusal::SensitivePool {
                current,
                requested,
                limit,
            } => write!(
                f,
                "sensitive use rejected: the cluster would exceed sensitive_pool_size quota (current: \
                 {current}, requested: {requested}, limit: {limit}); wait until claimed nodes are \
                 wiped or sensitive work has ended"
            ),
            Refusal::NotConforming { faults, more } => {
                f.write_str("these nodes cannot be claimed for sensitive work:")?;
                for fault in faults {
                    write!(f, "\n{fault}")?;
                }
                match more {
                    0 => Ok(()),
                    more => write!(f, "\nand {more} faults more"),
                }
            }
            Refusal::StillHeld { nodes } => {
                f.write_str("not released:")?;
                for (node, id) in nodes {
                    write!(f, " node {node} still runs allocation {id};")?;
                }
                f.write_str(" end that first, or wait for it")
            }
            Refusal::VclusterClosed { vcluster, tenant } => write!(
                f,
                "vCluster \"{vcluster}\" is not for tenant \"{tenant}\"; `lattice admin vcluster \
                 show {vcluster}` says for whom it is"
            ),
            Refusal::VclusterChanged {
                vcluster,
                expected,
                current,
            } => write!(
                f,
                "vCluster \"{vcluster}\" is at version {current}, not at {expected} any more; look \
                 again and repeat"
            ),
            Refusal::UnknownVcluster { vcluster } => write!(
                f,
                "nobody has said what vCluster \"{vcluster}\" is; `lattice admin vcluster set \
                 {vcluster}` does"
            ),
            Refusal::VclusterInUse { vcluster, nodes } => {
                let nodes = crate::hostlist::fold(nodes);
                write!(
                    f,
                    "vCluster \"{vcluster}\" has nodes: {nodes}; they would be open to every tenant. \
                     Move them first: `lattice admin vcluster assign OTHER '{nodes}' --from \
                     {vcluster}`"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_without_nodes_is_told_apart_from_one_with_too_few() {
        let text = |requested, registered| {
            Refusal::TooLarge {
                requested,
                registered,
            }
            .to_string()
        };
        assert_eq!(
            text(1, 0),
            "the cluster has no nodes yet; `lattice node list` shows them when their agents have \
             joined"
        );
        assert_eq!(
            text(5, 4),
            "5 nodes were asked for, but the cluster has 4; ask for at most 4"
        );
    }
}
