//! Tests of reconcilers against a real agent endpoint: their actions depend on its direct answers.

use super::{
    id,
    world::{self, NODE, World},
};
use crate::tasks::{
    attempts::Attempts,
    attestations::Attestations,
    faults,
    node_evidence::Freshness,
    node_loss::NodeLoss,
    orphans,
    readmission::{self, GateError},
    reboots::Reboots,
    reconciler::Reconciler as _,
    register::Register,
    reports,
};
use lattice_agent_rpc::{AttemptKey, AttemptStatus, GateFailed, Report, ReportAnswer};
use lattice_conformance::{Class, ClassMark, Digest};
use lattice_mesh::{Clock as _, SystemClock};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, ProjectPath, UnixMillis, VclusterName,
    allocation::{RankExit, RankPhase, StopCause},
    audit::AuditAction,
    backup::RESTORER,
    command::{ExpectedNode, RankReport},
    node::Lifecycle,
    origin::AttemptOrigin,
    spec::{Constraints, Requeue},
    terms::Terms,
    view::{Answer, Query},
};
use std::{collections::BTreeMap, time::Duration};

/// Asserts that the only rank of the attempt is lost with this evidence, and returns the allocation.
fn assert_lost(world: &World, key: AttemptKey, evidence: &str) -> Allocation {
    let ended = world.allocation(key.allocation);
    let evidence = evidence.to_owned();
    assert!(
        matches!(&ended.ranks[0].phase, RankPhase::Ended { exit, .. }
            if *exit == RankExit::Lost { evidence }),
        "{ended:?}"
    );
    ended
}

#[tokio::test]
async fn a_rank_of_a_boot_that_is_over_is_lost_with_what_was_seen() {
    let world = World::new();
    let key = world.start("b1");
    world.agent_answers.lock().unwrap().boot = "b2".to_owned();
    world.confirm_boot("b2");
    let report = Reboots::new(world.core.clone())
        .reconcile(&world.fence)
        .await;
    assert_eq!((report.found, report.reported), (1, 1));
    let ended = assert_lost(
        &world,
        key,
        "node has rebooted since the assignment (boot id b2, expected b1)",
    );
    assert_eq!(ended.state, AllocationState::Failed);
    assert_eq!(world.node().holder, None);
}

/// Another control pinged the node after this one did, and assigned an allocation under its new boot.
#[tokio::test]
async fn a_view_older_than_the_assignment_loses_nothing() {
    let world = World::new();
    let key = world.start("b2");
    world.agent_answers.lock().unwrap().boot = "b2".to_owned();
    let report = Reboots::new(world.core.clone())
        .reconcile(&world.fence)
        .await;
    assert_eq!((report.found, report.reported), (1, 0));
    let runs = world.allocation(key.allocation);
    assert_eq!(runs.state, AllocationState::Running);
}

#[tokio::test]
async fn what_runs_for_its_holder_is_no_orphan_and_passes_the_gate() {
    let world = World::new();
    let key = world.start("b1");
    let report = None;
    world.agent_answers.lock().unwrap().attempts = vec![AttemptStatus { key, report }];
    let node = id(NODE);
    assert_eq!(orphans::find_orphans(&world.core, &node).await.unwrap(), []);
    assert!(
        readmission::check(&world.nodes(), &node, &Freshness::NOW)
            .await
            .is_ok()
    );
    world.agent_answers.lock().unwrap().gate = Err(GateFailed {
        reason: "exit code 3: a link is down".to_owned(),
    });
    let failed = readmission::check(&world.nodes(), &node, &Freshness::NOW)
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("a link is down"), "{failed}");
}

#[tokio::test]
async fn an_orphan_is_ended_and_its_node_kept_out_until_it_is_gone() {
    let world = World::new();
    let key = world.start("b1");
    let report = None;
    world.agent_answers.lock().unwrap().attempts = vec![AttemptStatus { key, report }];
    let mut attempts = Attempts::new(world.core.clone());
    let quiet = attempts.round(&world.fence).await;
    assert_eq!((quiet.asked, quiet.orphans, quiet.stopped), (1, 0, 0));
    world.admin(Command::ForceRelease {
        node: id(NODE),
        reason: "the rack is on fire".to_owned(),
        expected: None,
    });
    world.fold();
    let found = attempts.round(&world.fence).await;
    assert_eq!((found.asked, found.orphans), (1, 1));
    assert_eq!(world.agent_answers.lock().unwrap().terminated, [key]);
    let owners = |world: &World| -> Vec<String> {
        let drains = world.node().drain.into_iter();
        drains.map(|drain| drain.owner).collect()
    };
    assert_eq!(owners(&world), ["root", faults::OWNER]);
    let refused = readmission::check(&world.nodes(), &id(NODE), &Freshness::NOW)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, GateError::StillRuns { attempts, .. } if *attempts == [key]),
        "{refused}"
    );
    world.agent_answers.lock().unwrap().attempts.clear();
    assert!(
        readmission::check(&world.nodes(), &id(NODE), &Freshness::NOW)
            .await
            .is_ok()
    );
}

/// The view has no record of the ended array; the drain reason and the refusal of the gate name its element.
#[tokio::test]
async fn orphan_of_an_ended_array_has_its_element_name() {
    let world = World::new();
    let held = world.start("b1");
    let terms = Terms {
        array: Some("50-51".parse().unwrap()),
        ..Terms::default()
    };
    let array = world.submit_with_terms(Requeue::Never, Constraints::default(), terms);
    world.fold();
    world.admin(Command::Cancel { id: array });
    world.fold();
    assert!(world.core.view().allocation(array).is_none());
    let key = AttemptKey {
        allocation: AllocationId(array.0 + 2),
        attempt: 1,
    };
    let statuses = [held, key].map(|key| AttemptStatus { key, report: None });
    world.agent_answers.lock().unwrap().attempts = statuses.to_vec();
    let mut attempts = Attempts::new(world.core.clone());
    assert_eq!(attempts.round(&world.fence).await.orphans, 1);
    world.fold();
    let named = format!("allocation {array}_51 attempt 1");
    let reason = world.node().drain[0].reason.clone();
    assert!(reason.contains(&named), "{reason}");
    let gate = readmission::check(&world.nodes(), &id(NODE), &Freshness::NOW).await;
    let refused = gate.unwrap_err().to_string();
    assert!(refused.contains(&named), "{refused}");
}

#[tokio::test]
async fn a_lost_record_stops_the_allocation_and_frees_nothing() {
    let world = World::new();
    let key = world.start("b1");
    let report = Attempts::new(world.core.clone()).round(&world.fence).await;
    assert_eq!(report.stopped, 1);
    let stopping = world.allocation(key.allocation);
    assert_eq!(stopping.state, AllocationState::Stopping);
    let node = id(NODE);
    assert_eq!(stopping.stop, Some(StopCause::NodeLost { node }));
    assert!(world.node().holder.is_some());
}

#[tokio::test]
async fn only_a_node_unreachable_for_long_has_its_work_stopped_and_keeps_it() {
    let world = World::new();
    let key = world.start("b1");
    let state = || world.allocation(key.allocation).state;
    let mut loss = NodeLoss::new(world.core.clone(), Duration::ZERO);
    assert_eq!(loss.reconcile(&world.fence).await, 0);
    world.set_liveness(Liveness::Suspect);
    assert_eq!(loss.reconcile(&world.fence).await, 0);
    // Pings fail, but this check opens a connection to the agent, and an open connection prevents the stop.
    assert!(
        readmission::check(&world.nodes(), &id(NODE), &Freshness::NOW)
            .await
            .is_ok()
    );
    world.set_liveness(Liveness::Unreachable);
    assert_eq!(loss.reconcile(&world.fence).await, 0);
    world.stop_agent().await;
    assert_eq!(loss.reconcile(&world.fence).await, 1);
    assert_eq!(state(), AllocationState::Stopping);
    assert!(world.node().holder.is_some());
    let mut patient = NodeLoss::new(world.core.clone(), Duration::from_secs(600));
    assert_eq!(patient.reconcile(&world.fence).await, 0);
}

#[tokio::test]
async fn node_joins_when_gate_passes() {
    let world = World::new();
    let node = id(NODE);
    let lifecycle = Lifecycle::Joining;
    world.admin(Command::SetLifecycle { node, lifecycle });
    world.fold();
    world.set_first_reading();
    let vcluster = VclusterName::new("default").unwrap();
    let mut register = Register::new(world.nodes(), vcluster);
    let reason = "exit code 3: a link is down".to_owned();
    world.agent_answers.lock().unwrap().gate = Err(GateFailed { reason });
    assert_eq!(register.reconcile(), 1);
    let answered = register.answered().await;
    let report = register.admit(world.fence.clone(), answered).await;
    assert_eq!((report.failed, report.readied.len()), (1, 0));
    let joining = world.node();
    assert_eq!(joining.lifecycle, Lifecycle::Joining);
    assert!(joining.drain[0].reason.contains("a link is down"));
    world.fold();
    // The gate is not checked repeatedly: it may be a program that takes minutes.
    assert_eq!(register.reconcile(), 0);
    world.agent_answers.lock().unwrap().gate = Ok(());
    let vcluster = VclusterName::new("default").unwrap();
    let mut register = Register::new(world.nodes(), vcluster);
    assert_eq!(register.reconcile(), 1);
    let answered = register.answered().await;
    let report = register.admit(world.fence.clone(), answered).await;
    assert_eq!(report.readied, [id(NODE)]);
    assert!(world.node().is_assignable());
}

/// Gossips this GPU digest for the node, and returns the node as an assignment names it.
fn gossip_planned(world: &World, digest: u8) -> Vec<ExpectedNode> {
    let digest = Digest([digest; 32]);
    let mark = ClassMark::Complete { schema: 1, digest };
    world.set_marks(BTreeMap::from([(Class::Gpu, mark)]));
    vec![ExpectedNode {
        node: id(NODE),
        version: world.node().version,
        boot: Some("b1".to_owned()),
    }]
}

#[tokio::test]
async fn sensitive_work_waits_for_the_nodes_own_claim() {
    let world = World::new();
    let digests = BTreeMap::from([(Class::Gpu.to_string(), [1; 32])]);
    world.agent_answers.lock().unwrap().digests = digests;
    let nodes = gossip_planned(&world, 1);
    let mut attestations = Attestations::new(world.core.clone());
    assert!(attestations.confirm(&world.core.view(), &nodes).is_none());
    attestations.answered().await;
    assert!(attestations.confirm(&world.core.view(), &nodes).is_some());
    // A forged or outdated digest: the planned state is not the attested one.
    let nodes = gossip_planned(&world, 2);
    assert!(attestations.confirm(&world.core.view(), &nodes).is_none());
    let view = world.core.view();
    let refused = view.node(&id(NODE)).unwrap().attestation_fault.clone();
    assert!(refused.unwrap().contains("other digests"));
}

const LONG_TEXT_BYTES: usize = 5 << 20;

#[tokio::test]
async fn what_a_node_writes_at_length_is_cut_before_it_is_proposed() {
    let world = World::new();
    let key = world.start("b1");
    let report = RankReport::Ended {
        at: UnixMillis(1),
        exit: RankExit::Lost {
            evidence: "x".repeat(LONG_TEXT_BYTES),
        },
        fault: Some("y".repeat(LONG_TEXT_BYTES)),
    };
    let report = Report { key, report };
    let answer = reports::commit(&world.core, id(NODE), report).await;
    assert_eq!(answer, Ok(ReportAnswer::Committed));
    assert!(world.longest_proposal() < 4096);
    let ended = world.allocation(key.allocation);
    let RankPhase::Ended { exit, .. } = &ended.ranks[0].phase else {
        panic!("{ended:?}")
    };
    let note = "(truncated; original length 5242880 bytes)";
    assert!(exit.to_string().contains(note));
}

#[tokio::test]
async fn varying_gate_text_is_written_once() {
    let world = World::new();
    let node = id(NODE);
    faults::drain_for_fault(&world.core, world.fence.clone(), &node, "no journal")
        .await
        .unwrap();
    let mut said = None;
    let mut written = Vec::new();
    for n in 0..4 {
        world.fold();
        let reason = format!("exit code 1: {n} seconds past");
        world.agent_answers.lock().unwrap().gate = Err(GateFailed { reason });
        let before = world.commands();
        let view = world.core.view();
        said =
            faults::check_admission(&world.nodes(), &view, world.fence.clone(), &node, said).await;
        written.push(world.commands() - before);
    }
    assert_eq!(written, [1, 0, 0, 0]);
    let reason = &world.node().drain[0].reason;
    assert!(reason.contains("0 seconds past"), "{reason}");
    world.agent_answers.lock().unwrap().gate = Ok(());
    let view = world.core.view();
    faults::check_admission(&world.nodes(), &view, world.fence.clone(), &node, said).await;
    assert!(world.node().is_assignable());
}

/// The node got another drain reason while its gate was checked, so it is not admitted on the old view.
#[tokio::test]
async fn a_node_that_changed_since_it_was_looked_at_is_not_let_in() {
    let world = World::new();
    let node = id(NODE);
    faults::drain_for_fault(&world.core, world.fence.clone(), &node, "no journal")
        .await
        .unwrap();
    world.fold();
    let view = world.core.view();
    let fault = "the wipe failed".to_owned();
    world.admin(Command::Drain {
        node: node.clone(),
        reason: Some(fault),
        expected: None,
    });
    faults::check_admission(&world.nodes(), &view, world.fence.clone(), &node, None).await;
    let owners: Vec<String> = world.node().drain.into_iter().map(|d| d.owner).collect();
    assert_eq!(owners, [faults::OWNER, "root"]);
}

/// After a restore, an allocation that was submitted after the backup is lost. Its node, number and origin are in the
/// audit once, whichever controls find it.
#[tokio::test]
async fn lost_work_of_restored_cluster_is_audited() {
    let mut world = World::new();
    let key = world.start("b1");
    let last = key.allocation;
    world.restore_from_backup();
    let lost = AttemptKey {
        allocation: AllocationId(last.0 + 1),
        attempt: 1,
    };
    let statuses = [key, lost].map(|key| AttemptStatus { key, report: None });
    world.agent_answers.lock().unwrap().attempts = statuses.to_vec();
    let origin = AttemptOrigin {
        user: "alice".to_owned(),
        project: ProjectPath::new("atlas").unwrap(),
        name: Some("train".to_owned()),
        element: None,
    };
    let origins = [BTreeMap::from([(lost, origin.clone())]), BTreeMap::new()];
    for origins in origins {
        world.agent_answers.lock().unwrap().origins = origins;
        let found = Attempts::new(world.core.clone()).round(&world.fence).await;
        assert_eq!((found.orphans, found.stopped), (1, 0));
        world.fold();
    }
    let (after, limit) = (0, 1_000);
    let entries = match world.core.read(Query::Audit { after, limit }).await {
        Ok(Answer::Audit(entries)) => entries,
        other => panic!("{other:?}"),
    };
    let ended: Vec<&AuditAction> = entries
        .iter()
        .map(|entry| &entry.action)
        .filter(|action| matches!(action, AuditAction::UnknownAttemptEnded { .. }))
        .collect();
    let expected = AuditAction::UnknownAttemptEnded {
        node: id(NODE),
        allocation: lost.allocation,
        attempt: 1,
        origin: Some(origin),
    };
    assert_eq!(ended, [&expected]);
    let skipped = world.core.skipped_numbers(lost.allocation).await;
    let skipped = skipped.unwrap().unwrap();
    assert_eq!((skipped.after, skipped.until.0), (last, 1_000_000_000));
    assert_eq!(world.core.skipped_numbers(last).await, Ok(None));
}

/// The audit of a restored cluster may be long, and is not needed to end an orphan.
#[tokio::test]
async fn lost_work_is_ended_while_the_audit_gives_no_answer() {
    let mut world = World::new();
    let key = world.start("b1");
    world.restore_from_backup();
    let copy = world.copy();
    copy.leave_unanswered(|query| matches!(query, Query::AuditSearch { .. }));
    let lost = AttemptKey {
        allocation: AllocationId(key.allocation.0 + 1),
        attempt: 1,
    };
    let statuses = [key, lost].map(|key| AttemptStatus { key, report: None });
    world.agent_answers.lock().unwrap().attempts = statuses.to_vec();
    world.reads();
    let mut attempts = Attempts::new(world.core.clone());
    let ended = async {
        while world.agent_answers.lock().unwrap().terminated.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        report = attempts.round(&world.fence) => panic!("the audit was answered: {report:?}"),
        ended = tokio::time::timeout(Duration::from_secs(10), ended) => ended.unwrap(),
    }
    assert_eq!(world.agent_answers.lock().unwrap().terminated, [lost]);
    // The search names the principal, so that the quorum reads few segments.
    let searches: Vec<_> = world
        .reads()
        .into_iter()
        .filter_map(|query| match query {
            Query::AuditSearch { search } => Some(search.filter.by),
            _ => None,
        })
        .collect();
    assert_eq!(searches, [Some(RESTORER.to_owned())]);
}

/// Orphans with a record need no audit entry, and do not prevent one for lost work that the node reports later.
#[tokio::test]
async fn lost_work_is_audited_after_many_other_orphans() {
    let mut world = World::new();
    let key = world.start("b1");
    world.restore_from_backup();
    let mut attempts = Attempts::new(world.core.clone());
    let reported = |orphans: Vec<AttemptKey>| {
        let keys = [key].into_iter().chain(orphans);
        let statuses = keys.map(|key| AttemptStatus { key, report: None });
        world.agent_answers.lock().unwrap().attempts = statuses.collect();
    };
    for first in [2, 18, 34, 50, 66] {
        let other = |attempt| AttemptKey { attempt, ..key };
        reported((first..first + 16).map(other).collect());
        // The next round queries the agent again without a delay.
        attempts.forget();
        assert_eq!(attempts.round(&world.fence).await.orphans, 16);
        world.fold();
    }
    let lost = AttemptKey {
        allocation: AllocationId(key.allocation.0 + 1),
        attempt: 1,
    };
    reported(vec![lost]);
    attempts.forget();
    assert_eq!(attempts.round(&world.fence).await.orphans, 1);
    let (after, limit) = (0, 1_000);
    let entries = match world.core.read(Query::Audit { after, limit }).await {
        Ok(Answer::Audit(entries)) => entries,
        other => panic!("{other:?}"),
    };
    let mut actions: Vec<AuditAction> = entries.into_iter().map(|entry| entry.action).collect();
    actions.retain(|action| matches!(action, AuditAction::UnknownAttemptEnded { .. }));
    let expected = AuditAction::UnknownAttemptEnded {
        node: id(NODE),
        allocation: lost.allocation,
        attempt: 1,
        // The node has no record of it.
        origin: None,
    };
    assert_eq!(actions, [expected]);
}

fn attempt_statuses(n: u32) -> Vec<AttemptStatus> {
    let status = |attempt| AttemptStatus {
        key: AttemptKey {
            allocation: AllocationId(900),
            attempt,
        },
        report: None,
    };
    (1..=n).map(status).collect()
}

#[tokio::test]
async fn an_agent_that_claims_thousands_costs_one_read_and_few_words() {
    let world = World::new();
    world.start("b1");
    world.agent_answers.lock().unwrap().attempts = attempt_statuses(5_000);
    world.reads();
    let mut attempts = Attempts::new(world.core.clone());
    let report = attempts.round(&world.fence).await;
    assert_eq!((report.asked, report.orphans), (1, 5_000));
    assert_eq!(world.reads(), [Query::Revision]);
    let reason = world.node().drain[0].reason.clone();
    assert!(reason.contains("and 4996 more"), "{reason}");
    assert!(reason.len() < 300, "{reason}");
    assert_eq!(world.agent_answers.lock().unwrap().terminated.len(), 16);
    // Fewer attempts, in the next round: the drain reason is written already.
    world.fold();
    world.agent_answers.lock().unwrap().attempts = attempt_statuses(4_000);
    let before = world.commands();
    let mut again = Attempts::new(world.core.clone());
    assert_eq!(again.round(&world.fence).await.orphans, 4_000);
    assert_eq!(world.commands(), before);
}

#[tokio::test]
async fn a_list_that_no_agent_can_have_is_no_answer() {
    let world = World::new();
    let key = world.start("b1");
    world.agent_answers.lock().unwrap().attempts = attempt_statuses(10_001);
    let report = Attempts::new(world.core.clone()).round(&world.fence).await;
    assert_eq!((report.asked, report.silent, report.stopped), (0, 1, 0));
    let runs = world.allocation(key.allocation).state;
    assert_eq!(runs, AllocationState::Running);
    let refused = readmission::check(&world.nodes(), &id(NODE), &Freshness::NOW)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("10001 attempts"), "{refused}");
}

/// An oversized health answer is rejected; otherwise it would be taken for healthy.
#[tokio::test]
async fn overlong_health_answer_is_invalid() {
    let world = World::new();
    let answer_of = |bytes: usize| {
        let mut health = world::health(&[]);
        health["remark"] = "x".repeat(bytes).into();
        world.agent_answers.lock().unwrap().health = Ok(health);
    };
    let (node, now) = (id(NODE), Freshness::NOW);
    answer_of(256 << 10);
    assert!(
        readmission::check(&world.nodes(), &node, &now)
            .await
            .is_ok()
    );
    answer_of(512 << 10);
    let refused = readmission::check(&world.nodes(), &node, &now)
        .await
        .unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("is above the limit of 524288 bytes"),
        "{refused}"
    );
}

#[tokio::test]
async fn what_is_no_boot_id_ends_nothing() {
    let world = World::new();
    let key = world.start("b1");
    world.confirm_boot("b2");
    for boot in ["x".repeat(40), "b".repeat(65), String::new()] {
        world.agent_answers.lock().unwrap().boot = boot;
        let report = Reboots::new(world.core.clone())
            .reconcile(&world.fence)
            .await;
        assert_eq!((report.found, report.reported), (1, 0));
    }
    let runs = world.allocation(key.allocation).state;
    assert_eq!(runs, AllocationState::Running);
}

#[tokio::test]
async fn another_machine_under_the_name_is_not_called_a_reboot() {
    let world = World::new();
    let now = SystemClock.now().0 / 1000 * 1000;
    let key = world.start("b1");
    world.take_over_name(UnixMillis(now + 1000));
    world.agent_answers.lock().unwrap().boot = "b2".to_owned();
    world.confirm_boot("b2");
    let report = Reboots::new(world.core.clone())
        .reconcile(&world.fence)
        .await;
    assert_eq!((report.found, report.reported), (1, 1));
    assert_lost(
        &world,
        key,
        "another machine enrolled under the node name with a join token (boot id b1 is no longer current)",
    );
}
