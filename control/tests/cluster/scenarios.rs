//! Required behaviour of the cluster.

use crate::{
    faults,
    fixture::{ClusterFixture, PATIENCE, TOKEN, node, refused, shows, submit},
    loss,
    scenario_groups::Group,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use lattice_agent_rpc::LogStream;
use lattice_client::{AllocationRequest, LogOptions, SubmitOptions};
use lattice_conformance::{Class, KeyVerdict, Scope};
use lattice_control::Config;
use lattice_engine::{Change, Core, Subscription};
use lattice_mesh::{Credentials, JoinToken, Role};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Refusal, Revision,
    allocation::{RankExit, RankPhase, StopCause},
    command::{Principal, Privilege, TokenGrant},
    event::{Event, EventKind},
    node::Lifecycle,
};
use secrecy::ExposeSecret;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;

pub const NODES: [&str; 5] = ["gpu001", "gpu002", "gpu003", "gpu004", "gpu005"];
/// Number of submissions made at once.
const BURST: u32 = 60;
/// Number of timed submissions.
const TIMED: usize = 100;

pub fn group() -> Group {
    Group::new("scenarios", || Box::pin(founded()))
        // The cluster of each scenario starts this way, and this scenario needs no more.
        .scenario("agents_become_nodes_and_the_odd_one_is_found", |_| {
            Box::pin(async {})
        })
        .scenario(
            "a_submit_runs_to_completion_and_its_output_is_read",
            |cluster| Box::pin(completes(cluster)),
        )
        .scenario("a_cancel_ends_every_rank", |cluster| {
            Box::pin(cancel(cluster))
        })
        .scenario("a_failing_rank_ends_the_rest", |cluster| {
            Box::pin(failing_rank(cluster))
        })
        .scenario("a_submit_beyond_a_limit_is_refused", |cluster| {
            Box::pin(beyond_a_limit(cluster))
        })
        .scenario("changes_come_once_and_in_order", |cluster| {
            Box::pin(changes(cluster))
        })
        .scenario("the_public_port_tells_and_does_the_same", |cluster| {
            Box::pin(public_port(cluster))
        })
        .scenario("a_control_enrols_with_a_token", |cluster| {
            Box::pin(enrols(cluster))
        })
        .scenario("a_burst_of_submits_is_all_run", |cluster| {
            Box::pin(burst(cluster))
        })
        .scenario("submit_to_running", |cluster| Box::pin(latency(cluster)))
        .scenario("work_goes_on_while_its_agent_restarts", |cluster| {
            Box::pin(faults::agent_restart(cluster))
        })
        .scenario(
            "work_goes_on_without_control_and_is_told_when_it_is_back",
            |cluster| Box::pin(faults::control_restart(cluster)),
        )
        .scenario("a_silent_node_is_suspect_and_gets_no_work", |cluster| {
            Box::pin(faults::silent_node(cluster))
        })
        .scenario("an_agent_that_will_not_run_it_stops_it", |cluster| {
            Box::pin(faults::refusing_agent(cluster))
        })
        .scenario(
            "a_node_that_cannot_record_work_is_kept_out_and_the_work_waits",
            |cluster| Box::pin(faults::broken_journal(cluster)),
        )
        .scenario("work_whose_record_its_agent_lost_is_stopped", |cluster| {
            Box::pin(faults::lost_record(cluster))
        })
        .scenario(
            "a_rank_of_a_rebooted_node_is_lost_with_evidence_and_started_once_per_attempt",
            |cluster| Box::pin(loss::rebooted_node(cluster)),
        )
        .scenario(
            "what_was_assigned_under_a_boot_that_was_over_runs_once_and_under_the_next",
            |cluster| Box::pin(loss::booted_before_the_launch(cluster)),
        )
        .scenario(
            "a_node_that_only_control_does_not_reach_stays_suspect",
            |cluster| Box::pin(loss::cut_off_from_control(cluster)),
        )
        .scenario(
            "work_on_a_node_lost_for_long_is_stopped_and_the_node_stays_held",
            |cluster| Box::pin(loss::lost_for_long(cluster)),
        )
        .scenario(
            "what_runs_on_a_node_taken_by_force_is_ended_before_anything_new",
            |cluster| Box::pin(loss::taken_by_force(cluster)),
        )
        .scenario(
            "sensitive_work_runs_where_nodes_claim_what_was_planned_on",
            |cluster| Box::pin(loss::sensitive_work(cluster)),
        )
        .scenario(
            "a_revoked_agent_is_let_go_and_comes_back_with_a_new_certificate",
            |cluster| Box::pin(loss::revoked_agent(cluster)),
        )
        .scenario("control_restarts_at_every_step", |cluster| {
            Box::pin(loss::control_restart_at_every_step(cluster))
        })
        .scenario(
            "work_goes_on_after_the_leader_of_the_quorum_is_gone",
            |cluster| Box::pin(faults::leader_gone(cluster)),
        )
        .scenario(
            "another_control_takes_over_and_the_old_epoch_is_over",
            |cluster| Box::pin(faults::takeover(cluster)),
        )
}

async fn founded() -> ClusterFixture {
    let mut cluster = ClusterFixture::found().await;
    agents_become_nodes(&mut cluster).await;
    cluster
}

async fn agents_become_nodes(cluster: &mut ClusterFixture) {
    for name in NODES {
        cluster.start_agent(name, |_| {}).await;
    }
    let core = cluster.core();
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
        (!view.cohort_drift.drifts.is_empty()).then(|| view.cohort_drift.clone())
    })
    .await;
    let odd: Vec<_> = drift
        .drifts
        .iter()
        .map(|d| (d.node.as_str(), d.key.as_str()))
        .collect();
    assert_eq!(odd, [("gpu005", "nic.0.firmware")]);
    assert_eq!(core.view().drifted_keys(&node("gpu005")), Some(1));
    let groups = core.conformance_groups(Scope::Class(Class::Nic)).groups;
    let sizes: Vec<usize> = groups.iter().map(|group| group.nodes.len()).collect();
    assert_eq!(sizes, [4, 1]);
    let records = cluster.control.as_ref().unwrap().records().unwrap();
    let (usual, odd) = (node("gpu001"), node("gpu005"));
    let differences = records.diff(&usual, &odd).await.unwrap();
    let differs = differences
        .iter()
        .filter(|d| d.verdict == KeyVerdict::Differs);
    let keys: Vec<&str> = differs.map(|d| d.key.as_str()).collect();
    assert_eq!(keys, ["nic.0.firmware"]);
    cluster.create_project("atlas", 120).await;
    cluster.create_project("atlas/web", 50).await;
}

async fn completes(cluster: &ClusterFixture) {
    let script = "echo rank $LATTICE_NODE_RANK of $LATTICE_NODELIST in $LATTICE_ALLOCATION_ID";
    let id = cluster.submit(2, script).await;
    let ended = cluster
        .reaches(id, &[AllocationState::Completed, AllocationState::Failed])
        .await;
    assert_eq!(ended.state, AllocationState::Completed, "{ended:?}");
    let nodes = lattice_quorum_types::hostlist::fold(ended.nodes());
    for rank in 0..2 {
        let expected = format!("rank {rank} of {nodes} in {id}\n");
        assert_eq!(output(&cluster.core(), id, rank).await, expected);
    }
    shows(&cluster.core(), "free nodes", |view| {
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

async fn cancel(cluster: &ClusterFixture) {
    let id = cluster.submit(3, "exec sleep 600").await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    cluster.admin(Command::Cancel { id }).await;
    let ended = cluster.reaches(id, &[AllocationState::Cancelled]).await;
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

async fn failing_rank(cluster: &ClusterFixture) {
    let script = "if [ $LATTICE_NODE_RANK = 1 ]; then exit 3; fi; exec sleep 600";
    let id = cluster.submit(3, script).await;
    let ended = cluster.reaches(id, &[AllocationState::Failed]).await;
    let exit = RankExit::Exited { code: 3 };
    assert_eq!(
        exits(&ended),
        [RankExit::Stopped, exit.clone(), RankExit::Stopped]
    );
    assert_eq!(ended.stop, Some(StopCause::RankFailed { rank: 1, exit }));
}

async fn beyond_a_limit(cluster: &ClusterFixture) {
    let principal = Principal {
        name: "root".to_owned(),
        privilege: Privilege::Admin,
    };
    let proposed = cluster
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

async fn changes(cluster: &ClusterFixture) {
    let core = cluster.core();
    let mut live = core.subscribe(None);
    // Events already in the view may still be on their way to the subscription.
    let since = core.view().revision;
    let id = cluster.submit(1, "true").await;
    let ended = cluster.reaches(id, &[AllocationState::Completed]).await;
    let of_live = changes_until(&mut live, ended.revision).await;
    let of_live: Vec<_> = of_live
        .into_iter()
        .filter(|events| events[0].revision > since)
        .collect();
    // The late subscription receives all of them, as the live one did.
    let of_late = changes_until(&mut core.subscribe(Some(since)), ended.revision).await;
    let mut states = Vec::new();
    for event in of_late.iter().flat_map(|events| events.iter()) {
        if let EventKind::Allocation { record, .. } = &event.kind
            && record.id == id
        {
            states.push(record.state);
        }
    }
    let revisions = |batches: &[Arc<[Event]>]| -> Vec<Revision> {
        batches.iter().map(|events| events[0].revision).collect()
    };
    let (of_live, of_late) = (revisions(&of_live), revisions(&of_late));
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

/// Events received up to a revision.
async fn changes_until(changes: &mut Subscription, last: Revision) -> Vec<Arc<[Event]>> {
    let mut batches = Vec::new();
    let all = async {
        loop {
            match changes.next().await {
                Change::Events(events) => {
                    let is_last = events[0].revision >= last;
                    batches.push(events);
                    if is_last {
                        return;
                    }
                }
                Change::Observed(_) => {}
                Change::Compacted { .. } => panic!("compacted"),
            }
        }
    };
    timeout(PATIENCE, all).await.unwrap();
    batches
}

async fn public_port(cluster: &ClusterFixture) {
    let client = cluster.client(TOKEN);
    let all_alive = async {
        loop {
            let nodes = client.nodes().await.unwrap();
            let alive = nodes
                .iter()
                .filter(|n| n.liveness == "alive" && n.lifecycle == "ready");
            if alive.count() == NODES.len() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, all_alive).await.unwrap();
    client.drain("gpu001", "a loose cable").await.unwrap();
    let request = AllocationRequest {
        project: "atlas/web".to_owned(),
        nodes: NODES.len() as u32 - 1,
        argv: ["/bin/sh", "-c", "sleep 0.3; echo late"]
            .map(str::to_owned)
            .to_vec(),
        ..AllocationRequest::default()
    };
    let submitted = client
        .submit(&request, SubmitOptions::default())
        .await
        .unwrap();
    let id = submitted.id.unwrap();
    // Immediately, before the allocation has a node.
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let output = client.logs(id, follow).await.unwrap();
    let output: Vec<_> = timeout(PATIENCE, output.try_collect())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(output.concat(), b"late\n");
    let ended = cluster.reaches(id, &[AllocationState::Completed]).await;
    assert_eq!(ended.user, "root");
    // Control answers from what it has received from the quorum.
    timeout(PATIENCE, cluster.core().reached(ended.revision))
        .await
        .unwrap();
    assert!(ended.nodes().all(|id| *id != node("gpu001")));
    assert_eq!(client.allocation(id).await.unwrap().state, "completed");
    client.undrain("gpu001").await.unwrap();
    let stranger = cluster.client("a-secret-that-nobody-was-given");
    assert!(stranger.nodes().await.is_err());
}

async fn enrols(cluster: &ClusterFixture) {
    let token = JoinToken::generate(Role::Control, cluster.founder.authority.pin());
    cluster
        .admin(Command::CreateToken {
            grant: TokenGrant {
                hash: token.hash(),
                role: Role::Control,
                names: None,
                cidrs: Vec::new(),
                uses: 1,
                replace: false,
                expires_at: cluster.core().now().after(60_000),
            },
        })
        .await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let file = folder.path().join("token");
    std::fs::write(&file, token.expose().expose_secret()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    let text = format!(
        "{{cluster: test, listen: '127.0.0.1:0', credentials: {path}/identity, cells: [], \
         quorum: ['{}'], join: {{name: c7, token: {path}/token}}, tokens: none, \
         https: {{listen: '127.0.0.1:0', certificate: none, key: none}}}}",
        cluster.members()[0]
    );
    let none = std::iter::empty();
    let config = lattice_config::load(lattice_config::Source::Text(&text), none, "LATTICE_");
    let config: Config = config.unwrap();
    let cancel = tokio_util::sync::CancellationToken::new();
    assert!(lattice_control::enrol(&config, &cancel).await.unwrap());
    let enrolled = Credentials::load(&folder.path().join("identity")).unwrap();
    assert_eq!(enrolled.identity().uri(), "spiffe://test/control/c7");
    // An enrolled member does not request enrolment again.
    assert!(!lattice_control::enrol(&config, &cancel).await.unwrap());
}

/// Far more than fits at a time; every third allocation fails.
async fn burst(cluster: &ClusterFixture) {
    let began = Instant::now();
    let job = |n: u32| async move {
        let code = u32::from(n.is_multiple_of(3));
        let id = cluster
            .submit(n % 4 + 1, &format!("sleep 0.02; exit {code}"))
            .await;
        let ends = [AllocationState::Completed, AllocationState::Failed];
        (code, cluster.reaches(id, &ends).await)
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

/// Prints the measurements; the bound is far above them, for busy machines.
async fn latency(cluster: &ClusterFixture) {
    use AllocationState::{Pending, Running, Starting};
    let core = cluster.core();
    let mut took: [Vec<Duration>; 3] = Default::default();
    for _ in 0..TIMED {
        let mut changes = core.subscribe(None);
        let began = Instant::now();
        let id = cluster.submit(1, "exec sleep 600").await;
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
        cluster.admin(Command::Cancel { id }).await;
        cluster.reaches(id, &[AllocationState::Cancelled]).await;
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
