//! A restored cluster never reuses a number that an agent may remember.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, NodeId, Outcome, ProjectPath, VclusterName,
    allocation::{RankExit, StopCause},
    audit::AuditAction,
    checkpoint::CheckpointMode,
    command::{ExpectedNode, Fence, Principal, Privilege, RankReport, SCHEMA},
    id::LeaseName,
    limit::Limits,
    node::Lifecycle,
    origin::AttemptOrigin,
    spec::{AllocationSpec, Requeue, Workload},
    terms::{CheckpointTerms, CheckpointTrigger},
    view::{Answer, Query},
};

const AT: UnixMillis = UnixMillis(1_700_000_000_000);

fn by(name: &str, power: Privilege, command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: name.to_owned(),
            privilege: power,
        },
        key: None,
        at: AT,
        fence: None,
        command,
    }
}

fn apply(state: &mut State, command: Command) -> Applied {
    let index = state.last_index + 1;
    let admin = by("root", Privilege::Admin, command);
    state.apply(index, &admin).unwrap()
}

fn n(i: u32) -> NodeId {
    NodeId::new(format!("n{i}")).unwrap()
}

fn one_node() -> AllocationSpec {
    AllocationSpec::new(
        ProjectPath::new("t").unwrap(),
        VclusterName::new("main").unwrap(),
        1,
        Workload {
            argv: vec!["true".to_owned()],
            ..Workload::default()
        },
    )
}

fn submit(state: &mut State, requeue: Requeue) -> AllocationId {
    let spec = AllocationSpec {
        requeue,
        ..one_node()
    };
    let spec = Box::new(spec);
    let id = AllocationId(state.last_id + 1);
    apply(state, Command::Submit { spec });
    // The id is taken from the state, and must be the expected one.
    assert_eq!(state.last_id, id.0);
    id
}

fn assign(state: &mut State, id: AllocationId, node: NodeId) {
    let version = state.node(&node).unwrap().version;
    let boot = None;
    let nodes = vec![ExpectedNode {
        node,
        version,
        boot,
    }];
    apply(state, Command::Assign { id, nodes });
}

fn end(state: &mut State, id: AllocationId, node: NodeId, exit: RankExit) {
    let attempt = state.allocation(id).unwrap().attempt;
    let (at, fault) = (AT, None);
    let report = RankReport::Ended { at, exit, fault };
    let report = Command::Report {
        id,
        attempt,
        node,
        report,
    };
    let index = state.last_index + 1;
    let mut service = by("service:control/c1", Privilege::Service, report);
    service.fence = Some(Fence {
        lease: LeaseName::new("dispatch").unwrap(),
        epoch: state.lease("dispatch").unwrap().0,
    });
    state.apply(index, &service).unwrap();
}

fn acquire(state: &mut State) -> u64 {
    let acquire = Command::AcquireLease {
        lease: LeaseName::new("dispatch").unwrap(),
        holder: "c1".to_owned(),
        ttl_ms: 1_000,
    };
    let index = state.last_index + 1;
    let service = by("service:control/c1", Privilege::Service, acquire);
    state.apply(index, &service).unwrap();
    state.lease("dispatch").unwrap().0
}

/// Two nodes; one allocation waits, one runs on the first node.
fn backed_up(requeue: Requeue) -> (State, AllocationId, AllocationId) {
    let mut state = State::new();
    let create = Command::CreateProject {
        path: ProjectPath::new("t").unwrap(),
        limits: Some(Limits {
            max_nodes: Some(9),
            max_concurrent_allocations: None,
        }),
        admins: Vec::new(),
        description: String::new(),
    };
    apply(&mut state, create);
    for i in 0..2 {
        let vcluster = VclusterName::new("main").unwrap();
        apply(
            &mut state,
            Command::RegisterNode {
                node: n(i),
                vcluster,
            },
        );
        let (node, lifecycle) = (n(i), Lifecycle::Ready);
        apply(&mut state, Command::SetLifecycle { node, lifecycle });
    }
    acquire(&mut state);
    let waits = submit(&mut state, requeue);
    let runs = submit(&mut state, requeue);
    assign(&mut state, runs, n(0));
    (state, waits, runs)
}

fn restored(mut state: State) -> State {
    let note = Command::NoteQuorum {
        action: Box::new(AuditAction::SteppedDown {
            member: 1,
            to: None,
        }),
    };
    state
        .begin_restored(&by("root", Privilege::Admin, note))
        .unwrap();
    // As a member opens it.
    State::restore(&state.snapshot()).unwrap()
}

fn of(state: &State, id: AllocationId) -> &Allocation {
    state.allocation(id).unwrap()
}

fn lost() -> RankExit {
    RankExit::Lost {
        evidence: "booted anew".to_owned(),
    }
}

#[test]
fn restore_never_reuses_numbers() {
    let (backup, waits, runs) = backed_up(Requeue::Always);
    let mut former = backup.clone();
    let mut anew = restored(backup);

    // Progress of the backed-up cluster after the backup.
    assign(&mut former, waits, n(1));
    end(&mut former, runs, n(0), lost());
    assign(&mut former, runs, n(0));
    let former_id = (0..50).map(|_| submit(&mut former, Requeue::Never)).last();
    let attempts = |state: &State| [waits, runs].map(|id| of(state, id).attempt);
    let former_attempts = attempts(&former);
    assert_eq!(former_attempts, [1, 2]);

    assert_eq!(of(&anew, runs).attempt, 1, "it may run under that number");
    assign(&mut anew, waits, n(1));
    end(&mut anew, runs, n(0), lost());
    assign(&mut anew, runs, n(0));
    for (is, was) in attempts(&anew).into_iter().zip(former_attempts) {
        assert!(is > was, "attempt {is} after {was}");
    }
    for i in 0..2 {
        let (is, was) = (anew.node(&n(i)).unwrap(), former.node(&n(i)).unwrap());
        assert!(is.version > was.version + 1_000_000);
    }
    assert!(anew.lease("dispatch").unwrap().0 > former.lease("dispatch").unwrap().0 + 1_000_000);
    let id = submit(&mut anew, Requeue::Never);
    assert!(Some(id) > former_id, "{id} after {former_id:?}");
    assert!(anew.revision() > former.revision());
}

#[test]
fn what_is_counted_of_attempts_is_counted_on() {
    // The requeue policy applies once, also to allocations that waited or ran at the backup.
    let (backup, waits, runs) = backed_up(Requeue::Once);
    let mut anew = restored(backup);
    assign(&mut anew, waits, n(1));
    for (id, node) in [(waits, n(1)), (runs, n(0))] {
        end(&mut anew, id, node.clone(), lost());
        assert_eq!(of(&anew, id).state, AllocationState::Pending);
        assign(&mut anew, id, node.clone());
        end(&mut anew, id, node, lost());
        assert_eq!(of(&anew, id).state, AllocationState::Failed);
    }
    // An allocation that never started is requeued five times, whatever its policy.
    let (backup, _, runs) = backed_up(Requeue::Never);
    let mut anew = restored(restored(backup));
    for _ in 0..5 {
        let evidence = "booted anew".to_owned();
        let never = RankExit::NeverStarted { evidence };
        end(&mut anew, runs, n(0), never);
        assert_eq!(of(&anew, runs).state, AllocationState::Pending);
        assign(&mut anew, runs, n(0));
    }
    end(&mut anew, runs, n(0), lost());
    let cause = StopCause::NodeLost { node: n(0) };
    assert_eq!(of(&anew, runs).stop, Some(cause));
    assert_eq!(of(&anew, runs).state, AllocationState::Failed);
}

#[test]
fn a_restored_cluster_ends_many_allocations_far_above_the_former_ones() {
    let (backup, waits, _) = backed_up(Requeue::Never);
    let mut anew = restored(backup);
    let id = submit(&mut anew, Requeue::Never);
    apply(&mut anew, Command::Cancel { id });
    apply(&mut anew, Command::Cancel { id: waits });
    let again = State::restore(&anew.snapshot()).unwrap();
    for id in [id, waits] {
        assert_eq!(of(&again, id).state, AllocationState::Cancelled);
    }
    assert!(anew.snapshot().len() < 2 << 20, "{}", anew.snapshot().len());
}

#[test]
fn a_wipe_that_was_waited_for_at_the_backup_has_another_number() {
    use lattice_quorum_types::node_claim::NodeClaim;
    let (mut backup, ..) = backed_up(Requeue::Never);
    let node = backup.nodes.get_mut(&n(1)).unwrap();
    node.node_claim = Some(NodeClaim {
        user: "alice".to_owned(),
        project: ProjectPath::new("t").unwrap(),
        since: AT,
        purpose: String::new(),
        counted_by: None,
        phase: NodeClaimPhase::Releasing {
            wipe: 7,
            since: AT,
            released_at: AT,
            has_failed: false,
        },
    });
    let anew = restored(backup);
    let node_claim = anew.node(&n(1)).unwrap().node_claim.as_ref().unwrap();
    assert!(node_claim.awaits_wipe().unwrap() > 1_000_000);
}

/// Ten thousand elements that write checkpoints.
fn array(state: &mut State) -> AllocationId {
    array_of(state, "0-9999")
}

/// As [`array`], with these indices.
fn array_of(state: &mut State, indices: &str) -> AllocationId {
    let mut spec = one_node();
    spec.terms.array = Some(indices.parse().unwrap());
    spec.terms.checkpoint = Some(CheckpointTerms {
        mode: CheckpointMode::Signal,
        trigger: CheckpointTrigger::Automatic,
        directory: None,
    });
    let spec = Box::new(spec);
    match apply(state, Command::Submit { spec }).outcome {
        Outcome::Submitted { id } => id,
        other => panic!("{other:?}"),
    }
}

fn start(state: &mut State, id: AllocationId, node: NodeId) {
    let attempt = of(state, id).attempt;
    let report = RankReport::Started { at: AT };
    let report = Command::Report {
        id,
        attempt,
        node,
        report,
    };
    let index = state.last_index + 1;
    let service = by("service:control/c1", Privilege::Service, report);
    state.apply(index, &service).unwrap();
}

fn write(state: &mut State, id: AllocationId) -> u32 {
    let directory = "/scratch".to_owned();
    let asked = Command::WriteCheckpoint {
        id,
        directory,
        timeout_ms: 1_000,
    };
    match apply(state, asked).outcome {
        Outcome::Checkpoint { number } => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn restored_elements_get_new_attempts_and_checkpoints() {
    let (mut backup, ..) = backed_up(Requeue::Never);
    let id = array(&mut backup);
    let element = AllocationId(id.0 + 7);
    let mut former = backup.clone();
    let mut anew = restored(backup);
    let numbers = [&mut former, &mut anew].map(|state| {
        assign(state, element, n(1));
        start(state, element, n(1));
        (of(state, element).attempt, write(state, element))
    });
    let [was, is] = numbers;
    assert_eq!(was, (1, 1));
    assert!(is.0 > was.0 && is.1 > was.1, "{is:?} after {was:?}");
    // The same holds for elements that run already.
    let note = former.snapshot();
    let mut later = restored(State::restore(&note).unwrap());
    let written = former.allocation(element).unwrap().progress.checkpoints;
    let cancelled = Command::Cancel { id: element };
    apply(&mut later, cancelled);
    assert!(of(&later, element).progress.checkpoints > written + 1_000);
}

#[test]
fn many_large_arrays_after_the_backup_have_no_number_that_is_given_again() {
    let (mut backup, ..) = backed_up(Requeue::Never);
    array(&mut backup);
    let mut former = backup.clone();
    let mut anew = restored(backup);
    // Every array of the largest size takes as many numbers as the first one.
    let before = former.last_id;
    array_of(&mut former, "0-99999");
    let numbers = former.last_id - before;
    assert_eq!(numbers, 100_001);
    let last = before + 200 * numbers;
    let id = array(&mut anew);
    assert!(id.0 > last, "{id} after {last}");
    let element = AllocationId(id.0 + 10_000);
    assign(&mut anew, element, n(1));
    end(&mut anew, element, n(1), RankExit::Exited { code: 0 });
    apply(&mut anew, Command::Cancel { id });
    assert_eq!(of(&anew, id).state, AllocationState::Cancelled);
    assert_eq!(submit(&mut anew, Requeue::Never).0, id.0 + 10_001);
    // Ids without records cost nothing.
    assert!(anew.snapshot().len() < 1 << 16, "{}", anew.snapshot().len());
}

fn audit(state: &State) -> Vec<AuditAction> {
    let (after, limit) = (0, 1_000);
    match state.query(&Query::Audit { after, limit }) {
        Answer::Audit(entries) => entries.into_iter().map(|entry| entry.action).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn restored_numbers_are_far_and_readable() {
    let (mut backup, ..) = backed_up(Requeue::Never);
    for (last, until) in [
        (0, 1_000_000_000),
        (22, 1_000_000_000),
        (100_000_000, 1_000_000_000),
        (100_000_001, 2_000_000_000),
        (1_000_000_005, 2_000_000_000),
        // A cluster restored by a version with a distance of 2^30.
        (1_073_741_845, 2_000_000_000),
        (u64::MAX, u64::MAX),
    ] {
        backup.last_id = last;
        assert_eq!(backup.skipped_until(), AllocationId(until), "{last}");
        assert!(until == u64::MAX || until - last >= 900_000_000, "{last}");
    }
}

#[test]
fn skipped_numbers_are_audited() {
    let (backup, ..) = backed_up(Requeue::Never);
    let (after, revision) = (backup.last_allocation(), backup.revision());
    let mut anew = restored(backup);
    let until = AllocationId(1_000_000_000);
    let skipped = AuditAction::NumbersSkipped {
        after,
        until,
        revision,
    };
    assert_eq!(audit(&anew).last(), Some(&skipped));
    assert_eq!(
        submit(&mut anew, Requeue::Never),
        AllocationId(1_000_000_001)
    );
    // A second restore skips the numbers after those of the first one.
    let mut again = restored(anew);
    assert_eq!(
        submit(&mut again, Requeue::Never),
        AllocationId(2_000_000_001)
    );
}

#[test]
fn attempts_without_record_are_audited() {
    let (backup, waits, runs) = backed_up(Requeue::Never);
    let mut anew = restored(backup);
    let epoch = anew.lease("dispatch").unwrap().0;
    let origin = |user: &str| AttemptOrigin {
        user: user.to_owned(),
        project: ProjectPath::new("t").unwrap(),
        name: Some("train".to_owned()),
        element: None,
    };
    let mut note = |node: NodeId, allocation: AllocationId, user: &str, is_fenced: bool| {
        let key = is_fenced.then(|| format!("unknown-attempt/{node}/{allocation}/1"));
        let command = Command::NoteUnknownAttempt {
            node,
            allocation,
            attempt: 1,
            origin: Some(origin(user)),
        };
        let mut service = by("service:dispatch", Privilege::Service, command);
        service.key = key;
        service.fence = is_fenced.then(|| Fence {
            lease: LeaseName::new("dispatch").unwrap(),
            epoch,
        });
        let index = anew.last_index + 1;
        anew.apply(index, &service).map(drop)
    };
    let lost = AllocationId(runs.0 + 1);
    assert!(note(n(1), lost, "alice", false).is_err(), "without a lease");
    for known in [waits, runs] {
        let refused = note(n(1), known, "alice", true).unwrap_err();
        assert!(refused.to_string().contains("has a record"), "{refused}");
    }
    let refused = note(n(1), lost, "", true).unwrap_err();
    assert!(refused.to_string().contains("origin.user"), "{refused}");
    // The node n9 was registered after the backup, and has no record. Each entry is written once.
    for node in [n(1), n(9), n(9)] {
        note(node, lost, "alice", true).unwrap();
    }
    let ended = |node| AuditAction::UnknownAttemptEnded {
        node,
        allocation: lost,
        attempt: 1,
        origin: Some(origin("alice")),
    };
    let mut entries = audit(&anew);
    entries.retain(|action| matches!(action, AuditAction::UnknownAttemptEnded { .. }));
    assert_eq!(entries, [ended(n(1)), ended(n(9))]);
    // A search for the user or the project finds the entry.
    let subjects = entries[0].subjects();
    assert_eq!(subjects.users, ["alice"]);
    assert_eq!(subjects.projects, [&ProjectPath::new("t").unwrap()]);
}
