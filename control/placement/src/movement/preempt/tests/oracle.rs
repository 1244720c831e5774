//! Small random systems, compared with an exhaustive search.

use super::{super::*, build::*};
use crate::view::{ConformanceKey, StorageView};
use proptest::{bool::weighted, collection::vec, option, prelude::*};

#[derive(Debug, Clone)]
struct Case {
    site: Site,
}

fn any_work() -> impl Strategy<Value = (HolderFacts, u64, Option<u64>)> {
    let saves = prop_oneof![
        1 => Just(CheckpointAbility::Never),
        1 => Just(CheckpointAbility::NotNow),
        4 => (0..20_u64).prop_map(|m| CheckpointAbility::In { write_ms: m * MINUTE }),
    ];
    let state = prop_oneof![
        8 => Just(AllocationState::Running),
        1 => Just(AllocationState::Starting),
        1 => Just(AllocationState::Checkpointing),
    ];
    (
        (
            0..11_u8,
            0..8_u8,
            state,
            0..300_u64,
            option::of(0..300_u64),
            saves,
        ),
        (0..5_u32, option::weighted(0.2, 0..40_u64), weighted(0.3)),
        (0..600_u64, option::weighted(0.8, 1..900_u64)),
    )
        .prop_map(
            |(
                (class, sensitive, state, ran, checkpointed, saves),
                (preempted, moved, burst),
                ends,
            )| {
                let ago = |minutes: u64| UnixMillis(NOW.0 - minutes * MINUTE);
                let work = HolderFacts {
                    class,
                    sensitive: sensitive == 0,
                    state,
                    ran_before_ms: 0,
                    since: ago(ran),
                    checkpointed_at: checkpointed.map(ago),
                    saves,
                    preempted,
                    moved_at: moved.map(ago),
                    burst,
                };
                (work, ends.0, ends.1)
            },
        )
}

prop_compose! {
    fn any_case()(
        nodes in vec(
            (0..3_u8, 1..3_u8, 0..5_u32, option::weighted(0.8, 0..7_u64), 0..12_u8),
            3..15,
        ),
        works in vec(any_work(), 7),
        (needed, class, sensitive, wide) in (1..8_u32, 3..11_u8, weighted(0.15), 0..5_u32),
        (walltime, wait, start) in (
            option::of(prop_oneof![1..8_u64, 1..600_u64]),
            0..600_u64,
            option::of(0..600_u64),
        ),
        most in 0..5_u32,
        (left, asked, storage) in (
            option::weighted(0.3, -5..20_i64),
            0..12_u64,
            vec(0..9_u64, 7),
        ),
    ) -> Case {
        let mut site = Site::default();
        level(&mut site.view, "t", None, 0);
        for (n, (group, key, gpus, holder, held)) in nodes.iter().enumerate() {
            let name = id(&format!("n{n:02}"));
            let mut node = node(&format!("g{group}"), Some(*gpus));
            node.facts.conformance = ConformanceKey::Known([*key; 32]);
            node.holder = holder.map(|h| AllocationId(90 + h));
            node.in_service = *held != 1;
            site.view.nodes.insert(name.clone(), node);
            if *held == 0 {
                site.reserved.insert(name);
            }
        }
        for (n, (work, ends_in, walltime)) in (0..).zip(works) {
            let running = RunningView {
                ends_at: walltime.map(|_| NOW.after(ends_in * MINUTE)),
                walltime_ms: walltime.map(|minutes| minutes * MINUTE),
                ..RunningView::default()
            };
            site.view.running.insert(AllocationId(90 + n), running);
            site.work.insert(AllocationId(90 + n), work);
        }
        let mut asks = job(needed, class);
        asks.sensitive = sensitive;
        asks.walltime_ms = walltime.map(|minutes| minutes * MINUTE);
        asks.eligible_at = UnixMillis(NOW.0 - wait * MINUTE);
        asks.constraints.gpus_per_node = (wide == 0).then_some(2);
        site.ask(asks);
        if let Some(left_mb_s) = left {
            site.view.storage.insert(SYSTEM.to_owned(), StorageView { left_mb_s });
        }
        let job = site.view.pending.get_mut(&AllocationId(1)).unwrap();
        job.storage_mb_s = [(SYSTEM.to_owned(), asked)].into();
        for (running, mb_s) in site.view.running.values_mut().zip(storage) {
            running.storage_mb_s = [(SYSTEM.to_owned(), mb_s)].into();
        }
        site.planned_start = start.map(|minutes| NOW.after(minutes * MINUTE));
        site.policy.max_victims = most;
        Case { site }
    }
}

const SYSTEM: &str = "scratch";

/// Effect of a set of victims, computed without the product code: permitted victims, and nodes available then.
struct VictimEffect<'a> {
    site: &'a Site,
}

/// (weighted cost of victims outside an excess, weighted cost of all victims, number of victims), as sets are compared.
type Weight = (f64, f64, usize);

impl VictimEffect<'_> {
    fn job(&self) -> &PendingView {
        &self.site.view.pending[&AllocationId(1)]
    }

    fn counts_as(&self, work: &HolderFacts) -> u8 {
        (work.class + u8::from(work.preempted >= 3)).min(10)
    }

    fn may_go(&self, id: AllocationId) -> bool {
        let (work, running) = (&self.site.work[&id], &self.site.view.running[&id]);
        work.class < 10
            && self.counts_as(work) < self.job().class
            && !work.sensitive
            && work.state != AllocationState::Checkpointing
            && !(work.saves == CheckpointAbility::Never && work.class >= 7)
            && running
                .ends_at
                .is_none_or(|end| end > NOW.after(5 * MINUTE))
            && work.moved_at.is_none_or(|at| at.after(15 * MINUTE) <= NOW)
    }

    /// Whether enough fitting nodes are free or held by one of these.
    fn is_enough(&self, gone: &[AllocationId]) -> bool {
        let job = self.job();
        let mut keys: BTreeMap<ConformanceKey, u32> = BTreeMap::new();
        for (name, node) in &self.site.view.nodes {
            let is_free = node.holder.is_none_or(|holder| gone.contains(&holder));
            let gpus = node.facts.gpu_count.unwrap() >= job.constraints.gpus_per_node.unwrap_or(0);
            if is_free && gpus && node.in_service && !self.site.reserved.contains(name) {
                *keys.entry(node.facts.conformance).or_default() += 1;
            }
        }
        let has_nodes = match job.sensitive {
            true => keys.values().any(|n| *n >= job.nodes),
            false => keys.values().sum::<u32>() >= job.nodes,
        };
        let back = gone
            .iter()
            .map(|id| self.site.view.running[id].storage_mb_s[SYSTEM] as i64);
        let left = self.site.view.storage.get(SYSTEM).map(|s| s.left_mb_s);
        let asked = job.storage_mb_s[SYSTEM] as i64;
        let has_storage = left.is_none_or(|left| asked == 0 || left + back.sum::<i64>() >= asked);
        has_nodes && has_storage
    }

    /// The cost as defined in the documents.
    fn cost(&self, id: AllocationId) -> f64 {
        let (work, running) = (&self.site.work[&id], &self.site.view.running[&id]);
        let nodes = self
            .site
            .view
            .nodes
            .values()
            .filter(|n| n.holder == Some(id));
        let gpus: u32 = nodes.map(|n| n.facts.gpu_count.unwrap().max(1)).sum();
        let ran = NOW.since(work.since);
        let lost = match (work.state, work.saves) {
            (AllocationState::Starting, _) => 0,
            (_, CheckpointAbility::In { write_ms }) => write_ms,
            (_, CheckpointAbility::Never) => ran,
            (_, CheckpointAbility::NotNow) => {
                ran.min(work.checkpointed_at.map_or(ran, |at| NOW.since(at)))
            }
        };
        let had = running.walltime_ms.map_or(0, |walltime| {
            walltime.saturating_sub(running.ends_at.unwrap().since(NOW))
        });
        let walltime = running.walltime_ms.unwrap_or(1);
        let part = if had * 10 < walltime {
            0.0
        } else if had * 10 > walltime * 9 {
            1.0
        } else {
            0.01
        };
        (lost as f64 + had as f64 * part) / 1000.0 * f64::from(gpus)
    }

    fn value(&self, gone: &[AllocationId]) -> f64 {
        let job = self.job();
        let highest = gone
            .iter()
            .map(|id| self.counts_as(&self.site.work[id]))
            .max()
            .unwrap();
        let fits = |(name, node): &(&NodeId, &crate::view::NodeView)| {
            node.in_service
                && !self.site.reserved.contains(*name)
                && node.facts.gpu_count.unwrap() >= job.constraints.gpus_per_node.unwrap_or(0)
        };
        let gpus: Vec<u32> = self
            .site
            .view
            .nodes
            .iter()
            .filter(fits)
            .map(|(_, n)| n.facts.gpu_count.unwrap().max(1))
            .collect();
        let per_node = f64::from(gpus.iter().sum::<u32>()) / gpus.len() as f64;
        let asked = job.walltime_ms.unwrap_or(24 * HOUR);
        let sooner = self.site.planned_start.map_or(asked, |at| at.since(NOW));
        let wait = 1.0 + (1.0 + NOW.since(job.eligible_at) as f64 / HOUR as f64).ln();
        asked.min(sooner) as f64 / 1000.0
            * f64::from(job.nodes)
            * per_node
            * f64::from(job.class - highest)
            * wait
    }

    fn weight(&self, gone: &[AllocationId]) -> Weight {
        let weighed = |set: &[AllocationId]| {
            // The sum of an empty set is -0.
            let cost = set.iter().map(|id| self.cost(*id)).fold(0.0, |a, b| a + b);
            cost * [0.0, 1.0, 1.25, 1.5][set.len()]
        };
        let others = gone.iter().filter(|id| !self.site.work[id].burst);
        let others: Vec<AllocationId> = others.copied().collect();
        (weighed(&others), weighed(gone), gone.len())
    }

    /// Every set of at most `most` permitted victims that gives enough nodes and (if requested) pays.
    fn sets(&self, most: usize, worth_it: bool) -> Vec<Vec<AllocationId>> {
        let holders: BTreeSet<AllocationId> = self
            .site
            .view
            .nodes
            .values()
            .filter_map(|n| n.holder)
            .collect();
        let may: Vec<AllocationId> = holders.into_iter().filter(|id| self.may_go(*id)).collect();
        let subset = |bits: u32| {
            let members = may.iter().enumerate().filter(|(n, _)| bits & (1 << n) != 0);
            members.map(|(_, id)| *id).collect::<Vec<_>>()
        };
        let sets = (1..1_u32 << may.len()).map(subset);
        let is_right = |set: &Vec<AllocationId>| {
            let cost: f64 = set.iter().map(|id| self.cost(*id)).sum();
            set.len() <= most && self.is_enough(set) && (!worth_it || cost < self.value(set) - 1e-6)
        };
        sets.filter(is_right).collect()
    }
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(2_000)))]

    #[test]
    fn no_other_victims_would_be_better(case in any_case()) {
        let plainly = VictimEffect { site: &case.site };
        let most = case.site.policy.max_victims.min(3) as usize;
        let chosen = case.site.choose();
        prop_assert_eq!(&chosen, &case.site.choose());
        let sets = plainly.sets(most, true);
        let is_rationed = !case.site.view.storage.is_empty();
        let weights = sets.iter().map(|set| plainly.weight(set));
        let best = weights.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        match chosen {
            Ok(chosen) => {
                let gone: Vec<AllocationId> = chosen.victims.iter().map(|v| v.id).collect();
                let (others, cost, count) = plainly.weight(&gone);
                let (least_others, least, least_count) = best.unwrap();
                prop_assert!(is_close(others, least_others), "{} and not {}", others, least_others);
                prop_assert!(is_close(cost, least), "{} and not {}", cost, least);
                prop_assert!(count == least_count || cost != least);
                prop_assert!(gone.iter().all(|id| plainly.may_go(*id)));
                prop_assert!(plainly.is_enough(&gone) && !plainly.is_enough(&[]));
                prop_assert!(is_close(chosen.value, plainly.value(&gone)) && chosen.cost < chosen.value);
                let job = plainly.job();
                prop_assert_eq!(chosen.nodes.len(), job.nodes as usize);
                let distinct: BTreeSet<&NodeId> = chosen.nodes.iter().collect();
                prop_assert_eq!(distinct.len(), chosen.nodes.len());
                for name in &chosen.nodes {
                    let node = &case.site.view.nodes[name];
                    prop_assert!(node.holder.is_none_or(|holder| gone.contains(&holder)));
                    prop_assert!(node.in_service && !case.site.reserved.contains(name));
                }
                let keys: BTreeSet<_> = chosen.nodes.iter().map(|n| case.site.view.nodes[n].facts.conformance).collect();
                prop_assert!(!job.sensitive || keys.len() == 1);
            }
            Err(NoVictims::FitsNow) => prop_assert!(plainly.is_enough(&[])),
            Err(NoVictims::Blocked { .. } | NoVictims::NoCandidate { .. }) => {
                prop_assert!(sets.is_empty() || plainly.is_enough(&[]));
            }
            Err(NoVictims::Shortfall { .. }) => prop_assert!(plainly.sets(7, false).is_empty()),
            Err(NoVictims::TooMany { needed, most }) => {
                prop_assert!(plainly.sets(most as usize, false).is_empty() && needed > most);
                prop_assert!(is_rationed || !plainly.sets(needed as usize, false).is_empty());
            }
            Err(NoVictims::CostOverValue { cost, value }) => {
                prop_assert!(sets.is_empty() && cost >= value);
                let all = plainly.sets(most, false);
                let least = all.iter().map(|set| set.iter().map(|id| plainly.cost(*id)).sum::<f64>());
                prop_assert!(is_rationed || is_close(least.fold(f64::INFINITY, f64::min), cost));
            }
            Err(NoVictims::NotFound { .. }) => prop_assert!(is_rationed && sets.is_empty()),
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }
}
