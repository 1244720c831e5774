//! Graphs of work: members that begin when others have ended.
//!
//! Begin with [`DagRequest`]; a member is an [`AllocationRequest`] with a name and what it comes after.

mod body;
mod dot;
#[cfg(test)]
mod tests;

pub use body::{AfterBody, EdgeBody, MemberRequest};
pub use dot::MEDIA_TYPE as DOT;

use crate::{
    allocation::{AllocationRequest, Known, read_condition},
    duration,
    problem::FieldError,
    text,
};
use lattice_quorum_types::{
    AllocationId, Revision,
    dag::{Dag, DagSpec, Edge, MemberSpec},
    hostlist::MAX_HOSTS,
    terms::Condition,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A graph as somebody asks for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a graph: `members`, and perhaps a `name`"
)]
pub struct DagRequest {
    /// A name for people; may be left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// At least one. They get their numbers in this order.
    pub members: Vec<MemberRequest>,
}

/// The field of a member, as errors name it.
pub fn field_of(member: &str, field: &str) -> String {
    format!("members.{member}.{field}")
}

impl DagRequest {
    /// As the quorum is asked. `known`: of each member, by its place; what it names outside the graph.
    ///
    /// # Errors
    /// The first field that cannot be read, as `members.NAME.field`.
    pub fn into_spec(self, known: &[Known]) -> Result<DagSpec, FieldError> {
        let nothing = Known::default();
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
            let spec = member.request.into_spec_with(known).map_err(within)?;
            // Lists of nodes are short and what they name is not: a thousand of them would fill the memory.
            named += spec.constraints.nodelist.len() + spec.constraints.exclude.len();
            if named > MAX_HOSTS {
                return Err(FieldError {
                    field: field_of(&name, "constraints"),
                    reason: format!(
                        "the nodelist and exclude of all members up to it name more than {MAX_HOSTS} nodes; name \
                         fewer, or ask for constraints.features"
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

impl MemberRequest {
    /// What it is called.
    ///
    /// # Errors
    /// Where it has no name, by its place.
    pub fn name(&self, place: usize) -> Result<String, FieldError> {
        let name = self.request.name.clone();
        name.filter(|name| !name.is_empty())
            .ok_or_else(|| FieldError {
                field: format!("members[{place}].name"),
                reason: "give the member a name: others come after it by that".to_owned(),
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

/// The answer to the submit of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagSubmitted {
    /// Its number.
    pub id: u64,
    /// The revision it was made at.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// The answer to the dry run of a submit: the graph would be accepted, and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagJudged {
    /// The revision it was judged at.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Always true.
    pub dry_run: bool,
    /// What would be submitted, in that order.
    pub members: Vec<DagMemberJudged>,
}

/// A member that would be submitted, as the request was understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagMemberJudged {
    /// What it is called.
    pub name: String,
    /// Whose limits apply.
    pub project: String,
    /// Where it would wait for nodes.
    pub vcluster: String,
    /// Nodes of it, or of each element of an array.
    pub nodes: u32,
    /// How many elements it has, of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<u32>,
    /// As `1h30m`; absent: unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walltime: Option<String>,
    /// The members it comes after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<DagEdgeView>,
}

impl From<&MemberSpec> for DagMemberJudged {
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

/// A graph as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagView {
    /// Its number. Its members' are behind it.
    pub id: u64,
    /// A name for people; may be empty.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// The project of its first member.
    pub project: String,
    /// `running`; `completed`; `failed`: a member failed and no other comes after that; `cancelled`.
    pub state: String,
    /// When it was submitted.
    pub submitted_at: String,
    /// When its last member ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// How many members it has.
    pub size: u32,
    /// Members that have not ended.
    pub unfinished: u32,
    /// Who cancelled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The first member that failed without another that comes after its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Its members, in the order in which they were submitted; left out of lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<DagMemberView>,
    /// Last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// A member as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagMemberView {
    /// What it is called.
    pub name: String,
    /// Its allocation.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// Where that stands; absent when it is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why it is being, or was, stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// The members it comes after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<DagEdgeView>,
}

/// One that a member comes after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagEdgeView {
    /// Which member.
    pub member: String,
    /// How that must have ended: `success`, `failure`, `any` or `corresponding`.
    pub condition: String,
}

/// A graph as points and lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphView {
    /// Its number.
    pub id: u64,
    /// A name for people.
    pub name: String,
    /// A member each.
    pub nodes: Vec<GraphNodeView>,
    /// From the one that comes before to the one that comes after.
    pub edges: Vec<GraphEdgeView>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphNodeView {
    /// What it is called.
    pub name: String,
    /// Its allocation.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// Where that stands; absent when it is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// One member after another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphEdgeView {
    /// The one before.
    pub from: String,
    /// The one after.
    pub to: String,
    /// How the one before must have ended.
    pub condition: String,
}

impl From<&Dag> for DagView {
    /// As in a list, without its members.
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
    /// With its members; `now` says where each stands, and why.
    pub fn whole(
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
