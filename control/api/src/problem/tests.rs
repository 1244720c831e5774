#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_quorum_types::{ProjectPath, limit::Resource, refusal::LimitRequest};
use tonic_types::StatusExt;

fn level(path: &str, current: u64, requested: u64, limit: u64) -> ViolatedLevel {
    ViolatedLevel {
        path: ProjectPath::new(path).unwrap(),
        resource: Resource::Nodes,
        current,
        requested,
        limit,
    }
}

#[test]
fn a_limit_refusal_has_one_block_and_one_violation_per_level() {
    let refusal = Refusal::LimitExceeded {
        levels: vec![
            level("atlas/physics/simulation", 0, 21, 10),
            level("atlas/physics", 0, 21, 20),
        ],
        asked: LimitRequest::Allocation,
    };
    let problem = Problem::from(&refusal);
    assert_eq!(problem.status, 409);
    assert_eq!(problem.code, "limit_exceeded");
    assert_eq!(
        problem.detail,
        "allocation rejected: project \"atlas/physics/simulation\" would exceed max_nodes quota \
         (current: 0, requested: 21, limit: 10)\nallocation rejected: project \"atlas/physics\" \
         would exceed max_nodes quota (current: 0, requested: 21, limit: 20)"
    );
    let paths: Vec<_> = problem.violations.iter().map(|v| v.path.as_str()).collect();
    assert_eq!(paths, ["atlas/physics/simulation", "atlas/physics"]);
    let status = problem.to_grpc();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert_eq!(Problem::from_grpc(&status), Some(problem));
}

/// The fields of a limit refusal do not depend on the owner of the limit.
#[test]
fn refusal_by_the_sensitive_pool_has_a_violation() {
    let refusal = Refusal::SensitivePool {
        current: 3,
        requested: 2,
        limit: 4,
    };
    let problem = Problem::from(&refusal);
    assert_eq!((problem.status, &*problem.code), (409, "sensitive_pool"));
    assert_eq!(problem.title, "A limit would be exceeded");
    let json = serde_json::to_value(&problem).unwrap();
    assert_eq!(
        json["violations"],
        serde_json::json!([{
            "path": "", "limit_name": "sensitive_pool_size", "current": 3, "requested": 2, "limit": 4,
        }])
    );
    let status = problem.to_grpc();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert_eq!(Problem::from_grpc(&status), Some(problem));
}

#[test]
fn every_kind_has_its_grpc_code() {
    use tonic::Code;
    for (kind, code) in [
        (Kind::Invalid, Code::InvalidArgument),
        (Kind::Unauthenticated, Code::Unauthenticated),
        (Kind::Forbidden, Code::PermissionDenied),
        (Kind::NotFound, Code::NotFound),
        (Kind::Impossible, Code::InvalidArgument),
        (Kind::Conflict, Code::FailedPrecondition),
        (Kind::Exists, Code::AlreadyExists),
        (Kind::TooLarge, Code::InvalidArgument),
        (Kind::Method, Code::Unimplemented),
        (Kind::MediaType, Code::InvalidArgument),
        (Kind::Unavailable, Code::Unavailable),
        (Kind::TooMany, Code::ResourceExhausted),
        (Kind::Gone, Code::OutOfRange),
        (Kind::Internal, Code::Internal),
    ] {
        // The code of the problem does not matter.
        let problem = Problem::new(kind, "member_exists", "text");
        assert_eq!(problem.to_grpc().code(), code, "{kind:?}");
        assert_eq!(problem.status, kind.status());
    }
}

#[test]
fn a_problem_survives_its_json_and_grpc_details() {
    let problem = Problem::field("walltime", "it is empty");
    let json = serde_json::to_value(&problem).unwrap();
    assert_eq!(json["type"], "urn:lattice:problem:invalid");
    assert_eq!(json["field"], "walltime");
    assert_eq!(serde_json::from_value::<Problem>(json).unwrap(), problem);
    let status = problem.to_grpc();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert_eq!(Problem::from_grpc(&status).unwrap(), problem);
    let standard = status.get_error_details();
    assert_eq!(standard.error_info().unwrap().reason, "INVALID");
    let field = &standard.bad_request().unwrap().field_violations[0];
    assert_eq!(
        (&*field.field, &*field.description),
        ("walltime", "walltime: it is empty")
    );
    let other = tonic::Status::not_found("a proxy's");
    assert_eq!(Problem::from_grpc(&other), None);
}

#[test]
fn the_quorum_not_answering_is_a_matter_of_trying_again() {
    for unavailable in [
        Unavailable::NoMajority,
        Unavailable::Busy,
        Unavailable::OutcomeUnknown,
    ] {
        let problem = Problem::from(&unavailable);
        assert_eq!(problem.status, 503);
        assert_eq!(problem.to_grpc().code(), tonic::Code::Unavailable);
    }
    let rejected = Unavailable::Rejected {
        reason: "denied".to_owned(),
    };
    assert_eq!(Problem::from(&rejected).status, 500);
}
