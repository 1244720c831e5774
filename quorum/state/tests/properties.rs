//! What holds after any sequence of commands, refused ones included.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use bytes::Bytes;
use common::{Cluster, envelope, node, path, principal};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Envelope, NodeId, ProjectPath, UnixMillis,
    VclusterName,
    allocation::{RankExit, RankPhase, StopCause},
    audit::{AuditAction, AuditEntry, verify_chain},
    command::{ExpectedNode, Fence, IssuedCertificate, LimitChange, Power, RankReport, TokenGrant},
    id::LeaseName,
    limit::{LimitPatch, Limits, Patch, Resource},
    node::Lifecycle,
    rpc::Role,
    spec::Requeue,
    view::{Answer, CertificateView, Query, TrustView},
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const PROJECTS: [&str; 6] = ["t", "t/a", "t/b", "t/a/c", "t/a/d", "u"];
const NODES: usize = 8;

/// One random step; resolved against the state when it is taken, so that many are accepted.
#[derive(Debug, Clone)]
enum Move {
    Create {
        project: usize,
        nodes: Option<u64>,
        allocations: Option<u64>,
    },
    Delete {
        project: usize,
    },
    Limit {
        changes: Vec<(usize, u64)>,
    },
    Submit {
        project: usize,
        nodes: u32,
        requeue: Requeue,
        hold: bool,
    },
    Cancel {
        nth: usize,
        owner: bool,
    },
    Hold {
        nth: usize,
    },
    Release {
        nth: usize,
    },
    Assign {
        nth: usize,
        shift: usize,
        stale: bool,
        fenced: bool,
    },
    Stop {
        nth: usize,
        suspend: bool,
    },
    Start {
        nth: usize,
        rank: usize,
    },
    StartAll {
        nth: usize,
    },
    End {
        nth: usize,
        rank: usize,
        exit: RankExit,
    },
    EndAll {
        nth: usize,
    },
    Drain {
        node: usize,
        set: bool,
    },
    Lifecycle {
        node: usize,
        to: Lifecycle,
    },
    Register {
        node: usize,
    },
    Lease {
        who: usize,
        ttl_ms: u64,
        give_back: bool,
    },
    Force {
        node: usize,
        power: Power,
    },
    EndFaulty {
        nth: usize,
        rank: usize,
        spawned: bool,
    },
    Accept {
        node: usize,
    },
    Token {
        uses: u32,
        replace: bool,
    },
    RevokeToken,
    Enrol {
        name: usize,
        replace: bool,
        lifetime_ms: u64,
    },
    Renew {
        name: usize,
        older: bool,
    },
    RevokeName {
        name: usize,
    },
    Authority {
        which: u8,
        what: u8,
    },
    Wait {
        ms: u64,
    },
}

fn exits() -> impl Strategy<Value = RankExit> {
    prop_oneof![
        4 => Just(RankExit::Exited { code: 0 }),
        1 => Just(RankExit::Exited { code: 1 }),
        1 => Just(RankExit::Signaled { signal: 9 }),
        1 => Just(RankExit::Walltime),
        1 => Just(RankExit::Stopped),
        2 => Just(RankExit::Lost { evidence: "rebooted".to_owned() }),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    let project = 0..PROJECTS.len();
    let nth = 0..6usize;
    let requeue = prop_oneof![
        Just(Requeue::Never),
        Just(Requeue::Once),
        Just(Requeue::Always)
    ];
    let lifecycles = prop_oneof![
        4 => Just(Lifecycle::Ready),
        1 => Just(Lifecycle::Draining),
        1 => Just(Lifecycle::Quarantined),
        1 => Just(Lifecycle::Retired),
    ];
    prop_oneof![
        3 => (project.clone(), prop::option::of(0..9u64), prop::option::of(0..4u64))
            .prop_map(|(project, nodes, allocations)| Move::Create { project, nodes, allocations }),
        1 => project.clone().prop_map(|project| Move::Delete { project }),
        4 => prop::collection::vec((project.clone(), 0..12u64), 1..4)
            .prop_map(|changes| Move::Limit { changes }),
        8 => (project, 0..5u32, requeue, prop::bool::weighted(0.1)).prop_map(
            |(project, nodes, requeue, hold)| Move::Submit { project, nodes, requeue, hold }
        ),
        2 => (nth.clone(), any::<bool>()).prop_map(|(nth, owner)| Move::Cancel { nth, owner }),
        1 => nth.clone().prop_map(|nth| Move::Hold { nth }),
        1 => nth.clone().prop_map(|nth| Move::Release { nth }),
        10 => (nth.clone(), 0..3usize, prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(nth, shift, stale, fenced)| Move::Assign { nth, shift, stale, fenced }),
        1 => (nth.clone(), any::<bool>()).prop_map(|(nth, suspend)| Move::Stop { nth, suspend }),
        3 => (nth.clone(), 0..4usize).prop_map(|(nth, rank)| Move::Start { nth, rank }),
        4 => nth.clone().prop_map(|nth| Move::StartAll { nth }),
        4 => (nth.clone(), 0..4usize, exits())
            .prop_map(|(nth, rank, exit)| Move::End { nth, rank, exit }),
        5 => nth.clone().prop_map(|nth| Move::EndAll { nth }),
        2 => (0..NODES, any::<bool>()).prop_map(|(node, set)| Move::Drain { node, set }),
        3 => (0..NODES, lifecycles).prop_map(|(node, to)| Move::Lifecycle { node, to }),
        2 => (0..NODES).prop_map(|node| Move::Register { node }),
        2 => (0..2usize, 1..90_000u64, prop::bool::weighted(0.2))
            .prop_map(|(who, ttl_ms, give_back)| Move::Lease { who, ttl_ms, give_back }),
        2 => (0..NODES, prop_oneof![1 => Just(Power::Service), 4 => Just(Power::Operator)])
            .prop_map(|(node, power)| Move::Force { node, power }),
        2 => (nth.clone(), 0..4usize, any::<bool>())
            .prop_map(|(nth, rank, spawned)| Move::EndFaulty { nth, rank, spawned }),
        3 => (0..NODES).prop_map(|node| Move::Accept { node }),
        2 => (0..4u32, any::<bool>()).prop_map(|(uses, replace)| Move::Token { uses, replace }),
        1 => Just(Move::RevokeToken),
        3 => (0..3usize, any::<bool>(), prop_oneof![Just(3_600_000u64), Just(30 * 24 * 3_600_000)])
            .prop_map(|(name, replace, lifetime_ms)| Move::Enrol { name, replace, lifetime_ms }),
        2 => (0..3usize, prop::bool::weighted(0.2))
            .prop_map(|(name, older)| Move::Renew { name, older }),
        1 => (0..3usize).prop_map(|name| Move::RevokeName { name }),
        2 => (0..2u8, 0..3u8).prop_map(|(which, what)| Move::Authority { which, what }),
        2 => prop_oneof![1..5_000u64, Just(90_000), Just(13 * 3600 * 1000), Just(40 * 24 * 3600 * 1000)]
            .prop_map(|ms| Move::Wait { ms }),
    ]
}

fn nth(state: &State, nth: usize) -> Option<&Allocation> {
    let count = state.live_allocations().count();
    if count == 0 {
        None
    } else {
        state.live_allocations().nth(nth % count)
    }
}

fn enrolled(name: usize) -> String {
    format!("n{:03}", name + 5)
}

/// As the proposer stamps it.
fn certificate(c: &Cluster, name: &str, lifetime_ms: u64) -> IssuedCertificate {
    let earliest = c.state.next_issue(Role::Agent, name).max(c.state.now());
    let now = c.now().min(c.state.now().after(80_000_000));
    let issued_at = UnixMillis(earliest.max(now).0.div_ceil(1000) * 1000);
    IssuedCertificate {
        issued_at,
        expires_at: issued_at.after(lifetime_ms),
    }
}

fn certificates(state: &State) -> Vec<CertificateView> {
    match state.query(&Query::Certificates) {
        Answer::Certificates(all) => all,
        other => panic!("{other:?}"),
    }
}

fn trust(state: &State) -> TrustView {
    match state.query(&Query::Trust) {
        Answer::Trust(trust) => trust,
        other => panic!("{other:?}"),
    }
}

fn audit(state: &State) -> Vec<AuditEntry> {
    let (after, limit) = (0, u32::MAX);
    match state.query(&Query::Audit { after, limit }) {
        Answer::Audit(entries) => entries,
        other => panic!("{other:?}"),
    }
}

fn lease() -> LeaseName {
    LeaseName::new("schedule.main").unwrap()
}

/// The commands a move stands for now.
fn resolve(c: &Cluster, step: &Move) -> Vec<(&'static str, Power, Command)> {
    let state = &c.state;
    let id_of = |i: usize| nth(state, i).map_or(AllocationId(9_999), |a| a.id);
    let admin = |command| vec![("root", Power::Admin, command)];
    let service = |command| vec![("service:control/c1", Power::Service, command)];
    let report = |a: &Allocation, rank: usize, report: RankReport| {
        let node = a
            .ranks
            .get(rank)
            .map_or_else(|| node("elsewhere"), |r| r.node.clone());
        Command::Report {
            id: a.id,
            attempt: a.attempt,
            node,
            report,
        }
    };
    match step {
        Move::Create {
            project,
            nodes,
            allocations,
        } => admin(Command::CreateProject {
            path: path(PROJECTS[*project]),
            limits: nodes.map(|n| Limits {
                max_nodes: Some(n),
                max_concurrent_allocations: *allocations,
            }),
            admins: vec!["alice".to_owned()],
            description: String::new(),
        }),
        Move::Delete { project } => admin(Command::DeleteProject {
            path: path(PROJECTS[*project]),
        }),
        Move::Limit { changes } => {
            let changes = changes.iter().map(|(project, n)| LimitChange {
                path: path(PROJECTS[*project]),
                patch: LimitPatch {
                    max_nodes: Patch::Set(*n),
                    ..LimitPatch::default()
                },
            });
            admin(Command::SetLimits {
                changes: changes.collect(),
            })
        }
        Move::Submit {
            project,
            nodes,
            requeue,
            hold,
        } => {
            let spec = common::spec(PROJECTS[*project], *nodes);
            let spec = lattice_quorum_types::spec::AllocationSpec {
                requeue: *requeue,
                hold: *hold,
                ..spec
            };
            vec![(
                "alice",
                Power::User,
                Command::Submit {
                    spec: Box::new(spec),
                },
            )]
        }
        Move::Cancel { nth, owner } => {
            let who = if *owner { "alice" } else { "mallory" };
            vec![(who, Power::User, Command::Cancel { id: id_of(*nth) })]
        }
        Move::Hold { nth } => admin(Command::Hold { id: id_of(*nth) }),
        Move::Release { nth } => admin(Command::Release { id: id_of(*nth) }),
        Move::Assign {
            nth: i,
            shift,
            stale,
            fenced,
        } => {
            let Some(allocation) = nth(state, *i) else {
                return Vec::new();
            };
            let all: Vec<_> = state.nodes().collect();
            let free = all.iter().filter(|n| n.is_assignable()).skip(*shift % 2);
            // With shift 2, nodes that may be held already are asked for as well.
            let chosen: Vec<_> = if *shift == 2 {
                all.iter().collect()
            } else {
                free.collect()
            };
            let nodes = chosen
                .iter()
                .take(allocation.spec.nodes as usize)
                .map(|n| ExpectedNode {
                    node: n.id.clone(),
                    version: n.version - u64::from(*stale),
                    boot: stale.then(|| "boot-1".to_owned()),
                });
            let command = Command::Assign {
                id: allocation.id,
                nodes: nodes.collect(),
            };
            if *fenced {
                service(command)
            } else {
                admin(command)
            }
        }
        Move::Stop { nth, suspend } => {
            let cause = if *suspend {
                StopCause::Suspended
            } else {
                StopCause::Walltime
            };
            service(Command::Stop {
                id: id_of(*nth),
                cause,
            })
        }
        Move::Start { nth: i, rank } => nth(state, *i).map_or_else(Vec::new, |a| {
            service(report(a, *rank, RankReport::Started { at: c.now() }))
        }),
        Move::StartAll { nth: i } => nth(state, *i).map_or_else(Vec::new, |a| {
            let started = || RankReport::Started { at: c.now() };
            (0..a.ranks.len())
                .flat_map(|rank| service(report(a, rank, started())))
                .collect()
        }),
        Move::End { nth: i, rank, exit } => nth(state, *i).map_or_else(Vec::new, |a| {
            service(report(
                a,
                *rank,
                RankReport::Ended {
                    at: c.now(),
                    exit: exit.clone(),
                    fault: None,
                },
            ))
        }),
        Move::EndAll { nth: i } => nth(state, *i).map_or_else(Vec::new, |a| {
            let ended = || RankReport::Ended {
                at: c.now(),
                exit: RankExit::Exited { code: 0 },
                fault: None,
            };
            (0..a.ranks.len())
                .flat_map(|rank| service(report(a, rank, ended())))
                .collect()
        }),
        Move::Drain { node: i, set } => {
            let reason = set.then(|| "noisy fan".to_owned());
            service(Command::Drain {
                node: node(&format!("n{i:03}")),
                reason,
                expected: None,
            })
        }
        Move::Lifecycle { node: i, to } => {
            let node = node(&format!("n{i:03}"));
            service(Command::SetLifecycle {
                node,
                lifecycle: *to,
            })
        }
        Move::Register { node: i } => {
            let vcluster = VclusterName::new("main").unwrap();
            service(Command::RegisterNode {
                node: node(&format!("n{i:03}")),
                vcluster,
            })
        }
        Move::Lease {
            who,
            ttl_ms,
            give_back,
        } => {
            let holder = format!("control/c{who}");
            service(if *give_back {
                Command::ReleaseLease {
                    lease: lease(),
                    holder,
                }
            } else {
                Command::AcquireLease {
                    lease: lease(),
                    holder,
                    ttl_ms: *ttl_ms,
                }
            })
        }
        Move::Force { node: i, power } => {
            let command = Command::ForceRelease {
                node: node(&format!("n{i:03}")),
                reason: "pulled the plug".to_owned(),
                expected: None,
            };
            vec![("olga", *power, command)]
        }
        Move::EndFaulty {
            nth: i,
            rank,
            spawned,
        } => nth(state, *i).map_or_else(Vec::new, |a| {
            let exit = if *spawned {
                RankExit::Exited { code: 0 }
            } else {
                let reason = "the prolog failed".to_owned();
                RankExit::SpawnFailed { reason }
            };
            let fault = Some("the disk is read-only".to_owned());
            let at = c.now();
            service(report(a, *rank, RankReport::Ended { at, exit, fault }))
        }),
        Move::Accept { node: i } => admin(Command::SetLifecycle {
            node: node(&format!("n{i:03}")),
            lifecycle: Lifecycle::Ready,
        }),
        Move::Token { uses, replace } => admin(Command::CreateToken {
            grant: TokenGrant {
                hash: "ab".repeat(32),
                role: Role::Agent,
                names: None,
                cidrs: Vec::new(),
                uses: *uses,
                replace: *replace,
                expires_at: c.now().after(3_600_000),
            },
        }),
        Move::RevokeToken => admin(Command::RevokeToken { id: "ab".repeat(6) }),
        Move::Enrol {
            name,
            replace,
            lifetime_ms,
        } => {
            let name = enrolled(*name);
            vec![(
                "service:quorum",
                Power::Service,
                Command::ConsumeToken {
                    hash: "ab".repeat(32),
                    role: Role::Agent,
                    from: None,
                    replace: *replace,
                    certificate: certificate(c, &name, *lifetime_ms),
                    name,
                },
            )]
        }
        Move::Renew { name, older } => {
            let name = enrolled(*name);
            let newest = certificates(state).into_iter().find(|v| v.name == name);
            let newest = newest.and_then(|view| view.issued_at).unwrap_or(c.now());
            let command = Command::RenewCertificate {
                role: Role::Agent,
                shown_issued_at: UnixMillis(newest.0 - if *older { 1000 } else { 0 }),
                certificate: certificate(c, &name, 3_600_000),
                name,
            };
            vec![("service:quorum", Power::Service, command)]
        }
        Move::RevokeName { name } => admin(Command::RevokeCertificates {
            name: enrolled(*name),
            role: Role::Agent,
            reason: "lost".to_owned(),
        }),
        Move::Authority { which, what } => {
            let certificate = Bytes::from(vec![*which; 100]);
            let pin = blake3::hash(&certificate).to_hex().to_string();
            admin(match what {
                0 => Command::AddAuthority { certificate },
                1 => Command::PromoteAuthority { pin },
                _ => Command::RetireAuthority { pin },
            })
        }
        Move::Wait { .. } => Vec::new(),
    }
}

/// Takes a move; every third command carries an idempotency key, drawn from a few.
fn take(c: &mut Cluster, step: &Move) {
    if let Move::Wait { ms } = step {
        c.clock += ms;
        return;
    }
    for (name, power, command) in resolve(c, step) {
        let fenced = power == Power::Service
            && matches!(command, Command::Assign { .. } | Command::Stop { .. });
        let mut envelope = envelope(c.now(), principal(name, power), command);
        if fenced {
            let epoch = c.state.lease("schedule.main").map_or(0, |(epoch, _)| epoch);
            envelope.fence = Some(Fence {
                lease: lease(),
                epoch,
            });
        }
        if c.index.is_multiple_of(3) {
            envelope.key = Some(format!("key-{}", c.index % 30));
        }
        step_checked(c, envelope);
    }
}

/// Applies one command and checks that a refusal leaves no trace and a revision counts by one.
fn step_checked(c: &mut Cluster, envelope: Envelope) {
    let (digest, revision) = (c.state.digest(), c.state.revision());
    match c.apply(envelope) {
        Err(_) => {
            assert_eq!(digest, c.state.digest(), "a refused command left a trace");
            assert_eq!(revision, c.state.revision());
        }
        Ok(applied) => {
            let made = c.state.revision().0 - revision.0;
            assert!(made <= 1, "one command made {made} revisions");
            assert!(
                made == 1 || applied.events.is_empty(),
                "events without a revision"
            );
            if let Some(Command::ForceRelease { node, .. }) = c.log.last().map(|e| &e.command)
                && !applied.events.is_empty()
            {
                let node = c.state.node(node).unwrap();
                assert!(!node.is_assignable() && node.drain.iter().any(|d| d.owner == "olga"));
            }
            for (i, event) in applied.events.iter().enumerate() {
                assert_eq!(
                    (event.revision, event.ordinal),
                    (c.state.revision(), i as u32)
                );
            }
        }
    }
}

/// Usage, counts and sums recomputed from the records.
fn check_sums(state: &State) {
    let mut own: BTreeMap<ProjectPath, (u64, u64)> = BTreeMap::new();
    for a in state.live_allocations().filter(|a| a.state.holds()) {
        let usage = own.entry(a.spec.project.clone()).or_default();
        usage.0 += u64::from(a.spec.nodes);
        usage.1 += 1;
    }
    for project in state.projects() {
        let mine = own.get(&project.path).copied().unwrap_or_default();
        let below = own
            .iter()
            .filter(|(p, _)| **p != project.path && p.is_within(&project.path));
        let below = below.fold((0, 0), |sum, (_, u)| (sum.0 + u.0, sum.1 + u.1));
        assert_eq!(
            (project.own.nodes, project.own.allocations),
            mine,
            "own of {}",
            project.path
        );
        assert_eq!((project.subtree.nodes, project.subtree.allocations), below);
    }
    let everything = Query::Allocations {
        after: AllocationId(0),
        limit: u32::MAX,
        states: Vec::new(),
        within: None,
    };
    let Answer::Allocations(all) = state.query(&everything) else {
        panic!("allocations")
    };
    assert!(
        all.windows(2).all(|pair| pair[0].id < pair[1].id),
        "in id order, each once"
    );
    let Answer::Counts(counts) = state.query(&Query::Counts) else {
        panic!("counts")
    };
    for (kind, count) in counts {
        let found = all.iter().filter(|a| a.state == kind).count() as u64;
        assert_eq!(count, found, "number of {kind} allocations");
    }
}

/// Children's limits fit their parent's; at most one holder per node, and both sides agree on it.
fn check_tree_and_nodes(state: &State) {
    for project in state.projects() {
        for resource in Resource::ALL {
            let Some(limit) = project.limits.get(resource) else {
                continue;
            };
            let children = state
                .projects()
                .filter(|p| p.path.parent().as_ref() == Some(&project.path));
            let sum: u64 = children.map(|c| c.limits.get(resource).unwrap()).sum();
            assert!(
                sum <= limit,
                "children of {} have {sum} of {limit}",
                project.path
            );
        }
    }
    let released: BTreeSet<_> = audit(state).into_iter().filter_map(released).collect();
    let mut held = BTreeSet::new();
    for a in state.live_allocations().filter(|a| a.state.holds()) {
        assert_eq!(a.ranks.len(), a.spec.nodes as usize);
        for rank in &a.ranks {
            let (id, holder) = (&rank.node, state.node(&rank.node).unwrap().holder);
            let holder = holder.map(|h| (h.allocation, h.attempt));
            if released.contains(&(id.clone(), a.id, a.attempt)) {
                assert!(
                    matches!(rank.phase, RankPhase::Ended { .. }),
                    "{id} may run"
                );
                assert_ne!(holder, Some((a.id, a.attempt)), "{id} is held again");
            } else {
                assert!(held.insert(id.clone()), "node {id} has two holders");
                assert_eq!(holder, Some((a.id, a.attempt)), "{id} is free too early");
            }
        }
    }
    for node in state.nodes() {
        assert_eq!(
            node.holder.is_some(),
            held.contains(&node.id),
            "holder of {}",
            node.id
        );
        assert!(node.lifecycle != Lifecycle::Drained || node.holder.is_none());
        assert!(node.lifecycle != Lifecycle::Retired || node.holder.is_none());
    }
}

/// Which attempt lost which node by force.
fn released(entry: AuditEntry) -> Option<(NodeId, AllocationId, u32)> {
    match entry.action {
        AuditAction::ForceReleased {
            node,
            allocation,
            attempt,
            ..
        } => Some((node, allocation?, attempt)),
        _ => None,
    }
}

/// A certificate that was issued, as the test remembers it.
#[derive(Debug, Clone)]
struct Issued {
    name: String,
    certificate: IssuedCertificate,
    is_void: bool,
}

/// The number of the trust names its content; the audit is only appended to; what was declared
/// void stays so as long as it would hold, and nothing else is void.
fn check_trust(before: &State, after: &State, issued: &[Issued]) {
    let (was, is) = (trust(before), trust(after));
    assert_eq!(
        was.number == is.number,
        was == is,
        "one number, one content"
    );
    assert!(was.number <= is.number);
    let issuing = is.authorities.iter().filter(|a| a.issuing).count();
    assert_eq!(issuing, usize::from(!is.authorities.is_empty()));
    let entries = audit(after);
    assert!(entries.starts_with(&audit(before)), "the audit was changed");
    verify_chain(&entries).unwrap();
    let mut seconds = BTreeSet::new();
    for Issued {
        name,
        certificate,
        is_void,
    } in issued
    {
        let is_new = seconds.insert((name, certificate.issued_at));
        assert!(is_new, "two certificates of {name} share a second");
        let refused = is
            .revoked
            .iter()
            .any(|r| r.name == *name && certificate.issued_at < r.issued_before);
        if certificate.expires_at > after.now() {
            assert_eq!(refused, *is_void, "{name} {certificate:?}");
        }
    }
}

/// Takes down what a step issued or declared void.
fn note(issued: &mut Vec<Issued>, c: &Cluster, from: usize, entries: usize) {
    for entry in audit(&c.state).into_iter().skip(entries) {
        match entry.action {
            AuditAction::Enrolled {
                name,
                replaced: true,
                ..
            }
            | AuditAction::CertificatesRevoked { name, .. } => {
                let of_name = issued.iter_mut().filter(|one| one.name == name);
                of_name.for_each(|one| one.is_void = true);
            }
            _ => {}
        }
    }
    for envelope in &c.log[from..] {
        let (Command::ConsumeToken {
            name, certificate, ..
        }
        | Command::RenewCertificate {
            name, certificate, ..
        }) = &envelope.command
        else {
            continue;
        };
        let view = certificates(&c.state).into_iter().find(|v| v.name == *name);
        let is_newest = view.is_some_and(|v| v.issued_at == Some(certificate.issued_at));
        let is_known =
            |one: &Issued| one.name == *name && one.certificate.issued_at == certificate.issued_at;
        if is_newest && !issued.iter().any(is_known) {
            issued.push(Issued {
                name: name.clone(),
                certificate: *certificate,
                is_void: false,
            });
        }
    }
}

/// Usage above a limit is there only because the limit was lowered: it never grows there.
fn check_limits(before: &State, after: &State) {
    for project in after.projects() {
        for resource in Resource::ALL {
            let Some(limit) = project.limits.get(resource) else {
                continue;
            };
            let usage = project.total().get(resource);
            let was = before
                .project(&project.path)
                .map_or(0, |p| p.total().get(resource));
            assert!(
                usage <= limit || usage <= was,
                "{} grew to {usage} of {limit}",
                project.path
            );
        }
    }
}

fn replay(log: &[Envelope], from: State, start: usize) -> State {
    let mut state = from;
    for (i, envelope) in log.iter().enumerate().skip(start) {
        let _ = state.apply(i as u64 + 1, envelope);
    }
    state
}

fn founded() -> Cluster {
    let mut c = Cluster::default();
    c.create(
        "t",
        Some(Limits {
            max_nodes: Some(8),
            max_concurrent_allocations: Some(4),
        }),
    )
    .unwrap();
    let inner = Limits {
        max_nodes: Some(6),
        max_concurrent_allocations: Some(3),
    };
    c.create("t/a", Some(inner)).unwrap();
    let leaf = Limits {
        max_nodes: Some(5),
        max_concurrent_allocations: Some(2),
    };
    c.create("t/a/c", Some(leaf)).unwrap();
    c.add_nodes(NODES - 2);
    c
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn sums_limits_and_holders_hold_after_every_command(steps in prop::collection::vec(moves(), 1..120)) {
        let mut c = founded();
        let mut issued = Vec::new();
        for step in &steps {
            let (before, from, entries) = (c.state.clone(), c.log.len(), audit(&c.state).len());
            take(&mut c, step);
            note(&mut issued, &c, from, entries);
            check_trust(&before, &c.state, &issued);
            check_limits(&before, &c.state);
            check_sums(&c.state);
            check_tree_and_nodes(&c.state);
        }
    }

    #[test]
    fn any_log_replays_to_the_same_bytes_also_through_a_snapshot(
        steps in prop::collection::vec(moves(), 1..120),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut c = founded();
        steps.iter().for_each(|step| take(&mut c, step));
        let bytes = c.state.snapshot();
        prop_assert_eq!(&bytes, &replay(&c.log, State::new(), 0).snapshot());
        let cut = cut.index(c.log.len() + 1);
        let half = replay(&c.log[..cut], State::new(), 0);
        let restored = State::restore(&half.snapshot()).unwrap();
        prop_assert_eq!(half.digest(), restored.digest());
        prop_assert_eq!(&bytes, &replay(&c.log, restored, cut).snapshot());
    }
}

fn kind(entry: &AuditEntry) -> String {
    let text = format!("{:?}", entry.action);
    let kind = text.split_whitespace().next().unwrap();
    let replaced = text.contains("replaced: true");
    format!("{kind}{}", if replaced { ", replaced" } else { "" })
}

/// The random moves are worth nothing if they never get anywhere.
#[test]
fn random_moves_reach_every_state() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(moves(), 120);
    let mut reached = BTreeSet::new();
    let mut wrote = BTreeSet::new();
    for _ in 0..60 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let mut c = founded();
        for step in &steps {
            take(&mut c, step);
            wrote.extend(audit(&c.state).iter().map(kind));
            let others_run = c.state.live_allocations().filter(|a| a.state.holds());
            let others_run = others_run.flat_map(|a| &a.ranks).any(|rank| {
                matches!(&rank.phase, RankPhase::Ended { exit: RankExit::Lost { evidence }, .. }
                    if evidence.contains("by force by olga"))
            });
            if others_run {
                wrote.insert("a released node, others run".to_owned());
            }
            let Answer::Counts(counts) = c.state.query(&Query::Counts) else {
                panic!("counts")
            };
            reached.extend(
                counts
                    .into_iter()
                    .filter(|(_, n)| *n > 0)
                    .map(|(state, _)| state),
            );
        }
    }
    let wanted = [
        "a released node, others run",
        "AuthorityAdded",
        "AuthorityPromoted",
        "AuthorityRetired",
        "CertificatesRevoked",
        "Enrolled",
        "Enrolled, replaced",
        "ForceReleased",
        "TokenCreated",
        "TokenRevoked",
    ];
    for wanted in wanted {
        assert!(wrote.contains(wanted), "{wanted}: {wrote:?}");
    }
    // No command blocks an allocation or starts a checkpoint yet.
    let out_of_reach = [AllocationState::Blocked, AllocationState::Checkpointing];
    let wanted: BTreeSet<_> = AllocationState::ALL
        .into_iter()
        .filter(|s| !out_of_reach.contains(s))
        .collect();
    assert_eq!(reached, wanted);
}
