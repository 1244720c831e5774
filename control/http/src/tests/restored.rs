//! Allocations that were submitted after a backup from which the cluster was restored.

use super::fixture::{ApiFixture, ask};
use lattice_client::SubmitOptions;
use lattice_quorum_types::{AllocationId, Command, NodeId, ProjectPath, origin::AttemptOrigin};
use reqwest::Method;
use serde_json::Value;

/// Detail of the refusal of a request for an allocation without a record.
async fn unknown(fixture: &ApiFixture, caller: &str, method: Method, path: &str) -> String {
    let (status, problem) = ask(fixture, caller, method, path, Value::Null).await;
    assert_eq!(
        (status, &problem["code"]),
        (404, &"unknown_allocation".into())
    );
    problem["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn allocation_after_restored_backup_is_explained() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let request = super::fixture::job("atlas/web", 1);
    let submitted = alice.submit(&request, SubmitOptions::default()).await;
    submitted.unwrap();
    fixture.settled().await;
    // The number that the next submit would have had.
    let plain = unknown(&fixture, "alice", Method::GET, "allocations/2").await;
    assert!(plain.starts_with("unknown allocation 2; "), "{plain}");
    fixture.store.restore_from_backup();
    fixture.settled().await;
    for path in ["allocations/2", "allocations/2/explanation"] {
        let detail = unknown(&fixture, "alice", Method::GET, path).await;
        assert!(
            detail.starts_with(
                "unknown allocation 2: the numbers 2 to 1000000000 are those of allocations submitted after the backup of "
            ),
            "{detail}"
        );
    }
    let detail = unknown(&fixture, "alice", Method::DELETE, "allocations/2").await;
    assert!(detail.contains("after the backup of"), "{detail}");
    let command = Command::NoteUnknownAttempt {
        node: NodeId::new("gpu001").unwrap(),
        allocation: AllocationId(2),
        attempt: 1,
        origin: Some(AttemptOrigin {
            user: "alice".to_owned(),
            project: ProjectPath::new("atlas/web").unwrap(),
            name: Some("train".to_owned()),
            element: None,
        }),
    };
    fixture.fenced(fixture.schedules(), command);
    let path = "allocations/2/explanation";
    let detail = unknown(&fixture, "alice", Method::GET, path).await;
    assert!(
        detail.contains("that was restored; node gpu001 (at ") && detail.contains(" ended it;"),
        "{detail}"
    );
    let work = "unknown allocation 2 (\"train\" of alice, project atlas/web): ";
    assert!(detail.starts_with(work), "{detail}");
    // A caller of one tenant does not see the nodes of others.
    let detail = unknown(&fixture, "diver", Method::GET, path).await;
    assert!(detail.contains("its nodes ended it"), "{detail}");
    assert!(detail.starts_with("unknown allocation 2: "), "{detail}");
    // Numbers outside of the gap are unknown as before.
    let detail = unknown(&fixture, "alice", Method::GET, "allocations/1000000001").await;
    assert!(
        detail.starts_with("unknown allocation 1000000001; "),
        "{detail}"
    );
    let again = alice.submit(&request, SubmitOptions::default()).await;
    assert_eq!(again.unwrap().id, Some(AllocationId(1_000_000_001)));
}
