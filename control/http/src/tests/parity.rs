//! Administrator actions over REST and gRPC: a caller rejected by one is rejected by the other, with the same code and
//! the same field.

mod conformance;
mod content;
pub(super) mod routes;

use super::fixture::ApiFixture;
use lattice_api::{Problem, v1};
use lattice_mesh::{Authority, Clock as _, SystemClock, Validity};
use lattice_quorum_types::Command;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tonic::{
    Request, Status,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig},
};
use v1::admin_service_client::AdminServiceClient;

const CALLERS: [&str; 6] = ["eye", "alice", "diver", "op", "warden", "root"];

/// The same request over gRPC.
#[derive(Clone)]
enum GrpcRequest {
    CreateToken(v1::CreateTokenRequest),
    ListTokens,
    RevokeToken(&'static str),
    ListCertificates(u32, &'static str),
    Revoke(&'static str, &'static str, &'static str),
    ListAuthorities,
    AddAuthority(String),
    Promote(&'static str),
    Retire(&'static str, bool),
    Drain(&'static str, &'static str, bool),
    Undrain(&'static str, bool),
    Audit(v1::QueryAuditRequest),
    SignAudit,
}

type Case = (Method, String, Value, GrpcRequest);

fn token(role: &str, ttl: &str) -> v1::CreateTokenRequest {
    v1::CreateTokenRequest {
        role: role.to_owned(),
        ttl: ttl.to_owned(),
        ..Default::default()
    }
}

/// Every request, in a valid form.
fn good(pem: &str) -> Vec<Case> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let (null, pin) = (Value::Null, "0123456789ab");
    let drain = |force: bool| json!({"reason": "why", "force_release": force});
    let case = |method: &Method, path: &str, body: Value, ask| {
        (method.clone(), path.to_owned(), body, ask)
    };
    vec![
        case(&get, "tokens", null.clone(), GrpcRequest::ListTokens),
        case(
            &post,
            "tokens",
            json!({"role": "agent", "ttl": "1h"}),
            GrpcRequest::CreateToken(token("agent", "1h")),
        ),
        case(
            &delete,
            "tokens/0123456789ab",
            null.clone(),
            GrpcRequest::RevokeToken(pin),
        ),
        case(
            &get,
            "certificates",
            null.clone(),
            GrpcRequest::ListCertificates(0, ""),
        ),
        case(
            &post,
            "certificates/agent/gpu001/revoke",
            json!({"reason": "why"}),
            GrpcRequest::Revoke("agent", "gpu001", "why"),
        ),
        case(
            &get,
            "authorities",
            null.clone(),
            GrpcRequest::ListAuthorities,
        ),
        case(
            &post,
            "authorities",
            json!({"certificate": pem}),
            GrpcRequest::AddAuthority(pem.to_owned()),
        ),
        case(
            &post,
            "authorities/0123456789ab/promote",
            null.clone(),
            GrpcRequest::Promote(pin),
        ),
        case(
            &delete,
            "authorities/0123456789ab",
            null.clone(),
            GrpcRequest::Retire(pin, false),
        ),
        case(
            &get,
            "audit",
            null.clone(),
            GrpcRequest::Audit(Default::default()),
        ),
        case(
            &post,
            "audit/checkpoint",
            null.clone(),
            GrpcRequest::SignAudit,
        ),
        case(
            &post,
            "nodes/gpu002/drain",
            drain(false),
            GrpcRequest::Drain("gpu002", "why", false),
        ),
        // Held by a tenant that `diver` and `warden` do not administer.
        case(
            &post,
            "nodes/gpu003/drain",
            drain(true),
            GrpcRequest::Drain("gpu003", "why", true),
        ),
        case(
            &post,
            "nodes/gpu002/undrain",
            null.clone(),
            GrpcRequest::Undrain("gpu002", false),
        ),
        case(
            &post,
            "nodes/gpu002/undrain?skip_gate=true",
            null,
            GrpcRequest::Undrain("gpu002", true),
        ),
    ]
}

/// Invalid, unknown or harmful requests, rejected even for an administrator.
fn bad() -> Vec<Case> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let null = Value::Null;
    let case = |method: &Method, path: &str, body: Value, ask| {
        (method.clone(), path.to_owned(), body, ask)
    };
    let with = |edit: &dyn Fn(&mut v1::CreateTokenRequest)| {
        let mut request = token("agent", "1h");
        edit(&mut request);
        GrpcRequest::CreateToken(request)
    };
    let audit = |edit: &dyn Fn(&mut v1::QueryAuditRequest)| {
        let mut request = v1::QueryAuditRequest::default();
        edit(&mut request);
        GrpcRequest::Audit(request)
    };
    let tokens = |body| (post.clone(), "tokens".to_owned(), body);
    let token_case = |body, ask| {
        let (method, path, body) = tokens(body);
        (method, path, body, ask)
    };
    let long = "x".repeat(2_000);
    let long: &'static str = Box::leak(long.into_boxed_str());
    vec![
        token_case(
            json!({"role": "chef", "ttl": "1h"}),
            GrpcRequest::CreateToken(token("chef", "1h")),
        ),
        token_case(
            json!({"role": "agent", "ttl": ""}),
            GrpcRequest::CreateToken(token("agent", "")),
        ),
        token_case(
            json!({"role": "agent", "ttl": "8d"}),
            GrpcRequest::CreateToken(token("agent", "8d")),
        ),
        token_case(
            json!({"role": "agent", "ttl": "1h", "uses": 0}),
            with(&|r| r.uses = Some(0)),
        ),
        token_case(
            json!({"role": "agent", "ttl": "1h", "nodes": ""}),
            with(&|r| r.nodes = Some(String::new())),
        ),
        token_case(
            json!({"role": "agent", "ttl": "1h", "nodes": "gpu[1-"}),
            with(&|r| r.nodes = Some("gpu[1-".to_owned())),
        ),
        token_case(
            json!({"role": "agent", "ttl": "1h", "cidrs": ["10.1.0.0/40"]}),
            with(&|r| r.cidrs = vec!["10.1.0.0/40".to_owned()]),
        ),
        case(
            &delete,
            "tokens/xyz",
            null.clone(),
            GrpcRequest::RevokeToken("xyz"),
        ),
        case(
            &delete,
            "tokens/0123456789ab",
            null.clone(),
            GrpcRequest::RevokeToken("0123456789ab"),
        ),
        case(
            &get,
            "certificates?cursor=x",
            null.clone(),
            GrpcRequest::ListCertificates(0, "x"),
        ),
        case(
            &get,
            "certificates?limit=5001",
            null.clone(),
            GrpcRequest::ListCertificates(5_001, ""),
        ),
        case(
            &post,
            "certificates/agent/gpu001/revoke",
            json!({"reason": " "}),
            GrpcRequest::Revoke("agent", "gpu001", " "),
        ),
        case(
            &post,
            "certificates/cook/gpu001/revoke",
            json!({"reason": "why"}),
            GrpcRequest::Revoke("cook", "gpu001", "why"),
        ),
        case(
            &post,
            "certificates/agent/gpu999/revoke",
            json!({"reason": "why"}),
            GrpcRequest::Revoke("agent", "gpu999", "why"),
        ),
        case(
            &post,
            "certificates/control/c1/revoke",
            json!({"reason": "why"}),
            GrpcRequest::Revoke("control", "c1", "why"),
        ),
        case(
            &post,
            "authorities",
            json!({"certificate": "no PEM"}),
            GrpcRequest::AddAuthority("no PEM".to_owned()),
        ),
        case(
            &post,
            "authorities/xyz/promote",
            null.clone(),
            GrpcRequest::Promote("xyz"),
        ),
        case(
            &delete,
            "authorities/0123456789ab?force=true",
            null.clone(),
            GrpcRequest::Retire("0123456789ab", true),
        ),
        case(
            &post,
            "nodes/gpu001/drain",
            json!({"reason": ""}),
            GrpcRequest::Drain("gpu001", "", false),
        ),
        case(
            &post,
            "nodes/gpu001/drain",
            json!({"reason": long, "force_release": true}),
            GrpcRequest::Drain("gpu001", long, true),
        ),
        case(
            &post,
            "nodes/gpu999/drain",
            json!({"reason": "why", "force_release": true}),
            GrpcRequest::Drain("gpu999", "why", true),
        ),
        case(
            &post,
            "nodes/gpu999/undrain",
            null.clone(),
            GrpcRequest::Undrain("gpu999", false),
        ),
        case(
            &post,
            "nodes/gpu999/undrain?skip_gate=true",
            null.clone(),
            GrpcRequest::Undrain("gpu999", true),
        ),
        case(
            &get,
            "audit?action=deleted",
            null.clone(),
            audit(&|r| r.action = "deleted".to_owned()),
        ),
        case(
            &get,
            "audit?until=someday",
            null.clone(),
            audit(&|r| r.until = "someday".to_owned()),
        ),
        case(
            &get,
            "audit?project=-",
            null.clone(),
            audit(&|r| r.project = "-".to_owned()),
        ),
        case(
            &get,
            "audit?since=someday",
            null.clone(),
            audit(&|r| r.since = "someday".to_owned()),
        ),
        case(
            &get,
            "audit?node=gpu%5B1-",
            null,
            audit(&|r| r.node = "gpu[1-".to_owned()),
        ),
    ]
}

/// `None` for success; otherwise the status, the code and the field.
type Rejection = Option<(u16, String, Option<String>)>;

fn said(problem: Problem) -> Rejection {
    Some((problem.status, problem.code, problem.field))
}

async fn rest(fixture: &ApiFixture, caller: &str, (method, path, body, _): &Case) -> Rejection {
    let url = fixture.url(&format!("/api/v1/{path}"));
    let request = fixture.raw().request(method.clone(), url);
    let request = request.bearer_auth(fixture.token(caller));
    let request = match body {
        Value::Null => request,
        body => request.json(body),
    };
    let answer = request.send().await.unwrap();
    match answer.status().is_success() {
        true => None,
        false => said(answer.json().await.unwrap()),
    }
}

async fn grpc_admin(
    fixture: &ApiFixture,
    caller: &str,
) -> AdminServiceClient<InterceptedService<Channel, impl Interceptor>> {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&fixture.ca_pem));
    let endpoint = Channel::from_shared(fixture.url("")).unwrap();
    let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
    let bearer = format!("Bearer {}", fixture.token(caller));
    let with_token = move |mut request: Request<()>| {
        let metadata = request.metadata_mut();
        metadata.insert("authorization", bearer.parse().unwrap());
        Ok::<_, Status>(request)
    };
    AdminServiceClient::with_interceptor(channel, with_token)
}

async fn grpc(fixture: &ApiFixture, caller: &str, ask: &GrpcRequest) -> Rejection {
    let mut admin = grpc_admin(fixture, caller).await;
    let name = |text: &str| text.to_owned();
    let idempotency_key = None;
    let done = match ask.clone() {
        GrpcRequest::CreateToken(request) => admin.create_token(request).await.map(drop),
        GrpcRequest::ListTokens => admin.list_tokens(v1::ListTokensRequest {}).await.map(drop),
        GrpcRequest::RevokeToken(id) => {
            let id = name(id);
            let request = v1::RevokeTokenRequest {
                id,
                idempotency_key,
            };
            admin.revoke_token(request).await.map(drop)
        }
        GrpcRequest::ListCertificates(limit, cursor) => {
            let cursor = name(cursor);
            let request = v1::ListCertificatesRequest { limit, cursor };
            admin.list_certificates(request).await.map(drop)
        }
        GrpcRequest::Revoke(role, named, reason) => {
            let request = v1::RevokeCertificatesRequest {
                role: name(role),
                name: name(named),
                reason: name(reason),
                idempotency_key,
            };
            admin.revoke_certificates(request).await.map(drop)
        }
        GrpcRequest::ListAuthorities => {
            let request = v1::ListAuthoritiesRequest {};
            admin.list_authorities(request).await.map(drop)
        }
        GrpcRequest::AddAuthority(certificate) => {
            let request = v1::AddAuthorityRequest {
                certificate,
                idempotency_key,
            };
            admin.add_authority(request).await.map(drop)
        }
        GrpcRequest::Promote(pin) => {
            let pin = name(pin);
            let request = v1::AuthorityPin {
                pin,
                idempotency_key,
            };
            admin.promote_authority(request).await.map(drop)
        }
        GrpcRequest::Retire(pin, force) => {
            let pin = name(pin);
            let request = v1::RetireAuthorityRequest {
                pin,
                force,
                idempotency_key,
            };
            admin.retire_authority(request).await.map(drop)
        }
        GrpcRequest::Drain(node, reason, force_release) => {
            let request = v1::DrainNodeRequest {
                name: name(node),
                reason: name(reason),
                force_release,
                idempotency_key,
            };
            admin.drain_node(request).await.map(drop)
        }
        GrpcRequest::Undrain(node, skip_gate) => {
            let name = name(node);
            let request = v1::UndrainNodeRequest {
                name,
                skip_gate,
                idempotency_key,
            };
            admin.undrain_node(request).await.map(drop)
        }
        GrpcRequest::Audit(request) => admin.query_audit(request).await.map(drop),
        GrpcRequest::SignAudit => admin.sign_audit(v1::SignAuditRequest {}).await.map(drop),
    };
    let status = done.err()?;
    said(Problem::from_grpc(&status).unwrap())
}

/// A node that is held, another drained by every caller that may, and an authority.
async fn furnished() -> ApiFixture {
    let fixture = ApiFixture::furnished().await;
    let year = Validity::from_now(SystemClock.now(), Duration::from_secs(365 * 86_400));
    let authority = Authority::create("test", year).unwrap();
    let certificate = authority.certificate().to_vec().into();
    fixture
        .member_answer(Command::AddAuthority { certificate })
        .unwrap();
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu003"]).await;
    fixture
}

#[tokio::test]
async fn both_faces_let_in_and_refuse_the_same_callers() {
    let year = Validity::from_now(SystemClock.now(), Duration::from_secs(365 * 86_400));
    let other = Authority::create("test", year).unwrap();
    let pem = lattice_api::x509::to_pem(other.certificate());
    let mut wrong = Vec::new();
    for case in good(&pem) {
        for caller in CALLERS {
            // One cluster per response, so that no response depends on an earlier one.
            let (a, b) = (furnished().await, furnished().await);
            let (a, b) = (
                rest(&a, caller, &case).await,
                grpc(&b, caller, &case.3).await,
            );
            if a != b {
                wrong.push(format!("{caller}: {} {}: {a:?} but {b:?}", case.0, case.1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn both_faces_refuse_the_same_questions() {
    let fixture = furnished().await;
    let mut wrong = Vec::new();
    for case in bad() {
        let (a, b) = (
            rest(&fixture, "root", &case).await,
            grpc(&fixture, "root", &case.3).await,
        );
        if a != b || a.is_none() {
            wrong.push(format!("{} {} {}: {a:?} but {b:?}", case.0, case.1, case.2));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn neither_face_reads_a_body_without_end() {
    let fixture = ApiFixture::empty().await;
    let certificate = "x".repeat(2 << 20);
    let post = fixture.raw().post(fixture.url("/api/v1/authorities"));
    let post = post.bearer_auth(fixture.token("root"));
    let body = json!({"certificate": certificate});
    let refused = post.json(&body).send().await.unwrap();
    assert_eq!(refused.status(), 413);
    let mut admin = grpc_admin(&fixture, "root").await;
    let request = v1::AddAuthorityRequest {
        certificate,
        idempotency_key: None,
    };
    let refused = admin.add_authority(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::OutOfRange, "{refused}");
}
