//! Allocation terms: arrays and their elements, dependencies, and actions on existing allocations.

use super::{
    fixture::{ApiFixture, ask, job},
    grpc::{by, channel},
};
use lattice_api::v1::{self, allocations_client::AllocationsClient};
use lattice_client::{
    AllocationFilter, AllocationRequest, AllocationView, ClientError, JobRef, SubmitOptions,
    api::allocation::{CheckpointBody, CheckpointRequest, ExtendRequest, name_text},
};
use lattice_quorum_types::{
    AllocationId, UnixMillis, allocation::RankExit, checkpoint::CheckpointOutcome,
    command::RankReport, progress::RankCheckpoint, view::Query,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

async fn submit(fixture: &ApiFixture, caller: &str, request: &AllocationRequest) -> AllocationId {
    let client = fixture.client(caller);
    let made = client.submit(request, SubmitOptions::default()).await;
    made.unwrap().id.unwrap()
}

fn element(array: AllocationId, index: u32) -> JobRef {
    JobRef {
        id: array.0,
        index: Some(index),
    }
}

fn array(indices: &str) -> AllocationRequest {
    AllocationRequest {
        array: Some(indices.to_owned()),
        ..job("atlas/web", 1)
    }
}

fn after(text: String) -> AllocationRequest {
    AllocationRequest {
        dependency: Some(text),
        ..job("atlas/web", 1)
    }
}

/// Status, field and text of a refusal.
fn refused(answer: Result<AllocationView, ClientError>) -> (u16, Option<String>, String) {
    let error = answer.unwrap_err();
    let problem = error.problem().unwrap().clone();
    (problem.status, problem.field, problem.detail)
}

/// A dependency would reveal that the allocation exists and how it ended.
#[tokio::test]
async fn hides_waits_for_foreign_work() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let ocean = super::projects::request("ocean", Some(5));
    root.create_project(&ocean, None).await.unwrap();
    let (theirs, array) = (
        submit(&fixture, "alice", &job("atlas/web", 1)).await,
        submit(&fixture, "alice", &array("0-3")).await,
    );
    let own = submit(&fixture, "diver", &job("ocean", 1)).await;
    let after = |text: String| AllocationRequest {
        dependency: Some(text),
        ..job("ocean", 1)
    };
    submit(&fixture, "diver", &after(format!("afterok:{own}"))).await;
    let diver = fixture.client("diver");
    for named in [
        theirs.to_string(),
        format!("{array}_1"),
        (array.0 + 1).to_string(),
    ] {
        let request = after(format!("afterok:{named}"));
        let made = diver.submit(&request, SubmitOptions::default());
        let error = made.await.unwrap_err();
        let problem = error.problem().unwrap();
        assert_eq!(problem.code, "unknown_allocation", "{named}");
    }
    submit(&fixture, "root", &after(format!("afterok:{theirs}"))).await;
}

#[tokio::test]
async fn elements_are_found_by_their_index_before_they_have_nodes() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let id = submit(&fixture, "alice", &array("5-14%4")).await;
    let shown = alice.allocation(id).await.unwrap();
    assert_eq!(shown.array.as_deref(), Some("5-14%4"));
    let tally = shown.element_counts.unwrap();
    assert_eq!((tally.elements, tally.pending, tally.running), (10, 10, 0));

    let waiting = alice.allocation(element(id, 7)).await.unwrap();
    assert_eq!(
        (waiting.id.0, waiting.state.as_str()),
        (id.0 + 3, "pending")
    );
    let of = waiting.element.clone().unwrap();
    assert_eq!((of.array, of.index), (id, 7));
    assert_eq!((waiting.array, waiting.element_counts), (None, None));
    let by_number = alice.allocation(waiting.id).await.unwrap();
    assert_eq!(by_number.element, waiting.element);

    for (path, field) in [(format!("{id}_4"), "id"), (format!("{id}_x"), "id")] {
        let path = format!("allocations/{path}");
        let (status, answer) = ask(&fixture, "alice", Method::GET, &path, Value::Null).await;
        assert!(matches!(status, 400 | 404), "{status}");
        assert_eq!(answer["field"], field);
    }
    let single = submit(&fixture, "alice", &job("atlas/web", 1)).await;
    let (status, field, text) = refused(alice.allocation(element(single, 0)).await);
    assert_eq!((status, field.as_deref()), (404, Some("id")));
    assert!(text.contains("is not an array"), "{text}");
    // A caller that does not see the array does not see its elements.
    let hidden = fixture.client("diver").allocation(element(id, 7)).await;
    assert_eq!(refused(hidden).0, 404);
    let hidden = fixture
        .client("diver")
        .allocation(AllocationId(id.0 + 3))
        .await;
    assert_eq!(refused(hidden).0, 404);
}

#[tokio::test]
async fn array_element_is_cancelled_placed_and_shown() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let id = submit(&fixture, "alice", &array("0-3")).await;
    let gone = alice.cancel(element(id, 2)).await.unwrap();
    assert_eq!((gone.id.0, gone.state.as_str()), (id.0 + 3, "cancelled"));
    let other = fixture.client("bob").cancel(element(id, 1)).await;
    assert_eq!(refused(other).0, 403);

    let placed = AllocationId(id.0 + 1);
    fixture.assign(placed, &["gpu001"]).await;
    fixture.begins(placed, "gpu001").await;
    let running = alice.allocation(element(id, 0)).await.unwrap();
    assert_eq!((running.id, running.state.as_str()), (placed, "running"));
    // The workload of an element is in the record of its array.
    assert_eq!(running.workload.unwrap().argv, ["true"]);
    let waiting = alice.allocation(AllocationId(id.0 + 2)).await.unwrap();
    assert_eq!(waiting.element.unwrap().index, 1);
    let tally = alice.allocation(id).await.unwrap().element_counts.unwrap();
    assert_eq!((tally.pending, tally.running, tally.cancelled), (2, 1, 1));

    // Also after the array has ended.
    alice.cancel(id).await.unwrap();
    fixture.ends(placed, "gpu001", RankExit::Stopped).await;
    let array = alice.allocation(id).await.unwrap();
    assert_eq!(array.state, "cancelled");
    assert_eq!(array.element_counts.unwrap().cancelled, 4);
    for index in 1..4 {
        let never = alice.allocation(element(id, index)).await.unwrap();
        assert_eq!(never.state, "cancelled", "{index}");
        let by_number = alice.allocation(never.id).await.unwrap();
        assert_eq!(by_number.element.unwrap().index, index);
    }
    let beyond = alice.allocation(AllocationId(id.0 + 5)).await;
    assert_eq!(refused(beyond).0, 404);
}

/// Elements receive queue positions as they reach the front; the explanation of the array is that of the first.
#[tokio::test]
async fn an_array_waits_for_what_its_first_element_waits_for() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let all = AllocationRequest {
        nodes: 24,
        ..array("0-3%2")
    };
    let id = submit(&fixture, "alice", &all).await;
    let reason = "needs 24 of 24 nodes: ";
    for named in [JobRef::from(id), element(id, 0), element(id, 3)] {
        let shown = alice.allocation(named).await.unwrap();
        let shown_reason = shown.reason.unwrap();
        assert!(shown_reason.starts_with(reason), "{named}: {shown_reason}");
        let why = alice.explanation(named).await.unwrap();
        assert!(why.summary.starts_with(reason), "{why:?}");
        assert!(!why.steps.is_empty() && why.blocker.is_some(), "{why:?}");
    }
    // The maximum number of elements is running.
    let id = submit(&fixture, "alice", &array("0-3%1")).await;
    fixture.assign(AllocationId(id.0 + 1), &["gpu001"]).await;
    let shown_reason = alice.allocation(id).await.unwrap().reason;
    let reason = "array limit reached: at most 1 element at once";
    assert_eq!(shown_reason.as_deref(), Some(reason));
    assert_eq!(
        alice.explanation(element(id, 2)).await.unwrap().summary,
        reason
    );
}

#[tokio::test]
async fn array_counts_elements_by_cause() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let id = submit(&fixture, "alice", &array("0-3")).await;
    alice.cancel(element(id, 3)).await.unwrap();
    let stop = async || alice.allocation(id).await.unwrap().stop;
    let one = "1 of its 4 elements: cancelled by alice";
    assert_eq!(stop().await.as_deref(), Some(one));
    for (index, code) in [(0, 0), (1, 1), (2, 0)] {
        let (placed, node) = (AllocationId(id.0 + 1 + index), "gpu001");
        fixture.assign(placed, &[node]).await;
        fixture.begins(placed, node).await;
        fixture.ends(placed, node, RankExit::Exited { code }).await;
    }
    let cause = "1 of its 4 elements failed, and 1 were cancelled";
    assert_eq!(stop().await.as_deref(), Some(cause));
    // An element with a failed counterpart never runs, and shows the reason.
    let first = submit(&fixture, "alice", &array("0-1")).await;
    let by_index = AllocationRequest {
        dependency: Some(format!("aftercorr:{first}")),
        ..array("0-1")
    };
    let second = submit(&fixture, "alice", &by_index).await;
    let failed = AllocationId(first.0 + 1);
    fixture.assign(failed, &["gpu001"]).await;
    fixture.begins(failed, "gpu001").await;
    fixture
        .ends(failed, "gpu001", RankExit::Exited { code: 1 })
        .await;
    let lost = alice.allocation(element(second, 0)).await.unwrap();
    let cause = format!("allocation {first}_0 was failed; this one waited for corresponding");
    assert_eq!(
        (lost.state.as_str(), lost.stop),
        ("cancelled", Some(cause.clone()))
    );
    let array = alice.allocation(second).await.unwrap();
    assert_eq!(array.stop, Some(format!("1 of its 2 elements: {cause}")));
}

#[tokio::test]
async fn waiting_job_names_its_dependencies() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let (first, second) = (
        submit(&fixture, "alice", &job("atlas/web", 1)).await,
        submit(&fixture, "alice", &array("0-3")).await,
    );
    let text = format!("afterok:{first},afterany:{second}_2");
    let id = submit(&fixture, "alice", &after(text)).await;
    let blocked = alice.allocation(id).await.unwrap();
    assert_eq!(blocked.state, "blocked");
    let of_element = AllocationId(second.0 + 3);
    let waits = blocked.waits_for.unwrap();
    assert_eq!(waits.allocations, [first, of_element]);
    let reason = format!("waits for allocations {first} (success), {second}_2 (any)");
    assert_eq!(blocked.reason.as_deref(), Some(&*reason));
    assert_eq!(alice.explanation(id).await.unwrap().summary, reason);

    alice.cancel(element(second, 2)).await.unwrap();
    let blocked = alice.allocation(id).await.unwrap();
    assert_eq!(blocked.waits_for.unwrap().allocations, [first]);
    fixture.assign(first, &["gpu001"]).await;
    fixture.begins(first, "gpu001").await;
    fixture
        .ends(first, "gpu001", RankExit::Exited { code: 0 })
        .await;
    let ready = alice.allocation(id).await.unwrap();
    assert_eq!((ready.state.as_str(), ready.waits_for), ("pending", None));
}

/// The number of an element is only data: every text has the name that users write, also once the array has ended.
#[tokio::test]
async fn texts_name_elements_by_array_and_index() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let id = submit(&fixture, "alice", &array("0-3")).await;
    let (placed, name) = (AllocationId(id.0 + 3), format!("{id}_2"));
    let dependent = submit(&fixture, "alice", &after(format!("afterok:{name}"))).await;
    let shown = alice.allocation(dependent).await.unwrap();
    let on = &shown.dependencies[0];
    assert_eq!(
        (on.on, name_text(on.on, on.element.as_ref())),
        (placed, name.clone())
    );

    fixture.assign(placed, &["gpu001"]).await;
    fixture.begins(placed, "gpu001").await;
    let node = alice.node("gpu001").await.unwrap();
    let holder = node.holder.unwrap();
    assert_eq!(holder.allocation, placed);
    assert_eq!(name_text(placed, holder.element.as_ref()), name);
    let why = alice.explanation(placed).await.unwrap();
    assert_eq!(name_text(why.allocation, why.element.as_ref()), name);
    let (_, _, text) = refused(alice.hold(placed).await);
    assert!(text.contains(&format!("allocation {name}:")), "{text}");

    let failed = RankExit::Exited { code: 1 };
    fixture.ends(placed, "gpu001", failed).await;
    let stop = format!("allocation {name} was failed; this one waited for success");
    for is_array_ended in [false, true] {
        if is_array_ended {
            alice.cancel(id).await.unwrap();
        }
        let shown = alice.allocation(dependent).await.unwrap();
        assert_eq!(shown.stop.as_deref(), Some(&*stop), "{is_array_ended}");
        let summary = alice.explanation(dependent).await.unwrap().summary;
        assert!(summary.ends_with(&stop), "{is_array_ended}: {summary}");
        let all = alice.allocations(&AllocationFilter::default()).await;
        let all = all.unwrap();
        let listed = all.iter().find(|a| a.id == dependent).unwrap();
        assert_eq!(listed.stop.as_deref(), Some(&*stop), "{is_array_ended}");
        let (_, _, text) = refused(alice.cancel(element(id, 2)).await);
        assert_eq!(
            text,
            format!("cannot cancel allocation {name}: it is failed"),
            "{is_array_ended}"
        );
        let late = after(format!("afterok:{name}"));
        let late = alice.submit(&late, SubmitOptions::default()).await;
        let late = late.unwrap_err().to_string();
        let wanted = format!("allocation {name} was failed; the condition success");
        assert!(late.contains(&wanted), "{is_array_ended}: {late}");
    }
}

#[tokio::test]
async fn of_singletons_one_waits_for_the_other() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let single = AllocationRequest {
        name: Some("nightly".to_owned()),
        singleton: true,
        ..job("atlas/web", 1)
    };
    let first = submit(&fixture, "alice", &single).await;
    let second = submit(&fixture, "alice", &single).await;
    let others = submit(&fixture, "bob", &single).await;
    let blocked = alice.allocation(second).await.unwrap();
    assert_eq!(blocked.state, "blocked");
    assert_eq!(blocked.waits_for.unwrap().mutex, Some(first));
    let reason = format!("waits for the mutex \"nightly\", held by allocation {first}");
    assert_eq!(blocked.reason, Some(reason));
    assert_eq!(alice.allocation(others).await.unwrap().state, "pending");
}

#[tokio::test]
async fn terms_that_cannot_be_are_refused_by_their_field() {
    let fixture = ApiFixture::furnished().await;
    let base = json!({"project": "atlas/web", "nodes": 1, "argv": ["true"]});
    for (terms, field) in [
        (json!({"array": "0-9:0"}), "array"),
        (json!({"dependency": "afterok:999"}), ""),
        (json!({"dependency": "afterok:999_1"}), ""),
        (
            json!({"dependencies": [{"condition": "done", "on": 1}]}),
            "dependencies",
        ),
        (
            json!({"dependencies": [{"condition": "any", "after": 1}]}),
            "dependencies[0].after",
        ),
        (json!({"deadline": "2020-01-01"}), "deadline"),
        (
            json!({"begin": "now+1hour", "deadline": "now+30minutes"}),
            "deadline",
        ),
        (
            json!({"checkpoint": {"mode": "signal", "directory": "scratch"}}),
            "checkpoint.directory",
        ),
        (
            json!({"checkpoint": {"mode": "signal"}}),
            "checkpoint.directory",
        ),
        (
            json!({"scale": {"min_nodes": 1, "max_nodes": 2, "metric": "gpu", "target": 0}}),
            "scale.target",
        ),
        (
            json!({"scale": {"min_nodes": 2, "max_nodes": 2, "metric": "gpu", "target": 1}}),
            "nodes",
        ),
        (
            json!({"scale": {"min_nodes": 1, "max_nodes": 2, "metric": "gpus", "target": 1}}),
            "scale.metric",
        ),
        (json!({"reservation": "course"}), ""),
    ] {
        let mut body = base.clone();
        let terms = terms.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(terms);
        let (status, answer) =
            ask(&fixture, "alice", Method::POST, "allocations", body.clone()).await;
        assert!((400..500).contains(&status), "{body}: {status}");
        let shown = answer["field"].as_str().unwrap_or_default();
        assert_eq!(shown, field, "{body}");
    }
    let status = fixture.client("alice").status().await.unwrap();
    assert!(status.allocations_by_state.values().all(|n| *n == 0));
}

#[tokio::test]
async fn a_walltime_is_made_longer_by_operators_alone() {
    let fixture = ApiFixture::furnished().await;
    let (alice, op) = (fixture.client("alice"), fixture.client("op"));
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let to = |walltime: &str| ExtendRequest {
        walltime: walltime.to_owned(),
    };
    let (status, _, text) = refused(alice.extend(id, &to("+5m")).await);
    assert_eq!(status, 403);
    assert!(text.contains("make a walltime longer"), "{text}");
    let shorter = alice.extend(id, &to("6m")).await.unwrap();
    assert_eq!(shorter.walltime.as_deref(), Some("6m"));
    let longer = op.extend(id, &to("+1h")).await.unwrap();
    assert_eq!(longer.walltime.as_deref(), Some("1h6m"));
    for bad in ["0s", "-5m", "+", "soon"] {
        let (status, field, _) = refused(op.extend(id, &to(bad)).await);
        assert_eq!((status, field.as_deref()), (400, Some("walltime")), "{bad}");
    }
    let unbounded = AllocationRequest {
        walltime: None,
        ..job("atlas/web", 1)
    };
    let id = submit(&fixture, "alice", &unbounded).await;
    let (status, field, _) = refused(op.extend(id, &to("+1h")).await);
    assert_eq!((status, field.as_deref()), (400, Some("walltime")));
}

#[tokio::test]
async fn running_work_is_requeued_suspended_and_resumed() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let (status, ..) = refused(alice.suspend(id).await);
    assert_eq!(status, 409);
    for attempt in 1..3 {
        fixture.assign(id, &["gpu001"]).await;
        fixture.begins(id, "gpu001").await;
        match attempt {
            1 => {
                let answer = alice.requeue(id).await.unwrap();
                assert_eq!(answer.state, "stopping");
                assert_eq!(answer.stop.as_deref(), Some("requeued by alice"));
            }
            _ => {
                assert_eq!(refused(fixture.client("bob").suspend(id).await).0, 403);
                assert_eq!(alice.suspend(id).await.unwrap().state, "stopping");
            }
        }
        fixture.ends(id, "gpu001", RankExit::Stopped).await;
    }
    assert_eq!(alice.allocation(id).await.unwrap().state, "suspended");
    assert_eq!(alice.resume(id).await.unwrap().state, "pending");
}

/// A request with checkpoints.
fn saves() -> AllocationRequest {
    AllocationRequest {
        checkpoint: Some(CheckpointBody {
            mode: "signal".to_owned(),
            trigger: None,
            directory: Some("/scratch/alice".to_owned()),
        }),
        ..job("atlas/web", 1)
    }
}

#[tokio::test]
async fn running_work_is_suspended_after_a_checkpoint() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let plain = fixture.submit("alice", "atlas/web", 1).await;
    let id = submit(&fixture, "alice", &saves()).await;
    let (status, _, text) = refused(alice.suspend_after_checkpoint(id).await);
    assert_eq!(status, 409, "{text}");
    for (id, node) in [(plain, "gpu001"), (id, "gpu002")] {
        fixture.assign(id, &[node]).await;
        fixture.begins(id, node).await;
    }
    let (status, field, text) = refused(alice.suspend_after_checkpoint(plain).await);
    assert_eq!((status, field.as_deref()), (400, Some("checkpoint")));
    assert!(text.contains("without a checkpoint mode"), "{text}");
    for (caller, status) in [("bob", 403), ("eye", 403), ("diver", 404)] {
        let other = fixture.client(caller);
        let refused = refused(other.suspend_after_checkpoint(id).await);
        assert_eq!(refused.0, status, "{caller}");
    }
    let path = format!("allocations/{id}/suspend?checkpoint=maybe");
    let (status, answer) = ask(&fixture, "alice", Method::POST, &path, Value::Null).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("checkpoint"), "{answer}");
    let writes = alice.suspend_after_checkpoint(id).await.unwrap();
    assert_eq!(writes.state, "checkpointing");
    let writing = writes.checkpoints.unwrap().in_progress.unwrap();
    assert_eq!(writing.directory, format!("/scratch/alice/{id}"));
    assert_eq!(
        writing.release_reason.as_deref(),
        Some("suspended by alice")
    );
    // An operator repeats the request over gRPC.
    let mut client = AllocationsClient::new(channel(&fixture).await);
    let message = v1::SuspendRequest {
        id: id.0,
        idempotency_key: None,
        checkpoint: true,
    };
    let answer = client.suspend(by(&fixture, "op", message)).await.unwrap();
    assert_eq!(answer.into_inner().state, "checkpointing");
    let outcome = CheckpointOutcome::Written {
        at: UnixMillis(1),
        bytes: Some(1),
        took_ms: 1,
    };
    let of = RankCheckpoint { number: 1, outcome };
    fixture
        .reports(id, "gpu002", RankReport::Checkpoint { of })
        .await;
    let goes = alice.allocation(id).await.unwrap();
    let expected = "suspended by alice, after checkpoint 1";
    assert_eq!(
        (goes.state.as_str(), goes.stop.as_deref()),
        ("stopping", Some(expected))
    );
    fixture.ends(id, "gpu002", RankExit::Stopped).await;
    assert_eq!(alice.allocation(id).await.unwrap().state, "suspended");
    // An allocation suspended without a checkpoint does not show one.
    alice.suspend(plain).await.unwrap();
    fixture.ends(plain, "gpu001", RankExit::Stopped).await;
    let (status, field, text) = refused(alice.suspend_after_checkpoint(plain).await);
    assert_eq!(
        (status, field.as_deref()),
        (400, Some("checkpoint")),
        "{text}"
    );
    let stop = alice.allocation(plain).await.unwrap().stop;
    assert_eq!(stop.as_deref(), Some("suspended without a checkpoint"));
    assert_eq!(alice.resume(id).await.unwrap().state, "pending");
}

#[tokio::test]
async fn a_checkpoint_is_asked_for_by_its_user_and_shown() {
    let fixture = ApiFixture::furnished().await;
    let (alice, op) = (fixture.client("alice"), fixture.client("op"));
    let saves = saves();
    let plain = fixture.submit("alice", "atlas/web", 1).await;
    let id = submit(&fixture, "alice", &saves).await;
    let asked = CheckpointRequest::default();
    for (id, node) in [(plain, "gpu001"), (id, "gpu002")] {
        fixture.assign(id, &[node]).await;
        fixture.begins(id, node).await;
    }
    let (status, field, text) = refused(op.checkpoint(plain, &asked).await);
    assert_eq!(
        (status, field.as_deref()),
        (400, Some("checkpoint")),
        "{text}"
    );
    assert_eq!(
        refused(fixture.client("bob").checkpoint(id, &asked).await).0,
        403
    );
    let bad = CheckpointRequest {
        timeout: Some("-1s".to_owned()),
        ..asked.clone()
    };
    assert_eq!(
        refused(op.checkpoint(id, &bad).await).1.as_deref(),
        Some("timeout")
    );
    let writes = alice.checkpoint(id, &asked).await.unwrap();
    assert_eq!(writes.state, "checkpointing");
    let writing = writes.checkpoints.unwrap().in_progress.unwrap();
    assert_eq!(writing.number, 1);
    assert_eq!(writing.directory, format!("/scratch/alice/{id}"));
    assert_eq!(writing.release_reason, None);
    let shown = alice.allocation(id).await.unwrap();
    assert_eq!(
        shown.checkpoint.unwrap().trigger.as_deref(),
        Some("automatic")
    );
}

/// A name is a detail: responses that mention ended allocations do not wait for a quorum that does not answer.
#[tokio::test]
async fn unread_names_do_not_delay_a_response() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let (mut ended, mut lost) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        let first = submit(&fixture, "alice", &job("atlas/web", 1)).await;
        let text = format!("afterok:{first}");
        lost.push(submit(&fixture, "alice", &after(text)).await);
        alice.cancel(first).await.unwrap();
        ended.push(first);
    }
    fixture.settled().await;
    let unread = ended.clone();
    fixture.store.leave_unanswered(
        move |query| matches!(query, Query::Allocation { id } if unread.contains(id)),
    );
    let begun = std::time::Instant::now();
    let all = AllocationFilter::default();
    let list = alice.allocations(&all).await.unwrap();
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    for (first, second) in ended.iter().zip(&lost) {
        let shown = list.iter().find(|a| a.id == *second).unwrap();
        let stop = shown.stop.as_deref().unwrap();
        assert!(stop.contains(&format!("allocation {first} ")), "{stop}");
    }
}

/// The output of an element is in the record of its array, which only the quorum has once the array ended.
#[tokio::test]
async fn unread_array_does_not_delay_its_element() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let array = submit(&fixture, "alice", &array("0")).await;
    let placed = AllocationId(array.0 + 1);
    fixture.assign(placed, &["gpu001"]).await;
    fixture.begins(placed, "gpu001").await;
    let exit = RankExit::Exited { code: 0 };
    fixture.ends(placed, "gpu001", exit).await;
    assert!(alice.allocation(placed).await.unwrap().output.is_some());
    let of_array = Query::Allocation { id: array };
    let store = &fixture.store;
    store.leave_unanswered(move |query| *query == of_array);
    let begun = std::time::Instant::now();
    let shown = alice.allocation(placed).await.unwrap();
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    assert_eq!(shown.state, "completed");
    assert!(shown.output.is_none(), "{shown:?}");
}
