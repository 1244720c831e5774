//! Usage records: node usage by user and duration, and soft limits of tenants.

use crate::common::{self, Cluster, dependencies::*, limits, node, path, principal};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, AllocationState, Applied, Command, NodeId, Refusal, UnixMillis,
    allocation::{RankExit, StopCause},
    audit::AuditAction,
    budget::{Credit, HOUR_MS, ONE_PPM, PausedProject, RemainingCredit, SoftPatch},
    command::{Privilege, RankReport},
    event::EventKind,
    limit::{LimitPatch, Patch},
    usage_record::{
        NodeUser, OpenUse, UsagePeriod, UsageRecord, UsageRecordKind, UsageRecordsHead,
    },
    view::{Answer, Query},
};

fn facts_since(
    state: &State,
    after: u64,
    since: UnixMillis,
) -> (Vec<UsageRecord>, UsageRecordsHead) {
    let query = Query::UsageRecords {
        after,
        limit: 10_000,
        since,
    };
    match state.query(&query) {
        Answer::UsageRecords(facts, head) => (facts, head),
        other => panic!("{other:?}"),
    }
}

fn facts(c: &Cluster) -> Vec<UsageRecord> {
    facts_since(&c.state, 0, UnixMillis(0)).0
}

fn open(c: &Cluster) -> Vec<OpenUse> {
    match c.state.query(&Query::OpenUses) {
        Answer::OpenUses(open, _) => open,
        other => panic!("{other:?}"),
    }
}

fn names(nodes: &[NodeId]) -> Vec<&str> {
    nodes.iter().map(NodeId::as_str).collect()
}

/// One line per usage record.
fn summaries(facts: &[UsageRecord]) -> Vec<String> {
    let uses = |uses: &[UsagePeriod]| {
        let each = uses.iter().map(|used| {
            let nodes = names(&used.nodes).join(",");
            let (from, until) = (
                used.from.since(common::START),
                used.until.since(common::START),
            );
            format!("{nodes} {from}..{until}")
        });
        each.collect::<Vec<_>>().join("; ")
    };
    let line = |record: &UsageRecord| match &record.kind {
        UsageRecordKind::Started { work, nodes, .. } => {
            format!("{} started {}", work.allocation, names(nodes).join(","))
        }
        UsageRecordKind::Grew { work, nodes } => {
            format!("{} grew {}", work.allocation, names(nodes).join(","))
        }
        UsageRecordKind::Used { work, uses: of } => {
            format!("{} used {}", work.allocation, uses(of))
        }
        UsageRecordKind::Completed {
            work,
            state,
            uses: of,
            node_ms,
            ..
        } => format!("{} {state} {} in all {node_ms}", work.allocation, uses(of)),
        UsageRecordKind::Checkpointed { work, number, .. } => {
            format!("{} checkpoint {number}", work.allocation)
        }
        UsageRecordKind::Claimed { claim, nodes } => {
            format!("{} claimed {}", claim.user, names(nodes).join(","))
        }
        UsageRecordKind::Idles { nodes, .. } => format!("idles {}", names(nodes).join(",")),
        UsageRecordKind::Idled { uses: of, .. } => format!("idled {}", uses(of)),
        UsageRecordKind::Released { node, wiped, .. } => format!("released {node} wiped {wiped}"),
        UsageRecordKind::LimitsChanged { tenant, .. } => format!("limits of {tenant}"),
    };
    facts.iter().map(line).collect()
}

#[test]
fn time_is_counted_from_when_all_ranks_run_until_they_are_gone() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(common::spec("t", 2)).unwrap();
    c.clock = 1_000;
    c.assign(id).unwrap();
    c.clock = 2_000;
    let nodes = c.nodes_of(id);
    let at = c.now();
    c.report(id, &nodes[0], RankReport::Started { at }).unwrap();
    assert_eq!(open(&c), [], "one of two ranks runs");
    c.clock = 3_000;
    c.report(id, &nodes[1], RankReport::Started { at }).unwrap();
    let used = open(&c);
    assert_eq!(names(&used[0].nodes), ["n000", "n001"]);
    assert_eq!(used[0].from, c.now());
    c.clock = 10_000;
    c.end_rank(id, 0, RankExit::Exited { code: 0 });
    assert_eq!(
        open(&c).len(),
        1,
        "its nodes are held until the last is gone"
    );
    c.clock = 13_000;
    c.end_rank(id, 1, RankExit::Exited { code: 0 });
    assert_eq!(open(&c), []);
    assert_eq!(
        summaries(&facts(&c)),
        [
            "1 started n000,n001",
            "1 completed n000,n001 3000..13000 in all 20000"
        ]
    );
}

#[test]
fn usage_records_have_number_and_position() {
    let mut c = Cluster::with_nodes(4);
    let before = c.state.revision();
    let id = c.running(common::spec("t", 2));
    c.end_all(id, RankExit::Exited { code: 3 });
    let (all, head) = facts_since(&c.state, 0, UnixMillis(0));
    let numbers: Vec<u64> = all.iter().map(|fact| fact.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert!(
        all.iter()
            .all(|fact| fact.revision > before && fact.ordinal == 0)
    );
    assert_eq!((head.last, head.acknowledged, head.dropped), (2, 0, 0));
    assert_eq!(head.revision, c.state.revision());
    let (later, _) = facts_since(&c.state, 1, UnixMillis(0));
    assert_eq!(later, all[1..]);
    let (none, _) = facts_since(&c.state, 0, c.now().after(1));
    assert_eq!(none, []);

    let pending = c.submit(common::spec("t", 1)).unwrap();
    let cancelled = c.user("alice", Command::Cancel { id: pending }).unwrap();
    let through = cancelled.events.iter().find_map(|event| match event.kind {
        EventKind::UsageRecords { through } => Some(through),
        _ => None,
    });
    assert_eq!(through, Some(3));
    assert_eq!(summaries(&facts(&c))[2], "2 cancelled  in all 0");
}

#[test]
fn suspended_time_is_not_counted_and_what_goes_on_is_another_stretch() {
    let mut c = Cluster::with_nodes(2);
    let id = c.running(common::spec("t", 1));
    c.clock += 5_000;
    c.propose("olga", Privilege::Operator, Command::Suspend { id })
        .unwrap();
    c.clock += 1_000;
    c.end_all(id, RankExit::Stopped);
    assert_eq!(c.state_of(id), AllocationState::Suspended);
    c.clock += 100_000;
    c.user("alice", Command::Resume { id }).unwrap();
    c.clock += 7_000;
    c.run(id);
    c.clock += 2_000;
    c.end_all(id, RankExit::Exited { code: 0 });
    assert_eq!(
        summaries(&facts(&c)),
        [
            "1 started n000",
            "1 used n000 0..6000",
            "1 started n000",
            "1 completed n000 113000..115000 in all 8000",
        ]
    );
}

#[test]
fn nodes_that_come_and_go_are_counted_each_by_itself() {
    let mut c = Cluster::with_nodes(6);
    let id = c.running(common::spec("t", 2));
    c.clock = 10_000;
    let nodes = c.expected(&[node("n002"), node("n003")]);
    c.service(Command::Grow { id, nodes }).unwrap();
    assert_eq!(open(&c)[0].nodes.len(), 2, "nothing runs there yet");
    c.clock = 12_000;
    let at = c.now();
    c.report(id, &node("n002"), RankReport::Started { at })
        .unwrap();
    // No process ever ran on the other node.
    let fault = None;
    let exit = RankExit::SpawnFailed {
        reason: "no shell".to_owned(),
    };
    c.report(id, &node("n003"), RankReport::Ended { at, exit, fault })
        .unwrap();
    c.clock = 20_000;
    let nodes = vec![node("n000")];
    c.service(Command::Shrink { id, nodes }).unwrap();
    c.clock = 21_000;
    c.end_rank(id, 0, RankExit::Stopped);
    c.clock = 30_000;
    c.end_rank(id, 1, RankExit::Exited { code: 0 });
    c.end_rank(id, 2, RankExit::Exited { code: 0 });
    assert_eq!(
        summaries(&facts(&c)),
        [
            "1 started n000,n001",
            "1 grew n002",
            "1 used n000 0..21000",
            "1 completed n001 0..30000; n002 12000..30000 in all 69000",
        ]
    );
}

#[test]
fn early_end_counts_from_assignment() {
    let mut c = Cluster::with_nodes(2);
    let id = c.submit(common::spec("t", 1)).unwrap();
    c.clock = 1_000;
    c.assign(id).unwrap();
    c.clock = 4_000;
    c.end_all(id, RankExit::Exited { code: 0 });
    assert_eq!(
        summaries(&facts(&c)),
        ["1 completed n000 1000..4000 in all 3000"]
    );

    // An allocation that never ran has used nothing.
    let id = c.submit(common::spec("t", 1)).unwrap();
    c.assign(id).unwrap();
    c.clock = 9_000;
    let exit = RankExit::SpawnFailed {
        reason: "no shell".to_owned(),
    };
    c.end_all(id, exit);
    assert_eq!(summaries(&facts(&c))[1], "2 failed  in all 0");
}

/// One shrink releases an ended rank and marks the other assigned rank as leaving, so that no rank is left to start.
/// The attempt begins to run by the same change that releases a node.
#[test]
fn node_released_as_the_attempt_starts_has_no_use() {
    let mut c = Cluster::with_nodes(4);
    let id = c.submit(common::spec("t", 3)).unwrap();
    c.clock = 1_000;
    c.assign(id).unwrap();
    let (nodes, at) = (c.nodes_of(id), c.now());
    c.report(id, &nodes[0], RankReport::Started { at }).unwrap();
    c.end_rank(id, 1, RankExit::Exited { code: 0 });
    c.clock = 4_000;
    let shrink = Command::Shrink {
        id,
        nodes: nodes[1..].to_vec(),
    };
    c.service(shrink).unwrap();
    c.clock = 6_000;
    c.end_rank(id, 2, RankExit::Stopped);
    c.clock = 9_000;
    c.end_rank(id, 0, RankExit::Exited { code: 0 });
    assert_eq!(
        summaries(&facts(&c)),
        [
            "1 started n000,n002",
            "1 used n002 4000..6000",
            "1 completed n000 4000..9000 in all 7000",
        ]
    );
}

/// An attempt that ends before it was reported running counts from its assignment. A node added by growth counts only
/// from then: another allocation used that node before, and both would be billed for it.
#[test]
fn node_of_a_grown_attempt_counts_from_its_own_assignment() {
    let mut c = Cluster::with_nodes(2);
    let first = c.running(common::spec("t", 1));
    let second = c.submit(common::spec("t", 1)).unwrap();
    c.clock = 1_000;
    c.assign(second).unwrap();
    c.clock = 5_000;
    c.end_all(first, RankExit::Exited { code: 0 });
    c.clock = 6_000;
    let nodes = c.expected(&[node("n000")]);
    c.service(Command::Grow { id: second, nodes }).unwrap();
    c.clock = 9_000;
    c.end_all(second, RankExit::Exited { code: 0 });
    assert_eq!(
        summaries(&facts(&c)),
        [
            "1 started n000",
            "1 completed n000 0..5000 in all 5000",
            "2 completed n001 1000..9000; n000 6000..9000 in all 11000",
        ]
    );
}

#[test]
fn a_checkpoint_is_a_fact_once() {
    let mut c = Cluster::with_nodes(2);
    let id = c.running(writes(common::spec("t", 1)));
    let ask = Command::WriteCheckpoint {
        id,
        directory: "/scratch/t".to_owned(),
        timeout_ms: 10_000,
    };
    c.service(ask).unwrap();
    c.clock = 3_000;
    let at = c.now();
    c.checkpointed(id, 0, 1, written(at)).unwrap();
    c.clock = 5_000;
    c.end_all(id, RankExit::Exited { code: 0 });
    let lines = summaries(&facts(&c));
    assert_eq!(
        lines[1..],
        ["1 checkpoint 1", "1 completed n000 0..5000 in all 5000"]
    );
    let Some(UsageRecordKind::Checkpointed { took_ms, .. }) =
        facts(&c).get(1).map(|f| f.kind.clone())
    else {
        panic!("{lines:?}")
    };
    assert_eq!(took_ms, 3_000);
}

fn update(
    c: &mut Cluster,
    limits: LimitPatch,
    soft: SoftPatch,
    force: bool,
) -> Result<Applied, Refusal> {
    let command = Command::UpdateTenant {
        tenant: path("t"),
        limits,
        soft,
        force,
    };
    c.propose("waldur", Privilege::Accounting, command)
}

fn nodes_to(n: u64) -> LimitPatch {
    LimitPatch {
        max_nodes: Patch::Set(n),
        ..LimitPatch::default()
    }
}

#[test]
fn a_tenant_is_updated_whole_and_what_is_not_named_stays() {
    let mut c = Cluster::with_nodes(4);
    let budget = SoftPatch {
        gpu_ms_budget: Patch::Set(100_000 * HOUR_MS),
        fair_share_ppm: Patch::Set(150_000),
        ..SoftPatch::default()
    };
    update(&mut c, nodes_to(250), budget, false).unwrap();
    let burst = SoftPatch {
        burst_ppm: Patch::Set(1_500_000),
        ..SoftPatch::default()
    };
    update(&mut c, LimitPatch::default(), burst, false).unwrap();
    let soft = c.state.budget(&path("t")).unwrap().soft;
    assert_eq!(soft.gpu_ms_budget, Some(360_000_000_000));
    assert_eq!(
        (soft.fair_share_ppm, soft.burst_ppm),
        (Some(150_000), Some(1_500_000))
    );
    assert_eq!(
        c.state.project(&path("t")).unwrap().limits.max_nodes,
        Some(250)
    );
    // The same update again is no change.
    let revision = c.state.revision();
    update(&mut c, nodes_to(250), budget, false).unwrap();
    assert_eq!(c.state.revision(), revision);
    assert_eq!(summaries(&facts(&c)), ["limits of t", "limits of t"]);

    // An invalid half rejects the whole update.
    let wrong = SoftPatch {
        fair_share_ppm: Patch::Set(ONE_PPM + 1),
        ..SoftPatch::default()
    };
    let refused = update(&mut c, nodes_to(9), wrong, false).unwrap_err();
    assert!(
        matches!(refused, Refusal::Invalid { ref field, .. } if field == "fair_share_target"),
        "{refused}"
    );
    let unlimited = LimitPatch {
        max_nodes: Patch::Unlimited,
        ..LimitPatch::default()
    };
    assert!(update(&mut c, unlimited, SoftPatch::default(), false).is_err());
    assert_eq!(
        c.state.project(&path("t")).unwrap().limits.max_nodes,
        Some(250)
    );
    let audit = match c.state.query(&Query::Audit {
        after: 0,
        limit: 100,
    }) {
        Answer::Audit(entries) => entries,
        other => panic!("{other:?}"),
    };
    let changed = |entry: &&lattice_quorum_types::audit::AuditEntry| {
        matches!(entry.action, AuditAction::LimitsChanged { .. })
    };
    assert_eq!(audit.iter().filter(changed).count(), 3);

    c.admin(Command::DeleteProject { path: path("t") }).unwrap();
    assert_eq!(c.state.budget(&path("t")), None);
}

/// A tenant goes below the limits of its projects only by force, but below its usage at any time.
#[test]
fn an_accounting_system_sets_limits_and_nothing_else() {
    let mut c = Cluster::with_nodes(4);
    c.create("t/a", Some(limits(3))).unwrap();
    let conflict = update(&mut c, nodes_to(2), SoftPatch::default(), false).unwrap_err();
    assert_eq!(conflict.code(), "limit_conflict");
    assert!(conflict.to_string().contains('3'), "{conflict}");
    let forced = update(&mut c, nodes_to(2), SoftPatch::default(), true).unwrap_err();
    assert_eq!(forced.code(), "forbidden");
    for command in [
        Command::Cancel {
            id: AllocationId(1),
        },
        Command::Submit {
            spec: Box::new(common::spec("t", 1)),
        },
        Command::SetLimits {
            changes: Vec::new(),
        },
        Command::ForceLimits {
            changes: Vec::new(),
        },
        Command::DeleteProject { path: path("t/a") },
        Command::Drain {
            node: node("n000"),
            reason: None,
            expected: None,
        },
        Command::Stop {
            id: AllocationId(1),
            cause: StopCause::Walltime,
        },
    ] {
        let refused = c
            .propose("waldur", Privilege::Accounting, command)
            .unwrap_err();
        assert_eq!(refused.code(), "forbidden", "{refused}");
    }
    for power in [Privilege::User, Privilege::Operator, Privilege::Service] {
        let command = Command::UpdateTenant {
            tenant: path("t"),
            limits: nodes_to(9),
            soft: SoftPatch::default(),
            force: false,
        };
        assert_eq!(code(c.propose("olga", power, command)), "forbidden");
    }
}

fn credit(c: &Cluster, holds_ms: u64, paused: &[(&str, &str)]) -> Credit {
    let paused = paused.iter().map(|(project, vcluster)| PausedProject {
        project: path(project),
        vcluster: lattice_quorum_types::VclusterName::new(*vcluster).unwrap(),
    });
    Credit {
        asked_at: c.now(),
        valid_until: c.now().after(holds_ms),
        gpu: Some(RemainingCredit {
            limit_ms: 10,
            left_ms: 4,
        }),
        node: None,
        downscaled: false,
        paused: paused.collect(),
    }
}

#[test]
fn a_project_that_is_paused_begins_nothing_while_that_holds() {
    let mut c = Cluster::with_nodes(4);
    c.create("t/a", Some(limits(3))).unwrap();
    let waits = c.submit(common::spec("t/a", 1)).unwrap();
    let runs = c.running(common::spec("t/a", 1));
    let said = credit(&c, 60_000, &[("t/a", "main")]);
    let credits = [(path("t"), said.clone()), (path("gone"), said)].into();
    c.service(Command::NoteCredits { credits }).unwrap();
    assert_eq!(c.state.budget(&path("gone")), None);

    let refused = c.submit(common::spec("t/a", 1)).unwrap_err();
    assert_eq!(refused.code(), "paused");
    let text = refused.to_string();
    assert!(
        text.contains("project \"t/a\" is paused in vCluster \"main\""),
        "{text}"
    );
    let nodes = c.free(1);
    assert_eq!(
        code(c.service(Command::Assign { id: waits, nodes })),
        "paused"
    );
    assert_eq!(c.state_of(waits), AllocationState::Pending);
    assert_eq!(c.state_of(runs), AllocationState::Running);
    c.submit(common::spec("t", 1)).unwrap();

    // The pause was not renewed.
    c.clock += 60_001;
    c.run(waits);
}

#[test]
fn facts_are_acknowledged_forwards_only_and_by_a_service_under_its_lease() {
    let mut c = Cluster::with_nodes(2);
    for _ in 0..3 {
        let id = c.running(common::spec("t", 1));
        c.end_all(id, RankExit::Exited { code: 0 });
    }
    let head = |c: &Cluster| {
        let head = c.state.usage_records_head();
        (head.last, head.acknowledged, head.dropped)
    };
    assert_eq!(head(&c), (6, 0, 0));
    let acknowledge = |c: &mut Cluster, through, dropped| {
        c.under("accounting", Command::AcknowledgeUsage { through, dropped })
    };
    let revision = c.state.revision();
    acknowledge(&mut c, 4, 1).unwrap();
    assert_eq!(head(&c), (6, 4, 1));
    acknowledge(&mut c, 4, 1).unwrap();
    acknowledge(&mut c, 2, 0).unwrap();
    assert_eq!(head(&c), (6, 4, 1));
    assert_eq!(fault(acknowledge(&mut c, 7, 0)).0, "through");
    assert_eq!(fault(acknowledge(&mut c, 5, 2)).0, "dropped");
    acknowledge(&mut c, 6, 2).unwrap();
    assert_eq!(head(&c), (6, 6, 3));
    assert!(
        c.state.revision().0 - revision.0 <= 1,
        "a cursor is no news for watchers"
    );
    let unfenced = Command::AcknowledgeUsage {
        through: 6,
        dropped: 0,
    };
    let service = principal("service:c1", Privilege::Service);
    assert_eq!(
        code(c.apply(common::envelope(c.now(), service, unfenced))),
        "forbidden"
    );
    c.reopen();
    assert_eq!(head(&c), (6, 6, 3));
}

/// Open uses survive a restart, with the same owners.
#[test]
fn what_is_used_goes_on_through_a_snapshot() {
    let mut c = Cluster::with_nodes(3);
    let id = c.running(common::spec("t", 2));
    c.clock = 4_000;
    c.reopen();
    let used = open(&c);
    assert_eq!(used.len(), 1);
    let NodeUser::Work(work) = &used[0].by else {
        panic!("{used:?}")
    };
    assert_eq!((work.allocation, work.user.as_str()), (id, "alice"));
    c.end_all(id, RankExit::Exited { code: 0 });
    assert_eq!(
        summaries(&facts(&c))[1],
        "1 completed n000,n001 0..4000 in all 8000"
    );
}
