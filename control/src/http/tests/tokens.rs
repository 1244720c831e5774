//! Join tokens.

use super::bed::Bed;
use lattice_client::{ClientError, TokenRequest};
use lattice_mesh::{JoinToken, Role};
use lattice_quorum_types::{Command, Refusal};

fn request(role: &str) -> TokenRequest {
    TokenRequest {
        role: role.to_owned(),
        ttl: "1h".to_owned(),
        uses: 1,
        nodes: Some("gpu[101-102]".to_owned()),
    }
}

#[tokio::test]
async fn a_token_is_good_for_what_was_asked_and_no_more() {
    let bed = Bed::empty().await;
    let made = bed.client("root").create_token(&request("agent")).await;
    let made = made.unwrap();
    assert_eq!(made.uses, 1);
    // What an agent reads out of the text it is given.
    let read: JoinToken = made.token.parse().unwrap();
    assert_eq!((read.role(), read.pin()), (Role::Agent, bed.authority));
    let enrol = |name: &str, role| {
        bed.service_answer(Command::ConsumeToken {
            hash: read.hash(),
            name: name.to_owned(),
            role,
        })
    };
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
    let bed = Bed::empty().await;
    let root = bed.client("root");
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
    let bed = Bed::empty().await;
    let before = bed.store.revision();
    for who in ["eye", "alice", "op", "warden"] {
        let denied = bed.client(who).create_token(&request("agent")).await;
        let denied = denied.unwrap_err();
        assert!(matches!(denied, ClientError::NotAllowed(_)), "{denied:?}");
        assert_eq!(denied.problem().unwrap().status, 403);
    }
    let viewer = bed.client("eye").create_token(&request("agent")).await;
    let told = viewer.unwrap_err().to_string();
    assert!(told.contains("role admin"), "{told}");
    assert_eq!(bed.store.revision(), before);
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused_by_its_field() {
    let bed = Bed::empty().await;
    for (body, field) in [
        (r#"{"role":"agent","ttl":"8d"}"#, "ttl"),
        (r#"{"role":"king","ttl":"1h"}"#, "role"),
        (r#"{"role":"agent","ttl":"1h","uses":0}"#, "uses"),
        (r#"{"role":"agent","ttl":"1h","nodes":""}"#, "nodes"),
        (r#"{"role":"agent","ttl":"1h","name":"gpu1"}"#, "name"),
    ] {
        let post = bed.raw().post(bed.url("/api/v1/tokens"));
        let post = post.bearer_auth(bed.token("root"));
        let post = post.header("content-type", "application/json").body(body);
        let problem: lattice_client::Problem = post.send().await.unwrap().json().await.unwrap();
        assert_eq!(problem.status, 400, "{body}: {problem:?}");
        assert_eq!(problem.field.as_deref(), Some(field), "{body}: {problem:?}");
    }
}
