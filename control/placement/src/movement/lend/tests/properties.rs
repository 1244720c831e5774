//! Properties of lending on small random clusters.

use super::{
    super::{
        reclaim::{ReclaimCandidate, cheapest},
        *,
    },
    build::*,
};
use crate::{
    movement::preempt::{
        CheckpointAbility,
        tests::build::{HOUR, MINUTE, NOW, job, node, work},
    },
    view::{Health, NodeView, RunningView},
};
use lattice_quorum_types::AllocationState;
use proptest::{collection::vec, option, prelude::*};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn any_policy() -> impl Strategy<Value = Policy> {
    (
        proptest::bool::weighted(0.9),
        option::weighted(0.3, 0..6_u32),
        proptest::bool::weighted(0.9),
        option::weighted(0.3, 0..6_u32),
    )
        .prop_map(
            |(allow_lending, lending_limit, allow_borrowing, borrowing_limit)| Policy {
                allow_lending,
                lending_limit,
                allow_borrowing,
                borrowing_limit,
                ..Policy::default()
            },
        )
}

/// (home, current, holder among the jobs of its vCluster, GPUs, sick, planned for, time since the last move, recalled,
/// promised)
type AnyNode = (
    usize,
    usize,
    Option<u64>,
    u32,
    u8,
    Option<u64>,
    bool,
    bool,
    bool,
);

fn any_node() -> impl Strategy<Value = AnyNode> {
    let current = prop_oneof![3 => Just(3_usize), 1 => Just(0), 1 => Just(1), 1 => Just(2)];
    (
        0..3_usize,
        current,
        option::weighted(0.4, 0..2_u64),
        prop_oneof![Just(2_u32), Just(4)],
        0..16_u8,
        option::weighted(0.1, 1..8_u64),
        proptest::bool::weighted(0.8),
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.3),
    )
}

fn any_work() -> impl Strategy<Value = (HolderFacts, RunningView)> {
    (
        0..11_u8,
        0..12_u8,
        0..20_u64,
        option::weighted(0.8, 0..90_u64),
    )
        .prop_map(|(class, rare, write, left)| {
            let work = HolderFacts {
                sensitive: rare == 0,
                saves: if rare == 1 {
                    CheckpointAbility::Never
                } else {
                    CheckpointAbility::In {
                        write_ms: write * MINUTE,
                    }
                },
                state: if rare == 2 {
                    AllocationState::Stopping
                } else {
                    AllocationState::Running
                },
                ..work(class)
            };
            let running = RunningView {
                ends_at: left.map(|minutes| UnixMillis(NOW.0 - 5 * MINUTE).after(minutes * MINUTE)),
                walltime_ms: left.map(|_| 2 * HOUR),
                ..RunningView::default()
            };
            (work, running)
        })
}

fn any_job() -> impl Strategy<Value = (usize, PendingView, bool, bool)> {
    (
        0..3_usize,
        1..9_u32,
        0..11_u8,
        0..10_u8,
        0..60_u64,
        any::<bool>(),
    )
        .prop_map(|(vcluster, nodes, class, rare, waited, picky)| {
            let mut asks = job(nodes, class);
            asks.sensitive = rare == 0;
            asks.eligible_at = UnixMillis(NOW.0 - waited * MINUTE);
            asks.constraints.gpus_per_node = picky.then_some(4);
            (vcluster, asks, rare != 1, rare == 2)
        })
}

prop_compose! {
    fn any_cluster(most_jobs: usize)(
        nodes in vec(any_node(), 0..18),
        works in vec(any_work(), 6),
        jobs in vec(any_job(), 0..most_jobs),
        policies in vec((any_policy(), 0..3_u128), 3),
    ) -> Cluster {
        let mut cluster = Cluster::new(&[("a", 0), ("b", 0), ("c", 0)]);
        for (vcluster, (policy, backlog)) in NAMES.iter().zip(policies) {
            let member = cluster.member(vcluster);
            (member.policy, member.backlog_gpu_ms) = (policy, backlog);
        }
        for (n, (home, current, held, gpus, sick, planned, settled, returning, promised)) in (0..).zip(nodes) {
            let current = if current == 3 { home } else { current };
            let node_name = format!("n{n:02}");
            cluster.add(&node_name, NAMES[home], NAMES[current]);
            let mut view: NodeView = node(&format!("g{}", n % 4), Some(gpus));
            // A job of a vCluster runs on nodes that this vCluster uses.
            view.holder = held.map(|h| AllocationId(90 + 2 * current as u64 + h));
            match sick {
                // A recalled node has no other reason against its use.
                0 => view.in_service = returning,
                1 => view.facts.health = Health::Degraded,
                2 => view.facts.conformance = crate::view::ConformanceKey::Known([9; 32]),
                _ => {}
            }
            let place = cluster.places.get_mut(&id(&node_name)).unwrap();
            place.planned_for = planned.filter(|_| held.is_none() || promised).map(AllocationId);
            place.is_promised = promised && planned.is_some() && !returning;
            place.moved_at = if settled { UnixMillis(0) } else { NOW };
            let is_reclaimed = returning && home != current && held.is_some();
            place.reclaimed_at = is_reclaimed.then_some(place.moved_at);
            cluster.view.nodes.insert(id(&node_name), view);
        }
        for (n, (work, running)) in (90..).zip(works) {
            cluster.work.insert(AllocationId(n), work);
            cluster.view.running.insert(AllocationId(n), running);
        }
        for (number, (vcluster, asks, saves, home_only)) in (1..).zip(jobs) {
            let wanting = cluster.want_job(NAMES[vcluster], number, asks);
            (wanting.saves, wanting.home_only) = (saves, home_only);
        }
        cluster
    }
}

/// The rules again, in a slow and simple form.
impl Cluster {
    fn fits(&self, node: &NodeView, job: &PendingView) -> bool {
        let gpus = node.facts.gpu_count.unwrap() >= job.constraints.gpus_per_node.unwrap_or(0);
        let well = node.facts.health == Health::Healthy || !job.sensitive;
        node.in_service && gpus && well
    }

    fn is_unstoppable(&self, holder: AllocationId) -> bool {
        let work = &self.work[&holder];
        work.class == 10
            || work.sensitive
            || (work.class >= 7 && work.saves == CheckpointAbility::Never)
    }

    /// Number of suitable nodes with this property.
    fn count(&self, job: AllocationId, is_so: impl Fn(&NodeView, &NodeOwnership) -> bool) -> u32 {
        let asks = &self.view.pending[&job];
        let mut by_key: BTreeMap<_, u32> = BTreeMap::new();
        for (name, node) in &self.view.nodes {
            if self.fits(node, asks) && is_so(node, &self.places[name]) {
                *by_key.entry(node.facts.conformance).or_default() += 1;
            }
        }
        match asks.sensitive {
            true => by_key.values().copied().max().unwrap_or(0),
            false => by_key.values().sum(),
        }
    }

    /// Idle at home, and not planned for another job.
    fn is_own(&self, v: &str, job: AllocationId, node: &NodeView, place: &NodeOwnership) -> bool {
        let own = place.home == name(v) && place.current == name(v);
        own && node.holder.is_none() && place.planned_for.is_none_or(|id| id == job)
    }

    /// Lent, and reclaimable.
    fn is_loan(&self, v: &str, node: &NodeView, place: &NodeOwnership) -> bool {
        let lent = place.home == name(v) && place.current != name(v);
        let stays = |holder| place.reclaimed_at.is_none() && self.is_unstoppable(holder);
        lent && !node.holder.is_some_and(stays)
    }

    fn is_borrowed(
        &self,
        v: &str,
        job: AllocationId,
        node: &NodeView,
        place: &NodeOwnership,
    ) -> bool {
        let borrowed = place.home != name(v) && place.current == name(v);
        borrowed
            && node.holder.is_none()
            && place.reclaimed_at.is_none()
            && place.planned_for.is_none_or(|id| id == job)
    }

    fn is_spare(&self, borrower: &str, node: &NodeView, place: &NodeOwnership) -> bool {
        place.home == place.current
            && place.home != name(borrower)
            && node.holder.is_none()
            && node.facts.health == Health::Healthy
            && place.planned_for.is_none()
            && self.vclusters[&place.home].policy.allow_lending
    }

    fn lent(&self, owner: &VclusterName) -> usize {
        let places = self.places.values();
        places
            .filter(|p| &p.home == owner && p.current != p.home)
            .count()
    }

    fn borrowed(&self, borrower: &VclusterName) -> usize {
        let places = self.places.values();
        places
            .filter(|p| &p.current == borrower && p.current != p.home)
            .count()
    }

    fn may_borrow(&self, wanting: &WaitingJob) -> bool {
        let job = &self.view.pending[&wanting.id];
        !wanting.home_only && !job.sensitive && job.class < 10 && (job.class < 7 || wanting.saves)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(4_000)))]

    #[test]
    fn nothing_is_moved_that_may_not_be(cluster in any_cluster(6)) {
        let moves = cluster.decide();
        prop_assert_eq!(&moves, &cluster.decide());
        let mut moved = BTreeSet::new();
        for loan in &moves.loans {
            prop_assert!(moved.insert(&loan.node), "{} moves twice", loan.node);
            let (node, place) = (&cluster.view.nodes[&loan.node], &cluster.places[&loan.node]);
            prop_assert_eq!((&loan.owner, &loan.owner), (&place.home, &place.current));
            prop_assert!(cluster.is_spare(loan.borrower.as_str(), node, place) && node.in_service);
            prop_assert!(cluster.fits(node, &cluster.view.pending[&loan.job]));
            let member = &cluster.vclusters[&loan.borrower];
            let wanting = member.wanting.iter().find(|w| w.id == loan.job).unwrap();
            prop_assert!(member.policy.allow_borrowing && cluster.may_borrow(wanting));
        }
        for back in &moves.returns {
            prop_assert!(moved.insert(&back.node), "{} moves twice", back.node);
            let place = &cluster.places[&back.node];
            prop_assert_eq!((&back.owner, &back.borrower), (&place.home, &place.current));
            prop_assert!(back.owner != back.borrower && cluster.view.nodes[&back.node].holder.is_none());
            prop_assert!(back.job.is_some() || place.planned_for.is_none());
        }
        for reclaim in &moves.reclaims {
            prop_assert!(!cluster.is_unstoppable(reclaim.from) && !reclaim.nodes.is_empty());
            prop_assert!(reclaim.cost.is_finite() && reclaim.cost >= 0.0);
            prop_assert!(reclaim.back_by <= loan_release_at(NOW, 60_000, 600_000));
            for node in &reclaim.nodes {
                prop_assert!(moved.insert(node), "{} moves twice", node);
                let place = &cluster.places[node];
                prop_assert_eq!(cluster.view.nodes[node].holder, Some(reclaim.from));
                prop_assert_eq!((&reclaim.owner, &reclaim.borrower), (&place.home, &place.current));
            }
        }
        // No loan exceeds a limit.
        let mut after = cluster.clone();
        after.apply(&moves);
        for loan in &moves.loans {
            let owner = cluster.vclusters[&loan.owner].policy.lending_limit;
            prop_assert!(owner.is_none_or(|limit| after.lent(&loan.owner) <= limit as usize));
            let borrower = cluster.vclusters[&loan.borrower].policy.borrowing_limit;
            prop_assert!(borrower.is_none_or(|limit| after.borrowed(&loan.borrower) <= limit as usize));
        }
        // Every borrower then has all nodes it needs.
        for job in moves.loans.iter().map(|loan| loan.job).collect::<BTreeSet<_>>() {
            let v = moves.loans.iter().find(|loan| loan.job == job).unwrap().borrower.as_str();
            let has = after.count(job, |node, place| {
                let coming = place.home == name(v) && place.reclaimed_at.is_some();
                after.is_own(v, job, node, place) || after.is_borrowed(v, job, node, place) || coming
            });
            prop_assert!(has >= cluster.view.pending[&job].nodes, "{job} has {has}");
        }
    }

    /// The first job of a queue that would start now without lending has its nodes at once, or will get them in time.
    /// None of them is lent now, and reclaimed nodes are back by the guaranteed time.
    #[test]
    fn an_owner_waits_no_longer_than_a_reclaim_takes(cluster in any_cluster(6)) {
        let moves = cluster.decide();
        let mut after = cluster.clone();
        after.apply(&moves);
        for (vcluster, member) in &cluster.vclusters {
            let Some(first) = member.wanting.first() else { continue };
            let (v, job) = (vcluster.as_str(), first.id);
            let needed = cluster.view.pending[&job].nodes;
            let were_nothing_lent = cluster.count(job, |node, place| {
                cluster.is_own(v, job, node, place) || cluster.is_loan(v, node, place)
            });
            if were_nothing_lent < needed {
                continue;
            }
            let may_borrow = cluster.may_borrow(first);
            let has = after.count(job, |node, place| {
                let coming = place.home == name(v) && place.reclaimed_at.is_some();
                let borrowed = may_borrow && after.is_borrowed(v, job, node, place);
                after.is_own(v, job, node, place) || coming || borrowed
            });
            prop_assert!(has >= needed, "{job} has {has} of {needed}");
        }
    }

    #[test]
    fn what_was_decided_is_not_taken_back(cluster in any_cluster(6)) {
        let mut cluster = cluster;
        let moves = cluster.decide();
        cluster.apply(&moves);
        let lent: BTreeSet<NodeId> = moves.loans.iter().map(|loan| loan.node.clone()).collect();
        let next = cluster.decide();
        for back in &next.returns {
            prop_assert!(!lent.contains(&back.node), "{back:?}");
        }
        let asked: BTreeSet<&NodeId> = moves.reclaims.iter().flat_map(|r| &r.nodes).collect();
        prop_assert!(next.withdrawn.iter().all(|node| !asked.contains(node)), "{next:?}");
        let asked_again = next.reclaims.iter().flat_map(|r| &r.nodes);
        prop_assert!(asked_again.clone().all(|node| !moves.withdrawn.contains(node)), "{next:?}");
        // Without new plans and ends, decisions come to rest, whatever the interval between calls.
        for pace in [0, 31_000] {
            let mut cluster = cluster.clone();
            let mut rounds = 0;
            loop {
                cluster.now = cluster.now.after(pace);
                let moves = cluster.decide();
                if moves.is_empty() && rounds > 1 {
                    break;
                }
                rounds += 1;
                prop_assert!(rounds < 8, "{moves:?}");
                cluster.apply(&moves);
            }
        }
    }

    /// With one job in all, the number of borrowed nodes follows from a count.
    #[test]
    fn one_job_borrows_exactly_what_it_lacks(cluster in any_cluster(2)) {
        let Some((vcluster, member)) = cluster.vclusters.iter().find(|(_, m)| !m.wanting.is_empty()) else {
            return Ok(());
        };
        let (v, wanting) = (vcluster.as_str(), member.wanting[0]);
        let (job, needed) = (wanting.id, cluster.view.pending[&wanting.id].nodes);
        let moves = cluster.decide();
        let may_borrow = cluster.may_borrow(&wanting);
        let own = cluster.count(job, |node, place| cluster.is_own(v, job, node, place));
        let has = cluster.count(job, |node, place| {
            cluster.is_own(v, job, node, place) || (may_borrow && cluster.is_borrowed(v, job, node, place))
        });
        if has >= needed && !cluster.view.pending[&job].sensitive {
            prop_assert!(moves.loans.is_empty() && moves.reclaims.is_empty());
            prop_assert!(moves.returns.iter().all(|back| back.job.is_none()));
            return Ok(());
        }
        if !may_borrow || !member.policy.allow_borrowing {
            prop_assert!(moves.loans.is_empty());
            return Ok(());
        }
        let rights = own + cluster.count(job, |node, place| cluster.is_loan(v, node, place));
        let idle = cluster.count(job, |node, place| {
            let settled = place.planned_for.is_none() && cluster.now.since(place.moved_at) >= 30_000;
            // A job that could wait for its own nodes borrows to start at once.
            let usable = match node.holder {
                None => rights >= needed || settled,
                Some(_) => rights < needed && place.reclaimed_at.is_some(),
            };
            cluster.is_loan(v, node, place) && usable
        });
        let missing = needed.saturating_sub(has + idle);
        let headroom = |limit: Option<u32>, used: usize| limit.map_or(usize::MAX, |l| (l as usize).saturating_sub(used));
        let mut offered = 0;
        for owner in cluster.vclusters.keys() {
            let spare = cluster.count(job, |node, place| {
                &place.home == owner && cluster.is_spare(v, node, place)
            });
            let limit = cluster.vclusters[owner].policy.lending_limit;
            offered += (spare as usize).min(headroom(limit, cluster.lent(owner)));
        }
        let may_have = headroom(member.policy.borrowing_limit, cluster.borrowed(vcluster));
        let is_lent = missing as usize <= offered.min(may_have);
        let expected = if is_lent { missing as usize } else { 0 };
        prop_assert_eq!(moves.loans.len(), expected);
        prop_assert_eq!(moves.refused.contains_key(&job), missing > 0 && !is_lent);
    }

    #[test]
    fn victim_is_cheapest(
        items in vec((0..6_u32, 0..9_u32, 0..50_u32, 0..3_u32), 0..9),
        needed in 0..20_u32,
    ) {
        let item = |(gain, more, cost, promised): (u32, u32, u32, u32)| ReclaimCandidate {
            gain,
            promised: promised.min(gain),
            nodes: gain + more,
            cost: f64::from(cost),
        };
        let items: Vec<ReclaimCandidate> = items.into_iter().map(item).collect();
        let sum = |set: &[usize]| {
            let cost: f64 = set.iter().map(|i| items[*i].cost).fold(0.0, |a, b| a + b);
            let nodes: u32 = set.iter().map(|i| items[*i].nodes).sum();
            let gain: u32 = set.iter().map(|i| items[*i].gain).sum();
            let promised: u32 = set.iter().map(|i| items[*i].promised).sum();
            ((promised, cost, nodes), gain)
        };
        let subset = |bits: u32| (0..items.len()).filter(|i| bits & (1 << i) != 0).collect::<Vec<_>>();
        let all = (0..1_u32 << items.len()).map(|bits| sum(&subset(bits)));
        let enough = all.filter(|(_, gain)| *gain >= needed);
        let least = enough.map(|(sum, _)| sum).min_by(|a, b| a.partial_cmp(b).unwrap());
        let chosen = cheapest(&items, needed);
        let came_to = chosen.map(|set| {
            let (sum, gain) = sum(&set);
            assert!(gain >= needed);
            sum
        });
        prop_assert_eq!(came_to, least);
    }
}
