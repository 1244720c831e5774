//! The audit as it is read.

use super::bed::Bed;
use lattice_client::{AuditFilter, api::audit::AuditView};
use lattice_quorum_types::audit::{AuditEntry, verify_chain};

/// Something of everything: three tokens, one withdrawn, one member thrown out, one node taken.
async fn busy() -> Bed {
    let bed = Bed::furnished().await;
    let root = bed.client("root");
    let mut ids = Vec::new();
    for _ in 0..3 {
        let request = serde_json::from_str(r#"{"role":"agent","ttl":"1h"}"#).unwrap();
        ids.push(root.create_token(&request).await.unwrap().id);
    }
    root.revoke_token(&ids[0], None).await.unwrap();
    root.revoke_certificates("agent", "gpu001", "the disk was sold", None)
        .await
        .unwrap();
    let id = bed.submit("alice", "atlas/web", 1).await;
    bed.assign(id, &["gpu002"]).await;
    let op = bed.client("op");
    op.force_release("gpu002", "the cage is dark")
        .await
        .unwrap();
    bed
}

async fn found(bed: &Bed, filter: AuditFilter) -> Vec<String> {
    let page = bed.client("op").audit_page(&filter, 0, None).await.unwrap();
    assert_eq!(page.next_cursor, None);
    page.items.into_iter().map(|entry| entry.summary).collect()
}

#[tokio::test]
async fn entries_come_in_pages_whose_chain_holds() {
    let bed = busy().await;
    let op = bed.client("op");
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
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    let entries: Vec<AuditEntry> = all.iter().map(|e| e.try_into().unwrap()).collect();
    verify_chain(&entries).unwrap();
    assert_eq!((all[5].by.as_str(), all[0].by.as_str()), ("op", "root"));
}

#[tokio::test]
async fn entries_are_found_by_who_what_and_when() {
    let bed = busy().await;
    let some = |text: &str| Some(text.to_owned());
    let by = AuditFilter {
        by: some("op"),
        ..AuditFilter::default()
    };
    let forced = found(&bed, by).await;
    assert_eq!(forced.len(), 1);
    assert!(
        forced[0].contains("gpu002") && forced[0].ends_with("the cage is dark"),
        "{forced:?}"
    );
    let node = AuditFilter {
        node: some("gpu[001-002]"),
        ..AuditFilter::default()
    };
    assert_eq!(found(&bed, node).await.len(), 2);
    let action = AuditFilter {
        action: some("token_created"),
        since: some("1h"),
        ..AuditFilter::default()
    };
    assert_eq!(found(&bed, action).await.len(), 3);
    let allocation = AuditFilter {
        allocation: Some(1),
        ..AuditFilter::default()
    };
    assert_eq!(found(&bed, allocation).await, forced);
}

#[tokio::test]
async fn a_question_that_cannot_be_read_names_its_field() {
    let bed = Bed::empty().await;
    for (query, field) in [
        ("action=deleted", "action"),
        ("since=someday", "since"),
        ("since=2999-01-01", "since"),
        ("since=5", "since"),
        ("node=gpu[1-", "node"),
        ("limit=0", "limit"),
        ("after=x", "after"),
        ("allocation=-1", "allocation"),
        ("user=op", "user"),
    ] {
        let get = bed.raw().get(bed.url(&format!("/api/v1/audit?{query}")));
        let answer = get.bearer_auth(bed.token("op")).send().await.unwrap();
        let problem: lattice_client::Problem = answer.json().await.unwrap();
        assert_eq!(problem.status, 400, "{query}: {problem:?}");
        let named = problem.field.as_deref() == Some(field) || problem.detail.contains("invalid");
        assert!(named, "{query}: {problem:?}");
    }
}
