//! Problems as gRPC statuses. The details are a `google.rpc.Status`, as in `grpc-status-details-bin`, so that standard
//! client libraries can read them: `ErrorInfo` with the code as reason, `BadRequest` for an invalid field, and the
//! complete problem as `lattice.v1.Problem`.

use super::{Problem, Violation};
use crate::v1;
use prost::Message;
use std::collections::HashMap;
use tonic_types::pb::{self, bad_request::FieldViolation};

/// Domain of the reasons in `ErrorInfo`.
const DOMAIN: &str = "lattice";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
const PROBLEM: &str = "type.googleapis.com/lattice.v1.Problem";

fn pack_any(type_url: &str, message: &impl Message) -> prost_types::Any {
    prost_types::Any {
        type_url: type_url.to_owned(),
        value: message.encode_to_vec(),
    }
}

impl Problem {
    /// Returns the gRPC status of the problem, with all REST fields in its details.
    pub fn to_grpc(&self) -> tonic::Status {
        let info = pb::ErrorInfo {
            reason: self.code.to_ascii_uppercase(),
            domain: DOMAIN.to_owned(),
            metadata: HashMap::new(),
        };
        let field = self.field.as_ref().map(|field| pb::BadRequest {
            field_violations: vec![FieldViolation {
                field: field.clone(),
                description: self.detail.clone(),
                ..FieldViolation::default()
            }],
        });
        let code = self.kind().grpc();
        let mut details = vec![pack_any(ERROR_INFO, &info)];
        details.extend(field.map(|field| pack_any(BAD_REQUEST, &field)));
        details.push(pack_any(PROBLEM, &v1::Problem::from(self.clone())));
        let status = pb::Status {
            code: code.into(),
            message: self.detail.clone(),
            details,
        };
        tonic::Status::with_details(code, self.detail.clone(), status.encode_to_vec().into())
    }

    /// Returns the problem in a status; `None` if the status has no problem of Lattice.
    pub fn from_grpc(status: &tonic::Status) -> Option<Self> {
        let status = pb::Status::decode(status.details()).ok()?;
        let mut details = status.details.into_iter();
        let packed = details.find(|detail| detail.type_url == PROBLEM)?;
        Some(v1::Problem::decode(&*packed.value).ok()?.into())
    }
}

impl From<Problem> for v1::Problem {
    fn from(problem: Problem) -> Self {
        let Problem {
            type_uri,
            title,
            status,
            detail,
            code,
            field,
            violations,
        } = problem;
        Self {
            r#type: type_uri,
            title,
            status: status.into(),
            detail,
            code,
            field,
            violations: violations.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::Problem> for Problem {
    fn from(problem: v1::Problem) -> Self {
        let v1::Problem {
            r#type,
            title,
            status,
            detail,
            code,
            field,
            violations,
        } = problem;
        Self {
            type_uri: r#type,
            title,
            status: u16::try_from(status).unwrap_or(500),
            detail,
            code,
            field,
            violations: violations.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Violation> for v1::LimitViolation {
    fn from(violation: Violation) -> Self {
        let Violation {
            path,
            limit_name,
            current,
            requested,
            limit,
        } = violation;
        Self {
            path,
            limit_name,
            current,
            requested,
            limit,
        }
    }
}

impl From<v1::LimitViolation> for Violation {
    fn from(violation: v1::LimitViolation) -> Self {
        let v1::LimitViolation {
            path,
            limit_name,
            current,
            requested,
            limit,
        } = violation;
        Self {
            path,
            limit_name,
            current,
            requested,
            limit,
        }
    }
}
