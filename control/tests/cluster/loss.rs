//! Nodes that are lost, cut off, rebooted, taken by force, or revoked.

use crate::faults::GateFile;
use crate::fixture::{ClusterFixture, PATIENCE, node, shows, submit};
use crate::relay::Relay;
use crate::scenarios::NODES;
use lattice_engine::{Change, Subscription};
use lattice_mesh::Role;
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Outcome,
    allocation::{RankExit, RankPhase, StopCause},
    command::ExpectedNode,
    event::EventKind,
    spec::Requeue,
};
use lattice_view::View;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Submits a script for exactly these nodes.
async fn submit_on(
    cluster: &ClusterFixture,
    nodes: &[&str],
    requeue: Requeue,
    script: &str,
) -> AllocationId {
    let count = u32::try_from(nodes.len()).unwrap();
    let Command::Submit { mut spec } = submit(count, script) else {
        unreachable!()
    };
    spec.requeue = requeue;
    spec.constraints.nodelist = nodes.iter().map(|name| node(name)).collect();
    match cluster.admin(Command::Submit { spec }).await {
        Outcome::Submitted { id } => id,
        other => panic!("{other:?}"),
    }
}

fn is(view: &View, name: &str, word: Liveness) -> Option<String> {
    let entry = view.node(&node(name))?;
    (entry.liveness == word).then(|| entry.liveness_reason.clone().unwrap_or_default())
}

/// Waits for the last start of each agent: the view of a restarted agent shows the previous state for a while.
async fn all_alive_and_ready(cluster: &ClusterFixture) {
    shows(&cluster.core(), "all nodes alive and ready", |view| {
        let fit = view.nodes.values().filter(|n| {
            let ready = n.record.as_ref().is_some_and(|r| {
                r.drain.is_empty() && r.holder.is_none() && r.lifecycle.as_str() == "ready"
            });
            n.liveness == Liveness::Alive && ready && cluster.is_current(n)
        });
        (fit.count() == NODES.len()).then_some(())
    })
    .await;
}

/// Every record of an allocation that a subscription received.
fn records(changes: &mut Subscription, id: AllocationId) -> Vec<Allocation> {
    let mut found = Vec::new();
    while let Some(change) = changes.try_next() {
        let Change::Events(events) = change else {
            continue;
        };
        for event in events.iter() {
            if let EventKind::Allocation { record, .. } = &event.kind
                && record.id == id
            {
                found.push((**record).clone());
            }
        }
    }
    found
}

/// Drain reason of the dispatcher for a node, as soon as it is set.
async fn kept_out(changes: &mut Subscription, name: &str) -> String {
    loop {
        let Change::Events(events) = changes.next().await else {
            continue;
        };
        for event in events.iter() {
            if let EventKind::Node { record } = &event.kind
                && record.id == node(name)
                && let Some(own) = record.drain.iter().find(|d| d.owner == "service:dispatch")
            {
                return own.reason.clone();
            }
        }
    }
}

/// Lines of a file that ranks write.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits for a condition outside the cluster.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let within = tokio::time::timeout(PATIENCE, wait).await;
    assert!(within.is_ok(), "{what}");
}

pub async fn rebooted_node(cluster: &mut ClusterFixture) {
    let core = cluster.core();
    all_alive_and_ready(cluster).await;
    let gate = GateFile::new();
    let starts = gate.file("starts");
    let script = format!("echo $LATTICE_ATTEMPT >> {}\n", starts.display());
    let script = script + &gate.then("exit 0");
    let mut changes = core.subscribe(None);
    let id = submit_on(cluster, &["gpu003"], Requeue::Once, &script).await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    // An allocation is running before its script has done anything.
    until("the first start", || lines(&starts).len() == 1).await;
    // The machine reboots and has lost its disk.
    cluster.stop_agent("gpu003").await;
    cluster
        .start_agent_with(
            "gpu003",
            |settings| settings.data_dir = settings.data_dir.join("after-the-boot"),
            |edges| edges.boot_id = "b007-2".to_owned(),
        )
        .await;
    let again = shows(&core, "a second attempt", |view| {
        let held = view.allocation(id)?;
        let runs = held.attempt == 2 && held.state == AllocationState::Running;
        runs.then(|| held.clone())
    })
    .await;
    assert_eq!(again.ranks[0].boot.as_deref(), Some("b007-2"));
    let first = records(&mut changes, id);
    let lost = first.iter().find_map(|record| match &record.ranks[..] {
        [rank] if record.attempt == 1 => match &rank.phase {
            RankPhase::Ended { exit, .. } => Some((exit.clone(), record.stop.clone())),
            _ => None,
        },
        _ => None,
    });
    let (exit, stop) = lost.expect("the end of the first attempt");
    let RankExit::Lost { evidence } = exit else {
        panic!("{exit:?}")
    };
    println!("the evidence: {evidence}");
    assert!(evidence.contains("boot id b007-2"), "{evidence}");
    assert_eq!(
        stop,
        Some(StopCause::NodeLost {
            node: node("gpu003")
        })
    );
    until("two starts", || lines(&starts).len() == 2).await;
    gate.open();
    let ended = cluster.reaches(id, &[AllocationState::Completed]).await;
    assert_eq!(ended.attempt, 2);
    assert_eq!(lines(&starts), ["1", "2"], "one start in each attempt");
    cluster.stop_agent("gpu003").await;
    cluster.start_agent("gpu003", |_| {}).await;
    all_alive_and_ready(cluster).await;
}

/// The node reboots between its last ping and the launch.
pub async fn booted_before_the_launch(cluster: &mut ClusterFixture) {
    let core = cluster.core();
    all_alive_and_ready(cluster).await;
    let entry = core.view().node(&node("gpu003")).unwrap().clone();
    let (before, record) = (entry.boot.clone().unwrap(), entry.record.clone().unwrap());
    let gate = GateFile::new();
    let starts = gate.file("starts");
    let Command::Submit { mut spec } =
        submit(1, &format!("echo $LATTICE_ATTEMPT >> {}", starts.display()))
    else {
        unreachable!()
    };
    // Control would never place this allocation by itself; the test assigns it.
    spec.constraints.gpu_models = vec!["none of them".to_owned()];
    let Outcome::Submitted { id } = cluster.admin(Command::Submit { spec }).await else {
        panic!("not submitted")
    };
    let assign = |version: u64, boot: String| Command::Assign {
        id,
        nodes: vec![ExpectedNode {
            node: node("gpu003"),
            version,
            boot: Some(boot),
        }],
    };
    cluster.stop_agent("gpu003").await;
    cluster.admin(assign(record.version, before.clone())).await;
    cluster.reaches(id, &[AllocationState::Starting]).await;
    cluster
        .start_agent_with(
            "gpu003",
            |_| {},
            |edges| edges.boot_id = "b007-3".to_owned(),
        )
        .await;
    let waits = cluster
        .reaches(id, &[AllocationState::Pending, AllocationState::Failed])
        .await;
    let exit = match &waits.ranks[0].phase {
        RankPhase::Ended { exit, .. } => exit.to_string(),
        other => panic!("{other:?}"),
    };
    println!("the evidence: {exit}");
    assert_eq!(waits.state, AllocationState::Pending, "{waits:?}");
    let evidence = "lost: never started: node rebooted before the launch was accepted";
    assert!(exit.starts_with(evidence), "{exit}");
    assert!(exit.contains(&format!("expected {before})")), "{exit}");
    let version = shows(&core, "the node free under its boot", |view| {
        let entry = view.node(&node("gpu003"))?;
        let record = entry.record.as_ref().filter(|r| r.is_assignable())?;
        (entry.boot.as_deref() == Some("b007-3")).then_some(record.version)
    })
    .await;
    cluster.admin(assign(version, "b007-3".to_owned())).await;
    let ended = cluster
        .reaches(id, &[AllocationState::Completed, AllocationState::Failed])
        .await;
    assert_eq!(
        (ended.state, ended.attempt),
        (AllocationState::Completed, 2),
        "{ended:?}"
    );
    assert_eq!(lines(&starts), ["2"], "nothing of the first attempt ran");
    cluster.stop_agent("gpu003").await;
    cluster.start_agent("gpu003", |_| {}).await;
    all_alive_and_ready(cluster).await;
}

pub async fn cut_off_from_control(cluster: &mut ClusterFixture) {
    let core = cluster.core();
    cluster.stop_agent("gpu002").await;
    let relay = Relay::open().await;
    let advertised = relay.addr();
    cluster
        .start_agent("gpu002", |settings| {
            settings.gossip.advertise = Some(advertised);
        })
        .await;
    relay.lead_to(cluster.agents[&node("gpu002")].addr());
    all_alive_and_ready(cluster).await;
    let gate = GateFile::new();
    let id = submit_on(cluster, &["gpu002"], Requeue::Never, &gate.then("exit 0")).await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    let began = Instant::now();
    relay.cut(cluster.control.as_ref().unwrap().mesh_addr());
    let why = shows(&core, "a suspect that others reach", |view| {
        is(view, "gpu002", Liveness::Suspect).filter(|why| why.contains(" reaches it"))
    })
    .await;
    println!("after {:?}: {why}", began.elapsed());
    assert!(
        why.starts_with("does not answer control, but gpu0"),
        "{why}"
    );
    // Longer than an unreached node takes to become unreachable, and its allocation to be stopped.
    let mut changes = core.subscribe(None);
    let watched = tokio::time::timeout(cluster.lost_within() * 5 / 4, async {
        loop {
            changes.next().await;
            let word = core.view().node(&node("gpu002")).unwrap().liveness;
            assert_ne!(word, Liveness::Unreachable);
        }
    });
    assert!(watched.await.is_err());
    assert_eq!(cluster.allocation(id).await.state, AllocationState::Running);
    relay.heal();
    shows(&core, "the node alive again", |view| {
        is(view, "gpu002", Liveness::Alive)
    })
    .await;
    gate.open();
    cluster.reaches(id, &[AllocationState::Completed]).await;
    cluster.stop_agent("gpu002").await;
    cluster.start_agent("gpu002", |_| {}).await;
    all_alive_and_ready(cluster).await;
}

pub async fn lost_for_long(cluster: &mut ClusterFixture) {
    let core = cluster.core();
    all_alive_and_ready(cluster).await;
    let gate = GateFile::new();
    let nodes = ["gpu003", "gpu004"];
    let id = submit_on(cluster, &nodes, Requeue::Never, &gate.then("exit 0")).await;
    let running = cluster.reaches(id, &[AllocationState::Running]).await;
    let began = Instant::now();
    cluster.stop_agent("gpu004").await;
    let why = shows(&core, "an unreachable node", |view| {
        is(view, "gpu004", Liveness::Unreachable)
    })
    .await;
    println!("unreachable after {:?}: {why}", began.elapsed());
    assert!(why.starts_with("answers neither control nor gpu"), "{why}");
    // The other rank is ended; the lost node is not released.
    let stopping = shows(&core, "a rank ended and a node still held", |view| {
        let held = view.allocation(id)?;
        let over = |name| {
            let rank = held.ranks.iter().find(|rank| rank.node == node(name));
            matches!(rank.map(|r| &r.phase), Some(RankPhase::Ended { .. }))
        };
        (over("gpu003") && !over("gpu004")).then(|| held.clone())
    })
    .await;
    println!("stopped {:?} after the agent was gone", began.elapsed());
    assert_eq!(stopping.state, AllocationState::Stopping);
    let lost = StopCause::NodeLost {
        node: node("gpu004"),
    };
    assert_eq!(stopping.stop, Some(lost.clone()));
    let holder = core.view().node(&node("gpu004")).unwrap().record.clone();
    assert_eq!(holder.unwrap().holder.map(|h| h.allocation), Some(id));
    // The agent of the lost node returns, ends the rank and reports it.
    cluster.start_agent("gpu004", |_| {}).await;
    let ended = cluster.reaches(id, &[AllocationState::Failed]).await;
    assert_eq!((ended.attempt, ended.stop), (running.attempt, Some(lost)));
    all_alive_and_ready(cluster).await;
}

pub async fn taken_by_force(cluster: &mut ClusterFixture) {
    let core = cluster.core();
    all_alive_and_ready(cluster).await;
    let gate = GateFile::new();
    let (ended, starts) = (gate.file("ended"), gate.file("starts"));
    let script = format!(
        "trap 'echo ended > {}; exit 9' TERM\necho x >> {}\n",
        ended.display(),
        starts.display()
    );
    let script = script + &gate.then("exit 0");
    let id = submit_on(cluster, &["gpu001"], Requeue::Never, &script).await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    until("its trap is set", || lines(&starts).len() == 1).await;
    cluster.stop_agent("gpu001").await;
    cluster
        .admin(Command::ForceRelease {
            node: node("gpu001"),
            reason: "the rack is on fire".to_owned(),
            expected: None,
        })
        .await;
    let failed = cluster.reaches(id, &[AllocationState::Failed]).await;
    let exit = match &failed.ranks[0].phase {
        RankPhase::Ended { exit, .. } => exit.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(exit, RankExit::Lost { .. }), "{exit:?}");
    assert!(!ended.exists(), "its processes live on");
    // The operator was wrong: the node returns, and the processes there are ended first. Its drain ends soon, so the
    // test checks events rather than state.
    let mut changes = core.subscribe(None);
    cluster.start_agent("gpu001", |_| {}).await;
    let reason = tokio::time::timeout(PATIENCE, kept_out(&mut changes, "gpu001")).await;
    let reason = reason.expect("the dispatcher's drain reason");
    println!("kept out: {reason}");
    assert!(
        reason.contains(&format!("allocation {id} attempt 1")),
        "{reason}"
    );
    until("the orphan is ended", || ended.exists()).await;
    shows(&core, "only the person's reason left", |view| {
        let record = view.node(&node("gpu001"))?.record.as_ref()?;
        (record.drain.len() == 1 && record.drain[0].owner == "root").then_some(())
    })
    .await;
    let client = cluster.client(crate::fixture::TOKEN);
    client.undrain("gpu001").await.unwrap();
    let next = submit_on(cluster, &["gpu001"], Requeue::Never, "exit 0").await;
    cluster.reaches(next, &[AllocationState::Completed]).await;
    assert_eq!(lines(&starts).len(), 1);
    gate.open();
}

/// Each node of a sensitive allocation attests its current state.
pub async fn sensitive_work(cluster: &ClusterFixture) {
    let core = cluster.core();
    all_alive_and_ready(cluster).await;
    let Command::Submit { mut spec } = submit(4, "exit 0") else {
        unreachable!()
    };
    spec.sensitive = true;
    let began = Instant::now();
    let Outcome::Submitted { id } = cluster.admin(Command::Submit { spec }).await else {
        panic!("not submitted")
    };
    let ended = cluster.reaches(id, &[AllocationState::Completed]).await;
    println!("four claims and the work took {:?}", began.elapsed());
    // The fifth node has another NIC firmware.
    assert!(ended.nodes().all(|id| *id != node("gpu005")));
    let view = core.view();
    let refused = view
        .nodes
        .values()
        .filter_map(|n| n.attestation_fault.as_ref());
    assert_eq!(refused.collect::<Vec<_>>(), Vec::<&String>::new());
}

pub async fn revoked_agent(cluster: &mut ClusterFixture) {
    let core = cluster.core();
    all_alive_and_ready(cluster).await;
    let mesh = cluster.control.as_ref().unwrap().mesh().clone();
    let connected = |name: &str| {
        let all = mesh.connections();
        all.iter()
            .any(|peer| peer.role() == Role::Agent && peer.id() == name)
    };
    until("it is connected", || connected("gpu005")).await;
    let before = mesh.trust_state().number;
    let began = Instant::now();
    cluster
        .admin(Command::RevokeCertificates {
            name: "gpu005".to_owned(),
            role: Role::Agent,
            reason: "its key was seen elsewhere".to_owned(),
        })
        .await;
    until("its connections are closed", || {
        mesh.trust_state().number > before && !connected("gpu005")
    })
    .await;
    println!("control let go of it after {:?}", began.elapsed());
    let number = mesh.trust_state().number;
    let has = |name: &str| cluster.agents[&node(name)].mesh().trust_state().number >= number;
    let others = || NODES.iter().filter(|name| **name != "gpu005");
    // The two waits are independent, and an unreached suspect does not stay suspect for long.
    let refused = async {
        until("every other agent has it", || {
            others().all(|name| has(name))
        })
        .await;
        println!(
            "every agent has bundle {number} after {:?}",
            began.elapsed()
        );
    };
    let suspected = async {
        let why = shows(&core, "a suspect node", |view| {
            is(view, "gpu005", Liveness::Suspect)
        })
        .await;
        println!("suspect after {:?}: {why}", began.elapsed());
    };
    tokio::join!(refused, suspected);
    // With a certificate issued later, the agent is a member again.
    cluster.stop_agent("gpu005").await;
    cluster.start_agent("gpu005", |_| {}).await;
    all_alive_and_ready(cluster).await;
}

/// Control is stopped as soon as an allocation reaches each state; the next control continues.
pub async fn control_restart_at_every_step(cluster: &mut ClusterFixture) {
    use AllocationState::{Cancelled, Completed, Pending, Running, Starting, Stopping};
    for step in [Pending, Starting, Running, Stopping] {
        all_alive_and_ready(cluster).await;
        let gate = GateFile::new();
        let starts = gate.file("starts");
        let script = format!(
            "trap 'sleep 0.5; exit 9' TERM\necho $LATTICE_NODE_RANK >> {}\n",
            starts.display()
        );
        let script = script + &gate.then("exit 0");
        let mut changes = cluster.core().subscribe(None);
        let id = cluster.submit(2, &script).await;
        if step == Stopping {
            cluster.reaches(id, &[Running]).await;
            // Ranks are running before their script has done anything.
            until("two starts", || lines(&starts).len() == 2).await;
            cluster.admin(Command::Cancel { id }).await;
        }
        let reached = async {
            loop {
                if let Change::Events(events) = changes.next().await
                    && events.iter().any(|event| match &event.kind {
                        EventKind::Allocation { record, .. } => {
                            record.id == id && record.state == step
                        }
                        _ => false,
                    })
                {
                    return;
                }
            }
        };
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "{step}");
        let control = cluster.control.take().unwrap();
        let addr = control.mesh_addr();
        control.stop().await;
        cluster.control = Some(cluster.new_control("c1", addr).await);
        let ended = if step == Stopping {
            cluster.reaches(id, &[Cancelled]).await
        } else {
            cluster.reaches(id, &[Running]).await;
            gate.open();
            cluster.reaches(id, &[Completed]).await
        };
        assert_eq!(ended.attempt, 1, "{step}");
        let mut ranks = lines(&starts);
        ranks.sort();
        assert_eq!(ranks, ["0", "1"], "{step}: each rank started once");
        println!(
            "control restarted when it was {step}: ended {}",
            ended.state
        );
    }
}
