#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::view::{NodeEntry, Seen};
use lattice_placement::Health;
use lattice_quorum_types::{
    AllocationId, ProjectPath, Revision, UnixMillis, VclusterName,
    allocation::Rank,
    node::{Holder, Lifecycle, Node},
    spec::{AllocationSpec, Constraints, Requeue, Workload},
};

const KEY: AttemptKey = AttemptKey {
    allocation: AllocationId(7),
    attempt: 2,
};

fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn entry(name: &str, generation: u64) -> Arc<NodeEntry> {
    let vcluster = VclusterName::new("default").unwrap();
    let record = Node {
        id: id(name),
        lifecycle: Lifecycle::Ready,
        drain: Vec::new(),
        holder: Some(Holder {
            allocation: KEY.allocation,
            attempt: KEY.attempt,
        }),
        version: 1,
        home: vcluster.clone(),
        current: vcluster,
        registered_at: UnixMillis(0),
        revision: Revision(1),
    };
    let seen = Seen {
        cell: "c0".to_owned(),
        addr: "127.0.0.1:1".parse().unwrap(),
        marks: BTreeMap::new(),
        document: None,
        health: Health::Healthy,
        health_reasons: Vec::new(),
        boot_id: None,
        generation,
        agent_version: None,
        group: None,
        heard: true,
    };
    Arc::new(NodeEntry {
        record: Some(record),
        seen: Some(seen),
        ..NodeEntry::new(id(name))
    })
}

/// One allocation, running on `a` and only assigned on `b`.
fn view(state: AllocationState, generation: u64) -> View {
    let at = UnixMillis(10);
    let rank = |node: &str, phase| Rank {
        node: id(node),
        phase,
    };
    let allocation = Allocation {
        id: KEY.allocation,
        user: "alice".to_owned(),
        spec: AllocationSpec {
            name: None,
            project: ProjectPath::new("atlas").unwrap(),
            vcluster: VclusterName::new("default").unwrap(),
            nodes: 2,
            workload: Workload::default(),
            walltime_ms: None,
            class: 5,
            sensitive: false,
            constraints: Constraints::default(),
            requeue: Requeue::Never,
            hold: false,
        },
        state,
        state_since: at,
        submitted_at: at,
        eligible_at: at,
        started_at: None,
        ended_at: None,
        attempt: KEY.attempt,
        ranks: vec![
            rank("a", RankPhase::Running { at }),
            rank("b", RankPhase::Assigned),
        ],
        stop: None,
        revision: Revision(1),
    };
    let entries = [entry("a", generation), entry("b", generation)];
    let mut view = View {
        nodes: Arc::new(entries.map(|e| (e.id.clone(), e)).into_iter().collect()),
        ..View::default()
    };
    view.set_allocation(allocation);
    view
}

#[test]
fn only_ranks_that_run_are_looked_for() {
    let expected = Running::from([(id("a"), BTreeSet::from([KEY]))]);
    assert_eq!(running(&view(AllocationState::Running, 1)), expected);
    assert_eq!(running(&view(AllocationState::Starting, 1)), expected);
    assert!(running(&view(AllocationState::Stopping, 1)).is_empty());
}

#[test]
fn an_agent_is_asked_at_once_when_it_is_another_one() {
    let now = Instant::now();
    let asked = Asked {
        generation: 1,
        next: now + ASK_EVERY,
    };
    let asked = BTreeMap::from([(id("a"), asked)]);
    let asks = |generation, now, asked: &BTreeMap<_, _>| {
        let view = view(AllocationState::Running, generation);
        due(&view, &running(&view), asked, now)
    };
    assert_eq!(asks(1, now, &BTreeMap::new()), [(id("a"), 1)]);
    assert_eq!(asks(1, now, &asked), []);
    assert_eq!(asks(2, now, &asked), [(id("a"), 2)]);
    assert_eq!(asks(1, now + ASK_EVERY, &asked), [(id("a"), 1)]);
}
