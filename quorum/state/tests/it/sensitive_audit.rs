//! Audit of sensitive allocations from submission on. Every request on one, including those of its user, is recorded
//! with the change. Entries are found by user, allocation, node and time, also in segments.

use crate::common::{Cluster, limits, node, path, spec};
use bytes::Bytes;
use lattice_quorum_state::{
    Policy, SealedSegment, SegmentFault, SegmentId, SegmentLimits, Segments, State,
};
use lattice_quorum_types::{
    AllocationId, AllocationState, Applied, Command, NodeId, Outcome, ProjectPath, Revision,
    allocation::{RankExit, StopCause},
    audit::{AuditAction, AuditEntry, AuditFilter, AuditSearch, MAX_PAGE_BYTES, verify_chain},
    command::Privilege,
    event::EventKind,
    size::encoded_bytes,
    view::{Answer, Query},
};

/// Segments of four entries.
fn founded() -> Cluster {
    let (rows, bytes) = (4, 1 << 20);
    let mut c = Cluster {
        state: State::with_bounds(Policy::default(), SegmentLimits { rows, bytes }),
        ..Cluster::default()
    };
    c.create("t", Some(limits(64))).unwrap();
    c.add_nodes(4);
    c
}

/// Proposes a command; returns its outcome and the audit entries in its own events.
fn propose(
    c: &mut Cluster,
    principal: &str,
    power: Privilege,
    command: Command,
) -> (Outcome, Vec<AuditEntry>) {
    let before = c.state.revision();
    let applied = c.propose(principal, power, command).unwrap();
    written(before, applied)
}

/// Outcome, with the audit entries of the same command.
fn written(before: Revision, applied: Applied) -> (Outcome, Vec<AuditEntry>) {
    let events = applied.events.into_iter();
    let entries = events.filter_map(|event| match event.kind {
        EventKind::Audit { entry } => Some(entry),
        _ => None,
    });
    let entries: Vec<_> = entries.collect();
    for entry in &entries {
        assert_eq!(entry.revision, applied.revision, "in the same commit");
        assert!(entry.revision > before);
    }
    (applied.outcome, entries)
}

/// Fields of an entry: principal, request, state of the allocation, nodes.
type RequestTrace = (String, String, AllocationState, Vec<NodeId>);

fn says(principal: &str, what: &str, state: AllocationState, nodes: &[&str]) -> RequestTrace {
    let nodes = nodes.iter().map(|name| node(name)).collect();
    (principal.to_owned(), what.to_owned(), state, nodes)
}

/// Requests on `of`, an allocation of alice in project `t`.
fn asked(entries: &[AuditEntry], of: AllocationId) -> Vec<RequestTrace> {
    let asked = entries.iter().filter_map(|entry| match &entry.action {
        AuditAction::SensitiveAsked {
            allocation,
            user,
            project,
            what,
            nodes,
            state,
            ..
        } => {
            let owner: (AllocationId, &str, &ProjectPath) = (*allocation, user, project);
            assert_eq!(owner, (of, "alice", &path("t")));
            Some((entry.by.name.clone(), what.clone(), *state, nodes.clone()))
        }
        _ => None,
    });
    asked.collect()
}

fn submit(c: &mut Cluster, hold: bool, named: &[&str]) -> (AllocationId, Vec<AuditEntry>) {
    let mut wanted = spec("t", 2);
    wanted.sensitive = true;
    wanted.hold = hold;
    wanted.constraints.nodelist = named.iter().map(|name| node(name)).collect();
    let spec = Box::new(wanted);
    let (outcome, entries) = propose(c, "alice", Privilege::User, Command::Submit { spec });
    match outcome {
        Outcome::Submitted { id } => (id, entries),
        other => panic!("{other:?}"),
    }
}

/// Proposes these commands one after the other, as alice; returns the entries of each.
fn by_alice(c: &mut Cluster, id: AllocationId, commands: Vec<Command>) -> Vec<Vec<RequestTrace>> {
    let each = commands.into_iter();
    each.map(|command| asked(&propose(c, "alice", Privilege::User, command).1, id))
        .collect()
}

#[test]
fn before_it_has_nodes_each_request_is_an_entry() {
    use AllocationState::{Cancelled, Held, Pending};
    let mut c = founded();
    let (id, written) = submit(&mut c, true, &[]);
    assert!(
        matches!(
            written[0].action,
            AuditAction::SensitiveAsked {
                attempt: 0,
                cause: None,
                ..
            }
        ),
        "{written:?}"
    );
    assert_eq!(asked(&written, id), [says("alice", "submit", Held, &[])]);
    let commands = vec![
        Command::Release { id },
        Command::Hold { id },
        // No change, so no entry.
        Command::Hold { id },
        Command::Cancel { id },
    ];
    assert_eq!(
        by_alice(&mut c, id, commands),
        [
            vec![says("alice", "release", Pending, &[])],
            vec![says("alice", "hold", Held, &[])],
            vec![],
            vec![says("alice", "cancel", Cancelled, &[])],
        ]
    );
    // The entry contains the nodes that the submission names, once.
    let (id, written) = submit(&mut c, true, &["n001", "n003"]);
    let expected = says("alice", "submit", Held, &["n001", "n003"]);
    assert_eq!(asked(&written, id), [expected]);
    let commands = vec![
        Command::Release { id },
        Command::Hold { id },
        Command::Cancel { id },
    ];
    assert_eq!(
        by_alice(&mut c, id, commands),
        [
            vec![says("alice", "release", Pending, &[])],
            vec![says("alice", "hold", Held, &[])],
            vec![says("alice", "cancel", Cancelled, &[])],
        ]
    );
}

#[test]
fn what_its_user_and_what_a_service_asks_of_running_work_is_an_entry() {
    use AllocationState::{Pending, Running, Stopping};
    let mut c = founded();
    let (id, _) = submit(&mut c, false, &[]);
    c.assign_sensitive(id);
    c.start_all(id);
    let both = ["n000", "n001"];
    let give_back = Command::Shrink {
        id,
        nodes: vec![node("n001")],
    };
    let commands = vec![give_back, Command::Suspend { id }];
    assert_eq!(
        by_alice(&mut c, id, commands),
        [
            vec![says("alice", "shrink", Running, &both)],
            vec![says("alice", "suspend", Stopping, &both)],
        ]
    );
    c.end_all(id, RankExit::Stopped);
    let commands = vec![Command::Resume { id }];
    let resumed = says("alice", "resume", Pending, &[]);
    assert_eq!(by_alice(&mut c, id, commands), [vec![resumed]]);
    c.assign_sensitive(id);
    let has: Vec<String> = c.nodes_of(id).iter().map(ToString::to_string).collect();
    let has: Vec<&str> = has.iter().map(String::as_str).collect();
    let cause = StopCause::Walltime;
    let stop = Command::Stop { id, cause };
    let before = c.state.revision();
    let (_, traces) = written(before, c.as_scheduler(stop));
    let stopped = says("service:c1", "stop", Stopping, &has);
    assert_eq!(asked(&traces, id), [stopped]);
    assert!(
        matches!(&traces[0].action, AuditAction::SensitiveAsked { cause: Some(why), .. }
            if why == "walltime exceeded"),
        "{traces:?}"
    );
    c.end_all(id, RankExit::Stopped);

    let (id, _) = submit(&mut c, false, &[]);
    c.assign_sensitive(id);
    let has: Vec<String> = c.nodes_of(id).iter().map(ToString::to_string).collect();
    let has: Vec<&str> = has.iter().map(String::as_str).collect();
    let commands = vec![Command::Cancel { id }];
    let cancelled = says("alice", "cancel", Stopping, &has);
    assert_eq!(by_alice(&mut c, id, commands), [vec![cancelled]]);
}

#[test]
fn operator_actions_are_named_as_such() {
    let mut c = founded();
    let (id, _) = submit(&mut c, false, &[]);
    let (_, written) = propose(&mut c, "olga", Privilege::Operator, Command::Cancel { id });
    let words: Vec<_> = written.iter().map(|entry| entry.action.word()).collect();
    assert_eq!(words, ["allocation_acted_on", "sensitive_asked"]);
    assert!(written.iter().all(|entry| entry.by.name == "olga"));
}

struct KeptSegments(Vec<SealedSegment>);

impl Segments for KeptSegments {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        let sealed = self.0.iter().find(|sealed| sealed.id == *id);
        sealed
            .map(|sealed| sealed.bytes.clone())
            .ok_or_else(|| id.fault("never sealed"))
    }
}

#[test]
fn requests_are_found_by_user_allocation_node_and_time() {
    let mut c = founded();
    let (first, _) = submit(&mut c, false, &["n002", "n003"]);
    c.clock += 60_000;
    let (second, _) = submit(&mut c, true, &[]);
    let since = c.now().after(60_000);
    c.clock += 60_000;
    by_alice(&mut c, first, vec![Command::Cancel { id: first }]);
    // Enough further entries that the first ones are in segments.
    for n in 0..20 {
        c.create(&format!("t/p{n}"), None).unwrap();
    }
    let kept = KeptSegments(c.state.take_sealed());
    let find = |filter: AuditFilter| {
        let search = Box::new(AuditSearch {
            filter: AuditFilter {
                actions: [String::from("sensitive_asked")].into(),
                ..filter
            },
            limit: 100,
            ..AuditSearch::default()
        });
        let lookup = c.state.look_up(&Query::AuditSearch { search });
        assert!(!lookup.is_in_memory());
        let Answer::AuditSearch(page) = lookup.finish(&kept).unwrap() else {
            panic!("another answer");
        };
        let found = page.entries.into_iter().map(|entry| match entry.action {
            AuditAction::SensitiveAsked {
                allocation, what, ..
            } => (allocation, what),
            other => panic!("{other:?}"),
        });
        found.collect::<Vec<_>>()
    };
    let all = AuditFilter::default;
    let named = |id: AllocationId, what: &str| (id, what.to_owned());
    let (submitted, held) = (named(first, "submit"), named(second, "submit"));
    let cancelled = named(first, "cancel");
    let everything = [submitted.clone(), held.clone(), cancelled.clone()];
    let user = |name: &str| AuditFilter {
        user: Some(name.to_owned()),
        ..all()
    };
    assert_eq!(find(user("alice")), everything);
    assert_eq!(find(user("bob")), []);
    let allocation = AuditFilter {
        allocation: Some(second),
        ..all()
    };
    assert_eq!(find(allocation), [held]);
    let at = |name: &str| AuditFilter {
        nodes: [node(name)].into(),
        ..all()
    };
    assert_eq!(find(at("n003")), [submitted]);
    assert_eq!(find(at("n000")), []);
    let late = AuditFilter {
        since: Some(since),
        ..all()
    };
    assert_eq!(find(late), [cancelled]);

    let (after, limit) = (0, 10_000);
    let lookup = c.state.look_up(&Query::Audit { after, limit });
    match lookup.finish(&kept).unwrap() {
        Answer::Audit(entries) => verify_chain(&entries).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Entries of a third of a megabyte: a page ends before it exceeds the size of a message. The next page begins with the
/// entry that did not fit, in memory and in segments.
#[test]
fn pages_of_large_entries_are_bounded_in_bytes_and_leave_nothing_out() {
    let (rows, bytes) = (1_000, 600_000);
    let mut c = Cluster {
        state: State::with_bounds(Policy::default(), SegmentLimits { rows, bytes }),
        ..Cluster::default()
    };
    c.create("t", Some(limits(64))).unwrap();
    c.add_nodes(1);
    for n in 0..9 {
        // The principal's name is part of the entry, so an entry may be this large.
        let drain = Command::Drain {
            node: node("n000"),
            reason: Some(format!("fan {n}")),
            expected: None,
        };
        let large = format!("{n}{}", "o".repeat(MAX_PAGE_BYTES / 3));
        c.propose(&large, Privilege::Operator, drain).unwrap();
    }
    let kept = KeptSegments(c.state.take_sealed());
    let (mut all, mut pages, mut largest) = (Vec::new(), 0, 0);
    loop {
        let after = all.last().map_or(0, |entry: &AuditEntry| entry.number);
        let limit = 10_000;
        let lookup = c.state.look_up(&Query::Audit { after, limit });
        let Answer::Audit(page) = lookup.finish(&kept).unwrap() else {
            panic!("another answer");
        };
        if page.is_empty() {
            break;
        }
        let size: usize = page.iter().map(encoded_bytes).sum();
        assert!(size <= MAX_PAGE_BYTES, "{size}");
        largest = largest.max(size);
        pages += 1;
        all.extend(page);
    }
    verify_chain(&all).unwrap();
    assert_eq!(all.last().unwrap().number, c.state.audit_number());
    assert!(pages >= 4, "{pages}");
    assert!(largest > MAX_PAGE_BYTES / 2, "{largest}");
}
