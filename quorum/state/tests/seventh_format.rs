//! A log with commands of the fifth schema, a snapshot of the sixth format and segments of the first two
//! versions open, say the same, and are made anew as they were. `fixtures/quorum/v7/ORIGIN.md` says what is
//! in them.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "reads its data from files")]

mod common;

use bytes::Bytes;
use common::{Cluster, START, node, path};
use lattice_quorum_state::{
    Bounds, FORMAT_VERSION, Policy, Sealed, SegmentFault, SegmentId, Segments, State, Table,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Applied, Command, Envelope, Outcome, Refusal,
    Revision, VclusterName,
    allocation::{RankExit, RankPhase, StopCause},
    audit::verify_chain,
    claim::{Claim, ClaimedNode, Proof},
    command::{ExpectedNode, Fence, Power, RankReport},
    id::LeaseName,
    spec::{Demand, Requeue, Spread},
    vcluster::VclusterPatch,
    view::{Answer, LeaseView, Query},
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/quorum/v7/");

fn seventh(file: &str) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}{file}")).unwrap()
}

fn log() -> Vec<Envelope> {
    postcard::from_bytes(&seventh("log.postcard")).unwrap()
}

fn restored() -> State {
    State::restore(&seventh("state.snapshot")).unwrap()
}

/// What was there then, to go on with.
fn going_on() -> Cluster {
    let state = restored();
    let clock = state.now().since(START);
    Cluster {
        state,
        clock,
        index: 848,
        ..Cluster::default()
    }
}

/// The empty cluster, with groups of rows as large as then.
fn empty() -> State {
    let (rows, bytes) = (8, 1 << 20);
    State::with_bounds(Policy::default(), Bounds { rows, bytes })
}

/// The segments of then, and those sealed since.
struct Files<'a>(&'a [Sealed]);

impl Segments for Files<'_> {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        match self.0.iter().find(|sealed| sealed.id == *id) {
            Some(sealed) => Ok(sealed.bytes.clone()),
            None => Ok(seventh(&format!("segments/{id}.seg")).into()),
        }
    }
}

fn names() -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(format!("{FOLDER}segments"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn version(segment: &[u8]) -> u16 {
    u16::from_le_bytes([segment[8], segment[9]])
}

fn record(state: &State, sealed: &[Sealed], id: u64) -> Box<Allocation> {
    let id = AllocationId(id);
    let lookup = state.look_up(&Query::Allocation { id });
    match lookup.finish(&Files(sealed)).unwrap() {
        Answer::Allocation(Some(record)) => record,
        other => panic!("{other:?}"),
    }
}

/// What the request with this number in it said.
fn demand(n: u64) -> Demand {
    let systems = [("archive-2.cold", 5), ("scratch", 1_000 + n)];
    Demand {
        data_ready_ppm: Some(u32::try_from(n * 10_000).unwrap()),
        checkpoint_ms: Some(60_000 + n),
        storage_mb_s: systems.map(|(name, mb_s)| (name.to_owned(), mb_s)).into(),
    }
}

#[test]
fn every_command_gives_what_it_gave_then() {
    type Given = Result<(Revision, Outcome), Refusal>;
    let results: Vec<Given> = postcard::from_bytes(&seventh("results.postcard")).unwrap();
    let log = log();
    assert_eq!((log.len(), results.len()), (848, 848));
    assert_eq!(log.iter().filter(|e| e.schema == 5).count(), 416);
    assert_eq!(results.iter().filter(|r| r.is_err()).count(), 76);
    let mut state = empty();
    for (index, (envelope, expected)) in (1..).zip(log.iter().zip(&results)) {
        let given = state.apply(index, envelope);
        let given = given.map(|applied| (applied.revision, applied.outcome));
        assert_eq!(given, *expected, "command {index}: {envelope:?}");
    }
}

/// Wherever the member was upgraded, and with the very segments of then.
#[test]
fn the_log_gives_what_the_snapshot_and_the_segments_hold_from_wherever_it_is_read() {
    let (restored, log, names) = (restored(), log(), names());
    assert_eq!(names.len(), 30);
    for upgraded_at in [0, 432, 480, 541, 600, 673, 700, 800, 847] {
        let mut state = empty();
        let mut sealed = Vec::new();
        for (index, envelope) in (1..).zip(&log) {
            let _ = state.apply(index, envelope);
            sealed.extend(state.take_sealed());
            if index == upgraded_at {
                state = State::restore(&state.snapshot()).unwrap();
            }
        }
        assert_eq!(state.digest(), restored.digest(), "{upgraded_at}");
        let mut made: Vec<_> = sealed.iter().map(|s| format!("{}.seg", s.id)).collect();
        made.sort();
        assert_eq!(made, names);
        for Sealed { id, bytes } in sealed {
            assert_eq!(bytes, seventh(&format!("segments/{id}.seg")));
        }
    }
    let bytes = restored.snapshot();
    assert_eq!(u16::from(bytes[8]), FORMAT_VERSION);
    let again = State::restore(&bytes).unwrap();
    assert_eq!(again.digest(), restored.digest());
}

#[test]
fn everything_that_was_in_it_is_there() {
    let state = restored();
    assert_eq!(state.revision(), Revision(727));
    let ended = names().into_iter().filter(|name| name.starts_with("ended"));
    let versions: Vec<u16> = ended
        .map(|name| version(&seventh(&format!("segments/{name}"))))
        .collect();
    assert_eq!(versions, [1, 1, 1, 1, 1, 2, 1, 2]);
    use AllocationState::{
        Cancelled, Completed, Failed, Held, Pending, Running, Starting, Stopping, Suspended,
    };
    for (id, expected, said) in [
        (4, Completed, None),
        (44, Running, None),
        (53, Pending, None),
        (54, Pending, Some(3)),
        (55, Pending, Some(1)),
        (56, Held, None),
        (60, Failed, None),
        (61, Cancelled, None),
        (65, Completed, Some(10)),
        (66, Completed, None),
        (67, Cancelled, Some(11)),
        (72, Failed, Some(12)),
        (80, Completed, None),
        (81, Cancelled, Some(20)),
        (88, Completed, Some(27)),
        (90, Completed, Some(30)),
        (91, Running, Some(31)),
        (92, Pending, Some(32)),
        (94, Stopping, Some(34)),
        (96, Pending, Some(41)),
        (97, Pending, Some(42)),
        (98, Pending, Some(43)),
        (99, Held, Some(44)),
        (100, Starting, Some(45)),
        (102, Running, Some(47)),
        (103, Stopping, Some(48)),
        (104, Suspended, Some(49)),
        (106, Running, None),
        (108, Cancelled, Some(61)),
        (111, Cancelled, None),
    ] {
        let found = record(&state, &[], id);
        assert_eq!((found.id, found.state), (AllocationId(id), expected));
        let expected = said.map_or(Demand::default(), demand);
        assert_eq!(found.spec.demand, expected, "{id}");
    }
    // From a part of it to the most there is.
    let said = |id| record(&state, &[], id).spec.demand.clone();
    assert_eq!(said(68).data_ready_ppm, Some(0));
    assert_eq!(said(70).checkpoint_ms, Some(Demand::MAX_CHECKPOINT_MS));
    assert_eq!(said(71).storage_mb_s["scratch"], Demand::MAX_MB_S);
}

#[test]
fn the_audit_of_then_is_whole() {
    let (after, limit) = (0, 1000);
    let lookup = restored().look_up(&Query::Audit { after, limit });
    let Answer::Audit(audit) = lookup.finish(&Files(&[])).unwrap() else {
        panic!("audit")
    };
    assert_eq!(audit.len(), 189);
    verify_chain(&audit).unwrap();
}

#[test]
fn a_request_that_said_all_it_could_still_says_it() {
    let state = restored();
    let spec = &state.allocation(AllocationId(95)).unwrap().spec;
    assert_eq!(spec.name.as_deref(), Some("sweep-40"));
    assert_eq!((&spec.project, spec.nodes), (&path("vela/x"), 2));
    let work = &spec.workload;
    assert_eq!(work.argv, ["--seed", "40"]);
    assert!(work.script.as_ref().unwrap().starts_with("#!/bin/sh\n"));
    assert_eq!(work.env["DATASET"], "/scratch/vela");
    assert_eq!(work.working_dir.as_deref(), Some("/home/vera"));
    assert_eq!(work.output.stderr.as_deref(), Some("err-%j.%r"));
    assert_eq!(spec.walltime_ms, Some(7_200_040));
    assert_eq!((spec.class, spec.sensitive, spec.hold), (8, false, false));
    let asked = &spec.constraints;
    assert_eq!(asked.gpu_models, ["H100", "H200"]);
    assert_eq!(asked.gpus_per_node, Some(8));
    assert_eq!(asked.memory_bytes, Some(512 << 30));
    assert_eq!(asked.features, ["nvme"]);
    assert_eq!(asked.nodelist.len(), 6);
    assert_eq!(asked.exclude, [node("o13")]);
    assert_eq!(
        (asked.spread, spec.requeue),
        (Spread::Spread, Requeue::Always)
    );
    assert_eq!(spec.demand, demand(40));
}

/// A node that was taken by force, ranks that leave, nodes that are somebody's.
#[test]
fn what_is_under_way_stands_where_it_stood() {
    let state = restored();
    let forced = state.allocation(AllocationId(94)).unwrap();
    let lost = node("o22");
    assert_eq!(
        forced.stop,
        Some(StopCause::NodeLost { node: lost.clone() })
    );
    let claimed = state.node(&lost).unwrap().tenure.clone().unwrap();
    assert_eq!(claimed.counted_by, Some(forced.id));
    let shrinking = state.allocation(AllocationId(102)).unwrap();
    assert!(matches!(shrinking.ranks[2].phase, RankPhase::Left { .. }));
    let leaving = &shrinking.ranks[3].phase;
    assert!(matches!(leaving, RankPhase::Leaving { running: Some(_) }));
    for (name, expected) in [("p01", "claimed"), ("o21", "releasing"), ("o23", "unclean")] {
        let tenure = state.node(&node(name)).unwrap().tenure.as_ref().unwrap();
        assert_eq!(tenure.phase.as_str(), expected, "{name}");
    }
}

fn vc(name: &str) -> VclusterName {
    VclusterName::new(name).unwrap()
}

fn schedulers_lease(vcluster: &str) -> LeaseName {
    LeaseName::of_scheduler(&vc(vcluster))
}

fn leases(state: &State) -> Vec<LeaseView> {
    match state.query(&Query::Leases) {
        Answer::Leases(leases) => leases,
        other => panic!("{other:?}"),
    }
}

/// Proposed by a control under this lease.
fn under(c: &mut Cluster, fence: &Fence, command: Command) -> Result<Applied, Refusal> {
    let service = common::principal("service:control/c1", Power::Service);
    let mut envelope = common::envelope(c.now(), service, command);
    envelope.fence = Some(fence.clone());
    c.apply(envelope)
}

fn acquire(c: &mut Cluster, lease: LeaseName, holder: &str) -> Result<Fence, Refusal> {
    let command = Command::AcquireLease {
        lease: lease.clone(),
        holder: holder.to_owned(),
        ttl_ms: 60_000,
    };
    let service = "service:control/c1";
    match c.propose(service, Power::Service, command)?.outcome {
        Outcome::Leased { epoch, .. } => Ok(Fence { lease, epoch }),
        other => panic!("{other:?}"),
    }
}

#[test]
fn vclusters_are_as_they_were_and_settings_alone_define_none() {
    let mut c = going_on();
    for (name, version, profile) in [
        ("cellar", 0, "profile=throughput\n"),
        ("day", 2, "reservations=64\n"),
        ("default", 0, "weights.fairshare=0.5\n"),
        ("lab", 2, "profile=balanced\nreservations=4\n"),
        ("main", 0, "reservations=all\nweights.energy=0.2\n"),
        ("night", 4, "profile=throughput\nreservations=16\n"),
    ] {
        let is = c.state.vcluster(&vc(name)).unwrap();
        assert_eq!(
            (is.version, is.definition.profile.as_str()),
            (version, profile)
        );
        assert_eq!(is.is_defined(), version > 0, "{name}");
    }
    for gone in ["attic", "trial"] {
        assert!(c.state.vcluster(&vc(gone)).is_none(), "{gone}");
    }
    let tenants = &c.state.vcluster(&vc("night")).unwrap().definition.tenants;
    assert_eq!(*tenants, Some([path("vela")].into()));
    let lent = c.state.node(&node("p13")).unwrap();
    assert_eq!(
        (lent.home.as_str(), lent.current.as_str()),
        ("day", "night")
    );

    let mut set = |vcluster, name: &str, value: &str| {
        c.admin(Command::SetScheduler {
            vcluster: vc(vcluster),
            change: Box::new(VclusterPatch::default()),
            settings: [(name.to_owned(), value.to_owned())].into(),
            expected_version: None,
        })
    };
    let unknown = set("attic", "profile", "balanced").unwrap_err();
    assert!(
        matches!(unknown, Refusal::UnknownVcluster { .. }),
        "{unknown}"
    );
    let changed = set("main", "weights.energy", "").unwrap();
    assert_eq!(changed.outcome, Outcome::VclusterSet { version: 0 });
    let changed = set("night", "reservations", "8").unwrap();
    let Outcome::VclusterSet { version } = changed.outcome else {
        panic!("{changed:?}")
    };
    assert!(version > 4);
    let main = c.state.vcluster(&vc("main")).unwrap();
    assert_eq!(main.definition.profile, "reservations=all\n");
    let again = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(again.digest(), c.state.digest());
}

#[test]
fn a_lease_of_then_fences_as_it_did_and_no_epoch_of_its_name_comes_twice() {
    let mut c = going_on();
    let held = |c: &Cluster, name: &str| {
        let all = leases(&c.state);
        let lease = all.into_iter().find(|lease| lease.name == name);
        lease.map(|lease| (lease.epoch, lease.holder))
    };
    let holder = Some("c1.2".to_owned());
    assert_eq!(held(&c, "schedule.main"), Some((5, holder.clone())));
    assert_eq!(held(&c, "schedule.night"), Some((4, holder)));
    // Their vCluster is gone: one was given back, the other not yet.
    assert_eq!(held(&c, "schedule.attic"), None);
    assert_eq!(held(&c, "schedule.trial"), Some((9, None)));

    let id = AllocationId(96);
    let assign = |c: &Cluster| Command::Assign {
        id,
        nodes: c.free(2),
    };
    let fence = |name, epoch| Fence {
        lease: schedulers_lease(name),
        epoch,
    };
    let command = assign(&c);
    let stale = under(&mut c, &fence("main", 4), command.clone()).unwrap_err();
    assert!(
        matches!(stale, Refusal::StaleEpoch { current: 5, .. }),
        "{stale}"
    );
    let others = under(&mut c, &fence("night", 4), command.clone()).unwrap_err();
    let said = others.to_string();
    assert!(said.contains("schedule.main, not schedule.night"), "{said}");
    let taken = acquire(&mut c, schedulers_lease("main"), "c2.1").unwrap_err();
    assert!(matches!(taken, Refusal::LeaseHeld { .. }), "{taken}");
    let assigned = under(&mut c, &fence("main", 5), command).unwrap();
    assert_eq!(assigned.outcome, Outcome::Assigned { attempt: 2 });

    let give_back = Command::ReleaseLease {
        lease: schedulers_lease("trial"),
        holder: "c1.2".to_owned(),
    };
    let service = "service:control/c1";
    c.propose(service, Power::Service, give_back).unwrap();
    assert_eq!(held(&c, "schedule.trial"), None);
    for name in ["trial", "attic"] {
        let again = acquire(&mut c, schedulers_lease(name), "c2.1").unwrap();
        assert!(again.epoch > 9, "{name}: {}", again.epoch);
    }
}

/// Used by commands of this schema and of the one before.
#[test]
fn a_key_of_then_answers_its_request_and_refuses_one_that_asks_for_more() {
    let mut c = going_on();
    let submit = |c: &mut Cluster, (user, key): (&str, &str), spec| {
        let spec = Box::new(spec);
        let user = common::principal(user, Power::User);
        let mut envelope = common::envelope(c.now(), user, Command::Submit { spec });
        envelope.key = Some(key.to_owned());
        c.apply(envelope)
    };
    for (whose, id) in [
        (("olga", "k-1"), 45),
        (("vera", "v-1"), 55),
        (("vera", "v-2"), 56),
        (("xeno", "v-1"), 57),
    ] {
        let id = AllocationId(id);
        let spec = c.state.allocation(id).unwrap().spec.clone();
        let repeated = submit(&mut c, whose, spec.clone()).unwrap();
        assert_eq!(repeated.outcome, Outcome::Submitted { id });
        let mut more = spec;
        more.demand.data_ready_ppm = Some(500_000);
        let refused = submit(&mut c, whose, more).unwrap_err();
        assert!(matches!(refused, Refusal::KeyReused { .. }), "{refused}");
    }

    let keyed = |c: &mut Cluster, who, key: &str, command| {
        let mut envelope = common::envelope(c.now(), who, command);
        envelope.key = Some(key.to_owned());
        c.apply(envelope)
    };
    let revision = c.state.revision();
    let settings = [("weights.data", "0.3"), ("weights.energy", "0.2")];
    let set = Command::SetScheduler {
        vcluster: vc("main"),
        change: Box::new(VclusterPatch::default()),
        settings: settings
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        expected_version: None,
    };
    let root = common::principal("root", Power::Admin);
    let repeated = keyed(&mut c, root, "s-1", set).unwrap();
    assert_eq!(repeated.outcome, Outcome::VclusterSet { version: 0 });
    // The nodes were asked anew, and some are in use by now.
    let claim = Command::ClaimNodes {
        project: path("vela/x"),
        nodes: ["o16", "o17", "p00", "p01"].map(claimed).into(),
        purpose: "patients' scans".to_owned(),
    };
    let vera = common::principal("vera", Power::User);
    keyed(&mut c, vera.clone(), "c-1", claim).unwrap();
    let id = AllocationId(56);
    keyed(&mut c, vera, "v-3", Command::Hold { id }).unwrap();
    assert_eq!(c.state.revision(), revision);
}

/// A node's word, which no judge looks at.
fn claimed(name: &str) -> ClaimedNode {
    let node = node(name);
    ClaimedNode {
        expected: ExpectedNode {
            node: node.clone(),
            version: 1,
            boot: None,
        },
        proof: Proof {
            claim: Claim {
                node,
                boot_id: "b9".to_owned(),
                cohort: None,
                classes: Default::default(),
                read_at: START,
                nonce: [0; 16],
            },
            signature: Bytes::new(),
            completed: Default::default(),
            conforms: Default::default(),
        },
    }
}

#[test]
fn what_waits_runs_and_is_held_goes_on() {
    let mut c = going_on();
    let state = |c: &Cluster, id| c.state.allocation(id).unwrap().state;
    use AllocationState::{Cancelled, Completed, Pending, Running};
    let (ended, stopped) = (RankExit::Exited { code: 0 }, RankExit::Stopped);
    for (id, exit, expected) in [
        (91, &ended, Completed),
        (101, &ended, Completed),
        (102, &ended, Completed),
        (103, &stopped, Cancelled),
        (106, &ended, Completed),
    ] {
        c.end_all(AllocationId(id), exit.clone());
        assert_eq!(state(&c, AllocationId(id)), expected, "{id}");
    }
    // Two of its four ranks had left before.
    assert_eq!(record(&c.state, &[], 102).spec.nodes, 2);
    let [starting, suspended, held, waits] = [100, 104, 99, 54].map(AllocationId);
    c.start_all(starting);
    assert_eq!(state(&c, starting), Running);
    c.end_all(starting, ended);
    assert_eq!(state(&c, starting), Completed);
    for (who, command, id, expected) in [
        (
            "vera",
            Command::Resume { id: suspended },
            suspended,
            Pending,
        ),
        ("xeno", Command::Release { id: held }, held, Pending),
        ("vera", Command::Cancel { id: waits }, waits, Cancelled),
    ] {
        c.propose(who, Power::User, command).unwrap();
        assert_eq!(state(&c, id), expected, "{id}");
    }
    let again = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(again.digest(), c.state.digest());
}

#[test]
fn a_node_taken_by_force_is_counted_by_its_claim_alone_once_its_work_has_ended() {
    let mut c = going_on();
    let id = AllocationId(94);
    let at = c.now();
    let last = RankReport::Ended {
        at,
        exit: RankExit::Stopped,
        fault: None,
    };
    c.report(id, &node("o19"), last).unwrap();
    let ended = c.state.allocation(id).unwrap();
    assert_eq!(ended.state, AllocationState::Failed);
    let tenure = c.state.node(&node("o22")).unwrap().tenure.clone();
    assert_eq!(tenure.unwrap().counted_by, None);
}

/// So often an attempt of which nothing started counts for nothing: those of then are among them.
#[test]
fn attempts_that_counted_for_nothing_count_for_nothing() {
    let mut c = going_on();
    let id = AllocationId(97);
    let fence = Fence {
        lease: schedulers_lease("main"),
        epoch: 5,
    };
    for attempt in 3..=6 {
        let assigned = c.assign(id).unwrap();
        assert_eq!(assigned.outcome, Outcome::Assigned { attempt });
        let at = c.now();
        let evidence = "boot 2 was over".to_owned();
        let report = Command::Report {
            id,
            attempt,
            node: c.nodes_of(id)[0].clone(),
            report: RankReport::Ended {
                at,
                exit: RankExit::NeverStarted { evidence },
                fault: None,
            },
        };
        under(&mut c, &fence, report).unwrap();
        let expected = match attempt {
            3..=5 => AllocationState::Pending,
            _ => AllocationState::Failed,
        };
        let state = c.state.allocation(id).unwrap().state;
        assert_eq!(state, expected, "{attempt}");
    }
}

/// What says its demand is sealed in segments of the second version, what says nothing in those of the
/// first, and both are read.
#[test]
fn what_ends_from_now_on_is_sealed_in_the_oldest_version_that_holds_it() {
    let mut c = going_on();
    let mut wanted = Vec::new();
    for n in 0..62 {
        let mut spec = common::spec("vela/x", 1);
        if (22..38).contains(&n) {
            spec.demand = demand(n);
        }
        let said = spec.demand.clone();
        let id = c.submit(spec).unwrap();
        let cancel = Command::Cancel { id };
        c.propose("alice", Power::User, cancel).unwrap();
        wanted.push((id, said));
    }
    let sealed = c.state.take_sealed();
    let of_ended = sealed.iter().filter(|s| s.id.table == Table::Ended);
    let mut versions: Vec<u16> = of_ended.map(|s| version(&s.bytes)).collect();
    versions.dedup();
    // The first ones have rows of then too.
    assert_eq!(versions, [2, 1, 2, 1]);
    let again = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(again.digest(), c.state.digest());
    for (id, said) in wanted {
        assert_eq!(record(&again, &sealed, id.0).spec.demand, said);
    }
}
