//! What the cluster must do.

use crate::{
    bed::{Bed, PATIENCE, TOKEN, loopback, node, refused, shows, submit},
    scenario,
};
use bytes::Bytes;
use futures::StreamExt;
use lattice_client::{AllocationRequest, SubmitOptions};
use lattice_control::{Change, Core};
use lattice_hwprobe::{Class, Scope, Verdict};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Refusal, Revision,
    allocation::{RankExit, RankPhase, StopCause},
    command::{ExpectedNode, Fence, Power, Principal},
    event::EventKind,
    id::LeaseName,
    node::Lifecycle,
    wire::LogStream,
};
use std::time::{Duration, Instant};
use tokio::time::timeout;

const NODES: [&str; 5] = ["gpu001", "gpu002", "gpu003", "gpu004", "gpu005"];
/// Submits that come at once.
const BURST: u32 = 60;
/// Submits that are timed.
const TIMED: usize = 100;

pub async fn run(filter: Option<&str>) {
    let mut bed = Bed::found().await;
    let founded = agents_become_nodes(&mut bed);
    scenario(
        "agents_become_nodes_and_the_odd_one_is_found",
        None,
        founded,
    )
    .await;
    macro_rules! play {
        ($name:literal, $run:expr) => {
            scenario($name, filter, $run).await;
        };
    }
    play!(
        "a_submit_runs_to_completion_and_its_output_is_read",
        completes(&bed)
    );
    play!("a_cancel_ends_every_rank", cancel(&bed));
    play!("a_failing_rank_ends_the_rest", failing_rank(&bed));
    play!("a_submit_beyond_a_limit_is_refused", beyond_a_limit(&bed));
    play!("changes_come_once_and_in_order", changes(&bed));
    play!("the_public_port_tells_and_does_the_same", public_port(&bed));
    play!("a_burst_of_submits_is_all_run", burst(&bed));
    play!("submit_to_running", latency(&bed));
    play!(
        "work_goes_on_while_its_agent_restarts",
        agent_restart(&mut bed)
    );
    play!(
        "work_goes_on_without_control_and_is_told_when_it_is_back",
        control_restart(&mut bed)
    );
    play!(
        "a_silent_node_is_suspect_and_gets_no_work",
        silent_node(&mut bed)
    );
    play!(
        "an_agent_that_will_not_run_it_stops_it",
        refusing_agent(&mut bed)
    );
    play!(
        "work_goes_on_after_the_leader_of_the_quorum_is_gone",
        leader_gone(&mut bed)
    );
    play!(
        "another_control_takes_over_and_the_old_epoch_is_over",
        takeover(&mut bed)
    );
    bed.stop().await;
}

async fn agents_become_nodes(bed: &mut Bed) {
    for name in NODES {
        bed.start_agent(name, |_| {}).await;
    }
    let core = bed.core();
    shows(&core, "five ready, alive, healthy nodes", |view| {
        let ready = view.nodes.values().filter(|node| {
            let record = node.record.as_ref();
            record.is_some_and(|r| r.lifecycle == Lifecycle::Ready)
                && node.liveness == Liveness::Alive
                && node.facts().gpu_count == Some(8)
        });
        (ready.count() == NODES.len()).then_some(())
    })
    .await;
    let drift = shows(&core, "drift", |view| {
        (!view.drift.drifts.is_empty()).then(|| view.drift.clone())
    })
    .await;
    let odd: Vec<_> = drift
        .drifts
        .iter()
        .map(|d| (d.node.as_str(), d.key.as_str()))
        .collect();
    assert_eq!(odd, [("gpu005", "nic.0.firmware")]);
    assert_eq!(core.view().drifted_keys(&node("gpu005")), 1);
    let groups = core.conformance_groups(Scope::Class(Class::Nic)).groups;
    let sizes: Vec<usize> = groups.iter().map(|group| group.nodes.len()).collect();
    assert_eq!(sizes, [4, 1]);
    let differences = core.diff(&node("gpu001"), &node("gpu005")).await.unwrap();
    let differs = differences.iter().filter(|d| d.verdict == Verdict::Differs);
    let keys: Vec<&str> = differs.map(|d| d.key.as_str()).collect();
    assert_eq!(keys, ["nic.0.firmware"]);
    bed.create_project("atlas", 120).await;
    bed.create_project("atlas/web", 50).await;
}

async fn completes(bed: &Bed) {
    let script = "echo rank $LATTICE_NODE_RANK of $LATTICE_NODELIST in $LATTICE_ALLOCATION_ID";
    let id = bed.submit(2, script).await;
    let ended = bed
        .reaches(id, &[AllocationState::Completed, AllocationState::Failed])
        .await;
    assert_eq!(ended.state, AllocationState::Completed, "{ended:?}");
    let nodes = lattice_quorum_types::hostlist::fold(ended.nodes());
    for rank in 0..2 {
        let expected = format!("rank {rank} of {nodes} in {id}\n");
        assert_eq!(output(&bed.core(), id, rank).await, expected);
    }
    shows(&bed.core(), "free nodes", |view| {
        let held = view
            .nodes
            .values()
            .filter_map(|n| n.record.as_ref()?.holder)
            .count();
        (held == 0).then_some(())
    })
    .await;
}

async fn output(core: &Core, id: AllocationId, rank: u32) -> String {
    let chunks = core
        .read_log(id, rank, LogStream::Stdout, 0, true)
        .await
        .unwrap();
    let chunks: Vec<_> = timeout(PATIENCE, chunks.collect::<Vec<_>>()).await.unwrap();
    let bytes: Vec<u8> = chunks
        .into_iter()
        .flat_map(|c: Result<Bytes, _>| c.unwrap())
        .collect();
    String::from_utf8(bytes).unwrap()
}

async fn cancel(bed: &Bed) {
    let id = bed.submit(3, "exec sleep 600").await;
    bed.reaches(id, &[AllocationState::Running]).await;
    bed.admin(Command::Cancel { id }).await;
    let ended = bed.reaches(id, &[AllocationState::Cancelled]).await;
    assert_eq!(
        exits(&ended),
        [RankExit::Stopped, RankExit::Stopped, RankExit::Stopped]
    );
}

fn exits(allocation: &lattice_quorum_types::Allocation) -> Vec<RankExit> {
    let exit = |rank: &lattice_quorum_types::allocation::Rank| match &rank.phase {
        RankPhase::Ended { exit, .. } => exit.clone(),
        other => panic!("{other:?}"),
    };
    allocation.ranks.iter().map(exit).collect()
}

async fn failing_rank(bed: &Bed) {
    let script = "if [ $LATTICE_NODE_RANK = 1 ]; then exit 3; fi; exec sleep 600";
    let id = bed.submit(3, script).await;
    let ended = bed.reaches(id, &[AllocationState::Failed]).await;
    let exit = RankExit::Exited { code: 3 };
    assert_eq!(
        exits(&ended),
        [RankExit::Stopped, exit.clone(), RankExit::Stopped]
    );
    assert_eq!(ended.stop, Some(StopCause::RankFailed { rank: 1, exit }));
}

async fn beyond_a_limit(bed: &Bed) {
    let principal = Principal {
        name: "root".to_owned(),
        power: Power::Admin,
    };
    let proposed = bed
        .core()
        .propose(principal, None, submit(51, "true"))
        .await;
    let refusal = refused(proposed.unwrap_err());
    assert!(
        matches!(
            refusal,
            Refusal::LimitExceeded { .. } | Refusal::TooLarge { .. }
        ),
        "{refusal}"
    );
}

async fn changes(bed: &Bed) {
    let core = bed.core();
    let since = core.view().revision;
    let mut live = core.subscribe(None);
    let id = bed.submit(1, "true").await;
    bed.reaches(id, &[AllocationState::Completed]).await;
    let mut late = core.subscribe(Some(since));
    let mut states = Vec::new();
    let (mut of_live, mut of_late) = (Vec::new(), Vec::new());
    while let Some(change) = live.try_next() {
        of_live.extend(revision(&change));
    }
    while let Some(change) = late.try_next() {
        of_late.extend(revision(&change));
        if let Change::Events(events) = change {
            for event in events.iter() {
                if let EventKind::Allocation { record, .. } = &event.kind
                    && record.id == id
                {
                    states.push(record.state);
                }
            }
        }
    }
    assert_eq!(of_live, of_late);
    assert!(of_live.is_sorted() && of_live[0] > since);
    states.dedup();
    use AllocationState::{Completed, Pending, Running, Starting};
    assert!(
        states == [Pending, Starting, Running, Completed]
            || states == [Pending, Starting, Completed],
        "{states:?}"
    );
}

fn revision(change: &Change) -> Option<Revision> {
    match change {
        Change::Events(events) => Some(events[0].revision),
        Change::Observed(_) => None,
        Change::Compacted { .. } => panic!("compacted"),
    }
}

async fn public_port(bed: &Bed) {
    let client = bed.client(TOKEN);
    let nodes = client.nodes().await.unwrap();
    let alive = nodes
        .iter()
        .filter(|n| n.liveness == "alive" && n.lifecycle == "ready");
    assert_eq!(alive.count(), NODES.len());
    client.drain("gpu001", "a loose cable").await.unwrap();
    let request = AllocationRequest {
        project: "atlas/web".to_owned(),
        nodes: NODES.len() as u32 - 1,
        argv: vec!["/bin/true".to_owned()],
        ..AllocationRequest::default()
    };
    let submitted = client
        .submit(&request, SubmitOptions::default())
        .await
        .unwrap();
    let id = submitted.id.unwrap();
    let ended = bed.reaches(id, &[AllocationState::Completed]).await;
    assert_eq!(ended.user, "root");
    assert!(ended.nodes().all(|id| *id != node("gpu001")));
    assert_eq!(client.allocation(id).await.unwrap().state, "completed");
    client.undrain("gpu001").await.unwrap();
    let stranger = bed.client("a-secret-that-nobody-was-given");
    assert!(stranger.nodes().await.is_err());
}

/// Far more than fits at a time; every third fails.
async fn burst(bed: &Bed) {
    let began = Instant::now();
    let job = |n: u32| async move {
        let code = u32::from(n.is_multiple_of(3));
        let id = bed
            .submit(n % 4 + 1, &format!("sleep 0.02; exit {code}"))
            .await;
        let ends = [AllocationState::Completed, AllocationState::Failed];
        (code, bed.reaches(id, &ends).await)
    };
    let ended = futures::future::join_all((0..BURST).map(job)).await;
    for (code, allocation) in &ended {
        let expected = [AllocationState::Completed, AllocationState::Failed][*code as usize];
        assert_eq!(allocation.state, expected, "{allocation:?}");
        assert_eq!(allocation.attempt, 1);
    }
    println!(
        "{BURST} allocations of 1 to 4 of {} nodes in {:?}",
        NODES.len(),
        began.elapsed()
    );
}

/// Prints what it measures; the bound is far above it, for busy machines.
async fn latency(bed: &Bed) {
    use AllocationState::{Pending, Running, Starting};
    let core = bed.core();
    let mut took: [Vec<Duration>; 3] = Default::default();
    for _ in 0..TIMED {
        let mut changes = core.subscribe(None);
        let began = Instant::now();
        let id = bed.submit(1, "exec sleep 600").await;
        let mut seen = [None; 3];
        while seen[2].is_none() {
            let change = timeout(PATIENCE, changes.next()).await.unwrap();
            for (at, state) in [Pending, Starting, Running].into_iter().enumerate() {
                if shows_state(&change, id, state) {
                    seen[at].get_or_insert(began.elapsed());
                }
            }
        }
        for (all, one) in took.iter_mut().zip(seen) {
            all.extend(one);
        }
        bed.admin(Command::Cancel { id }).await;
        bed.reaches(id, &[AllocationState::Cancelled]).await;
    }
    for (what, took) in ["pending", "starting", "running"]
        .into_iter()
        .zip(&mut took)
    {
        took.sort();
        let (p50, p99) = (took[TIMED / 2], took[TIMED * 99 / 100 - 1]);
        println!("submit to {what}, {TIMED} times: p50 {p50:?}, p99 {p99:?}");
    }
    assert!(took[2][TIMED / 2] < Duration::from_secs(2));
}

fn shows_state(change: &Change, id: AllocationId, state: AllocationState) -> bool {
    let Change::Events(events) = change else {
        return false;
    };
    events.iter().any(|event| match &event.kind {
        EventKind::Allocation { record, .. } => record.id == id && record.state == state,
        _ => false,
    })
}

/// A file that ranks wait for.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        Self(folder)
    }
    fn then(&self, what: &str) -> String {
        let file = self.0.path().join("open");
        format!(
            "while [ ! -e {} ]; do sleep 0.05; done; {what}",
            file.display()
        )
    }
    fn open(&self) {
        std::fs::write(self.0.path().join("open"), "").unwrap();
    }
}

async fn agent_restart(bed: &mut Bed) {
    let gate = Gate::new();
    let id = bed.submit(NODES.len() as u32, &gate.then("exit 0")).await;
    bed.reaches(id, &[AllocationState::Running]).await;
    bed.stop_agent("gpu002").await;
    bed.start_agent("gpu002", |_| {}).await;
    gate.open();
    let ends = [AllocationState::Completed, AllocationState::Failed];
    let ended = bed.reaches(id, &ends).await;
    assert_eq!(ended.state, AllocationState::Completed, "{ended:?}");
    assert_eq!(ended.attempt, 1);
}

async fn control_restart(bed: &mut Bed) {
    let gate = Gate::new();
    let id = bed.submit(3, &gate.then("exit $LATTICE_NODE_RANK")).await;
    bed.reaches(id, &[AllocationState::Running]).await;
    let control = bed.control.take().unwrap();
    let addr = control.mesh_addr();
    control.stop().await;
    gate.open();
    bed.control = Some(bed.new_control("c1", addr).await);
    let ended = bed.reaches(id, &[AllocationState::Failed]).await;
    assert_eq!(ended.attempt, 1);
    assert!(
        matches!(ended.stop, Some(StopCause::RankFailed { .. })),
        "{ended:?}"
    );
}

async fn leader_gone(bed: &mut Bed) {
    let running = bed.submit(2, "sleep 0.5").await;
    bed.reaches(running, &[AllocationState::Running]).await;
    let began = Instant::now();
    bed.stop_leader().await;
    let next = bed.submit(3, "true").await;
    bed.reaches(running, &[AllocationState::Completed]).await;
    bed.reaches(next, &[AllocationState::Completed]).await;
    println!(
        "both allocations ended {:?} after the leader began to stop",
        began.elapsed()
    );
}

async fn silent_node(bed: &mut Bed) {
    let core = bed.core();
    let alive = |view: &lattice_control::View| {
        let alive = view
            .nodes
            .values()
            .filter(|n| n.liveness == Liveness::Alive);
        (alive.count() == NODES.len()).then_some(())
    };
    shows(&core, "all nodes alive", alive).await;
    let began = Instant::now();
    bed.stop_agent("gpu003").await;
    let stopped = began.elapsed();
    shows(&core, "a suspect node", |view| {
        let liveness = view.node(&node("gpu003"))?.liveness;
        (liveness == Liveness::Suspect).then_some(())
    })
    .await;
    println!(
        "suspect {:?} after its agent began to stop (stopped after {stopped:?})",
        began.elapsed()
    );
    let waits = bed.submit(NODES.len() as u32, "true").await;
    let why = shows(&core, "an explanation", |view| {
        view.plan.explanations.get(&waits).map(ToString::to_string)
    })
    .await;
    assert!(why.contains("4 alive"), "{why}");
    let fits = bed.submit(NODES.len() as u32 - 1, "true").await;
    bed.admin(Command::Cancel { id: waits }).await;
    let ended = bed.reaches(fits, &[AllocationState::Completed]).await;
    assert!(ended.nodes().all(|id| *id != node("gpu003")));
    bed.start_agent("gpu003", |_| {}).await;
    shows(&core, "all nodes alive again", alive).await;
}

async fn refusing_agent(bed: &mut Bed) {
    bed.stop_agent("gpu004").await;
    bed.start_agent("gpu004", |settings| settings.executor.enabled = false)
        .await;
    let core = bed.core();
    shows(&core, "all nodes alive", |view| {
        let alive = view
            .nodes
            .values()
            .filter(|n| n.liveness == Liveness::Alive);
        (alive.count() == NODES.len()).then_some(())
    })
    .await;
    let id = bed.submit(NODES.len() as u32, "exec sleep 600").await;
    let ended = bed.reaches(id, &[AllocationState::Failed]).await;
    let Some(StopCause::RankFailed {
        exit: RankExit::SpawnFailed { reason },
        ..
    }) = &ended.stop
    else {
        panic!("{ended:?}");
    };
    assert!(reason.contains("gpu004"), "{reason}");
    println!("the cause as shown: {}", ended.stop.as_ref().unwrap());
    bed.stop_agent("gpu004").await;
    bed.start_agent("gpu004", |_| {}).await;
}

async fn takeover(bed: &mut Bed) {
    let old = bed.core();
    let epoch = lease_epoch(bed).await;
    let second = bed.new_control("c2", loopback()).await;
    let core = second.core().unwrap();
    // It sees the state and does not act while the first one does.
    shows(&core, "the replicated state", |view| {
        (view.revision > Revision(0)).then_some(())
    })
    .await;
    assert!(!core.view().acting);
    bed.control.take().unwrap().stop().await;
    shows(&core, "leases", |view| view.acting.then_some(())).await;
    bed.control = Some(second);
    let node = core
        .view()
        .nodes
        .values()
        .find_map(|n| n.record.clone())
        .unwrap();
    let held = bed.admin(Command::Submit { spec: held_spec() }).await;
    let lattice_quorum_types::Outcome::Submitted { id } = held else {
        panic!("{held:?}")
    };
    let stale = lattice_quorum_types::Envelope {
        schema: lattice_quorum_types::command::SCHEMA,
        principal: Principal {
            name: format!("service:control/{}", old.name()),
            power: Power::Service,
        },
        key: None,
        at: old.now(),
        fence: Some(Fence {
            lease: LeaseName::new("schedule").unwrap(),
            epoch,
        }),
        command: Command::Assign {
            id,
            nodes: vec![ExpectedNode {
                node: node.id,
                version: node.version,
            }],
        },
    };
    let mesh = bed.control.as_ref().unwrap().mesh().clone();
    let client = lattice_quorum_client::QuorumClient::new(mesh, bed.members());
    let refusal = client.propose(stale).await.unwrap().unwrap_err();
    assert!(matches!(refusal, Refusal::StaleEpoch { .. }), "{refusal}");
    bed.admin(Command::Cancel { id }).await;
}

fn held_spec() -> Box<lattice_quorum_types::spec::AllocationSpec> {
    let Command::Submit { mut spec } = submit(1, "true") else {
        unreachable!()
    };
    spec.hold = true;
    spec
}

/// The epoch under which scheduling goes on now.
async fn lease_epoch(bed: &Bed) -> u64 {
    let mesh = bed.control.as_ref().unwrap().mesh().clone();
    let client = lattice_quorum_client::QuorumClient::new(mesh, bed.members());
    let mut watching = client.watch(Revision(0));
    let mut epoch = 0;
    let now = bed.core().view().revision;
    loop {
        match timeout(PATIENCE, watching.next()).await.unwrap().unwrap() {
            lattice_quorum_types::view::WatchItem::Events(events) => {
                for event in &events {
                    if let EventKind::Lease {
                        lease,
                        epoch: given,
                        ..
                    } = &event.kind
                        && lease.as_str() == "schedule"
                    {
                        epoch = *given;
                    }
                    if event.revision >= now {
                        return epoch;
                    }
                }
            }
            lattice_quorum_types::view::WatchItem::Idle(revision) if revision >= now => {
                return epoch;
            }
            lattice_quorum_types::view::WatchItem::Idle(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
