//! `application/problem+json`: every "no" of the API, with its status in HTTP and gRPC.
//!
//! The map from refusals to statuses is here and nowhere else.

mod grpc;

use crate::dag::field_of;
use lattice_quorum_types::{
    Refusal,
    refusal::{Level, LimitFault},
    wire::Unavailable,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a [`Problem`].
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A value in a request that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FieldError {
    /// The field, with its path.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

/// One level of the tree whose limit a request would exceed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Violation {
    /// The project, or tenant.
    pub path: String,
    /// The limit: `max_nodes` or `max_concurrent_allocations`.
    pub limit_name: String,
    /// What is in use there; of a change of limits, what the limits of its children would add up to,
    /// 0 where one of them would have none.
    pub current: u64,
    /// What was asked for; of a change of limits 0.
    pub requested: u64,
    /// The ceiling.
    pub limit: u64,
}

impl Violation {
    /// A level whose children's limits do not fit its own.
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

impl From<&Level> for Violation {
    fn from(level: &Level) -> Self {
        Self {
            path: level.path.to_string(),
            limit_name: level.resource.limit_name().to_owned(),
            current: level.current,
            requested: level.requested,
            limit: level.limit,
        }
    }
}

/// What kind of "no" it is; decides the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request cannot be read or can never be right.
    Invalid,
    /// No, or an unknown, token.
    Unauthenticated,
    /// Known, but not permitted.
    Forbidden,
    /// No such thing.
    NotFound,
    /// It can be read, and no node set there is could ever satisfy it.
    Impossible,
    /// It contradicts the present state.
    Conflict,
    /// It exists already.
    Exists,
    /// The body is too large.
    TooLarge,
    /// The method does not exist on this path.
    Method,
    /// The media type is not understood.
    MediaType,
    /// What is needed does not answer at present; try again.
    Unavailable,
    /// Asked too often.
    TooMany,
    /// The revision asked for is no longer kept.
    Gone,
    /// Our fault.
    Internal,
}

impl Kind {
    /// HTTP status.
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
    /// gRPC status.
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
            Kind::Impossible => "Nothing there is could ever satisfy it",
            Kind::Conflict => "In conflict with the present state",
            Kind::Exists => "It exists already",
            Kind::TooLarge => "The request is too large",
            Kind::Method => "This method does not exist here",
            Kind::MediaType => "The media type is not understood",
            Kind::Unavailable => "Not available at present",
            Kind::TooMany => "Too many requests",
            Kind::Gone => "No longer kept",
            Kind::Internal => "Internal error",
        }
    }
}

/// A "no" in the form of RFC 9457.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// `urn:lattice:problem:` and the code.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// The kind in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What is wrong and what to do next. One block per violated level, the project first.
    pub detail: String,
    /// Stable word for machines, e.g. `limit_exceeded`.
    pub code: String,
    /// The field that is wrong, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The violated levels, the project first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
}

impl Problem {
    /// A problem of this kind.
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
    /// A field that cannot be read.
    pub fn field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        FieldError {
            field: field.into(),
            reason: reason.into(),
        }
        .into()
    }
    /// A node that is not known.
    pub fn unknown_node(node: &str) -> Self {
        let detail =
            format!("unknown node {node:?}; `lattice node list` shows the nodes there are");
        Self::new(Kind::NotFound, "unknown_node", detail)
    }
    fn kind(&self) -> Kind {
        match (self.status, self.code.as_str()) {
            (409, "project_exists" | "name_taken") => Kind::Exists,
            (status, _) => [
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
            ]
            .into_iter()
            .find(|kind| kind.status() == status)
            .unwrap_or(Kind::Internal),
        }
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
        if let Refusal::OfMember {
            member,
            refusal: inner,
        } = refusal
        {
            let problem = Self::from(&**inner);
            let field = problem.field.as_deref();
            return Self {
                detail: refusal.to_string(),
                field: Some(field.map_or_else(
                    || format!("members.{member}"),
                    |field| field_of(member, field),
                )),
                ..problem
            };
        }
        let mut problem = Self::new(kind_of(refusal), refusal.code(), refusal.to_string());
        match refusal {
            Refusal::LimitExceeded { levels, .. } => {
                problem.title = "A limit would be exceeded".to_owned();
                problem.violations = levels.iter().map(Violation::from).collect();
            }
            Refusal::LimitConflict { faults } => {
                problem.violations = faults.iter().filter_map(Violation::of_fault).collect();
                match faults.as_slice() {
                    // Nothing but a null where a number must be.
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
