//! Random small systems, each plan compared with an exhaustive search.
//!
//! `LATTICE_ORACLE_SYSTEMS=10000 cargo test --release -p lattice-placement --test it small_systems:: -- --nocapture`
//!
//! Checks on every system: no node is used twice, and power and reservations hold (the properties in `src/tests` check
//! these in more ways). The plan has the same bytes for any order of updates to the planner. Each job placed before
//! anything is held back touches the fewest groups possible. For systems of at most 12 nodes, the value of the whole
//! plan is also compared with the best one that respects queue order.
#![expect(
    clippy::disallowed_methods,
    reason = "how many systems there are is said from outside; the solver reads nothing"
)]

use lattice_placement::{
    Charge, ClusterView, ConformanceKey, Delta, DomainView, Health, LevelView, Liveness, NodeFacts,
    NodeView, PendingView, Plan, PlannedReservations, Planner, Policy, RunningView, Weights,
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    limit::{Limits, Usage},
    spec::Constraints,
};
use rand::{
    RngExt, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};
use std::collections::{BTreeMap, BTreeSet};

const NOW: UnixMillis = UnixMillis(1_000_000_000);
const MINUTE: u64 = 60_000;
const MODELS: [&str; 2] = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"];
/// Additional power of a node under load, milliwatts; in some systems up to three times that.
const CHARGE: u64 = 1_000;
/// Systems up to this size are solved exhaustively.
const SOLVED: usize = 12;

/// Groups g0 and g1 are in row-0, g2 and g3 in row-1, and so on; all rows are in the hall.
fn row(group: usize) -> String {
    format!("row-{}", group / 2)
}

fn group_of(node: &NodeView) -> usize {
    let name = node.facts.group.as_deref().unwrap();
    name[1..].parse().unwrap()
}

struct System {
    view: ClusterView,
    /// Whether all nodes share one conformance key.
    is_alike: bool,
}

/// `charges` are random numbers too.
fn system(random: &mut StdRng, charges: &mut StdRng) -> System {
    let groups = random.random_range(1..=8_usize);
    let nodes = match random.random_range(0..2) {
        0 => random.random_range(1..=SOLVED),
        _ => random.random_range(1..=64),
    };
    let is_alike = random.random_bool(0.5);
    let models = random.random_range(1..=2);
    let busy = *[0.0, 0.4, 0.8].get(random.random_range(0..3)).unwrap();
    let has_power = random.random_bool(0.4);
    let dearest = if !has_power || charges.random_bool(0.5) {
        1
    } else {
        3
    };
    let mut view = ClusterView::default();
    for n in 0..nodes {
        let group = random.random_range(0..groups);
        let key = match is_alike {
            true => 1,
            false => random.random_range(1..=3),
        };
        let charge = Charge {
            domain: row(group),
            mw: CHARGE * charges.random_range(1..=dearest),
        };
        let is_busy = random.random_bool(busy);
        let node = NodeView {
            version: random.random_range(1..9),
            in_service: random.random_bool(0.95),
            promised: false,
            holder: is_busy.then(|| AllocationId(100 + random.random_range(0..4))),
            owner: None,
            borrowed: false,
            facts: NodeFacts {
                liveness: Liveness::Alive,
                health: Health::Healthy,
                group: Some(format!("g{group}")),
                conformance: ConformanceKey::Known([key; 32]),
                gpu_model: Some(MODELS[random.random_range(0..models)].to_owned()),
                gpu_count: Some(4),
                charge: has_power.then_some(charge),
                ..NodeFacts::default()
            },
        };
        view.nodes
            .insert(NodeId::new(format!("n{n:02}")).unwrap(), node);
    }
    if has_power {
        let headroom = |random: &mut StdRng, most: usize| DomainView {
            parent: None,
            headroom_mw: (CHARGE * random.random_range(0..=most as u64)) as i64,
        };
        view.power
            .insert("hall".to_owned(), headroom(random, nodes));
        for group in 0..groups {
            let parent = Some("hall".to_owned());
            let row_of = DomainView {
                parent,
                ..headroom(random, 16)
            };
            view.power.insert(row(group), row_of);
        }
    }
    for id in 100..104 {
        let running = RunningView {
            ends_at: random
                .random_bool(0.9)
                .then(|| NOW.after(random.random_range(1..60) * MINUTE)),
            ..RunningView::default()
        };
        view.running.insert(AllocationId(id), running);
    }
    let project = ProjectPath::new("t").unwrap();
    let level = LevelView {
        limits: Limits {
            max_nodes: None,
            max_concurrent_allocations: None,
        },
        own: Usage::default(),
        subtree: Usage::default(),
    };
    view.levels.insert(project.clone(), level);
    for id in 1..=random.random_range(1..=8) {
        let waited = random.random_range(0..600) * MINUTE;
        let model = random
            .random_bool(0.3)
            .then(|| ["h100", "a100"][random.random_range(0..2)]);
        let job = PendingView {
            user: "alice".to_owned(),
            project: project.clone(),
            nodes: random.random_range(1..=(nodes as u32 / 2).clamp(1, 12)),
            walltime_ms: random
                .random_bool(0.9)
                .then(|| random.random_range(1..60) * MINUTE),
            class: random.random_range(0..=10),
            sensitive: random.random_bool(0.1),
            constraints: Constraints {
                gpu_models: model.map(str::to_owned).into_iter().collect(),
                ..Constraints::default()
            },
            submitted_at: UnixMillis(NOW.0 - waited),
            eligible_at: UnixMillis(NOW.0 - waited),
            data_ready: None,
            checkpoint_ms: None,
            storage_mb_s: BTreeMap::new(),
            reservation: None,
            home_only: false,
        };
        view.pending.insert(AllocationId(id), job);
    }
    System { view, is_alike }
}

fn fits(node: &NodeView, job: &PendingView) -> bool {
    let model = node.facts.gpu_model.as_deref().unwrap().to_lowercase();
    node.in_service
        && job
            .constraints
            .gpu_models
            .iter()
            .all(|wanted| model.contains(wanted))
}

/// Power drawn from the headroom of each domain.
type DrawnPower = BTreeMap<String, u64>;

/// Group of a node, and its power.
type Drawing = (usize, u64);

fn draws(node: &NodeView) -> u64 {
    node.facts.charge.as_ref().map_or(0, |charge| charge.mw)
}

/// Remaining power of the rows and of the hall.
#[derive(Clone, Copy)]
struct RemainingPower {
    rows: [u64; 4],
    hall: u64,
}

impl RemainingPower {
    fn new(view: &ClusterView, drawn: &DrawnPower) -> Self {
        let left = |name: &str| {
            let drawn = drawn.get(name).copied().unwrap_or(0);
            let domain = view.power.get(name);
            domain.map_or(u64::MAX, |domain| {
                domain.headroom_mw.cast_unsigned().saturating_sub(drawn)
            })
        };
        Self {
            rows: [0, 2, 4, 6].map(|group| left(&row(group))),
            hall: left("hall"),
        }
    }

    /// Number of nodes of `open` that the groups of `set` can supply, cheapest first. No choice gives more: replacing a
    /// taken node by one left out frees no power in its row or the hall.
    fn held(mut self, open: &[Drawing], set: u32) -> u32 {
        let mut held = 0;
        for (group, mw) in open.iter().filter(|(group, _)| set & (1 << group) != 0) {
            let row = &mut self.rows[group / 2];
            if *mw <= self.hall && mw <= row {
                self.hall -= mw;
                *row -= mw;
                held += 1;
            }
        }
        held
    }
}

/// Fewest groups that supply `needed` nodes, by trying every set of groups.
fn fewest(
    view: &ClusterView,
    mut open: Vec<Drawing>,
    needed: u32,
    drawn: &DrawnPower,
) -> Option<u32> {
    open.sort_unstable_by_key(|(_, mw)| *mw);
    let left = RemainingPower::new(view, drawn);
    let enough = (0..256_u32).filter(|set| left.held(&open, *set) >= needed);
    enough.map(u32::count_ones).min()
}

fn names(plan: &Plan, at: usize) -> Vec<&NodeId> {
    plan.placements[at].nodes.iter().map(|n| &n.node).collect()
}

fn key(node: &NodeView) -> u8 {
    match node.facts.conformance {
        ConformanceKey::Known(key) => key[0],
        ConformanceKey::Unknown => 0,
    }
}

/// Compares the spans of the plan with the minimum, and checks that no node is used twice or beyond its power.
fn check_plan(system: &System, plan: &Plan) {
    let view = &system.view;
    let mut taken: BTreeSet<&NodeId> = BTreeSet::new();
    let mut drawn = DrawnPower::new();
    for (at, placement) in plan.placements.iter().enumerate() {
        let job = &view.pending[&placement.id];
        let chosen = names(plan, at);
        let is_open = |id: &&NodeId, node: &NodeView| {
            node.holder.is_none() && !taken.contains(*id) && fits(node, job)
        };
        assert!(chosen.iter().all(|id| is_open(id, &view.nodes[*id])));
        let open = |of_key: Option<u8>| {
            let open = view.nodes.iter().filter(|(id, node)| {
                is_open(id, node) && of_key.is_none_or(|wanted| key(node) == wanted)
            });
            open.map(|(_, node)| (group_of(node), draws(node)))
                .collect()
        };
        let groups: BTreeSet<usize> = chosen.iter().map(|id| group_of(&view.nodes[*id])).collect();
        let keys: BTreeSet<u8> = chosen.iter().map(|id| key(&view.nodes[*id])).collect();
        let span = groups.len() as u32;
        assert!(!job.sensitive || keys.len() == 1);
        // Before anything is held back, every open node was available.
        if !placement.backfilled {
            let of_all = fewest(view, open(None), job.nodes, &drawn);
            let of_one_kind = match keys.first() {
                Some(key) if keys.len() == 1 => fewest(view, open(Some(*key)), job.nodes, &drawn),
                _ => None,
            };
            match system.is_alike {
                true => assert_eq!(Some(span), of_all, "{placement:?}"),
                false => assert!([of_all, of_one_kind].contains(&Some(span)), "{placement:?}"),
            }
        }
        for id in &chosen {
            let node = &view.nodes[*id];
            *drawn.entry("hall".to_owned()).or_default() += draws(node);
            *drawn.entry(row(group_of(node))).or_default() += draws(node);
        }
        for (name, drawn) in &drawn {
            let headroom = view
                .power
                .get(name)
                .map_or(u64::MAX, |d| d.headroom_mw.cast_unsigned());
            assert!(*drawn <= headroom, "{name}: {drawn} of {headroom}");
        }
        assert!(chosen.into_iter().all(|id| taken.insert(id)), "twice");
    }
    for reservation in &plan.reservations {
        for (at, placement) in plan.placements.iter().enumerate() {
            let walltime = view.pending[&placement.id].walltime_ms;
            let in_time = walltime.is_some_and(|w| NOW.after(w) <= reservation.starts_at);
            let shares = names(plan, at)
                .iter()
                .any(|id| reservation.nodes.contains(id));
            assert!(
                in_time || !shares,
                "{} delays {}",
                placement.id,
                reservation.id
            );
        }
    }
}

/// A kind of free nodes: group, conformance key and model.
type Kind = (usize, u8, usize);

/// Search for the best value of the jobs from `at` on, each placed if possible, with the given number of nodes left of
/// each kind.
#[derive(Clone)]
struct Search<'a> {
    weights: Weights,
    /// With this rule, each job takes one of its own best sets: with the fewest groups, or inside one conformance
    /// group. Without it, any set.
    by_rule: bool,
    kinds: Vec<Kind>,
    /// By turn: the job, its value without f4 and f9, and the number of groups with fitting nodes.
    jobs: Vec<(&'a PendingView, f64, usize)>,
    known: BTreeMap<(usize, Vec<u32>), f64>,
}

impl Search<'_> {
    fn best(&mut self, at: usize, left: &[u32]) -> f64 {
        let Some((job, base, groups)) = self.jobs.get(at).copied() else {
            return 0.0;
        };
        if let Some(best) = self.known.get(&(at, left.to_vec())) {
            return *best;
        }
        let fitting: Vec<usize> = (0..self.kinds.len())
            .filter(|k| {
                let model = MODELS[self.kinds[*k].2].to_lowercase();
                job.constraints
                    .gpu_models
                    .iter()
                    .all(|wanted| model.contains(wanted))
            })
            .collect();
        let mut sets = Vec::new();
        every_set(
            &fitting,
            left,
            job.nodes,
            &mut vec![0; left.len()],
            &mut sets,
        );
        if job.sensitive {
            let keys = |set: &Vec<u32>| {
                let used = set.iter().enumerate().filter(|(_, n)| **n > 0);
                used.map(|(k, _)| self.kinds[k].1)
                    .collect::<BTreeSet<u8>>()
                    .len()
            };
            sets.retain(|set| keys(set) == 1);
        }
        let mut best: f64 = 0.0;
        if sets.is_empty() {
            best = self.best(at + 1, left);
        }
        let mut worth: Vec<(Vec<u32>, f64)> = Vec::new();
        if self.by_rule {
            let spans = sets.iter().map(|set| self.lies(set).0);
            let fewest = spans.min().unwrap_or(0);
            sets.retain(|set| {
                let (span, alike) = self.lies(set);
                span == fewest || alike == job.nodes
            });
        }
        for set in sets {
            let value = self.value(&set, job.nodes, groups);
            worth.push((set, value));
        }
        if self.by_rule {
            let most = worth.iter().map(|(_, value)| *value).fold(0.0, f64::max);
            worth.retain(|(_, value)| *value >= most - 1e-12);
        }
        for (set, value) in worth {
            let value = base + value;
            let rest: Vec<u32> = left
                .iter()
                .zip(&set)
                .map(|(left, taken)| left - taken)
                .collect();
            best = best.max(value + self.best(at + 1, &rest));
        }
        self.known.insert((at, left.to_vec()), best);
        best
    }

    /// Number of groups that a set touches, and size of its largest conformance group.
    fn lies(&self, set: &[u32]) -> (usize, u32) {
        let mut by_key: BTreeMap<u8, u32> = BTreeMap::new();
        let mut touched = BTreeSet::new();
        for (kind, count) in self.kinds.iter().zip(set).filter(|(_, count)| **count > 0) {
            *by_key.entry(kind.1).or_default() += count;
            touched.insert(kind.0);
        }
        (touched.len(), by_key.into_values().max().unwrap_or(0))
    }

    /// w4·f4 + w9·f9 of a set.
    fn value(&self, set: &[u32], nodes: u32, groups: usize) -> f64 {
        let (span, alike) = self.lies(set);
        let weights = self.weights.get();
        weights.topology * (1.0 - span as f64 / groups as f64)
            + weights.conformance * f64::from(alike) / f64::from(nodes)
    }
}

/// Every way to take `needed` nodes of the kinds in `of`.
fn every_set(
    of: &[usize],
    left: &[u32],
    needed: u32,
    set: &mut Vec<u32>,
    sets: &mut Vec<Vec<u32>>,
) {
    match of.split_first() {
        _ if needed == 0 => sets.push(set.clone()),
        None => {}
        Some((kind, others)) => {
            for taken in 0..=left[*kind].min(needed) {
                set[*kind] = taken;
                every_set(others, left, needed - taken, set, sets);
            }
            set[*kind] = 0;
        }
    }
}

/// Values of plans without reservations and power.
struct Values {
    found: f64,
    /// Best value if each job takes one of its own best sets.
    by_rule: f64,
    /// Best value if each job takes any set.
    of_all: f64,
}

fn values(system: &System) -> Values {
    let view = ClusterView {
        power: BTreeMap::new(),
        ..system.view.clone()
    };
    let policy = Policy {
        reservations: PlannedReservations::First(0),
        ..Policy::default()
    };
    let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
    let mut left: BTreeMap<Kind, u32> = BTreeMap::new();
    let model = |node: &NodeView| {
        MODELS
            .iter()
            .position(|m| Some(*m) == node.facts.gpu_model.as_deref())
    };
    for node in view
        .nodes
        .values()
        .filter(|n| n.in_service && n.holder.is_none())
    {
        *left
            .entry((group_of(node), key(node), model(node).unwrap()))
            .or_default() += 1;
    }
    let placed = plan.placements.iter().map(|p| (p.id, p.score));
    let waiting = plan
        .waiting
        .iter()
        .map(|(id, why)| (id, why.score.unwrap()));
    let weights = Policy::default().weights;
    let (w4, w9) = (weights.get().topology, weights.get().conformance);
    let mut turns: Vec<_> = placed.chain(waiting).collect();
    turns.sort_by(|a, b| {
        let by_age = view.pending[&a.0]
            .eligible_at
            .cmp(&view.pending[&b.0].eligible_at);
        b.1.total
            .total_cmp(&a.1.total)
            .then(by_age)
            .then(a.0.cmp(&b.0))
    });
    let mut base = BTreeMap::new();
    let jobs = turns.iter().map(|(id, score)| {
        let job = &view.pending[id];
        let rest = score.total - w4 * score.factors.topology - w9 * score.factors.conformance;
        base.insert(*id, rest);
        let fitting = view.nodes.values().filter(|node| fits(node, job));
        (
            job,
            rest,
            fitting.map(group_of).collect::<BTreeSet<_>>().len(),
        )
    });
    let search = Search {
        weights,
        by_rule: false,
        jobs: jobs.collect(),
        kinds: left.keys().copied().collect(),
        known: BTreeMap::new(),
    };
    let counts: Vec<u32> = left.into_values().collect();
    let best = |by_rule| {
        let mut search = search.clone();
        search.by_rule = by_rule;
        search.best(0, &counts)
    };
    let found = plan
        .placements
        .iter()
        .map(|p| base[&p.id] + w4 * p.layout.topology + w9 * p.layout.conformance);
    Values {
        found: found.sum(),
        by_rule: best(true),
        of_all: best(false),
    }
}

/// Comparison of plans with the best ones.
#[derive(Default)]
struct Compared {
    plans: u32,
    best: u32,
    found: f64,
    sum: f64,
    worst: Option<f64>,
}

impl Compared {
    fn add(&mut self, found: f64, best: f64) {
        self.plans += 1;
        self.best += u32::from(found >= best - 1e-9);
        self.found += found;
        self.sum += best;
        if best > 0.0 {
            let part = found / best;
            self.worst = Some(self.worst.map_or(part, |worst| worst.min(part)));
        }
    }
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "best in {} of {}; value {:.2} % of the best in all, {:.2} % in the worst",
            self.best,
            self.plans,
            100.0 * self.found / self.sum,
            100.0 * self.worst.unwrap_or(1.0),
        )
    }
}

/// A planner that received nodes and jobs in another order, in several updates.
fn planner_in_other_order(view: &ClusterView, policy: Policy, random: &mut StdRng) -> Planner {
    let mut planner = Planner::with_policy(
        ClusterView {
            nodes: BTreeMap::new(),
            pending: BTreeMap::new(),
            ..view.clone()
        },
        policy,
    );
    let mut nodes: Vec<_> = view.nodes.iter().collect();
    let mut pending: Vec<_> = view.pending.iter().collect();
    nodes.shuffle(random);
    pending.shuffle(random);
    let rest = || Delta {
        revision: view.revision,
        limit_policy: view.limit_policy,
        ..Delta::default()
    };
    for some in nodes.chunks(7) {
        let nodes = some
            .iter()
            .map(|(id, node)| ((*id).clone(), Some((*node).clone())));
        planner.update(Delta {
            nodes: nodes.collect(),
            ..rest()
        });
        planner.plan(NOW);
    }
    for some in pending.chunks(3) {
        let jobs = some.iter().map(|(id, job)| (**id, Some((*job).clone())));
        planner.update(Delta {
            pending: jobs.collect(),
            ..rest()
        });
        planner.plan(NOW);
    }
    planner
}

#[test]
fn plans_of_small_systems_are_as_good_as_trying_everything() {
    let systems = match std::env::var("LATTICE_ORACLE_SYSTEMS") {
        Ok(text) => text.parse().expect("LATTICE_ORACLE_SYSTEMS is a number"),
        Err(_) => 400,
    };
    let (mut random, mut charges) = (StdRng::seed_from_u64(6), StdRng::seed_from_u64(7));
    let (mut placed, mut reserved) = (0, 0);
    let (mut by_rule, mut of_all) = (Compared::default(), Compared::default());
    for _ in 0..systems {
        let system = system(&mut random, &mut charges);
        let policy = Policy {
            reservations: *[
                PlannedReservations::First(1),
                PlannedReservations::First(3),
                PlannedReservations::All,
            ]
            .choose(&mut random)
            .unwrap(),
            ..Policy::default()
        };
        let plan = Planner::with_policy(system.view.clone(), policy).plan(NOW);
        let again = planner_in_other_order(&system.view, policy, &mut random).plan(NOW);
        assert_eq!(
            serde_json::to_vec(&plan).unwrap(),
            serde_json::to_vec(&again).unwrap()
        );
        check_plan(&system, &plan);
        placed += plan.placements.len();
        reserved += plan.reservations.len();
        if system.view.nodes.len() <= SOLVED {
            let values = values(&system);
            by_rule.add(values.found, values.by_rule);
            of_all.add(values.found, values.of_all);
        }
    }
    println!(
        "systems {systems}, jobs placed {placed}, reservations {reserved}; every span the fewest"
    );
    println!("each job one of its best sets: {by_rule}");
    println!("each job any set:              {of_all}");
    assert!(by_rule.found >= 0.95 * by_rule.sum);
    assert!(of_all.found >= 0.95 * of_all.sum);
}
