//! DAGs: allocations that start when others have ended.
//!
//! The main type is [`DagRequest`]; a member is an [`AllocationRequest`] with a name and dependencies.

mod body;
mod dot;
#[cfg(test)]
mod tests;

pub use body::{AfterBody, EdgeBody, MemberRequest};
pub use dot::MEDIA_TYPE as DOT;

use super::allocation::{AllocationRequest, RequestContext, read_condition};
use crate::{
    notation::{duration, text},
    problem::{FieldError, field_of},
};
use lattice_quorum_types::{
    AllocationId, Revision,
    dag::{Dag, DagSpec, Edge, MemberSpec},
    hostlist::MAX_HOSTS,
    limit::OnLimit,
    terms::Condition,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request for a DAG.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a graph: `members`, and perhaps a `name`"
)]
pub struct DagRequest {
    /// Free-text name; may be left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Members, at least one. The allocation numbers of the members are in this order.
    pub members: Vec<MemberRequest>,
}

impl DagRequest {
    /// Converts the request for the quorum. `known` has one element per member, by position; it resolves references to
    /// allocations outside the DAG.
    ///
    /// # Errors
    /// The first field that cannot be read, as `members.NAME.field`.
    pub fn into_spec(self, known: &[RequestContext]) -> Result<DagSpec, FieldError> {
        let nothing = RequestContext::default();
        let mut named = 0;
        let members = self.members.into_iter().enumerate();
        let members = members.map(|(place, member)| {
            let name = member.name(place)?;
            let within = |error: FieldError| FieldError {
                field: field_of(&name, &error.field),
                ..error
            };
            let known = known.get(place).unwrap_or(&nothing);
            let after = member.edges().map_err(within)?;
            check_on_limit(&member.request).map_err(within)?;
            let spec = member.request.into_spec_with(known).map_err(within)?;
            // A short hostlist can expand to many nodes: the hostlists of a thousand members could exhaust the memory.
            named += spec.constraints.nodelist.len() + spec.constraints.exclude.len();
            if named > MAX_HOSTS {
                return Err(FieldError {
                    field: field_of(&name, "constraints"),
                    reason: format!(
                        "nodelist and exclude of the members up to this one name more than {MAX_HOSTS} nodes; name \
                         fewer nodes, or use constraints.features"
                    ),
                });
            }
            Ok(MemberSpec { name, spec, after })
        });
        Ok(DagSpec {
            name: self.name,
            members: members.collect::<Result<_, FieldError>>()?,
        })
    }
}

/// Rejects a member that requests to be refused above limits. Members are submitted together, and each waits until it
/// may start.
fn check_on_limit(member: &AllocationRequest) -> Result<(), FieldError> {
    match member.on_limit()? {
        Some(OnLimit::Reject) => Err(FieldError {
            field: OnLimit::NAME.to_owned(),
            reason: "the members of a graph always wait for quota headroom; leave the field out"
                .to_owned(),
        }),
        Some(OnLimit::Wait) | None => Ok(()),
    }
}

impl MemberRequest {
    /// Returns the name of the member.
    ///
    /// # Errors
    /// A missing or empty name; the field gives the position.
    pub fn name(&self, place: usize) -> Result<String, FieldError> {
        let name = self.request.name.clone();
        name.filter(|name| !name.is_empty())
            .ok_or_else(|| FieldError {
                field: format!("members[{place}].name"),
                reason: "give the member a name, by which other members refer to it".to_owned(),
            })
    }

    fn edges(&self) -> Result<Vec<Edge>, FieldError> {
        let wrong = |reason| FieldError {
            field: "after".to_owned(),
            reason,
        };
        let edge = |member: &str, condition: &str| {
            Ok(Edge {
                member: member.to_owned(),
                condition: read_condition(condition).map_err(wrong)?,
            })
        };
        let success = Condition::Success.as_str();
        match &self.after {
            AfterBody::Edges(edges) => {
                let edges = edges.iter();
                let read = |body: &EdgeBody| {
                    edge(&body.member, body.condition.as_deref().unwrap_or(success))
                };
                edges.map(read).collect()
            }
            AfterBody::Names(names) => names.iter().map(|name| edge(name, success)).collect(),
            AfterBody::ByCondition(by) => by
                .iter()
                .flat_map(|(condition, names)| names.iter().map(move |name| (condition, name)))
                .map(|(condition, name)| edge(name, condition))
                .collect(),
        }
    }
}

/// Answer to the submit of a DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagSubmitResult {
    /// DAG number.
    pub id: u64,
    /// Revision at which the DAG was created.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// Answer to a dry run of a submit: the DAG would be accepted, and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagDryRunResult {
    /// Revision at which the DAG was checked.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Always true.
    pub dry_run: bool,
    /// Members that would be submitted, in this order.
    pub members: Vec<DagDryRunMember>,
}

/// Member that would be submitted, as parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagDryRunMember {
    /// Member name.
    pub name: String,
    /// Project for limits and usage.
    pub project: String,
    /// vCluster that would schedule the member.
    pub vcluster: String,
    /// Number of nodes of the member, or of each element of an array.
    pub nodes: u32,
    /// Number of elements; only for an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<u32>,
    /// Walltime, such as `1h30m`; absent: unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walltime: Option<String>,
    /// Members that must end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<DagEdgeView>,
}

impl From<&MemberSpec> for DagDryRunMember {
    fn from(member: &MemberSpec) -> Self {
        let spec = &member.spec;
        let elements = spec.terms.array.as_ref().map(|array| array.indices().len());
        let after = member.after.iter().map(|edge| DagEdgeView {
            member: edge.member.clone(),
            condition: edge.condition.to_string(),
        });
        Self {
            name: member.name.clone(),
            project: spec.project.to_string(),
            vcluster: spec.vcluster.to_string(),
            nodes: spec.nodes,
            elements: elements.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
            walltime: spec.walltime_ms.map(duration::format),
            after: after.collect(),
        }
    }
}

/// DAG as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagView {
    /// DAG number. The allocation numbers of the members follow it.
    pub id: u64,
    /// Free-text name; may be empty.
    pub name: String,
    /// User that submitted the DAG.
    pub user: String,
    /// Project of the first member.
    pub project: String,
    /// `running`, `completed`, `failed` or `cancelled`. `failed`: a member failed, missed its deadline or had an unmet
    /// dependency, and no dependent member ran on that failure.
    pub state: String,
    /// Time of the submit.
    pub submitted_at: String,
    /// Time at which the last member ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Number of members.
    pub size: u32,
    /// Members that have not ended.
    pub unfinished: u32,
    /// User that cancelled the DAG or one of its members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// First member that counts as a failure of the DAG; see `state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Members in the order of submission; left out of lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<DagMemberView>,
    /// Revision of the last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// DAG member as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagMemberView {
    /// Member name.
    pub name: String,
    /// Allocation number of the member.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// State of the allocation; absent if its record is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why the allocation is being, or was, stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Members that must end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<DagEdgeView>,
}

/// Dependency of a DAG member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagEdgeView {
    /// Member that must end first.
    pub member: String,
    /// Required end of that member: `success`, `failure`, `any` or `corresponding`.
    pub condition: String,
}

/// DAG as nodes and edges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphView {
    /// DAG number.
    pub id: u64,
    /// Free-text name.
    pub name: String,
    /// One node per member.
    pub nodes: Vec<GraphNodeView>,
    /// Edges, from the member that ends first to the member that depends on it.
    pub edges: Vec<GraphEdgeView>,
}

/// Node of the graph: a DAG member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphNodeView {
    /// Member name.
    pub name: String,
    /// Allocation number of the member.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// State of the allocation; absent if its record is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Edge of the graph: a dependency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphEdgeView {
    /// Member that must end first.
    pub from: String,
    /// Member that depends on the first member.
    pub to: String,
    /// Required end of the first member.
    pub condition: String,
}

impl From<&Dag> for DagView {
    /// Creates the view for lists, without the members.
    fn from(dag: &Dag) -> Self {
        Self {
            id: dag.id.0,
            name: dag.name.clone(),
            user: dag.user.clone(),
            project: dag.project.to_string(),
            state: dag.state.to_string(),
            submitted_at: text::time(dag.submitted_at),
            ended_at: dag.ended_at.map(text::time),
            size: u32::try_from(dag.members.len()).unwrap_or(u32::MAX),
            unfinished: dag.unfinished,
            cancelled_by: dag.cancelled_by.clone(),
            failed: dag.failed.clone(),
            members: Vec::new(),
            revision: dag.revision,
        }
    }
}

impl DagView {
    /// Creates the view with the members; `now` returns the state of an allocation and the reason for its stop.
    pub fn with_members(
        dag: &Dag,
        now: impl Fn(AllocationId) -> (Option<String>, Option<String>),
    ) -> Self {
        let name = |place: u32| {
            let member = dag.members.get(place as usize);
            member.map_or_else(String::new, |member| member.name.clone())
        };
        let members = dag.members.iter().map(|member| {
            let (state, stop) = now(member.allocation);
            let after = member.after.iter().map(|(place, condition)| DagEdgeView {
                member: name(*place),
                condition: condition.to_string(),
            });
            DagMemberView {
                name: member.name.clone(),
                allocation: member.allocation,
                state,
                stop,
                after: after.collect(),
            }
        });
        Self {
            members: members.collect(),
            ..Self::from(dag)
        }
    }
}

impl From<DagView> for GraphView {
    fn from(dag: DagView) -> Self {
        let edges = dag.members.iter().flat_map(|member| {
            member.after.iter().map(|edge| GraphEdgeView {
                from: edge.member.clone(),
                to: member.name.clone(),
                condition: edge.condition.clone(),
            })
        });
        Self {
            id: dag.id,
            name: dag.name.clone(),
            edges: edges.collect(),
            nodes: dag
                .members
                .into_iter()
                .map(|member| GraphNodeView {
                    name: member.name,
                    allocation: member.allocation,
                    state: member.state,
                })
                .collect(),
        }
    }
}
