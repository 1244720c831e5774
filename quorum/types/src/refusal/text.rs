//! Texts of refusals: the rule, the levels, the numbers and the remedy.

use super::{
    Refusal,
    limit::{LimitNumbers, fmt_exceeded, fmt_pool},
};
use crate::{
    AllocationId, AllocationName, NameLookup, Revision, cidr, hostlist,
    limit_policy::fmt_fault,
    node::{UnavailableNode, UnavailableReason, fmt_taken},
    text::counted,
};
use std::{cell::RefCell, fmt};

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_named(f, &AllocationName::of_id)
    }
}

/// Refusal with a lookup of names.
struct NamedRefusal<'a> {
    refusal: &'a Refusal,
    name: NameLookup<'a>,
}

impl fmt::Display for NamedRefusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt_named(f, self.name)
    }
}

impl Refusal {
    /// Text with the names of the allocations that it mentions. The plain text ([`fmt::Display`]) has their numbers.
    pub fn text(&self, name: NameLookup<'_>) -> String {
        let refusal = self;
        NamedRefusal { refusal, name }.to_string()
    }

    /// Numbers of the allocations that the text mentions, in its order.
    pub fn allocations(&self) -> Vec<AllocationId> {
        let mentioned = RefCell::new(Vec::new());
        self.text(&|id| {
            mentioned.borrow_mut().push(id);
            AllocationName::of_id(id)
        });
        mentioned.into_inner()
    }

    fn fmt_named(&self, f: &mut fmt::Formatter<'_>, name: NameLookup<'_>) -> fmt::Result {
        match self {
            Refusal::LimitExceeded { levels, asked } => fmt_exceeded(f, levels, *asked),
            Refusal::LimitConflict { faults } => {
                for (i, fault) in faults.iter().enumerate() {
                    if i > 0 {
                        f.write_str("\n")?;
                    }
                    fmt_fault(f, fault)?;
                }
                Ok(())
            }
            Refusal::UnknownProject { path } => {
                let kind = match path.is_tenant() {
                    true => "tenant",
                    false => "project",
                };
                write!(
                    f,
                    "unknown {kind} \"{path}\"; `lattice project tree` shows all tenants and projects"
                )
            }
            Refusal::ProjectExists { path } => write!(f, "project \"{path}\" exists already"),
            Refusal::ProjectNotEmpty {
                path,
                children,
                allocations,
            } => write!(
                f,
                "project \"{path}\" is not empty: {}, {}; delete or finish them first",
                counted(*children, "child project"),
                counted(*allocations, "unfinished allocation")
            ),
            Refusal::UnknownNode { node } => {
                write!(
                    f,
                    "unknown node \"{node}\"; `lattice node list` shows all nodes"
                )
            }
            Refusal::UnknownAllocation { id } => write!(
                f,
                "unknown allocation {}; `lattice status --all` shows all allocations",
                name(*id)
            ),
            Refusal::WrongState { id, state, action } => {
                write!(f, "cannot {action} allocation {}: it is {state}", name(*id))
            }
            Refusal::OwnershipConflict { nodes } => {
                f.write_str("ownership conflict:")?;
                for (node, holder) in nodes {
                    match holder {
                        Some(id) => {
                            write!(f, " {node} is held by allocation {};", name(*id))?;
                        }
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
                "stale epoch {given} of lease {lease}; current is {current}"
            ),
            Refusal::LeaseHeld { lease, holder } => {
                write!(f, "lease {lease} is held by {holder}")
            }
            Refusal::StaleAttempt { id, given, current } => write!(
                f,
                "stale attempt {given} of allocation {}; current is {current}",
                name(*id)
            ),
            Refusal::Forbidden { principal, needs } => {
                write!(f, "{principal} may not do this: it needs {needs}")
            }
            Refusal::Invalid { field, reason } => write!(f, "{field}: {reason}"),
            Refusal::Paused { project, vcluster } => write!(
                f,
                "allocation rejected: project \"{project}\" is paused in vCluster \"{vcluster}\" by the accounting \
                 system\n  Hint: No new allocation starts there until the accounting system lifts the pause; \
                 contact your tenant admin, or use the portal of the accounting system."
            ),
            Refusal::OfMember { member, refusal } => {
                write!(f, "members.{member}: ")?;
                refusal.fmt_named(f, name)
            }
            Refusal::TooLarge { registered: 0, .. } => f.write_str(
                "the cluster has no nodes yet; `lattice node list` shows them when their agents \
                 have joined",
            ),
            Refusal::TooLarge {
                requested,
                registered,
            } => write!(
                f,
                "{requested} nodes were requested, but the cluster has {registered}; request at \
                 most {registered}"
            ),
            Refusal::TokenRefused { reason } => write!(f, "join token refused: {reason}"),
            Refusal::KeyReused { key } => write!(
                f,
                "idempotency key {key:?} was used before with another request; use a new key"
            ),
            Refusal::UnsupportedSchema { given, supported } => write!(
                f,
                "command schema {given} is not supported; this quorum member reads schema \
                 {supported}; run one version of Lattice on all services, and upgrade the quorum \
                 members first"
            ),
            Refusal::NameTaken { name, needs } => {
                write!(f, "the name {name} is enrolled already; {needs}")
            }
            Refusal::CertificateRevoked { name } => write!(
                f,
                "the certificates of {name} were revoked; it must enrol again with a new token"
            ),
            Refusal::NodeChanged { node, holder } => {
                let now = holder.map_or("free".to_owned(), |id| {
                    format!("held by allocation {}", name(id))
                });
                write!(
                    f,
                    "node {node} has changed since it was read, and is now {now}; read it again \
                     and retry"
                )
            }
            Refusal::UnknownTrust { kind, id } => write!(f, "there is no {kind} {id}"),
            Refusal::TokenNetwork { from, networks } => write!(
                f,
                "join token refused: it is not valid from {from}, only from {}",
                cidr::list(networks)
            ),
            Refusal::UnknownBaseline { name } => write!(
                f,
                "unknown baseline \"{name}\"; `lattice conformance baseline list` shows all baselines"
            ),
            Refusal::BaselineChanged {
                name,
                expected,
                current: 0,
            } => write!(
                f,
                "baseline \"{name}\" was at version {expected} and is deleted now; read it again"
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
                "baseline \"{name}\" is at version {current}, no longer at {expected}; read it \
                 again and retry"
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
                "baseline \"{name}\" is ambiguous: \"{other}\" already applies to class {class} of \
                 {chosen}; remove the class or the nodes from one of them"
            ),
            Refusal::Unproven { id, faults, more } => {
                write!(
                    f,
                    "allocation {} is sensitive and cannot be assigned these nodes:",
                    name(*id)
                )?;
                for fault in faults {
                    write!(f, "\n{fault}")?;
                }
                match more {
                    0 => Ok(()),
                    more => write!(f, "\nand {more} more faults"),
                }
            }
            Refusal::NodesTaken { nodes } => {
                f.write_str("ownership conflict:")?;
                fmt_taken(f, nodes, name)?;
                let elsewhere = |taken: &UnavailableNode| {
                    matches!(taken.by, UnavailableReason::Vcluster { .. })
                };
                let others = nodes.iter().filter(|taken| elsewhere(taken)).count();
                // Also the claim and the assignment of a node that its vCluster reclaims are refused so; only one
                // command has the option.
                f.write_str(match others {
                    0 => {
                        "; no node was assigned or claimed; choose other nodes, or wait until \
                         these are free"
                    }
                    all if all == nodes.len() => {
                        "; no node was assigned, claimed or moved; choose other nodes. `lattice admin \
                         vcluster assign` moves these nodes if `--from` names their vCluster"
                    }
                    _ => {
                        "; no node was assigned, claimed or moved; choose other nodes, or wait until \
                         these are free. `lattice admin vcluster assign` moves nodes of another \
                         vCluster if `--from` names that vCluster"
                    }
                })
            }
            Refusal::SensitivePool {
                current,
                requested,
                limit,
            } => fmt_pool(
                f,
                LimitNumbers {
                    current: *current,
                    requested: *requested,
                    limit: *limit,
                },
            ),
            Refusal::NotConforming { faults, more } => {
                f.write_str("these nodes cannot be claimed for sensitive allocations:")?;
                for fault in faults {
                    write!(f, "\n{fault}")?;
                }
                match more {
                    0 => Ok(()),
                    more => write!(f, "\nand {more} more faults"),
                }
            }
            Refusal::StillHeld { nodes } => {
                f.write_str("not released:")?;
                for (node, id) in nodes {
                    write!(f, " node {node} still runs allocation {};", name(*id))?;
                }
                f.write_str(" end that first, or wait for it")
            }
            Refusal::VclusterClosed { vcluster, tenant } => write!(
                f,
                "vCluster \"{vcluster}\" is not open to tenant \"{tenant}\"; `lattice admin \
                 vcluster show {vcluster}` lists its tenants"
            ),
            Refusal::VclusterChanged {
                vcluster,
                expected,
                current: 0,
            } => write!(
                f,
                "vCluster \"{vcluster}\" was at version {expected} and is not defined now; read it \
                 again"
            ),
            Refusal::VclusterChanged {
                vcluster,
                expected: 0,
                current,
            } => write!(
                f,
                "vCluster \"{vcluster}\" is defined already, at version {current}; name that version \
                 to change it"
            ),
            Refusal::VclusterChanged {
                vcluster,
                expected,
                current,
            } => write!(
                f,
                "vCluster \"{vcluster}\" is at version {current}, no longer at {expected}; read it \
                 again and retry"
            ),
            Refusal::UnknownVcluster { vcluster } => write!(
                f,
                "vCluster \"{vcluster}\" is not defined; `lattice admin vcluster list` shows all \
                 vClusters, and an administrator can define one with `lattice admin vcluster set \
                 {vcluster}`"
            ),
            Refusal::VclusterInUse { vcluster, nodes } => {
                let nodes = hostlist::fold(nodes);
                write!(
                    f,
                    "vCluster \"{vcluster}\" has nodes: {nodes}; they would be open to every tenant. \
                     Move them first: `lattice admin vcluster assign OTHER '{nodes}' --from \
                     {vcluster}`"
                )
            }
            Refusal::DagTooLarge { members, limit } => write!(
                f,
                "DAG exceeds maximum size ({members} allocations, limit: {limit})\n  Hint: Split it into \
                 several, each submitted after the last member of the one before (`--dependency`), or use \
                 arrays for members that differ in a number alone."
            ),
            Refusal::UnknownDag { id } => write!(
                f,
                "unknown DAG {id}; `lattice dag list --all` shows all DAGs"
            ),
            Refusal::NotMovable { id, reason } => {
                let name = name(*id);
                write!(
                    f,
                    "allocation {name} cannot be preempted or moved: {reason}"
                )
            }
            Refusal::Reserved { nodes } => {
                f.write_str(
                    "nodes are reserved for others during the walltime of the allocation:",
                )?;
                for (node, name) in nodes.iter().take(16) {
                    write!(f, " node {node} by reservation \"{name}\";")?;
                }
                if let more @ 1.. = nodes.len().saturating_sub(16) {
                    write!(f, " and {more} more nodes;")?;
                }
                f.write_str(" `lattice reservation list` shows the times, users and projects")
            }
            Refusal::UnknownReservation { name } => write!(
                f,
                "unknown reservation \"{name}\"; `lattice reservation list` shows all reservations"
            ),
            Refusal::ReservationChanged {
                name,
                expected: Revision(0),
                ..
            } => write!(f, "reservation \"{name}\" exists already"),
            Refusal::ReservationChanged { name, .. } => write!(
                f,
                "reservation \"{name}\" has changed since it was read; read it again and retry"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AllocationState, NodeId, progress::ArrayElement};

    #[test]
    fn first_part_of_a_path_is_a_tenant() {
        for (path, kind) in [("ocean", "tenant"), ("ocean/waves", "project")] {
            let path = crate::ProjectPath::new(path).ok();
            let texts = path.map(|path| Refusal::UnknownProject { path }.to_string());
            let is_named = texts.is_some_and(|text| text.starts_with(&format!("unknown {kind} ")));
            assert!(is_named, "{kind}");
        }
    }

    #[test]
    fn names_replace_every_number_of_an_element() {
        let element = ArrayElement {
            array: AllocationId(5),
            index: 2,
        };
        let name = |id: AllocationId| AllocationName::new(id, (id.0 == 8).then_some(element));
        let id = AllocationId(8);
        let wrong = Refusal::WrongState {
            id,
            state: AllocationState::Completed,
            action: "cancel".to_owned(),
        };
        let text = "cannot cancel allocation 8: it is completed";
        assert_eq!(wrong.to_string(), text);
        assert_eq!(wrong.text(&name), text.replace('8', "5_2"));
        let node = NodeId::new("n1").ok();
        let mut refusals = vec![wrong, Refusal::UnknownAllocation { id }];
        refusals.extend(node.into_iter().flat_map(|node| {
            let taken = [
                UnavailableReason::Promised { id },
                UnavailableReason::Allocation {
                    id,
                    user: "ada".to_owned(),
                },
            ]
            .map(|by| UnavailableNode {
                node: node.clone(),
                by,
            });
            [
                Refusal::OwnershipConflict {
                    nodes: vec![(node.clone(), Some(id))],
                },
                Refusal::NodeChanged {
                    node: node.clone(),
                    holder: Some(id),
                },
                Refusal::StillHeld {
                    nodes: vec![(node.clone(), id)],
                },
                Refusal::NodesTaken {
                    nodes: taken.to_vec(),
                },
            ]
        }));
        refusals.push(Refusal::StaleAttempt {
            id,
            given: 1,
            current: 2,
        });
        refusals.push(Refusal::NotMovable {
            id,
            reason: "it is sensitive".to_owned(),
        });
        refusals.push(Refusal::Unproven {
            id,
            faults: Vec::new(),
            more: 0,
        });
        for refusal in refusals {
            let inner = refusal.text(&name);
            let of_member = Refusal::OfMember {
                member: "fit".to_owned(),
                refusal: Box::new(refusal),
            };
            let text = of_member.text(&name);
            assert_eq!(text, format!("members.fit: {inner}"));
            assert!(text.contains("5_2") && !text.contains('8'), "{text}");
            assert!(of_member.allocations().iter().all(|of| *of == id), "{text}");
            assert!(!of_member.allocations().is_empty(), "{text}");
        }
    }

    #[test]
    fn empty_cluster_differs_from_small_one() {
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
            "5 nodes were requested, but the cluster has 4; request at most 4"
        );
    }
}
