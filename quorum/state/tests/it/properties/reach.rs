//! Coverage of the random steps: they must reach every relevant path.

use super::*;
use lattice_quorum_types::{allocation::StopCause, progress::SavedCheckpoint};

#[test]
fn random_work_gets_everywhere() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(dependency_steps::busy(), 200);
    let mut met = BTreeSet::new();
    for _ in 0..120 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let mut c = founded();
        for step in &steps {
            let (from, revision) = (c.log.len(), c.state.revision());
            take(&mut c, step);
            note_met(&mut met, &c, c.state.revision() > revision, from);
        }
    }
    let wanted = [
        "Expire",
        "ExtendCheckpoint",
        "GiveUpCheckpoint",
        "LendNode",
        "MakeRoom",
        "Preempt",
        "ReclaimNode",
        "Requeue",
        "ReturnNode",
        "SetReservation",
        "SetWalltime",
        "SuspendAfterCheckpoint",
        "WithdrawPromise",
        "WriteCheckpoint",
        "array blocked",
        "array cancelled",
        "array completed",
        "array failed",
        "array held",
        "checkpoint failed",
        "checkpoint kept",
        "completed graph",
        "cancelled graph",
        "failed graph",
        "element blocked",
        "element lost",
        "gone on from a checkpoint",
        "mutex waited for",
        "preempted",
        "promise had",
        "suspended for room",
    ];
    let states = AllocationState::ALL.map(AllocationState::as_str);
    let wanted = wanted.into_iter().chain(states);
    let missed: Vec<&str> = wanted.filter(|wanted| !met.contains(*wanted)).collect();
    assert!(missed.is_empty(), "{missed:?} of {met:?}");
}

/// Paths visible in the state and in the last commands.
fn note_met(met: &mut BTreeSet<String>, c: &Cluster, is_new: bool, from: usize) {
    let mut note = |what: &str| {
        met.insert(what.to_owned());
    };
    if let (true, Some(envelope)) = (is_new, c.log[from..].last()) {
        let text = format!("{:?}", envelope.command);
        note(text.split_whitespace().next().unwrap());
        if let Command::Assign { id, .. } = &envelope.command
            && c.log[..from]
                .iter()
                .any(|then| matches!(&then.command, Command::Preempt { id: of, .. } if of == id))
        {
            note("promise had");
        }
    }
    for a in c.state.live_allocations() {
        note(a.state.as_str());
        let progress = &a.progress;
        if let Some(tally) = &progress.tally {
            note(&format!("array {}", a.state));
            let by_index = !a.spec.terms.after.is_empty() && a.state == AllocationState::Pending;
            if by_index && !tally.blocked.is_empty() {
                note("element blocked");
            }
            let is_lost = matches!(a.stop, Some(StopCause::Unsatisfiable { .. }));
            if by_index && is_lost && !tally.cancelled.is_empty() {
                note("element lost");
            }
        }
        if a.state == AllocationState::Blocked && a.spec.terms.after.is_empty() {
            note("mutex waited for");
        }
        if progress.kept.is_some() {
            note("checkpoint kept");
        }
        if progress.failed_checkpoints > 0 {
            note("checkpoint failed");
        }
        let kept_before = |kept: &SavedCheckpoint| kept.attempt < a.attempt;
        if a.state == AllocationState::Running && progress.kept.as_ref().is_some_and(kept_before) {
            note("gone on from a checkpoint");
        }
        if progress.preempted > 0 {
            note("preempted");
        }
        if a.state == AllocationState::Suspended && matches!(a.stop, Some(StopCause::Moved { .. }))
        {
            note("suspended for room");
        }
    }
    for dag in dependency_invariants::dags(&c.state) {
        note(&format!("{} graph", dag.state));
    }
    let Answer::Allocations(all) = c.state.query(&Query::Allocations {
        after: AllocationId(0),
        limit: u32::MAX,
        states: vec![
            AllocationState::Completed,
            AllocationState::Failed,
            AllocationState::Cancelled,
        ],
        within: None,
    }) else {
        panic!("allocations")
    };
    for a in all {
        note(a.state.as_str());
        if a.progress.tally.is_some() {
            note(&format!("array {}", a.state));
        }
    }
}
