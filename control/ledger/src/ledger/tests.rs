#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_quorum_types::{
    AllocationState, Revision,
    usage_record::{AccountedAllocation, Claimant},
};
use proptest::prelude::*;

fn at(ms: u64) -> UnixMillis {
    UnixMillis(ms)
}

fn node(n: u32) -> NodeId {
    NodeId::new(format!("n{n}")).unwrap()
}

fn path(text: &str) -> ProjectPath {
    ProjectPath::new(text).unwrap()
}

fn work(id: u64, user: &str, project: &str) -> AccountedAllocation {
    AccountedAllocation {
        allocation: AllocationId(id),
        attempt: 1,
        user: user.to_owned(),
        project: path(project),
        vcluster: VclusterName::new("main").unwrap(),
        sensitive: false,
    }
}

fn names(nodes: &[u32]) -> Vec<NodeId> {
    nodes.iter().copied().map(node).collect()
}

/// Usage records in the order of their numbers.
#[derive(Default)]
struct Log(Vec<UsageRecord>);

impl Log {
    fn push(&mut self, ms: u64, kind: UsageRecordKind) {
        self.0.push(UsageRecord {
            number: self.0.len() as u64 + 1,
            revision: Revision(self.0.len() as u64 + 1),
            ordinal: 0,
            at: at(ms),
            kind,
        });
    }
    fn started(&mut self, ms: u64, work: &AccountedAllocation, nodes: &[u32]) {
        let (work, nodes, walltime_ms) = (work.clone(), names(nodes), None);
        let kind = UsageRecordKind::Started {
            work,
            nodes,
            walltime_ms,
        };
        self.push(ms, kind);
    }
    fn completed(&mut self, ms: u64, work: &AccountedAllocation, uses: &[(u64, &[u32])]) {
        let uses = uses.iter().map(|(from, nodes)| UsagePeriod {
            nodes: names(nodes),
            from: at(*from),
            until: at(ms),
        });
        let kind = UsageRecordKind::Completed {
            work: work.clone(),
            state: AllocationState::Completed,
            cause: None,
            started_at: None,
            uses: uses.collect(),
            node_ms: 0,
        };
        self.push(ms, kind);
    }
    fn used(&mut self, ms: u64, work: &AccountedAllocation, uses: &[(u64, &[u32])]) {
        let uses = uses.iter().map(|(from, nodes)| UsagePeriod {
            nodes: names(nodes),
            from: at(*from),
            until: at(ms),
        });
        let (work, uses) = (work.clone(), uses.collect());
        self.push(ms, UsageRecordKind::Used { work, uses });
    }
}

fn ledger() -> Ledger {
    Ledger::new(at(0), Vec::new(), 0, at(0))
}

fn noted(log: &Log) -> Ledger {
    let mut ledger = ledger();
    ledger.compute_curves();
    log.0.iter().for_each(|fact| ledger.add(fact));
    ledger
}

const HOUR: u64 = 3_600_000;

/// Usage before the start of the window does not count; use that began earlier counts from the start of the window.
#[test]
fn each_stretch_is_clipped_to_the_window() {
    let mut log = Log::default();
    let (service, job) = (work(1, "ann", "t/a"), work(2, "bob", "t"));
    log.started(0, &service, &[1, 2]);
    log.started(50 * HOUR, &job, &[3]);
    log.completed(60 * HOUR, &job, &[(50 * HOUR, &[3])]);
    let ledger = noted(&log);
    let used = |from, until| {
        ledger
            .usage(
                UsageScope::Tenant(&path("t")),
                at(from * HOUR),
                at(until * HOUR),
            )
            .work
            .node_ms
            / HOUR
    };
    // A service that has run for 100 hours counts for the whole window.
    assert_eq!(used(10, 100), 2 * 90 + 10);
    assert_eq!(used(55, 100), 2 * 45 + 5);
    assert_eq!(used(70, 71), 2);
    assert_eq!(used(60, 50), 0);
    fn of(ledger: &Ledger, scope: UsageScope<'_>) -> u64 {
        ledger.usage(scope, at(0), at(100 * HOUR)).work.node_ms / HOUR
    }
    assert_eq!(of(&ledger, UsageScope::User("bob")), 10);
    assert_eq!(of(&ledger, UsageScope::User("nobody")), 0);
    assert_eq!(of(&ledger, UsageScope::Project(&path("t/a"))), 200);
    assert_eq!(of(&ledger, UsageScope::Project(&path("t"))), 10);
}

/// A record may name nodes without a recorded start. The recorded nodes are counted once, and their use ends.
#[test]
fn partly_recorded_use_counts_each_node_once() {
    let mut log = Log::default();
    let job = work(1, "ann", "t");
    log.started(0, &job, &[1, 2]);
    log.completed(10 * HOUR, &job, &[(0, &[1, 2, 3])]);
    let mut ledger = noted(&log);
    let node_hours = |ledger: &Ledger| {
        let used = ledger.usage(UsageScope::Tenant(&path("t")), at(0), at(100 * HOUR));
        used.work.node_ms / HOUR
    };
    assert_eq!(node_hours(&ledger), 30);
    assert!(ledger.open.is_empty());
    // The same from the periods.
    ledger.set_gpus(&node(1), Some(4));
    ledger.compute_curves();
    assert_eq!(node_hours(&ledger), 30);
}

/// 87,500 of 100,000: the numbers of the document that this implements.
#[test]
fn gpu_hours_are_by_what_nodes_have_now() {
    let mut log = Log::default();
    let job = work(1, "ann", "physics");
    log.started(0, &job, &[1, 2, 3]);
    log.completed(3_500 * HOUR, &job, &[(0, &[1, 2, 3])]);
    let mut ledger = noted(&log);
    let gpu_hours = |ledger: &Ledger| {
        let used = ledger.usage(
            UsageScope::Tenant(&path("physics")),
            at(0),
            at(4_000 * HOUR),
        );
        used.work.gpu_ms / HOUR
    };
    // No GPU count is known: one GPU for each node.
    assert_eq!(gpu_hours(&ledger), 3 * 3_500);
    ledger.set_gpus(&node(1), Some(8));
    ledger.set_gpus(&node(2), Some(16));
    ledger.compute_curves();
    assert_eq!(gpu_hours(&ledger), (8 + 16 + 1) * 3_500);
    assert_eq!((8 + 16 + 1) * 3_500, 87_500);
    // A node without GPUs counts none, unlike a node with an unknown GPU count.
    ledger.set_gpus(&node(3), Some(0));
    ledger.compute_curves();
    assert_eq!(gpu_hours(&ledger), 24 * 3_500);
    ledger.set_gpus(&node(3), None);
    ledger.compute_curves();
    assert_eq!(gpu_hours(&ledger), 25 * 3_500);
}

#[test]
fn suspended_time_is_not_usage() {
    let mut log = Log::default();
    let job = work(1, "ann", "t");
    log.started(0, &job, &[1]);
    log.used(10, &job, &[(0, &[1])]);
    let again = AccountedAllocation {
        attempt: 2,
        ..job.clone()
    };
    log.started(500, &again, &[2]);
    log.completed(530, &again, &[(500, &[2])]);
    let mut ledger = noted(&log);
    ledger.set_gpus(&node(1), Some(4));
    ledger.compute_curves();
    let used = ledger.usage(UsageScope::User("ann"), at(0), at(1_000)).work;
    assert_eq!((used.node_ms, used.gpu_ms), (40, 10 * 4 + 30));
    let UsageRecordKind::Completed { uses, .. } = &log.0[3].kind else {
        panic!()
    };
    assert_eq!(ledger.consumed(AllocationId(1), uses), used);
}

#[test]
fn idle_claimed_nodes_are_billed_and_are_no_work() {
    let mut log = Log::default();
    let claim = Claimant {
        user: "ann".to_owned(),
        project: path("t/a"),
        vcluster: VclusterName::new("main").unwrap(),
    };
    let (kind, nodes) = (claim.clone(), names(&[1, 2]));
    log.push(0, UsageRecordKind::Claimed { claim: kind, nodes });
    log.push(
        10,
        UsageRecordKind::Idled {
            claim,
            uses: vec![UsagePeriod {
                nodes: names(&[1]),
                from: at(0),
                until: at(10),
            }],
        },
    );
    let ledger = noted(&log);
    let used = ledger.usage(UsageScope::User("ann"), at(0), at(100));
    assert_eq!(used.work, Usage::default());
    assert_eq!(used.idle.node_ms, 10 + 100);
    assert_eq!(used.billed(), used.idle);
    let totals = ledger.totals(at(0), at(100));
    assert_eq!(totals.len(), 1);
}

#[test]
fn what_ended_before_anybody_knew_of_it_is_put_in_its_place() {
    let mut log = Log::default();
    let (one, other) = (work(1, "ann", "t"), work(2, "ann", "t"));
    log.started(10, &one, &[1]);
    log.completed(20, &other, &[(5, &[2])]);
    log.completed(30, &one, &[(10, &[1])]);
    let ledger = noted(&log);
    let used = |from, until| {
        let used = ledger.usage(UsageScope::User("ann"), at(from), at(until));
        used.work.node_ms
    };
    assert_eq!(used(0, 100), 15 + 20);
    assert_eq!(used(0, 5), 0);
    assert_eq!(used(5, 12), 7 + 2);
    assert_eq!(used(15, 25), 5 + 10);
}

/// One event in the world of the property test.
#[derive(Debug, Clone)]
enum Move {
    Wait(u64),
    Start {
        user_index: usize,
        nodes: usize,
    },
    /// Releases one node, or all nodes.
    Leave {
        of: usize,
        all: bool,
        ends: bool,
    },
    /// A use that ended before its start was recorded.
    Missed {
        user_index: usize,
        ms: u64,
    },
    Gpus {
        node: u32,
        gpus: Option<u32>,
    },
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => (1..400_u64).prop_map(Move::Wait),
        4 => (0..4_usize, 1..4_usize).prop_map(|(user_index, nodes)| Move::Start { user_index, nodes }),
        4 => (any::<usize>(), any::<bool>(), any::<bool>())
            .prop_map(|(of, all, ends)| Move::Leave { of, all, ends }),
        1 => (0..4_usize, 1..300_u64).prop_map(|(user_index, ms)| Move::Missed { user_index, ms }),
        1 => (1..60_u32, prop::option::of(0..9_u32)).prop_map(|(node, gpus)| Move::Gpus { node, gpus }),
    ]
}

const OWNERS: [(&str, &str); 4] = [("ann", "t"), ("ann", "t/a"), ("bob", "t/a"), ("ann", "u")];

/// All usage, recorded node by node.
#[derive(Default)]
struct World {
    now: u64,
    log: Log,
    spans: Vec<(AccountedAllocation, u32, u64, Option<u64>)>,
    running: Vec<(AccountedAllocation, u64, Vec<u32>)>,
    gpus: BTreeMap<u32, u32>,
    next_node: u32,
    next_id: u64,
}

impl World {
    fn work(&mut self, user_index: usize) -> AccountedAllocation {
        self.next_id += 1;
        let (user, project) = OWNERS[user_index];
        work(self.next_id, user, project)
    }

    fn take(&mut self, one: &Move) {
        match one {
            Move::Wait(ms) => self.now += ms,
            Move::Start { user_index, nodes } => {
                let work = self.work(*user_index);
                let nodes: Vec<u32> = (0..*nodes as u32).map(|n| self.next_node + n).collect();
                self.next_node += nodes.len() as u32;
                self.log.started(self.now, &work, &nodes);
                let spans = nodes.iter().map(|n| (work.clone(), *n, self.now, None));
                self.spans.extend(spans);
                self.running.push((work, self.now, nodes));
            }
            Move::Leave { of, all, ends } if !self.running.is_empty() => {
                let place = of % self.running.len();
                let (work, from, nodes) = &mut self.running[place];
                let gone = match *all || *ends || nodes.len() == 1 {
                    true => std::mem::take(nodes),
                    false => vec![nodes.remove(0)],
                };
                let (work, from) = (work.clone(), *from);
                for (of, node, _, until) in &mut self.spans {
                    if *of == work && gone.contains(node) && until.is_none() {
                        *until = Some(self.now);
                    }
                }
                match ends {
                    true => self.log.completed(self.now, &work, &[(from, &gone)]),
                    false => self.log.used(self.now, &work, &[(from, &gone)]),
                }
                if self.running[place].2.is_empty() {
                    self.running.remove(place);
                }
            }
            Move::Leave { .. } => {}
            Move::Missed { user_index, ms } => {
                let (work, from) = (self.work(*user_index), self.now.saturating_sub(*ms));
                let node = self.next_node;
                self.next_node += 1;
                self.log.completed(self.now, &work, &[(from, &[node])]);
                self.spans.push((work, node, from, Some(self.now)));
            }
            Move::Gpus { node, gpus } => {
                match gpus {
                    Some(gpus) => self.gpus.insert(*node, *gpus),
                    None => self.gpus.remove(node),
                };
            }
        }
    }

    fn truth(&self, scope: impl Fn(&AccountedAllocation) -> bool, from: u64, until: u64) -> Usage {
        let of = |(work, node, began, ended): &(AccountedAllocation, u32, u64, Option<u64>)| {
            if !scope(work) {
                return Usage::default();
            }
            let ms = ended
                .unwrap_or(u64::MAX)
                .min(until)
                .saturating_sub(from.max(*began));
            let gpus = self.gpus.get(node).copied().unwrap_or(1);
            Usage {
                node_ms: ms,
                gpu_ms: ms * u64::from(gpus),
            }
        };
        self.spans
            .iter()
            .map(of)
            .fold(Usage::default(), Usage::with)
    }

    fn open(&self) -> Vec<OpenUse> {
        let open = self.running.iter().map(|(work, from, nodes)| OpenUse {
            by: NodeUser::Work(work.clone()),
            nodes: names(nodes),
            from: at(*from),
        });
        open.collect()
    }

    fn check(&self, ledger: &Ledger, from: u64, until: u64) {
        for tenant in ["t", "u"] {
            let is = ledger.usage(UsageScope::Tenant(&path(tenant)), at(from), at(until));
            let truth = self.truth(|work| work.project.tenant() == path(tenant), from, until);
            assert_eq!(is.work, truth, "{tenant} {from}..{until}");
        }
        for user in ["ann", "bob"] {
            let is = ledger.usage(UsageScope::User(user), at(from), at(until));
            let truth = self.truth(|work| work.user == user, from, until);
            assert_eq!(is.work, truth, "{user} {from}..{until}");
            let by_tenant = ledger.usage_by_tenant(user, at(from), at(until));
            let sum = by_tenant
                .values()
                .fold(UsageByKind::default(), |a, b| a.with(*b));
            assert_eq!(sum, is);
        }
        let totals = ledger.totals(at(from), at(until));
        for project in ["t", "t/a", "u"] {
            let main = VclusterName::new("main").unwrap();
            let is = totals
                .get(&(path(project), main))
                .copied()
                .unwrap_or_default();
            let truth = self.truth(|work| work.project == path(project), from, until);
            assert_eq!(is.work, truth, "{project} {from}..{until}");
        }
    }
}

proptest! {
    /// A ledger built from live records, or read later, or partly dropped, always equals a separate count of every
    /// node.
    #[test]
    fn ledger_equals_sum_of_nodes(
        before in prop::collection::vec(moves(), 0..60),
        after in prop::collection::vec(moves(), 0..40),
        windows in prop::collection::vec((0..8_000_u64, 0..4_000_u64), 1..6),
        since in 0..3_000_u64,
    ) {
        let mut world = World::default();
        before.iter().for_each(|one| world.take(one));
        // One ledger exists all the time, the other is created here.
        let mut always = noted(&world.log);
        let read = world.log.0.len();
        let mut late = Ledger::new(at(since), world.open(), read as u64, at(world.now));
        world.log.0.iter().filter(|fact| fact.at.0 >= since).for_each(|fact| late.add_ended(fact));
        late.compute_curves();
        after.iter().for_each(|one| world.take(one));
        for fact in &world.log.0[read..] {
            always.add(fact);
            late.add(fact);
        }
        for (node_number, gpus) in &world.gpus {
            always.set_gpus(&node(*node_number), Some(*gpus));
            late.set_gpus(&node(*node_number), Some(*gpus));
        }
        always.compute_curves();
        late.compute_curves();
        for (from, length) in windows {
            world.check(&always, from, from + length);
            world.check(&late, from.max(since), from.max(since) + length);
        }
        always.forget_before(at(since));
        world.check(&always, since, world.now + 100);
        world.check(&always, since + 50, world.now);
    }
}
