//! Forced release of nodes, and nodes with a failed hook.

use crate::common::{self, Cluster, limits, node, path, spec};
use lattice_quorum_types::{
    AllocationId, AllocationState, Applied, Command, NodeId, Refusal, Revision,
    allocation::{RankExit, RankPhase, StopCause},
    audit::AuditAction,
    command::{Privilege, RankReport},
    node::Lifecycle,
    spec::{AllocationSpec, Requeue},
    view::{Answer, Query},
};

const OK: RankExit = RankExit::Exited { code: 0 };

/// A running allocation of `nodes` nodes, in a project with a limit of 8.
fn running(nodes: u32, requeue: Requeue) -> (Cluster, AllocationId) {
    let mut c = Cluster::default();
    c.create("atlas", Some(limits(8))).unwrap();
    c.add_nodes(nodes as usize + 1);
    let spec = AllocationSpec {
        requeue,
        ..spec("atlas", nodes)
    };
    let id = c.submit(spec).unwrap();
    c.assign(id).unwrap();
    c.start_all(id);
    (c, id)
}

fn force(c: &mut Cluster, node: &NodeId) -> Result<Applied, Refusal> {
    let (node, reason) = (node.clone(), "the rack burnt".to_owned());
    c.propose(
        "olga",
        Privilege::Operator,
        Command::ForceRelease {
            node,
            reason,
            expected: None,
        },
    )
}

fn ended(c: &Cluster, exit: RankExit, fault: Option<&str>) -> RankReport {
    RankReport::Ended {
        at: c.now(),
        exit,
        fault: fault.map(str::to_owned),
    }
}

fn usage(c: &Cluster) -> (u64, u64) {
    let usage = c.state.project(&path("atlas")).unwrap().own;
    (usage.nodes, usage.allocations)
}

fn state(c: &Cluster, id: AllocationId) -> AllocationState {
    c.state.allocation(id).unwrap().state
}

/// Ends the remaining ranks.
fn end_the_others(c: &mut Cluster, id: AllocationId) {
    let ranks = c.state.allocation(id).unwrap().ranks.clone();
    for rank in ranks {
        if !matches!(rank.phase, RankPhase::Ended { .. }) {
            let report = ended(c, RankExit::Stopped, None);
            c.report(id, &rank.node, report).unwrap();
        }
    }
}

fn undrain(c: &mut Cluster, owner: &str, node: &NodeId) {
    let (node, reason) = (node.clone(), None);
    c.propose(
        owner,
        Privilege::Operator,
        Command::Drain {
            node,
            reason,
            expected: None,
        },
    )
    .unwrap();
}

#[test]
fn a_node_goes_back_at_once_while_the_other_ranks_are_ended() {
    let (mut c, id) = running(3, Requeue::Never);
    let nodes = c.nodes_of(id);
    force(&mut c, &nodes[1]).unwrap();
    let stopping = c.state.allocation(id).unwrap();
    assert_eq!(stopping.state, AllocationState::Stopping);
    let lost = StopCause::NodeLost {
        node: nodes[1].clone(),
    };
    assert_eq!(stopping.stop, Some(lost));
    let RankPhase::Ended {
        exit: RankExit::Lost { evidence },
        ..
    } = &stopping.ranks[1].phase
    else {
        panic!("{:?}", stopping.ranks[1])
    };
    assert_eq!(evidence, "released by force by olga: the rack burnt");
    let freed = c.state.node(&nodes[1]).unwrap();
    assert_eq!((freed.holder, freed.lifecycle), (None, Lifecycle::Drained));
    assert_eq!(freed.drain[0].owner, "olga");
    for other in [&nodes[0], &nodes[2]] {
        assert!(c.state.node(other).unwrap().holder.is_some());
    }
    // The released node counts until the end of the allocation.
    assert_eq!(usage(&c), (3, 1));
    end_the_others(&mut c, id);
    assert_eq!(state(&c, id), AllocationState::Failed);
    assert_eq!(usage(&c), (0, 0));
    let freed = c.state.node(&nodes[1]).unwrap();
    assert_eq!(freed.lifecycle, Lifecycle::Drained, "olga answers for it");
}

#[test]
fn a_late_report_of_it_changes_nothing() {
    let (mut c, id) = running(2, Requeue::Never);
    let nodes = c.nodes_of(id);
    force(&mut c, &nodes[0]).unwrap();
    let digest = c.state.digest();
    for report in [
        ended(&c, OK, None),
        ended(&c, OK, Some("late")),
        RankReport::Started { at: c.now() },
    ] {
        let late = c.report(id, &nodes[0], report).unwrap_err();
        assert!(
            late.to_string().contains("released by force from"),
            "{late}"
        );
        assert_eq!(late.code(), "invalid", "an agent is told to forget it");
    }
    assert_eq!(c.state.digest(), digest);
}

#[test]
fn the_node_may_work_for_others_before_its_former_allocation_ends() {
    let (mut c, id) = running(2, Requeue::Never);
    let nodes = c.nodes_of(id);
    force(&mut c, &nodes[0]).unwrap();
    undrain(&mut c, "olga", &nodes[0]);
    let spare = c.free(10);
    assert!(spare.iter().any(|expected| expected.node == nodes[0]));
    let other = c.submit(spec("atlas", 2)).unwrap();
    c.assign(other).unwrap();
    assert!(c.nodes_of(other).contains(&nodes[0]));
    assert_eq!(usage(&c), (4, 2));
    // The end of the first allocation releases only what it still holds.
    end_the_others(&mut c, id);
    assert_eq!(state(&c, id), AllocationState::Failed);
    let holder = c.state.node(&nodes[0]).unwrap().holder.unwrap();
    assert_eq!(holder.allocation, other);
    assert!(c.state.node(&nodes[1]).unwrap().holder.is_none());
    assert_eq!(usage(&c), (2, 1));
    c.start_all(other);
    c.end_all(other, OK);
    assert_eq!(state(&c, other), AllocationState::Completed);
    assert_eq!(usage(&c), (0, 0));
}

#[test]
fn the_last_rank_ends_the_allocation_and_the_requeue_policy_holds() {
    for (requeue, wanted) in [
        (Requeue::Never, [AllocationState::Failed; 2]),
        (
            Requeue::Once,
            [AllocationState::Pending, AllocationState::Failed],
        ),
        (Requeue::Always, [AllocationState::Pending; 2]),
    ] {
        let (mut c, id) = running(1, requeue);
        for (attempt, wanted) in (1..).zip(wanted) {
            let held = c.nodes_of(id).remove(0);
            assert_eq!(c.state.allocation(id).unwrap().attempt, attempt);
            force(&mut c, &held).unwrap();
            assert_eq!(state(&c, id), wanted, "{requeue:?}, attempt {attempt}");
            assert_eq!(usage(&c), (0, 0));
            assert!(c.state.node(&held).unwrap().holder.is_none());
            if wanted.is_terminal() {
                break;
            }
            c.assign(id).unwrap();
            assert!(!c.nodes_of(id).contains(&held), "it is drained");
        }
    }
}

#[test]
fn a_rank_that_ended_keeps_how_and_the_others_go_on() {
    let (mut c, id) = running(2, Requeue::Never);
    let nodes = c.nodes_of(id);
    let report = ended(&c, OK, None);
    c.report(id, &nodes[0], report).unwrap();
    force(&mut c, &nodes[0]).unwrap();
    assert_eq!(state(&c, id), AllocationState::Running);
    assert!(c.state.node(&nodes[0]).unwrap().holder.is_none());
    let report = ended(&c, OK, None);
    c.report(id, &nodes[1], report).unwrap();
    assert_eq!(state(&c, id), AllocationState::Completed);
    assert_eq!(usage(&c), (0, 0));
}

#[test]
fn it_is_written_down_and_not_for_everybody() {
    let (mut c, id) = running(1, Requeue::Never);
    let held = c.nodes_of(id).remove(0);
    let command = |reason: &str| Command::ForceRelease {
        node: held.clone(),
        reason: reason.to_owned(),
        expected: None,
    };
    for power in [Privilege::User, Privilege::Service] {
        let refused = c.propose("x", power, command("why")).unwrap_err();
        assert!(matches!(refused, Refusal::Forbidden { .. }));
    }
    for reason in ["", "  ", "a\nb", &"x".repeat(2000)] {
        let refused = c.admin(command(reason)).unwrap_err();
        assert!(refused.to_string().contains("reason"), "{refused}");
    }
    let unknown = force(&mut c, &node("other")).unwrap_err();
    assert!(matches!(unknown, Refusal::UnknownNode { .. }));
    force(&mut c, &held).unwrap();
    let again = force(&mut c, &held).unwrap_err();
    assert!(again.to_string().contains("no allocation holds"), "{again}");
    let (after, limit) = (0, 100);
    let Answer::Audit(mut entries) = c.state.query(&Query::Audit { after, limit }) else {
        panic!("audit")
    };
    entries.retain(|entry| matches!(entry.action, AuditAction::ForceReleased { .. }));
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (&*entries[0].by.name, entries[0].by.privilege),
        ("olga", Privilege::Operator)
    );
    let action = AuditAction::ForceReleased {
        node: held,
        allocation: Some(id),
        element: None,
        attempt: 1,
        reason: "the rack burnt".to_owned(),
    };
    assert_eq!(entries[0].action, action);
}

#[test]
fn a_failed_epilog_drains_the_node_and_leaves_the_work_alone() {
    let (mut c, id) = running(2, Requeue::Never);
    let nodes = c.nodes_of(id);
    let report = ended(&c, OK, Some("epilog: exit code 3"));
    c.report(id, &nodes[0], report).unwrap();
    let faulty = c.state.node(&nodes[0]).unwrap();
    assert_eq!(faulty.lifecycle, Lifecycle::Draining);
    assert!(
        faulty.holder.is_some(),
        "others of its allocation still run"
    );
    assert_eq!(
        (&*faulty.drain[0].owner, &*faulty.drain[0].reason),
        ("service:hooks", "epilog: exit code 3")
    );
    assert_eq!(state(&c, id), AllocationState::Running);
    let report = ended(&c, OK, Some("wipe: deadline"));
    c.report(id, &nodes[1], report).unwrap();
    assert_eq!(state(&c, id), AllocationState::Completed);
    for id in &nodes {
        let node = c.state.node(id).unwrap();
        assert_eq!((node.holder, node.lifecycle), (None, Lifecycle::Drained));
        assert!(!node.is_assignable());
    }
    // Clearing another drain reason does not open the node; clearing the hooks' own does.
    undrain(&mut c, "olga", &nodes[0]);
    assert!(!c.state.node(&nodes[0]).unwrap().is_assignable());
    undrain(&mut c, "service:hooks", &nodes[0]);
    assert!(c.state.node(&nodes[0]).unwrap().is_assignable());
}

#[test]
fn a_failed_prolog_puts_the_work_back_and_drains_the_node() {
    let mut c = Cluster::default();
    c.create("atlas", Some(limits(8))).unwrap();
    c.add_nodes(4);
    let id = c.submit(spec("atlas", 2)).unwrap();
    c.assign(id).unwrap();
    let nodes = c.nodes_of(id);
    let reason = "prolog: exit code 1".to_owned();
    let failed = RankExit::SpawnFailed {
        reason: reason.clone(),
    };
    let report = ended(&c, failed, Some(&reason));
    c.report(id, &nodes[0], report).unwrap();
    let stopping = c.state.allocation(id).unwrap();
    assert_eq!(stopping.state, AllocationState::Stopping);
    let node = nodes[0].clone();
    assert_eq!(stopping.stop, Some(StopCause::NodeFault { node, reason }));
    let report = ended(&c, RankExit::Stopped, None);
    c.report(id, &nodes[1], report).unwrap();
    assert_eq!(state(&c, id), AllocationState::Pending);
    assert_eq!(
        c.state.node(&nodes[0]).unwrap().lifecycle,
        Lifecycle::Drained
    );
    assert_eq!(c.state.node(&nodes[1]).unwrap().lifecycle, Lifecycle::Ready);
    c.assign(id).unwrap();
    assert!(!c.nodes_of(id).contains(&nodes[0]));
}

#[test]
fn a_rank_that_cannot_start_without_a_fault_of_the_node_fails_the_work() {
    let (mut c, id) = running(1, Requeue::Always);
    let held = c.nodes_of(id).remove(0);
    let reason = "no such program".to_owned();
    let report = ended(&c, RankExit::SpawnFailed { reason }, None);
    c.report(id, &held, report).unwrap();
    assert_eq!(state(&c, id), AllocationState::Failed);
    assert!(c.state.node(&held).unwrap().is_assignable());
}

#[test]
fn a_rank_remembers_the_boot_it_was_assigned_under() {
    let mut c = Cluster::default();
    c.create("atlas", Some(limits(8))).unwrap();
    c.add_nodes(2);
    let id = c.submit(spec("atlas", 2)).unwrap();
    let mut nodes = c.free(2);
    nodes[1].boot = Some("b".repeat(200));
    let assign = |c: &mut Cluster, nodes| c.admin(Command::Assign { id, nodes });
    let refused = assign(&mut c, nodes.clone()).unwrap_err();
    assert!(refused.to_string().contains("boot"), "{refused}");
    nodes[1].boot = Some("9f3c".to_owned());
    assign(&mut c, nodes).unwrap();
    let boots = c.state.allocation(id).unwrap().ranks.iter();
    let boots: Vec<_> = boots.map(|rank| rank.boot.clone()).collect();
    assert_eq!(boots, [None, Some("9f3c".to_owned())]);
}

#[test]
fn output_files_that_no_node_could_open_are_refused() {
    let mut c = Cluster::default();
    c.create("atlas", Some(limits(8))).unwrap();
    c.add_nodes(1);
    let mut with = |stdout: &str| {
        let mut spec = spec("atlas", 1);
        spec.workload.output.stdout = Some(stdout.to_owned());
        c.submit(spec).map_err(|refusal| refusal.to_string())
    };
    with("out/%j-%r.%n.100%%").unwrap();
    for bad in ["", "a\0b", "100%", "%x", &"x".repeat(5000)] {
        assert!(with(bad).unwrap_err().contains("workload.output.stdout"));
    }
}

#[test]
fn stale_view_decides_nothing() {
    let (mut c, id) = running(1, Requeue::Never);
    let held = c.nodes_of(id).remove(0);
    let seen = c.state.node(&held).unwrap().revision;
    let release = |expected| Command::ForceRelease {
        node: held.clone(),
        reason: "the rack burnt".to_owned(),
        expected,
    };
    let drain = |reason: Option<&str>, expected| Command::Drain {
        node: held.clone(),
        reason: reason.map(str::to_owned),
        expected,
    };
    // The allocation ends by itself, and the next one gets the node.
    let report = ended(&c, RankExit::Exited { code: 0 }, None);
    c.report(id, &held, report).unwrap();
    let next = c.submit(common::spec("atlas", 1)).unwrap();
    c.assign(next).unwrap();
    let refused = c.propose("olga", Privilege::Operator, release(Some(seen)));
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, Refusal::NodeChanged { holder: Some(holder), .. } if *holder == next),
        "{refused}"
    );
    assert_eq!(state(&c, next), AllocationState::Starting);
    // An undrain based on a view from before another forced release is rejected, and the reason stays.
    c.propose("olga", Privilege::Operator, drain(Some("a fan"), None))
        .unwrap();
    let seen = c.state.node(&held).unwrap().revision;
    c.propose("olga", Privilege::Operator, release(Some(seen)))
        .unwrap();
    let late = c.propose("olga", Privilege::Operator, drain(None, Some(seen)));
    assert!(matches!(late, Err(Refusal::NodeChanged { .. })), "{late:?}");
    let node = c.state.node(&held).unwrap();
    assert!(!node.is_assignable());
    assert_eq!(
        node.drain[0].reason,
        "released by force: the rack burnt; before: a fan"
    );
}

#[test]
fn words_of_nodes_are_kept_in_part() {
    let (mut c, id) = running(1, Requeue::Never);
    let held = c.nodes_of(id).remove(0);
    let long = "é".repeat(100_000);
    let reason = long.clone();
    let report = ended(&c, RankExit::SpawnFailed { reason }, Some(&long));
    c.report(id, &held, report).unwrap();
    let node = c.state.node(&held).unwrap();
    assert_eq!(node.drain[0].reason.len(), 1024);
    assert!(
        c.state.snapshot().len() < 8192,
        "{}",
        c.state.snapshot().len()
    );
    let by_hand = Command::Report {
        id,
        attempt: 1,
        node: held,
        report: ended(&c, RankExit::Stopped, None),
    };
    let refused = c.propose("olga", Privilege::Operator, by_hand).unwrap_err();
    assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused}");
}

#[test]
fn a_gate_that_was_skipped_is_written_down() {
    let mut c = Cluster::default();
    c.add_nodes(2);
    let id = c.state.nodes().next().unwrap().id.clone();
    let skip = |node: &NodeId, expected| Command::UndrainUnchecked {
        node: node.clone(),
        expected,
    };
    let drain = |c: &mut Cluster, principal: &str, reason: &str| {
        let command = Command::Drain {
            node: id.clone(),
            reason: Some(reason.to_owned()),
            expected: None,
        };
        c.propose(principal, Privilege::Service, command).unwrap();
    };
    drain(&mut c, "root", "a fan");
    drain(&mut c, "olga", "firmware");
    drain(&mut c, "service:hooks", "epilog: exit code 2");
    for power in [Privilege::User, Privilege::Operator, Privilege::Service] {
        let refused = c.propose("root", power, skip(&id, None)).unwrap_err();
        assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused}");
    }
    let now = c.state.node(&id).unwrap().revision;
    let late = c.admin(skip(&id, Some(Revision(now.0 - 1)))).unwrap_err();
    assert!(matches!(late, Refusal::NodeChanged { .. }), "{late}");
    c.admin(skip(&id, Some(now))).unwrap();
    let left = c.state.node(&id).unwrap();
    let owners: Vec<_> = left.drain.iter().map(|d| d.owner.as_str()).collect();
    assert_eq!((owners, left.is_assignable()), (vec!["olga"], false));
    undrain(&mut c, "olga", &id);
    assert!(c.state.node(&id).unwrap().is_assignable());
    // No reason is cleared, so no entry is written.
    let (digest, revision) = (c.state.digest(), c.state.revision());
    c.admin(skip(&id, None)).unwrap();
    assert_eq!((c.state.digest(), c.state.revision()), (digest, revision));
    let (after, limit) = (0, 100);
    let Answer::Audit(mut entries) = c.state.query(&Query::Audit { after, limit }) else {
        panic!("audit")
    };
    entries.retain(|entry| matches!(entry.action, AuditAction::GateSkipped { .. }));
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].by.name, "root");
    let cleared = ["root: a fan", "service:hooks: epilog: exit code 2"];
    let cleared = cleared.map(str::to_owned).to_vec();
    let node = id;
    assert_eq!(
        entries[0].action,
        AuditAction::GateSkipped { node, cleared }
    );
}
