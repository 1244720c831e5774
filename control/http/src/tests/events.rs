//! Event stream endpoint.

use super::fixture::{ApiFixture, PATIENCE, admin_envelope, job};
use futures::StreamExt;
use lattice_client::{
    AllocationRequest, SubmitOptions,
    api::event::{Change, Changes, StreamEvent},
};
use lattice_engine::observed_state;
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Command, Envelope, NodeId, ProjectPath, Revision,
    command::LimitChange,
    limit::{LimitPatch, Patch},
};
use lattice_view::PingOutcome;
use std::collections::BTreeMap;

async fn changes(events: &mut lattice_client::EventStream) -> Changes {
    let next = async {
        loop {
            if let StreamEvent::Changes(changes) = events.next_event().await.unwrap() {
                return changes;
            }
        }
    };
    tokio::time::timeout(PATIENCE, next)
        .await
        .expect("an event")
}

fn submitted(changes: &Changes) -> Vec<u64> {
    let ids = changes.changes.iter().filter_map(|change| match change {
        Change::Allocation { change, record } if change == "submitted" => Some(record.id.0),
        _ => None,
    });
    ids.collect()
}

/// Command of an administrator that changes the limit of a project.
fn limit_change(path: &str, max_nodes: u64) -> Envelope {
    let path = ProjectPath::new(path).unwrap();
    let patch = LimitPatch {
        max_nodes: Patch::Set(max_nodes),
        max_concurrent_allocations: Patch::Unchanged,
    };
    admin_envelope(Command::SetLimits {
        changes: vec![LimitChange { path, patch }],
    })
}

/// The array ends in the same change as the allocation that waits for its element.
#[tokio::test]
async fn stream_names_element_of_ended_array() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let request = AllocationRequest {
        array: Some("0-3".to_owned()),
        ..job("atlas/web", 1)
    };
    let array = alice.submit(&request, SubmitOptions::default()).await;
    let array = array.unwrap().id.unwrap();
    let request = AllocationRequest {
        dependency: Some(format!("afterok:{array}_2")),
        ..job("atlas/web", 1)
    };
    let dependent = alice.submit(&request, SubmitOptions::default()).await;
    let dependent = dependent.unwrap().id.unwrap();
    let mut live = alice.events(None).await.unwrap();
    alice.cancel(array).await.unwrap();
    let stop = loop {
        let ended = changes(&mut live).await.changes.into_iter();
        let mut stops = ended.filter_map(|change| match change {
            Change::Allocation { record, .. } if record.id == dependent => record.stop,
            _ => None,
        });
        if let Some(stop) = stops.next() {
            break stop;
        }
    };
    assert_eq!(
        stop,
        format!("allocation {array}_2 was cancelled; this one waited for success")
    );
}

#[tokio::test]
async fn streams_events_in_order_from_revision() {
    let fixture = ApiFixture::furnished().await;
    let mut live = fixture.client("eye").events(None).await.unwrap();
    let (alice, one) = (fixture.client("alice"), job("atlas/web", 1));
    let first = alice.submit(&one, SubmitOptions::default()).await.unwrap();
    let received = changes(&mut live).await;
    assert_eq!(
        (received.revision, submitted(&received)),
        (first.revision, vec![1])
    );
    fixture.submit("alice", "atlas/web", 1).await;
    fixture.submit("alice", "atlas/web", 1).await;
    // A late subscriber receives the same events from its given revision.
    let mut late = fixture
        .client("eye")
        .events(Some(first.revision))
        .await
        .unwrap();
    for id in [2, 3] {
        assert_eq!(submitted(&changes(&mut late).await), [id]);
        assert_eq!(submitted(&changes(&mut live).await), [id]);
    }
    assert_eq!(late.revision(), live.revision());
}

#[tokio::test]
async fn streams_project_changes_but_no_foreign_workloads() {
    let fixture = ApiFixture::furnished().await;
    let mut events = fixture.client("bob").events(None).await.unwrap();
    fixture.submit("alice", "atlas/web", 1).await;
    let received = changes(&mut events).await;
    let record = received.changes.iter().find_map(|c| match c {
        Change::Allocation { record, .. } => Some(record),
        _ => None,
    });
    assert!(record.unwrap().workload.is_none());
    // Even the caller's own workload is left out: it never changes, and can be read separately.
    let alice = fixture.client("alice");
    let own = alice.events(Some(Revision(received.revision.0 - 1)));
    let own = changes(&mut own.await.unwrap()).await;
    assert_eq!(own, received);
    fixture
        .client("root")
        .delete_project("atlas/physics/simulation")
        .await
        .unwrap();
    let received = changes(&mut events).await;
    let path = "atlas/physics/simulation".to_owned();
    assert!(
        received.changes.contains(&Change::ProjectDeleted { path }),
        "{received:?}"
    );
}

#[tokio::test]
async fn a_reader_resumes_by_itself_after_the_server_was_gone() {
    let mut fixture = ApiFixture::furnished().await;
    let mut events = fixture.client("eye").events(None).await.unwrap();
    fixture.submit("alice", "atlas/web", 1).await;
    assert_eq!(submitted(&changes(&mut events).await), [1]);
    fixture.close().await;
    let project = "atlas/web".to_owned();
    let spec = job(&project, 1).into_spec().unwrap();
    let alice = lattice_quorum_types::command::Principal {
        name: "alice".to_owned(),
        privilege: lattice_quorum_types::command::Privilege::User,
    };
    let command = lattice_quorum_types::Command::Submit {
        spec: Box::new(spec),
    };
    fixture.core.propose(alice, None, command).await.unwrap();
    fixture.settled().await;
    fixture.open();
    // Events during the interruption are delivered, and none is delivered twice.
    assert_eq!(submitted(&changes(&mut events).await), [2]);
    fixture.submit("alice", "atlas/web", 1).await;
    assert_eq!(submitted(&changes(&mut events).await), [3]);
}

#[tokio::test]
async fn expired_revision_is_reported_and_stream_continues() {
    let fixture = ApiFixture::furnished().await;
    // The state was read again, so earlier events are not kept.
    fixture.core.restart(|_| ());
    let oldest = fixture.core.view().revision;
    let mut events = fixture
        .client("eye")
        .events(Some(Revision(1)))
        .await
        .unwrap();
    let first = tokio::time::timeout(PATIENCE, events.next_event()).await;
    let StreamEvent::Compacted(compacted) = first.unwrap().unwrap() else {
        panic!("it was not told");
    };
    assert_eq!(compacted.oldest, oldest);
    fixture.submit("alice", "atlas/web", 1).await;
    assert_eq!(submitted(&changes(&mut events).await), [1]);
}

#[tokio::test]
async fn streams_end_when_the_port_closes() {
    let mut fixture = ApiFixture::furnished().await;
    let url = fixture.url("/api/v1/events");
    let response = fixture
        .raw()
        .get(url)
        .bearer_auth(fixture.token("eye"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let revision = fixture.core.view().revision.to_string();
    assert_eq!(response.headers()["lattice-revision"], revision.as_str());
    fixture.close().await;
    let end = tokio::time::timeout(PATIENCE, response.bytes()).await;
    assert!(end.is_ok(), "the stream ended with the port");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_blocks_no_others_and_learns_gap() {
    let fixture = ApiFixture::furnished().await;
    let start = fixture.core.view().revision;
    let get = fixture.raw().get(fixture.url("/api/v1/events"));
    let get = get.bearer_auth(fixture.token("eye")).send().await.unwrap();
    let mut slow = get.bytes_stream();
    let mut live = fixture.client("eye").events(Some(start)).await.unwrap();
    // Far more than sockets, windows and the kept changes hold together.
    let changes_made = 60_000;
    let storm = tokio::spawn({
        let store = fixture.store.clone();
        async move {
            for n in 0..changes_made {
                let change = limit_change("atlas/web", 40 + n % 10);
                store.apply(&change).unwrap();
                if n % 100 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    // A reading subscriber sees the last event, whether it kept up or had to read the lists again.
    let last = Revision(start.0 + changes_made);
    let seen = async {
        while live.revision() < Some(last) {
            live.next_event().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, seen)
        .await
        .expect("the live reader sees it");
    storm.await.unwrap();
    let mut text = String::new();
    let compacted = async {
        while !text.contains("event: compacted") {
            let chunk = slow.next().await.unwrap().unwrap();
            text = text.split_off(text.len().saturating_sub(100));
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    tokio::time::timeout(PATIENCE, compacted)
        .await
        .expect("the slow reader is told");
}

#[tokio::test]
async fn resumed_reader_gets_missed_observations() {
    let mut fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let mut events = fixture.client("eye").events(None).await.unwrap();
    fixture.client("alice").hold(id).await.unwrap();
    changes(&mut events).await;
    fixture.close().await;
    let node = NodeId::new("gpu007").unwrap();
    let found = PingOutcome {
        liveness: Liveness::Unreachable,
        reason: Some("no answer for 31 s; gpu008 hears nothing either".to_owned()),
        boot: None,
        reply_addr: None,
    };
    let found = BTreeMap::from([(node, found)]);
    assert_eq!(observed_state::liveness(&fixture.core, &found), 1);
    fixture.open();
    let received = tokio::time::timeout(PATIENCE, events.next_event()).await;
    let StreamEvent::Observed(observed) = received.unwrap().unwrap() else {
        panic!("it was not told");
    };
    let nodes: Vec<_> = observed
        .nodes
        .iter()
        .map(|n| (n.name.as_str(), n.liveness.as_str()))
        .collect();
    assert_eq!(nodes, [("gpu007", "unreachable")]);
    let reason = observed.nodes[0].liveness_reason.as_deref();
    assert!(reason.unwrap().contains("gpu008"), "{reason:?}");
}

#[tokio::test]
async fn one_principal_cannot_take_all_streams() {
    let fixture = ApiFixture::empty().await;
    let eye = fixture.client("eye");
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(eye.events(None).await.unwrap());
    }
    let refused = eye.events(None).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (429, "too_many_streams")
    );
    fixture.client("alice").events(None).await.unwrap();
}
