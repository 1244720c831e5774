//! Watch continuity: a watch across changes of the leader: each event arrives once and in order, from any member.

use super::{PROGRAM, others};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Event, Revision,
    view::{Answer, Query, WatchItem},
};
use lattice_tests::{
    members::{IDS, Members, caught_up, led},
    recorder::{Recorder, prepare},
    wait::{PATIENCE, until},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::time::timeout;

const KILLS: usize = 5;

/// Received events by revision and ordinal.
type WatchedEvents = Arc<Mutex<BTreeMap<(Revision, u32), Event>>>;

/// Adds events; each must arrive once, after all earlier ones.
fn take(seen: &WatchedEvents, events: Vec<Event>) -> Option<Revision> {
    let mut seen = seen.lock().unwrap();
    let mut last = None;
    for event in events {
        let place = (event.revision, event.ordinal);
        let newest = seen.last_key_value().map(|(place, _)| *place);
        assert!(newest < Some(place), "{place:?} after {newest:?}");
        last = Some(event.revision);
        seen.insert(place, event);
    }
    last
}

/// One watch for the whole test, which resumes by itself.
async fn hold(client: QuorumClient, since: Revision, seen: WatchedEvents) {
    let mut watch = client.watch(since);
    while let Some(item) = watch.next().await {
        match item {
            WatchItem::Events(events) => drop(take(&seen, events)),
            WatchItem::Idle(_) => {}
            WatchItem::Compacted { oldest } => panic!("compacted at {oldest}"),
        }
    }
    panic!("the watch ended");
}

/// A new watch every few events, from the end of the previous one.
async fn resume(client: QuorumClient, mut since: Revision, seen: WatchedEvents) {
    loop {
        let mut watch = client.watch(since);
        for _ in 0..3 {
            match watch.next().await {
                Some(WatchItem::Events(events)) => since = take(&seen, events).unwrap_or(since),
                Some(WatchItem::Idle(at)) => assert!(at >= since, "{at} after {since}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn newest(seen: &WatchedEvents) -> Option<Revision> {
    let seen = seen.lock().unwrap();
    seen.last_key_value().map(|((revision, _), _)| *revision)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_comes_once_over_five_killed_leaders() {
    let mut members = Members::prepare(PROGRAM, "");
    members.start_all();
    let client = members.client("c1");
    prepare(&client, &[]).await;
    led(&client, &IDS).await;
    let Answer::Revision(since) = client.read(Query::Revision).await.unwrap() else {
        panic!("no revision");
    };
    let (held, resumed) = (WatchedEvents::default(), WatchedEvents::default());
    let watchers = [
        tokio::spawn(hold(members.client("c2"), since, held.clone())),
        tokio::spawn(resume(members.client("c3"), since, resumed.clone())),
    ];
    let recorder = Recorder::start(&client, "watched", 16);
    for _ in 0..KILLS {
        recorder.writes(200).await;
        let (leader, _) = led(&client, &IDS).await;
        members.member(leader).kill();
        led(&client, &others(leader)).await;
        recorder.writes(100).await;
        members.member(leader).start();
        caught_up(&client, leader).await;
    }
    let acknowledged = recorder.stop().await;
    let last = acknowledged.iter().map(|done| done.revision).max();
    until("both watches have told everything", || {
        let ended = watchers.iter().any(tokio::task::JoinHandle::is_finished);
        ended || [&held, &resumed].iter().all(|seen| newest(seen) >= last)
    })
    .await;
    for watcher in watchers {
        assert!(!watcher.is_finished(), "a watch ended: {:?}", watcher.await);
        watcher.abort();
    }
    let mut held = held.lock().unwrap().clone();
    let mut resumed = resumed.lock().unwrap().clone();
    // One watch may be ahead of the other by the members' own commands.
    held.retain(|(revision, _), _| Some(*revision) <= last);
    resumed.retain(|(revision, _), _| Some(*revision) <= last);
    assert!(held == resumed, "two watches told different things");
    for done in &acknowledged {
        let first = (done.revision, 0);
        assert!(held.contains_key(&first), "never watched: {done:?}");
    }
    // All events of each revision: ordinals have no gap.
    let mut before: Option<(Revision, u32)> = None;
    for (revision, ordinal) in held.keys() {
        let expected = match before {
            Some((same, last)) if same == *revision => last + 1,
            _ => 0,
        };
        assert_eq!(*ordinal, expected, "of {revision}");
        before = Some((*revision, *ordinal));
    }
    println!(
        "{} events of {} acknowledged records over {KILLS} leaders, each once, twice the same",
        held.len(),
        acknowledged.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_before_snapshot_is_reported() {
    let mut members = Members::prepare(PROGRAM, "snapshot_every: 100\n");
    members.start_all();
    let client = members.client("c1");
    prepare(&client, &[]).await;
    let recorder = Recorder::start(&client, "old", 1);
    recorder.writes(300).await;
    let acknowledged = recorder.stop().await;
    let Answer::Revision(revision) = client.read(Query::Revision).await.unwrap() else {
        panic!("no revision");
    };
    members.kill_all();
    members.start_all();
    led(&client, &IDS).await;
    let mut watch = client.watch(Revision(1));
    let first = timeout(PATIENCE, watch.next()).await.unwrap();
    let Some(WatchItem::Compacted { oldest }) = first else {
        panic!("{first:?}");
    };
    assert!(
        oldest > Revision(1) && oldest <= revision,
        "{oldest} of {revision}"
    );
    assert_eq!(watch.next().await, None);
    // From the oldest revision that can be watched, no event is missing.
    let seen = WatchedEvents::default();
    let mut watch = client.watch(oldest);
    let mut delivered = oldest;
    while delivered < revision {
        delivered = match timeout(PATIENCE, watch.next()).await.unwrap() {
            Some(WatchItem::Events(events)) => take(&seen, events).unwrap_or(delivered),
            Some(WatchItem::Idle(upto)) => upto,
            other => panic!("{other:?}"),
        };
    }
    let seen = seen.lock().unwrap();
    for done in acknowledged.iter().filter(|done| done.revision > oldest) {
        assert!(seen.contains_key(&(done.revision, 0)), "not told: {done:?}");
    }
}
