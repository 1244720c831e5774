//! Subjects of audit entries: the users, allocations, nodes and projects that an entry is about, in one form for all
//! actions. A search for a node thus needs no list of the actions that name nodes.

use super::{AuditAction, LevelLimits};
use crate::{AllocationId, NodeId, ProjectPath, rpc::Role};

/// Subjects of an action. The acting principal is in the entry's `by`, not here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subjects<'a> {
    /// Users: owners of allocations and claimants of nodes.
    pub users: Vec<&'a str>,
    /// Allocations.
    pub allocations: Vec<AllocationId>,
    /// Nodes, including nodes that are not registered yet.
    pub nodes: Vec<&'a str>,
    /// Projects.
    pub projects: Vec<&'a ProjectPath>,
}

impl<'a> Subjects<'a> {
    fn node(node: &'a NodeId) -> Self {
        Self {
            nodes: vec![node.as_str()],
            ..Self::default()
        }
    }
    fn nodes(nodes: &'a [NodeId]) -> Self {
        Self {
            nodes: nodes.iter().map(NodeId::as_str).collect(),
            ..Self::default()
        }
    }
    fn project(project: &'a ProjectPath) -> Self {
        Self {
            projects: vec![project],
            ..Self::default()
        }
    }
    fn with_allocation(self, allocation: Option<AllocationId>) -> Self {
        Self {
            allocations: allocation.into_iter().collect(),
            ..self
        }
    }
    fn with_user(self, user: &'a str) -> Self {
        let users = vec![user];
        Self { users, ..self }
    }
    fn with_project(self, project: &'a ProjectPath) -> Self {
        let projects = vec![project];
        Self { projects, ..self }
    }
    /// Subjects of a certificate: the name is a node name if the role is agent.
    fn named(role: Role, name: &'a str) -> Self {
        let nodes = match role {
            Role::Agent => vec![name],
            Role::Quorum | Role::Control => Vec::new(),
        };
        Self {
            nodes,
            ..Self::default()
        }
    }
}

impl AuditAction {
    /// Returns the subjects of the action.
    pub fn subjects(&self) -> Subjects<'_> {
        match self {
            Self::ForceReleased {
                node, allocation, ..
            } => Subjects::node(node).with_allocation(*allocation),
            Self::Enrolled {
                role, name, held, ..
            } => Subjects::named(*role, name).with_allocation(*held),
            Self::CertificatesRevoked { role, name, .. } => Subjects::named(*role, name),
            Self::NodesClaimed {
                nodes,
                user,
                project,
                ..
            }
            | Self::NodesReleased {
                nodes,
                user,
                project,
                ..
            } => Subjects::nodes(nodes).with_user(user).with_project(project),
            Self::NodeWiped { node, user, .. } | Self::NodeQuarantined { node, user, .. } => {
                Subjects {
                    users: user.iter().map(String::as_str).collect(),
                    ..Subjects::node(node)
                }
            }
            Self::SensitiveAssigned {
                allocation,
                user,
                project,
                nodes,
                ..
            }
            | Self::SensitiveStarted {
                allocation,
                user,
                project,
                nodes,
                ..
            }
            | Self::SensitiveEnded {
                allocation,
                user,
                project,
                nodes,
                ..
            }
            | Self::SensitiveAsked {
                allocation,
                user,
                project,
                nodes,
                ..
            } => Subjects::nodes(nodes)
                .with_allocation(Some(*allocation))
                .with_user(user)
                .with_project(project),
            Self::SensitiveResized {
                allocation,
                user,
                project,
                taken,
                given_back,
                ..
            } => {
                let nodes = taken.iter().chain(given_back).map(NodeId::as_str);
                Subjects {
                    nodes: nodes.collect(),
                    ..Subjects::project(project)
                        .with_allocation(Some(*allocation))
                        .with_user(user)
                }
            }
            Self::AllocationActedOn {
                allocation,
                user,
                project,
                ..
            }
            | Self::SensitiveCheckpointed {
                allocation,
                user,
                project,
                ..
            } => Subjects::project(project)
                .with_allocation(Some(*allocation))
                .with_user(user),
            Self::LimitsChanged { levels } | Self::LimitsForced { levels, .. } => Subjects {
                projects: levels
                    .iter()
                    .map(|LevelLimits { project, .. }| project)
                    .collect(),
                ..Subjects::default()
            },
            Self::ProjectCreated { project, .. } | Self::ProjectDeleted { project, .. } => {
                Subjects::project(project)
            }
            Self::WipeRepeated { node, user, .. } | Self::UnwipedAccepted { node, user, .. } => {
                Subjects::node(node).with_user(user)
            }
            Self::UnknownAttemptEnded {
                node,
                allocation,
                origin,
                ..
            } => {
                let subjects = Subjects::node(node).with_allocation(Some(*allocation));
                match origin {
                    Some(origin) => subjects
                        .with_user(&origin.user)
                        .with_project(&origin.project),
                    None => subjects,
                }
            }
            Self::GateSkipped { node, .. }
            | Self::LifecycleSet { node, .. }
            | Self::Drained { node, .. }
            | Self::Undrained { node, .. } => Subjects::node(node),
            Self::NodesMoved { nodes, .. }
            | Self::ReservationSet { nodes, .. }
            | Self::ReservationDeleted { nodes, .. } => Subjects::nodes(nodes),
            Self::TokenCreated { .. }
            | Self::TokenRevoked { .. }
            | Self::AuthorityAdded { .. }
            | Self::AuthorityPromoted { .. }
            | Self::AuthorityRetired { .. }
            | Self::BaselineSet { .. }
            | Self::BaselineDeleted { .. }
            | Self::BrakeHeld { .. }
            | Self::BrakeReleased { .. }
            | Self::LimitPolicyChanged { .. }
            | Self::SystemLimitsChanged { .. }
            | Self::VclusterSet { .. }
            | Self::VclusterDeleted { .. }
            | Self::MemberAdded { .. }
            | Self::MemberRemoved { .. }
            | Self::SteppedDown { .. }
            | Self::BackedUp { .. }
            | Self::Restored { .. }
            | Self::NumbersSkipped { .. }
            | Self::MonthAccepted { .. }
            | Self::SignedHead { .. } => Subjects::default(),
        }
    }
}
