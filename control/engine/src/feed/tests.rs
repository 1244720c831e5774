#![expect(clippy::panic, clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_quorum_types::{ProjectPath, UnixMillis, event::EventKind};

fn revision(n: u64) -> Change {
    let path = match ProjectPath::new("atlas") {
        Ok(path) => path,
        Err(e) => panic!("{e}"),
    };
    let event = Event {
        revision: Revision(n),
        ordinal: 0,
        at: UnixMillis(n),
        kind: EventKind::ProjectDeleted { path },
    };
    Change::Events(Arc::from([event]))
}

fn keeping(changes: usize) -> Feed {
    let bytes = 1 << 20;
    Feed::with_bounds(Bounds { changes, bytes })
}

/// An observation of one node.
fn seen(n: u32) -> Change {
    let id = NodeId::new(format!("gpu{n:03}")).unwrap();
    Change::Observed(Arc::new(Observed {
        nodes: BTreeSet::from([id]),
        ..Observed::default()
    }))
}

/// The nodes of all observations before the next event.
fn observed(subscription: &mut Subscription) -> Vec<String> {
    match subscription.try_next() {
        Some(Change::Observed(seen)) => seen.nodes.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn numbers(subscription: &mut Subscription) -> Vec<u64> {
    std::iter::from_fn(|| subscription.try_next())
        .map(|change| match change {
            Change::Events(events) => events[0].revision.0,
            Change::Observed(_) => 0,
            Change::Compacted { oldest } => 1_000 + oldest.0,
        })
        .collect()
}

#[test]
fn a_reader_resumes_after_its_revision_and_misses_nothing() {
    let feed = Arc::new(keeping(10));
    feed.publish([revision(1), revision(2), revision(3)]);
    let mut late = feed.subscribe(Some(Revision(1)));
    let mut now = feed.subscribe(None);
    feed.publish([Change::Observed(Arc::default()), revision(4)]);
    assert_eq!(numbers(&mut late), [2, 3, 0, 4]);
    assert_eq!(numbers(&mut now), [0, 4]);
}

#[test]
fn lagging_reader_is_notified() {
    let feed = Arc::new(keeping(2));
    let mut slow = feed.subscribe(None);
    feed.publish([revision(1), revision(2), revision(3), revision(4)]);
    assert_eq!(numbers(&mut slow), [1_002, 3, 4]);
    let mut old = feed.subscribe(Some(Revision(1)));
    assert_eq!(numbers(&mut old), [1_002, 3, 4]);
}

#[test]
fn a_reset_reaches_readers_that_had_read_everything() {
    let feed = Arc::new(keeping(10));
    let mut reader = feed.subscribe(None);
    feed.reset(Revision(70));
    feed.publish([revision(71)]);
    assert_eq!(numbers(&mut reader), [1_070, 71]);
}

#[test]
fn resuming_reader_gets_later_observations() {
    let feed = Arc::new(keeping(10));
    feed.publish([revision(1), seen(1), revision(2), seen(2), seen(3)]);
    // The reader has everything up to 2; the last two observations were made while it was disconnected.
    let mut back = feed.subscribe(Some(Revision(2)));
    assert_eq!(observed(&mut back), ["gpu002", "gpu003"]);
    assert!(back.try_next().is_none());
    let mut further = feed.subscribe(Some(Revision(1)));
    assert_eq!(observed(&mut further), ["gpu001"]);
    assert_eq!(numbers(&mut further), [2, 0]);
    // A subscription without a revision starts now.
    let mut now = feed.subscribe(None);
    assert_eq!(now.after(), Revision(2));
    assert!(now.try_next().is_none());
}

#[test]
fn quiet_state_needs_no_restart() {
    let feed = Arc::new(keeping(2));
    feed.publish([revision(1), revision(2), seen(1), seen(2), seen(3)]);
    // Revision 2 and the first observation are no longer kept themselves.
    let mut back = feed.subscribe(Some(Revision(2)));
    assert_eq!(observed(&mut back), ["gpu001", "gpu002", "gpu003"]);
    assert!(back.try_next().is_none());
    assert_eq!(numbers(&mut feed.subscribe(Some(Revision(1)))), [1_002, 0]);
}

fn allocation(n: u64, script: usize, ranks: usize) -> Change {
    use lattice_quorum_types::{
        Allocation, AllocationId, AllocationState, VclusterName,
        allocation::{Rank, RankPhase},
        event::AllocationChange,
        spec::{AllocationSpec, Workload},
    };
    let rank = |n: usize| Rank {
        boot: None,
        node: NodeId::new(format!("gpu{n:05}")).unwrap(),
        phase: RankPhase::Assigned,
    };
    let workload = Workload {
        script: Some("x".repeat(script)),
        ..Workload::default()
    };
    let spec = AllocationSpec {
        name: None,
        project: ProjectPath::new("atlas").unwrap(),
        vcluster: VclusterName::new("default").unwrap(),
        nodes: 1,
        workload,
        walltime_ms: None,
        class: 5,
        sensitive: false,
        constraints: Default::default(),
        requeue: Default::default(),
        hold: false,
        demand: Default::default(),
        terms: Default::default(),
    };
    let record = Arc::new(Allocation {
        id: AllocationId(n),
        user: "alice".to_owned(),
        spec,
        state: AllocationState::Running,
        state_since: UnixMillis(n),
        submitted_at: UnixMillis(n),
        eligible_at: UnixMillis(n),
        started_at: None,
        ended_at: None,
        attempt: 1,
        ranks: (0..ranks).map(rank).collect(),
        stop: None,
        revision: Revision(n),
        progress: Default::default(),
    });
    let change = AllocationChange::Progressed;
    Change::Events(Arc::from([Event {
        revision: Revision(n),
        ordinal: 0,
        at: UnixMillis(n),
        kind: EventKind::Allocation { change, record },
    }]))
}

#[test]
fn what_is_kept_is_bounded_in_bytes_and_workloads_are_not_kept() {
    let feed = Arc::new(keeping(10_000));
    // Small records with large scripts all fit.
    feed.publish((1..=500).map(|n| allocation(n, 64 << 10, 1)));
    assert_eq!(numbers(&mut feed.subscribe(Some(Revision(0)))).len(), 500);
    // Records of a thousand ranks exceed the limit: older changes are dropped.
    let mut slow = feed.subscribe(None);
    feed.publish((501..=600).map(|n| allocation(n, 0, 1_000)));
    let ring = feed.ring();
    let (kept, bytes) = (ring.changes.len(), ring.bytes);
    drop(ring);
    assert!(bytes <= 1 << 20 && kept < 20, "{kept} of {bytes} bytes");
    let oldest = 600 - kept as u64;
    let received = numbers(&mut slow);
    assert_eq!(received[..2], [1_000 + oldest, oldest + 1]);
    assert_eq!(received.last(), Some(&600));
    // A change that is too large by itself is reported as lost.
    feed.publish([allocation(601, 0, 100_000)]);
    assert_eq!(numbers(&mut slow), [1_601]);
}
