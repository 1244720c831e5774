//! `application/problem+json`: every error of the API, with its HTTP and gRPC status.
//!
//! This module is the only one that maps a [`Refusal`] of the quorum to a status.

mod grpc;

use lattice_quorum_types::{
    AllocationName, NameLookup, Refusal,
    limit_policy::LimitFault,
    refusal::{SENSITIVE_POOL_LIMIT, ViolatedLevel},
    wire::Unavailable,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of a [`Problem`].
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Invalid value in a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FieldError {
    /// Path of the field.
    pub field: String,
    /// What is wrong with the value.
    pub reason: String,
}

/// Returns the path of a field of a DAG member, in the form used in errors.
pub fn field_of(member: &str, field: &str) -> String {
    format!("members.{member}.{field}")
}

/// Limit that a request would exceed, at a level of the project tree or of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Violation {
    /// Project or tenant; empty for the limit of the whole cluster, `sensitive_pool_size`.
    pub path: String,
    /// Limit: `max_nodes`, `max_concurrent_allocations` or `sensitive_pool_size`.
    pub limit_name: String,
    /// Usage that counts against the limit. For a change of limits, the sum of the children's limits, or 0 if a child
    /// would be unlimited.
    pub current: u64,
    /// Amount requested; 0 for a change of limits.
    pub requested: u64,
    /// The limit.
    pub limit: u64,
}

impl Violation {
    /// Creates the violations of a refusal by limits; empty for another refusal.
    fn of_refusal(refusal: &Refusal) -> Vec<Self> {
        match refusal {
            Refusal::LimitExceeded { levels, .. } => levels.iter().map(Self::from).collect(),
            Refusal::SensitivePool {
                current,
                requested,
                limit,
            } => vec![Self {
                path: String::new(),
                limit_name: SENSITIVE_POOL_LIMIT.to_owned(),
                current: *current,
                requested: *requested,
                limit: *limit,
            }],
            _ => Vec::new(),
        }
    }

    /// Creates the violation of a level that is exceeded by the limits of its children; `None` for another fault.
    fn of_fault(fault: &LimitFault) -> Option<Self> {
        match fault {
            LimitFault::ChildrenExceed {
                parent,
                resource,
                children,
                unlimited,
                limit,
            } => Some(Self {
                path: parent.to_string(),
                limit_name: resource.limit_name().to_owned(),
                current: match unlimited {
                    0 => u64::try_from(*children).unwrap_or(u64::MAX),
                    _ => 0,
                },
                requested: 0,
                limit: *limit,
            }),
            LimitFault::MustBeFinite { .. } => None,
        }
    }
}

impl From<&ViolatedLevel> for Violation {
    fn from(level: &ViolatedLevel) -> Self {
        Self {
            path: level.path.to_string(),
            limit_name: level.resource.limit_name().to_owned(),
            current: level.current,
            requested: level.requested,
            limit: level.limit,
        }
    }
}

/// Kind of error, which determines the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request cannot be read or can never be valid.
    Invalid,
    /// The token is missing or not valid.
    Unauthenticated,
    /// The caller is known but lacks permission.
    Forbidden,
    /// The object does not exist.
    NotFound,
    /// The request can be read, but no set of the existing nodes could ever satisfy it.
    Impossible,
    /// The request conflicts with the present state.
    Conflict,
    /// The object exists already.
    Exists,
    /// The body is too large.
    TooLarge,
    /// The method does not exist on this path.
    Method,
    /// The media type is not supported.
    MediaType,
    /// A required service does not answer at present; retry later.
    Unavailable,
    /// The caller sends too many requests, or too many run at the same time.
    TooMany,
    /// The requested revision is no longer kept.
    Gone,
    /// Internal error.
    Internal,
}

impl Kind {
    /// Returns the HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Kind::Invalid => 400,
            Kind::Unauthenticated => 401,
            Kind::Forbidden => 403,
            Kind::NotFound => 404,
            Kind::Method => 405,
            Kind::Conflict | Kind::Exists => 409,
            Kind::Gone => 410,
            Kind::Impossible => 422,
            Kind::TooLarge => 413,
            Kind::MediaType => 415,
            Kind::TooMany => 429,
            Kind::Internal => 500,
            Kind::Unavailable => 503,
        }
    }
    /// Returns the gRPC status.
    pub fn grpc(self) -> tonic::Code {
        use tonic::Code;
        match self {
            Kind::Invalid | Kind::Impossible | Kind::TooLarge | Kind::MediaType => {
                Code::InvalidArgument
            }
            Kind::Unauthenticated => Code::Unauthenticated,
            Kind::Forbidden => Code::PermissionDenied,
            Kind::NotFound => Code::NotFound,
            Kind::Method => Code::Unimplemented,
            Kind::Conflict => Code::FailedPrecondition,
            Kind::Exists => Code::AlreadyExists,
            Kind::Gone => Code::OutOfRange,
            Kind::TooMany => Code::ResourceExhausted,
            Kind::Internal => Code::Internal,
            Kind::Unavailable => Code::Unavailable,
        }
    }
    fn title(self) -> &'static str {
        match self {
            Kind::Invalid => "The request is not valid",
            Kind::Unauthenticated => "A valid token is needed",
            Kind::Forbidden => "Not permitted",
            Kind::NotFound => "Not found",
            Kind::Impossible => "No resource of the cluster can satisfy the request",
            Kind::Conflict => "Conflict with the current state",
            Kind::Exists => "Already exists",
            Kind::TooLarge => "The request is too large",
            Kind::Method => "Method not allowed",
            Kind::MediaType => "Media type not supported",
            Kind::Unavailable => "Temporarily unavailable",
            Kind::TooMany => "Too many requests",
            Kind::Gone => "No longer kept",
            Kind::Internal => "Internal error",
        }
    }
}

/// Error in the form of RFC 9457.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// `urn:lattice:problem:` and the code.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// Description of the kind.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What is wrong and what to do next, with one block per violated limit, the project first.
    pub detail: String,
    /// Stable code, e.g. `limit_exceeded`.
    pub code: String,
    /// Invalid field, if a field is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Violated limits, the project first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
}

impl Problem {
    /// Creates a problem of this kind.
    pub fn new(kind: Kind, code: &str, detail: impl Into<String>) -> Self {
        Self {
            type_uri: format!("urn:lattice:problem:{code}"),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: detail.into(),
            code: code.to_owned(),
            field: None,
            violations: Vec::new(),
        }
    }
    /// Creates the problem for an invalid field.
    pub fn field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        FieldError {
            field: field.into(),
            reason: reason.into(),
        }
        .into()
    }
    /// Creates the problem for an unknown node.
    pub fn unknown_node(node: &str) -> Self {
        let detail = format!("unknown node {node:?}; `lattice node list` shows all nodes");
        Self::new(Kind::NotFound, "unknown_node", detail)
    }
    fn kind(&self) -> Kind {
        // Two kinds have status 409. Only a conflict may have another title than that of its kind.
        if self.status == Kind::Exists.status() && self.title == Kind::Exists.title() {
            return Kind::Exists;
        }
        let kinds = [
            Kind::Invalid,
            Kind::Unauthenticated,
            Kind::Forbidden,
            Kind::NotFound,
            Kind::Impossible,
            Kind::Method,
            Kind::Conflict,
            Kind::Gone,
            Kind::TooLarge,
            Kind::MediaType,
            Kind::TooMany,
            Kind::Unavailable,
        ];
        let kind = kinds.into_iter().find(|kind| kind.status() == self.status);
        kind.unwrap_or(Kind::Internal)
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        let mut problem = Self::new(Kind::Invalid, "invalid", error.to_string());
        problem.field = Some(error.field);
        problem
    }
}

fn kind_of(refusal: &Refusal) -> Kind {
    match refusal {
        Refusal::LimitExceeded { .. }
        | Refusal::LimitConflict { .. }
        | Refusal::ProjectNotEmpty { .. }
        | Refusal::WrongState { .. }
        | Refusal::OwnershipConflict { .. }
        | Refusal::StaleEpoch { .. }
        | Refusal::LeaseHeld { .. }
        | Refusal::StaleAttempt { .. }
        | Refusal::KeyReused { .. }
        | Refusal::NodeChanged { .. }
        | Refusal::BaselineChanged { .. }
        | Refusal::BaselineLimit { .. }
        | Refusal::BaselineAmbiguous { .. }
        | Refusal::Unproven { .. }
        | Refusal::NodesTaken { .. }
        | Refusal::SensitivePool { .. }
        | Refusal::NotConforming { .. }
        | Refusal::StillHeld { .. }
        | Refusal::VclusterChanged { .. }
        | Refusal::VclusterInUse { .. }
        | Refusal::NotMovable { .. }
        | Refusal::Reserved { .. }
        | Refusal::ReservationChanged { .. }
        | Refusal::Paused { .. }
        | Refusal::TooLarge { .. } => Kind::Conflict,
        Refusal::ProjectExists { .. } | Refusal::NameTaken { .. } => Kind::Exists,
        Refusal::UnknownProject { .. }
        | Refusal::UnknownNode { .. }
        | Refusal::UnknownAllocation { .. }
        | Refusal::UnknownTrust { .. }
        | Refusal::UnknownVcluster { .. }
        | Refusal::UnknownDag { .. }
        | Refusal::UnknownReservation { .. }
        | Refusal::UnknownBaseline { .. } => Kind::NotFound,
        Refusal::Forbidden { .. }
        | Refusal::TokenRefused { .. }
        | Refusal::TokenNetwork { .. }
        | Refusal::VclusterClosed { .. }
        | Refusal::CertificateRevoked { .. } => Kind::Forbidden,
        Refusal::Invalid { .. } | Refusal::DagTooLarge { .. } => Kind::Invalid,
        Refusal::UnsupportedSchema { .. } => Kind::Unavailable,
        Refusal::OfMember { refusal, .. } => kind_of(refusal),
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        Self::of_refusal(refusal, &AllocationName::of_id)
    }
}

impl Problem {
    /// Returns the problem of a refusal; `name`: names of the allocations that it mentions.
    pub fn of_refusal(refusal: &Refusal, name: NameLookup<'_>) -> Self {
        if let Refusal::OfMember {
            member,
            refusal: inner,
        } = refusal
        {
            let problem = Self::of_refusal(inner, name);
            let field = problem.field.as_deref();
            return Self {
                detail: refusal.text(name),
                field: Some(field.map_or_else(
                    || format!("members.{member}"),
                    |field| field_of(member, field),
                )),
                ..problem
            };
        }
        let mut problem = Self::new(kind_of(refusal), refusal.code(), refusal.text(name));
        match refusal {
            Refusal::LimitExceeded { .. } | Refusal::SensitivePool { .. } => {
                problem.title = "A limit would be exceeded".to_owned();
                problem.violations = Violation::of_refusal(refusal);
            }
            Refusal::LimitConflict { faults } => {
                problem.violations = faults.iter().filter_map(Violation::of_fault).collect();
                match faults.as_slice() {
                    // The only fault is `null` where a number is required, so the request is invalid rather than in
                    // conflict.
                    [LimitFault::MustBeFinite { resource, .. }] => {
                        problem.title = Kind::Invalid.title().to_owned();
                        problem.status = Kind::Invalid.status();
                        problem.field = Some(resource.limit_name().to_owned());
                    }
                    _ => problem.title = "Limits would contradict each other".to_owned(),
                }
            }
            Refusal::Invalid { field, .. } => problem.field = Some(field.clone()),
            Refusal::DagTooLarge { .. } => problem.field = Some("members".to_owned()),
            _ => {}
        }
        problem
    }
}

impl From<&Unavailable> for Problem {
    fn from(unavailable: &Unavailable) -> Self {
        let code = match unavailable {
            // A repetition does not help.
            Unavailable::Rejected { .. } => {
                return Self::new(Kind::Internal, "quorum_rejects", unavailable.to_string());
            }
            Unavailable::OutcomeUnknown => "outcome_unknown",
            Unavailable::Busy => "busy",
            Unavailable::Unreadable { .. } => "unreadable",
            Unavailable::NotLeader { .. } | Unavailable::NoMajority => "no_majority",
        };
        Self::new(Kind::Unavailable, code, unavailable.to_string())
    }
}

#[cfg(test)]
mod tests;
