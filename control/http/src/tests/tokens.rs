//! Join tokens.

use super::fixture::ApiFixture;
use lattice_client::{ClientError, TokenRequest};
use lattice_mesh::{Clock as _, JoinToken, Role, SystemClock};
use lattice_quorum_types::{Command, Refusal, UnixMillis, command::IssuedCertificate};

fn request(role: &str) -> TokenRequest {
    TokenRequest {
        role: role.to_owned(),
        ttl: "1h".to_owned(),
        uses: 1,
        nodes: Some("gpu[101-102]".to_owned()),
        cidrs: vec![],
        replace: false,
    }
}

/// Command that a member proposes for an enrolment.
fn enrolment(token: &JoinToken, name: &str, role: Role, from: &str) -> Command {
    let now = SystemClock.now();
    let issued_at = UnixMillis(now.0 / 1_000 * 1_000);
    Command::ConsumeToken {
        hash: token.hash(),
        name: name.to_owned(),
        role,
        from: Some(from.parse().unwrap()),
        replace: false,
        certificate: IssuedCertificate {
            issued_at,
            expires_at: issued_at.after(30 * 24 * 3_600_000),
        },
    }
}

#[tokio::test]
async fn a_token_is_good_for_what_was_asked_and_no_more() {
    let fixture = ApiFixture::empty().await;
    let made = fixture.client("root").create_token(&request("agent")).await;
    let made = made.unwrap();
    assert_eq!(made.uses, 1);
    // The token as an agent parses it.
    let read: JoinToken = made.token.parse().unwrap();
    assert_eq!(
        (read.role(), read.pins()),
        (Role::Agent, &[fixture.authority][..])
    );
    let enrol =
        |name: &str, role| fixture.service_answer(enrolment(&read, name, role, "127.0.0.1"));
    for (name, role) in [("gpu103", Role::Agent), ("gpu101", Role::Control)] {
        let refused = enrol(name, role).unwrap_err();
        assert!(matches!(refused, Refusal::TokenRefused { .. }), "{refused}");
    }
    enrol("gpu101", Role::Agent).unwrap();
    let used = enrol("gpu102", Role::Agent).unwrap_err();
    assert!(used.to_string().contains("used up"), "{used}");
}

#[tokio::test]
async fn two_requests_are_two_tokens() {
    let fixture = ApiFixture::empty().await;
    let root = fixture.client("root");
    let mut hashes = Vec::new();
    for role in ["control", "control", "quorum"] {
        let made = root.create_token(&request(role)).await.unwrap();
        let read: JoinToken = made.token.parse().unwrap();
        assert_eq!(read.role().as_str(), role);
        hashes.push(read.hash());
    }
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 3);
}

#[tokio::test]
async fn only_administrators_of_everything_make_tokens() {
    let fixture = ApiFixture::empty().await;
    let before = fixture.store.revision();
    for caller in ["eye", "alice", "op", "warden"] {
        let denied = fixture.client(caller).create_token(&request("agent")).await;
        let denied = denied.unwrap_err();
        assert!(matches!(denied, ClientError::NotAllowed(_)), "{denied:?}");
        assert_eq!(denied.problem().unwrap().status, 403);
    }
    let viewer = fixture.client("eye").create_token(&request("agent")).await;
    let refusal = viewer.unwrap_err().to_string();
    assert!(refusal.contains("role admin"), "{refusal}");
    assert_eq!(fixture.store.revision(), before);
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused_by_its_field() {
    let fixture = ApiFixture::empty().await;
    for (body, field) in [
        (r#"{"role":"agent","ttl":"8d"}"#, "ttl"),
        (r#"{"role":"king","ttl":"1h"}"#, "role"),
        (r#"{"role":"agent","ttl":"1h","uses":0}"#, "uses"),
        (r#"{"role":"agent","ttl":"1h","nodes":""}"#, "nodes"),
        (r#"{"role":"agent","ttl":"1h","uses":100001}"#, "uses"),
        (
            r#"{"role":"agent","ttl":"1h","cidrs":["10.1.2.3/16"]}"#,
            "cidrs[0]",
        ),
        (
            r#"{"role":"agent","ttl":"1h","cidrs":"10.0.0.0/8"}"#,
            "cidrs",
        ),
        (r#"{"role":"agent","ttl":"1h","name":"gpu1"}"#, "name"),
    ] {
        let post = fixture.raw().post(fixture.url("/api/v1/tokens"));
        let post = post.bearer_auth(fixture.token("root"));
        let post = post.header("content-type", "application/json").body(body);
        let problem: lattice_client::Problem = post.send().await.unwrap().json().await.unwrap();
        assert_eq!(problem.status, 400, "{body}: {problem:?}");
        assert_eq!(problem.field.as_deref(), Some(field), "{body}: {problem:?}");
    }
}

#[tokio::test]
async fn a_token_is_listed_with_what_is_left_of_it_and_withdrawn_by_its_id() {
    let fixture = ApiFixture::empty().await;
    let root = fixture.client("root");
    let wide = TokenRequest {
        uses: 3,
        cidrs: vec!["10.1.0.0/16".to_owned(), "fd00::/8".to_owned()],
        ..request("agent")
    };
    let made = root.create_token(&wide).await.unwrap();
    let short = TokenRequest {
        ttl: "5m".to_owned(),
        ..request("control")
    };
    root.create_token(&short).await.unwrap();
    let read: JoinToken = made.token.parse().unwrap();
    let outside = fixture.service_answer(enrolment(&read, "gpu101", Role::Agent, "10.2.0.1"));
    let outside = outside.unwrap_err().to_string();
    assert!(outside.contains("10.2.0.1"), "{outside}");
    fixture
        .service_answer(enrolment(&read, "gpu101", Role::Agent, "10.1.9.9"))
        .unwrap();
    let list = root.tokens().await.unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list[0].role, "control", "the first to end comes first");
    let token = &list[1];
    assert_eq!(
        (token.id.as_str(), token.uses_left, token.by.as_str()),
        (made.id.as_str(), 2, "root")
    );
    assert_eq!(token.nodes.as_deref(), Some("gpu[101-102]"));
    assert_eq!(token.cidrs, ["10.1.0.0/16", "fd00::/8"]);
    assert!(!serde_json::to_string(&list).unwrap().contains(&read.hash()));
    root.revoke_token(&made.id, None).await.unwrap();
    assert_eq!(root.tokens().await.unwrap().len(), 1);
    let used = fixture.service_answer(enrolment(&read, "gpu102", Role::Agent, "10.1.9.9"));
    assert!(matches!(used.unwrap_err(), Refusal::TokenRefused { .. }));
    let again = root.revoke_token(&made.id, None).await.unwrap_err();
    assert_eq!(again.exit_code(), 4, "{again}");
    for id in ["abc", "not-hex-at-all", &"a".repeat(65)] {
        let error = root.revoke_token(id, None).await.unwrap_err();
        let field = error.problem().unwrap().field.clone();
        assert_eq!(field.as_deref(), Some("id"), "{id}: {error}");
    }
}
