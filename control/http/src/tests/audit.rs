//! Audit queries.

use super::fixture::ApiFixture;
use lattice_client::{AuditFilter, api::audit::AuditView};
use lattice_quorum_types::audit::{AuditEntry, verify_chain};

/// A variety of entries: three tokens, one revoked, one certificate revocation, and one node taken by force. The
/// entries about tenants and projects come before.
async fn busy() -> ApiFixture {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let mut ids = Vec::new();
    for _ in 0..3 {
        let request = serde_json::from_str(r#"{"role":"agent","ttl":"1h"}"#).unwrap();
        ids.push(root.create_token(&request).await.unwrap().id);
    }
    root.revoke_token(&ids[0], None).await.unwrap();
    root.revoke_certificates("agent", "gpu001", "the disk was sold", None)
        .await
        .unwrap();
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu002"]).await;
    let op = fixture.client("op");
    op.force_release("gpu002", "the cage is dark")
        .await
        .unwrap();
    fixture
}

async fn found(fixture: &ApiFixture, filter: AuditFilter) -> Vec<String> {
    let page = fixture
        .client("op")
        .audit_page(&filter, 0, None)
        .await
        .unwrap();
    assert_eq!(page.next_cursor, None);
    page.items.into_iter().map(|entry| entry.summary).collect()
}

#[tokio::test]
async fn pages_form_a_valid_chain() {
    let fixture = busy().await;
    let op = fixture.client("op");
    let (mut all, mut after): (Vec<AuditView>, u64) = (Vec::new(), 0);
    loop {
        let filter = AuditFilter::default();
        let page = op.audit_page(&filter, after, Some(2)).await.unwrap();
        assert!(page.items.len() <= 2);
        all.extend(page.items);
        match page.next_cursor {
            Some(next) => after = next.parse().unwrap(),
            None => break,
        }
    }
    let numbers: Vec<_> = all.iter().map(|entry| entry.number).collect();
    let count = u64::try_from(all.len()).unwrap();
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
    assert!(count > 6, "{numbers:?}");
    let entries: Vec<AuditEntry> = all.iter().map(|e| e.try_into().unwrap()).collect();
    verify_chain(&entries).unwrap();
    let (first, last) = (&all[0].by, &all[all.len() - 1].by);
    assert_eq!((first.as_str(), last.as_str()), ("root", "op"));
    let newest = AuditFilter {
        newest_first: true,
        ..AuditFilter::default()
    };
    let (mut back, mut after) = (Vec::new(), 0);
    loop {
        let page = op.audit_page(&newest, after, Some(3)).await.unwrap();
        back.extend(page.items.iter().map(|entry| entry.number));
        match page.next_cursor {
            Some(next) => after = next.parse().unwrap(),
            None => break,
        }
    }
    assert_eq!(back, (1..=count).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn filters_entries_by_actor_action_time() {
    let fixture = busy().await;
    let some = |text: &str| Some(text.to_owned());
    let by = AuditFilter {
        by: some("op"),
        ..AuditFilter::default()
    };
    let forced = found(&fixture, by).await;
    let [node, work] = &forced[..] else {
        panic!("the node, and whose work it was: {forced:?}");
    };
    assert!(
        node.contains("gpu002") && node.ends_with("the cage is dark"),
        "{node}"
    );
    assert!(
        work.contains("force release: allocation 1 of alice"),
        "{work}"
    );
    let node = AuditFilter {
        node: some("gpu[001-002]"),
        actions: ["force_released", "certificates_revoked"]
            .map(str::to_owned)
            .into(),
        ..AuditFilter::default()
    };
    assert_eq!(found(&fixture, node).await.len(), 2);
    let user = AuditFilter {
        user: some("op"),
        until: some("1h"),
        ..AuditFilter::default()
    };
    assert_eq!(
        found(&fixture, user).await,
        [] as [&str; 0],
        "it was just now"
    );
    let project = AuditFilter {
        project: some("atlas/physics"),
        ..AuditFilter::default()
    };
    assert_eq!(
        found(&fixture, project).await.len(),
        2,
        "its own and its child's"
    );
    let action = AuditFilter {
        actions: vec!["token_created".to_owned()],
        since: some("1h"),
        ..AuditFilter::default()
    };
    assert_eq!(found(&fixture, action).await.len(), 3);
    let allocation = AuditFilter {
        allocation: Some(1),
        ..AuditFilter::default()
    };
    assert_eq!(found(&fixture, allocation).await, forced);
}

#[tokio::test]
async fn a_question_that_cannot_be_read_names_its_field() {
    let fixture = ApiFixture::empty().await;
    for (query, field) in [
        ("action=deleted", "action"),
        ("since=someday", "since"),
        ("since=2999-01-01", "since"),
        ("since=5", "since"),
        ("node=gpu[1-", "node"),
        ("limit=0", "limit"),
        ("after=x", "after"),
        ("allocation=-1", "allocation"),
        ("until=someday", "until"),
        ("project=/", "project"),
        ("newest_first=2", "newest_first"),
        ("who=op", "who"),
    ] {
        let get = fixture
            .raw()
            .get(fixture.url(&format!("/api/v1/audit?{query}")));
        let answer = get.bearer_auth(fixture.token("op")).send().await.unwrap();
        let problem: lattice_client::Problem = answer.json().await.unwrap();
        assert_eq!(problem.status, 400, "{query}: {problem:?}");
        let named = problem.field.as_deref() == Some(field) || problem.detail.contains("invalid");
        assert!(named, "{query}: {problem:?}");
    }
}

#[tokio::test]
async fn people_read_what_is_theirs_and_operators_of_a_tenant_what_is_its() {
    let fixture = busy().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let op = fixture.client("op");
    op.cancel(id).await.unwrap();
    let read = |caller: &'static str, filter: AuditFilter| {
        let client = fixture.client(caller);
        async move { client.audit_page(&filter, 0, None).await }
    };
    let mine = read("alice", AuditFilter::default()).await.unwrap().items;
    let summaries: Vec<_> = mine.iter().map(|entry| entry.summary.as_str()).collect();
    assert_eq!(summaries.len(), 2, "{summaries:?}");
    assert!(
        summaries[0].contains("force release: allocation 1 of alice"),
        "{summaries:?}"
    );
    assert!(
        summaries[1].contains("cancel: allocation 2 of alice"),
        "{summaries:?}"
    );
    let others = AuditFilter {
        user: Some("op".to_owned()),
        ..AuditFilter::default()
    };
    let refused = read("alice", others).await.unwrap_err();
    assert!(
        refused.to_string().contains("entries of other users"),
        "{refused}"
    );
    assert!(read("eye", AuditFilter::default()).await.is_err());

    // `diver` is an operator of the tenant ocean alone.
    let root = fixture.client("root");
    root.create_project(&super::projects::request("ocean", Some(5)), None)
        .await
        .unwrap();
    let seen = read("diver", AuditFilter::default()).await.unwrap().items;
    let summaries: Vec<_> = seen.iter().map(|entry| entry.summary.as_str()).collect();
    assert_eq!(summaries.len(), 1, "{summaries:?}");
    assert!(
        summaries[0].starts_with("created tenant ocean"),
        "{summaries:?}"
    );
    let elsewhere = AuditFilter {
        project: Some("atlas".to_owned()),
        ..AuditFilter::default()
    };
    assert!(read("diver", elsewhere).await.is_err());
}
