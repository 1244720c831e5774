//! A token for some tenants: the others are not there.

use super::{
    bed::{Bed, PATIENCE, job},
    projects::request,
};
use futures::TryStreamExt;
use lattice_client::{
    AllocationFilter, LogOptions, SubmitOptions,
    api::{
        event::{Change, StreamEvent},
        project::ProjectUpdate,
    },
};
use lattice_quorum_types::AllocationId;

async fn ocean() -> Bed {
    let bed = Bed::furnished().await;
    let root = bed.client("root");
    root.create_project(&request("ocean", Some(9)), None)
        .await
        .unwrap();
    bed
}

#[tokio::test]
async fn other_tenants_projects_and_allocations_are_not_there() {
    let bed = ocean().await;
    let other = bed.submit("alice", "atlas/web", 1).await;
    let own = bed.submit("alice", "ocean", 1).await;
    let diver = bed.client("diver");
    let tree = diver.projects(None).await.unwrap();
    assert_eq!(tree.len(), 1);
    let list = diver
        .allocations(&AllocationFilter::default())
        .await
        .unwrap();
    assert_eq!((list.len(), list[0].id), (1, own));
    assert_eq!(diver.allocation(own).await.unwrap().user, "alice");
    let absent = |error: lattice_client::ClientError| {
        assert_eq!(error.exit_code(), 4, "{error}");
    };
    absent(diver.project("atlas").await.unwrap_err());
    absent(diver.projects(Some("atlas")).await.unwrap_err());
    absent(diver.delete_project("atlas/web").await.unwrap_err());
    let update = ProjectUpdate::default();
    absent(
        diver
            .update_project("atlas/web", &update)
            .await
            .unwrap_err(),
    );
    absent(diver.allocation(other).await.unwrap_err());
    absent(diver.explanation(other).await.unwrap_err());
    absent(diver.cancel(other).await.unwrap_err());
    absent(
        diver
            .logs(other, LogOptions::default())
            .await
            .err()
            .unwrap(),
    );
    let one = job("atlas/web", 1);
    let submit = diver.submit(&one, SubmitOptions::default());
    absent(submit.await.unwrap_err());
    assert_eq!(
        bed.client("op").allocation(other).await.unwrap().state,
        "pending"
    );
    assert_eq!(diver.cancel(own).await.unwrap().state, "cancelled");
}

#[tokio::test]
async fn their_events_are_not_told() {
    let bed = ocean().await;
    let events = bed.client("diver").events(None).await.unwrap();
    bed.submit("alice", "atlas/web", 1).await;
    bed.submit("alice", "ocean", 1).await;
    let mut events = std::pin::pin!(events.into_stream());
    let next = tokio::time::timeout(PATIENCE, events.try_next());
    let Some(StreamEvent::Changes(first)) = next.await.unwrap().unwrap() else {
        panic!("no change was told");
    };
    let told = first.changes.iter().filter_map(|change| match change {
        Change::Allocation { record, .. } => Some(record.id),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [AllocationId(2)]);
}

#[tokio::test]
async fn their_names_and_limits_are_not_in_the_metrics() {
    let bed = ocean().await;
    let get = bed.raw().get(bed.url("/metrics"));
    let get = get.bearer_auth(bed.token("diver")).send().await.unwrap();
    let text = get.text().await.unwrap();
    for name in ["limit", "used"] {
        let own = format!("lattice_project_nodes_{name}{{project=\"ocean\"}}");
        assert!(text.contains(&own), "{own} in {text}");
    }
    assert!(!text.contains("atlas"), "{text}");
}
