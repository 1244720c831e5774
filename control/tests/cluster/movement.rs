//! Preemption, lending and dependencies of jobs, with a real program that counts, writes checkpoints and restores them.

use crate::{
    fixture::{ClusterFixture, PATIENCE, node, shows, submit},
    scenario_groups::Group,
};
use lattice_client::LogOptions;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Outcome, VclusterName,
    allocation::StopCause,
    array::ArraySpec,
    checkpoint::CheckpointMode,
    dag::{DagSpec, DagState, Edge, MemberSpec},
    id::DagId,
    progress::MoveReason,
    scheduler::{CheckpointPatch, PreemptionPatch, SchedulerPatch, SettingPatch, SharingPatch},
    spec::{AllocationSpec, Requeue},
    terms::{CheckpointTerms, CheckpointTrigger, Condition, Dependency},
    vcluster::VclusterPatch,
    view::{Answer, Query},
};
use std::{collections::BTreeMap, time::Instant};
use tokio::time::timeout;

/// First argument that makes this process the counting program.
pub const PROGRAM: &str = "checkpointer";
const NODES: [&str; 2] = ["gpu001", "gpu002"];

pub fn group() -> Group {
    let mut group = Group::new("movement", || Box::pin(furnished()))
        .scenario("an_array_runs_all_its_elements", |cluster| {
            Box::pin(array(cluster))
        })
        .scenario("members_run_when_others_have_ended", |cluster| {
            Box::pin(dag(cluster))
        })
        .scenario("what_failed_is_caught_or_cancels_the_rest", |cluster| {
            Box::pin(caught(cluster))
        })
        .scenario("work_runs_past_the_walltime_it_began_with", |cluster| {
            Box::pin(extended(cluster))
        });
    for mode in CheckpointMode::ALL {
        let name = format!("work_makes_room_and_goes_on_from_its_checkpoint_{mode}");
        group = group.scenario(name, move |cluster| Box::pin(preempted(cluster, mode)));
    }
    group
        .scenario("a_checkpoint_that_pays_is_written", |cluster| {
            Box::pin(pays(cluster))
        })
        .scenario(
            "nodes_are_lent_and_come_back_when_they_are_needed",
            |cluster| Box::pin(lent(cluster)),
        )
}

async fn furnished() -> ClusterFixture {
    let mut cluster = ClusterFixture::found().await;
    furnish(&mut cluster).await;
    cluster
}

/// Two nodes, and a vCluster that preempts and lends without delay.
async fn furnish(cluster: &mut ClusterFixture) {
    for name in NODES {
        cluster.start_agent(name, |_| {}).await;
    }
    cluster.create_project("atlas", 100).await;
    cluster.create_project("atlas/web", 100).await;
    let settings = SchedulerPatch {
        preemption: PreemptionPatch {
            patience_ms: SettingPatch::Set(0),
            near_completion_ms: SettingPatch::Set(0),
            thrash_interval_ms: SettingPatch::Set(0),
            ..PreemptionPatch::default()
        },
        checkpoint: CheckpointPatch {
            timeout_ms: SettingPatch::Set(30_000),
            ..CheckpointPatch::default()
        },
        // An unused borrowed node returns after this time as well; the longest setting of all vClusters applies.
        sharing: SharingPatch {
            return_grace_ms: SettingPatch::Set(500),
            ..SharingPatch::default()
        },
        ..SchedulerPatch::default()
    };
    cluster
        .admin(Command::SetScheduler {
            vcluster: VclusterName::new("default").unwrap(),
            change: Box::default(),
            settings: Box::new(settings),
            expected_version: None,
        })
        .await;
    for name in NODES {
        shows(&cluster.core(), "a node in service", |view| {
            let entry = view.node(&node(name))?;
            entry.record.as_ref()?.is_assignable().then_some(())
        })
        .await;
    }
}

fn spec(nodes: u32, script: &str) -> AllocationSpec {
    match submit(nodes, script) {
        Command::Submit { spec } => *spec,
        other => panic!("{other:?}"),
    }
}

async fn submitted(cluster: &ClusterFixture, spec: AllocationSpec) -> AllocationId {
    let spec = Box::new(spec);
    match cluster.admin(Command::Submit { spec }).await {
        Outcome::Submitted { id } => id,
        other => panic!("{other:?}"),
    }
}

async fn output(cluster: &ClusterFixture, id: AllocationId) -> String {
    let client = cluster.client(crate::fixture::TOKEN);
    let logs = client.logs(id, LogOptions::default());
    let chunks: Vec<_> = futures::TryStreamExt::try_collect(logs.await.unwrap())
        .await
        .unwrap();
    let chunks: Vec<bytes::Bytes> = chunks;
    String::from_utf8(chunks.concat()).unwrap()
}

/// Elements of an array run concurrently, no more than its limit, each with its index.
async fn array(cluster: &ClusterFixture) {
    let mut spec = spec(
        1,
        "test $LATTICE_ARRAY_INDEX -ne 7 || exit 3\necho $LATTICE_ARRAY_INDEX",
    );
    spec.terms.array = Some("0-9%2".parse::<ArraySpec>().unwrap());
    let id = submitted(cluster, spec).await;
    let ended = cluster.reaches(id, &[AllocationState::Failed]).await;
    let tally = ended.progress.tally.unwrap();
    assert_eq!((tally.completed, tally.failed, tally.alive), (9, 1, 0));
    for place in 0..10 {
        let element = cluster.allocation(AllocationId(id.0 + 1 + place)).await;
        let index = element.progress.element.unwrap().index;
        assert_eq!(u64::from(index), place);
        assert!(element.spec.workload.script.is_none());
        let expected = match index {
            7 => AllocationState::Failed,
            _ => AllocationState::Completed,
        };
        assert_eq!(element.state, expected);
    }
    assert_eq!(output(cluster, AllocationId(id.0 + 4)).await, "3\n");
}

fn member(name: &str, script: &str, after: &[(&str, Condition)]) -> MemberSpec {
    let edge = |(member, condition): &(&str, Condition)| Edge {
        member: (*member).to_owned(),
        condition: *condition,
    };
    MemberSpec {
        name: name.to_owned(),
        spec: spec(1, script),
        after: after.iter().map(edge).collect(),
    }
}

/// The DAG once all of it has ended, and its members by name.
async fn graph(
    cluster: &ClusterFixture,
    members: Vec<MemberSpec>,
) -> (DagState, BTreeMap<String, Allocation>) {
    let name = "test".to_owned();
    let dag = Box::new(DagSpec { name, members });
    let id = match cluster.admin(Command::SubmitDag { dag }).await {
        Outcome::DagSubmitted { id } => id,
        other => panic!("{other:?}"),
    };
    let ended = async {
        let core = cluster.core();
        let mut changes = core.subscribe(None);
        loop {
            let found = read(cluster, id).await;
            if found.state != DagState::Running {
                return found;
            }
            changes.next().await;
        }
    };
    let ended = timeout(PATIENCE, ended).await.unwrap();
    let mut members = BTreeMap::new();
    for member in ended.members {
        members.insert(member.name, cluster.allocation(member.allocation).await);
    }
    (ended.state, members)
}

async fn read(cluster: &ClusterFixture, id: DagId) -> lattice_quorum_types::dag::Dag {
    match cluster.core().read(Query::Dag { id }).await.unwrap() {
        Answer::Dag(Some(found)) => *found,
        other => panic!("{other:?}"),
    }
}

async fn dag(cluster: &ClusterFixture) {
    use Condition::Success;
    let (state, members) = graph(
        cluster,
        vec![
            member("first", "exit 0", &[]),
            member("left", "exit 0", &[("first", Success)]),
            member("right", "exit 0", &[("first", Success)]),
            member(
                "last",
                "echo $LATTICE_DAG_MEMBER",
                &[("left", Success), ("right", Success)],
            ),
        ],
    )
    .await;
    assert_eq!(state, DagState::Completed);
    let ended = |name: &str| members[name].ended_at.unwrap();
    let began = |name: &str| members[name].started_at.unwrap();
    assert!(began("left") >= ended("first") && began("right") >= ended("first"));
    assert!(began("last") >= ended("left") && began("last") >= ended("right"));
    assert_eq!(output(cluster, members["last"].id).await, "last\n");
}

async fn caught(cluster: &ClusterFixture) {
    use Condition::{Any, Failure, Success};
    let (state, members) = graph(
        cluster,
        vec![
            member("works", "exit 0", &[]),
            member("breaks", "exit 1", &[]),
            member("mends", "exit 0", &[("breaks", Failure)]),
            member("goes_on", "exit 0", &[("breaks", Success)]),
            member("behind_it", "exit 0", &[("goes_on", Success)]),
            member("always", "exit 0", &[("goes_on", Any), ("works", Any)]),
        ],
    )
    .await;
    assert_eq!(state, DagState::Completed, "the failure was expected");
    use AllocationState::{Cancelled, Completed, Failed};
    for (name, expected) in [
        ("breaks", Failed),
        ("mends", Completed),
        ("goes_on", Cancelled),
        ("behind_it", Cancelled),
        ("always", Completed),
    ] {
        assert_eq!(members[name].state, expected, "{name}");
    }
    let on = members["breaks"].id;
    let cause = members["goes_on"].stop.clone().unwrap();
    assert!(matches!(cause, StopCause::Unsatisfiable { on: it, .. } if it == on));
}

/// A walltime extended during the run reaches every rank: the allocation ends by itself, after its first walltime. An
/// allocation with a shortened walltime is ended then.
async fn extended(cluster: &ClusterFixture) {
    const FIRST_MS: u64 = 3_000;
    let mut spec = spec(2, "sleep 5; echo rank $LATTICE_NODE_RANK");
    spec.walltime_ms = Some(FIRST_MS);
    let id = submitted(cluster, spec.clone()).await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    let walltime_ms = 600_000;
    cluster
        .admin(Command::SetWalltime { id, walltime_ms })
        .await;
    let done = cluster.reaches(id, &[AllocationState::Completed]).await;
    let ran_ms = done.ended_at.unwrap().since(done.started_at.unwrap());
    println!("  ran for {ran_ms} ms; {FIRST_MS} ms was its first walltime");
    assert!(ran_ms > FIRST_MS);
    assert_eq!(output(cluster, id).await, "rank 0\n");
    spec.walltime_ms = Some(600_000);
    spec.workload.script = Some("sleep 1000".to_owned());
    spec.requeue = Requeue::Never;
    let id = submitted(cluster, spec).await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    let walltime_ms = 5_000;
    cluster
        .admin(Command::SetWalltime { id, walltime_ms })
        .await;
    let ended = cluster.reaches(id, &[AllocationState::Failed]).await;
    assert_eq!(ended.stop, Some(StopCause::Walltime));
}

/// Script that counts up to `steps`, writing checkpoints where requested.
fn counting(steps: u64) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "exec {} {PROGRAM} --steps {steps} --step-ms 20\n",
        program.display()
    )
}

fn saving(
    cluster: &ClusterFixture,
    mode: CheckpointMode,
    nodes: u32,
    steps: u64,
) -> AllocationSpec {
    let mut spec = spec(nodes, &counting(steps));
    spec.class = 2;
    spec.requeue = Requeue::Never;
    spec.terms.checkpoint = Some(CheckpointTerms {
        mode,
        trigger: CheckpointTrigger::Manual,
        directory: Some(cluster.part("checkpoints").display().to_string()),
    });
    spec
}

/// A job of a higher class preempts one with checkpoints, which later continues from its checkpoint.
async fn preempted(cluster: &ClusterFixture, mode: CheckpointMode) {
    const STEPS: u64 = 150;
    let victim = submitted(cluster, saving(cluster, mode, 2, STEPS)).await;
    cluster.reaches(victim, &[AllocationState::Running]).await;
    // The victim has counted a little.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let mut urgent = spec(2, "exit 0");
    urgent.class = 8;
    let asked = Instant::now();
    let urgent = submitted(cluster, urgent).await;
    let found = cluster.reaches(urgent, &[AllocationState::Completed]).await;
    println!(
        "  {mode}: higher class done {} ms after its submit",
        asked.elapsed().as_millis()
    );
    assert!(found.started_at.is_some());
    let moved = cluster
        .reaches(
            victim,
            &[AllocationState::Running, AllocationState::Completed],
        )
        .await;
    let kept = moved.progress.kept.as_ref().unwrap();
    assert_eq!((kept.number, kept.attempt, moved.attempt), (1, 1, 2));
    assert_eq!(
        (moved.progress.preempted, moved.progress.failed_checkpoints),
        (1, 0)
    );
    let done = cluster.reaches(victim, &[AllocationState::Completed]).await;
    assert_eq!(done.eligible_at, done.submitted_at, "it kept its place");
    let said = output(cluster, victim).await;
    assert!(said.contains("restored"), "{said}");
    assert!(said.contains(&format!("done {STEPS}")), "{said}");
    let caused = MoveReason::Preempted { by: urgent };
    assert_eq!(
        caused.to_string(),
        format!("preempted by allocation {urgent}")
    );
}

/// With these intervals, a checkpoint is soon due.
async fn pays(cluster: &ClusterFixture) {
    let settings = SchedulerPatch {
        checkpoint: CheckpointPatch {
            min_interval_ms: SettingPatch::Set(500),
            max_interval_ms: SettingPatch::Set(1000),
            ..CheckpointPatch::default()
        },
        ..SchedulerPatch::default()
    };
    cluster
        .admin(Command::SetScheduler {
            vcluster: VclusterName::new("default").unwrap(),
            change: Box::default(),
            settings: Box::new(settings),
            expected_version: None,
        })
        .await;
    let mut spec = saving(cluster, CheckpointMode::Signal, 1, 400);
    if let Some(terms) = &mut spec.terms.checkpoint {
        terms.trigger = CheckpointTrigger::Automatic;
    }
    let after = spec.clone();
    let id = submitted(cluster, spec).await;
    let kept = shows(&cluster.core(), "a checkpoint that pays", |view| {
        view.allocation(id)?.progress.kept.clone()
    })
    .await;
    assert!(kept.number >= 1 && kept.bytes.is_some());
    // A dependent allocation waits for it, and then runs.
    let mut after = AllocationSpec {
        terms: Default::default(),
        ..after
    };
    after.workload.script = Some("exit 0".to_owned());
    after.terms.after = vec![Dependency {
        on: id,
        condition: Condition::Success,
    }];
    let after = submitted(cluster, after).await;
    assert_eq!(
        cluster.allocation(after).await.state,
        AllocationState::Blocked
    );
    cluster.reaches(id, &[AllocationState::Completed]).await;
    cluster.reaches(after, &[AllocationState::Completed]).await;
}

/// Home and current vCluster of both nodes.
fn node_vclusters(cluster: &ClusterFixture) -> Vec<(String, String)> {
    let view = cluster.core().view();
    let record = |name| view.node(&node(name))?.record.clone();
    let records = NODES.iter().filter_map(|name| record(name));
    let names = records.map(|r| (r.home.to_string(), r.current.to_string()));
    names.collect()
}

/// One vCluster has all nodes, the other all jobs: it borrows nodes, and returns them when the first has jobs of its
/// own. The jobs that ran there continue later, on nodes lent again.
async fn lent(cluster: &ClusterFixture) {
    let settings = SchedulerPatch {
        preemption: PreemptionPatch {
            enabled: SettingPatch::Set(false),
            near_completion_ms: SettingPatch::Set(0),
            ..PreemptionPatch::default()
        },
        sharing: SharingPatch {
            return_grace_ms: SettingPatch::Set(500),
            ..SharingPatch::default()
        },
        checkpoint: CheckpointPatch {
            timeout_ms: SettingPatch::Set(30_000),
            ..CheckpointPatch::default()
        },
        ..SchedulerPatch::default()
    };
    for name in ["owner", "guest"] {
        let described = VclusterPatch {
            description: Some("shares".to_owned()),
            ..VclusterPatch::default()
        };
        cluster
            .admin(Command::SetScheduler {
                vcluster: VclusterName::new(name).unwrap(),
                change: Box::new(described),
                settings: Box::new(settings),
                expected_version: None,
            })
            .await;
    }
    cluster
        .admin(Command::AssignVcluster {
            nodes: NODES.map(node).into(),
            vcluster: VclusterName::new("owner").unwrap(),
            from: Some(VclusterName::new("default").unwrap()),
        })
        .await;
    let of = |vcluster: &str, spec: AllocationSpec| AllocationSpec {
        vcluster: VclusterName::new(vcluster).unwrap(),
        ..spec
    };
    let guest = of("guest", saving(cluster, CheckpointMode::Signal, 1, 200));
    let guest = submitted(cluster, guest).await;
    let runs = cluster.reaches(guest, &[AllocationState::Running]).await;
    let lent: Vec<_> = node_vclusters(cluster)
        .into_iter()
        .filter(|(home, now)| home != now)
        .collect();
    assert_eq!(lent, [("owner".to_owned(), "guest".to_owned())]);
    assert_eq!(runs.kept_nodes().count(), 1);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;

    let asked = Instant::now();
    let own = submitted(cluster, of("owner", spec(2, "exit 0"))).await;
    cluster.reaches(own, &[AllocationState::Completed]).await;
    let took = asked.elapsed().as_millis();
    println!("  the owner's work was done {took} ms after its submit, with 500 ms of grace");
    let done = cluster.reaches(guest, &[AllocationState::Completed]).await;
    assert_eq!((done.progress.preempted, done.attempt), (1, 2));
    assert!(output(cluster, guest).await.contains("restored"));
    let home = ("owner".to_owned(), "owner".to_owned());
    shows(&cluster.core(), "all nodes at home", |view| {
        let at_home = |name: &&str| {
            let entry = view.node(&node(name))?;
            let record = entry.record.as_ref()?;
            (record.home == record.current).then_some(())
        };
        NODES
            .iter()
            .all(|name| at_home(name).is_some())
            .then_some(())
    })
    .await;
    assert_eq!(node_vclusters(cluster), [home.clone(), home]);
}
