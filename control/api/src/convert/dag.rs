//! DAGs and reservations.

use crate::{
    jobs::dag::{
        AfterBody, DagDryRunMember, DagDryRunResult, DagEdgeView, DagMemberView, DagRequest,
        DagSubmitResult, DagView, EdgeBody, GraphEdgeView, GraphNodeView, GraphView, MemberRequest,
    },
    page::Page,
    problem::{FieldError, field_of},
    tenancy::reservation::{ReservationConflictView, ReservationRequest, ReservationView},
    v1,
};
use lattice_quorum_types::Revision;

field_by_field! {
    DagEdgeView => DagEdge { member, condition }
    GraphEdgeView => DagGraphEdge { from, to, condition }
}

impl TryFrom<v1::SubmitDagRequest> for DagRequest {
    type Error = FieldError;

    fn try_from(r: v1::SubmitDagRequest) -> Result<Self, FieldError> {
        let members = r.members.into_iter().enumerate();
        let members = members.map(|(place, member)| {
            let request = member.request.unwrap_or_default();
            let name = request.name.clone();
            let request = request.try_into().map_err(|error: FieldError| FieldError {
                field: match &name {
                    Some(name) => field_of(name, &error.field),
                    None => format!("members[{place}].{}", error.field),
                },
                ..error
            })?;
            let after = member.after.into_iter().map(|edge| EdgeBody {
                member: edge.member,
                condition: super::non_empty(edge.condition),
            });
            Ok(MemberRequest {
                after: AfterBody::Edges(after.collect()),
                request,
            })
        });
        Ok(Self {
            name: r.name,
            members: members.collect::<Result<_, FieldError>>()?,
        })
    }
}

impl From<DagSubmitResult> for v1::SubmitDagResponse {
    fn from(made: DagSubmitResult) -> Self {
        Self {
            id: Some(made.id),
            revision: made.revision.0,
            members: Vec::new(),
        }
    }
}

impl From<DagDryRunResult> for v1::SubmitDagResponse {
    /// A dry run has no DAG number, which distinguishes its answer from that of a submit.
    fn from(judged: DagDryRunResult) -> Self {
        Self {
            id: None,
            revision: judged.revision.0,
            members: judged.members.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<DagDryRunMember> for v1::DagDryRunMember {
    fn from(member: DagDryRunMember) -> Self {
        let DagDryRunMember {
            name,
            project,
            vcluster,
            nodes,
            elements,
            walltime,
            after,
        } = member;
        Self {
            name,
            project,
            vcluster,
            nodes,
            elements,
            walltime,
            after: after.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<DagView> for v1::Dag {
    fn from(view: DagView) -> Self {
        let DagView {
            id,
            name,
            user,
            project,
            state,
            submitted_at,
            ended_at,
            size,
            unfinished,
            cancelled_by,
            failed,
            members,
            revision,
        } = view;
        Self {
            id,
            name,
            user,
            project,
            state,
            submitted_at,
            ended_at,
            size,
            unfinished,
            cancelled_by,
            failed,
            members: members.into_iter().map(Into::into).collect(),
            revision: revision.0,
        }
    }
}

impl From<DagMemberView> for v1::DagMember {
    fn from(view: DagMemberView) -> Self {
        let DagMemberView {
            name,
            allocation,
            state,
            stop,
            after,
        } = view;
        Self {
            name,
            allocation: allocation.0,
            state,
            stop,
            after: after.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Page<DagView>> for v1::ListDagsResponse {
    fn from(page: Page<DagView>) -> Self {
        Self {
            items: page.items.into_iter().map(Into::into).collect(),
            next_cursor: page.next_cursor,
        }
    }
}

impl From<GraphNodeView> for v1::DagGraphNode {
    fn from(view: GraphNodeView) -> Self {
        let GraphNodeView {
            name,
            allocation,
            state,
        } = view;
        Self {
            name,
            allocation: allocation.0,
            state,
        }
    }
}

impl From<GraphView> for v1::DagGraph {
    fn from(view: GraphView) -> Self {
        let GraphView {
            id,
            name,
            nodes,
            edges,
        } = view;
        Self {
            id,
            name,
            nodes: nodes.into_iter().map(Into::into).collect(),
            edges: edges.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::SetReservationRequest> for ReservationRequest {
    fn from(r: v1::SetReservationRequest) -> Self {
        Self {
            nodes: r.nodes,
            groups: r.groups,
            from: r.from,
            until: r.until,
            duration: r.duration,
            users: r.users.into_iter().collect(),
            projects: r.projects.into_iter().collect(),
            reason: r.reason,
            expected_revision: r.expected_revision.map(Revision),
        }
    }
}

impl From<ReservationView> for v1::Reservation {
    fn from(view: ReservationView) -> Self {
        let ReservationView {
            name,
            nodes,
            node_count,
            from,
            until,
            active,
            users,
            projects,
            usable,
            reason,
            by,
            revision,
            conflicts,
        } = view;
        Self {
            name,
            nodes,
            node_count,
            from,
            until,
            active,
            users,
            projects,
            usable,
            reason,
            by,
            revision: revision.0,
            conflicts: conflicts.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ReservationConflictView> for v1::ReservationConflict {
    fn from(view: ReservationConflictView) -> Self {
        let ReservationConflictView {
            allocation,
            element,
            nodes,
            until,
        } = view;
        Self {
            allocation: allocation.0,
            element: element.map(Into::into),
            nodes,
            until,
        }
    }
}

impl From<Page<ReservationView>> for v1::ListReservationsResponse {
    fn from(page: Page<ReservationView>) -> Self {
        Self {
            items: page.items.into_iter().map(Into::into).collect(),
            next_cursor: page.next_cursor,
        }
    }
}
