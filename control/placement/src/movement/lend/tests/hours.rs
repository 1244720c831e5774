//! Hours of vClusters that lend nodes to each other. Jobs arrive, are served in order of arrival, end, and are stopped
//! for owners as late as allowed. After each step the guarantee to owners is checked.

use super::{super::*, build::*};
use crate::{
    movement::preempt::{
        CheckpointAbility,
        tests::build::{MINUTE, NOW, job, work},
    },
    view::RunningView,
};
use proptest::{bool::weighted, collection::vec, prelude::*};
use std::collections::VecDeque;

const NAMES: [&str; 3] = ["a", "b", "c"];
const STEP: u64 = 20_000;
/// Default grace plus default checkpoint timeout.
const PROMISE: u64 = 660_000;

#[derive(Debug, Clone)]
struct Arrival {
    step: u64,
    vcluster: usize,
    nodes: u32,
    class: u8,
    minutes: u64,
    saves: bool,
    sensitive: bool,
}

fn any_arrival() -> impl Strategy<Value = Arrival> {
    (
        0..400_u64,
        0..3_usize,
        1..9_u32,
        0..11_u8,
        1..60_u64,
        weighted(0.8),
        weighted(0.1),
    )
        .prop_map(
            |(step, vcluster, nodes, class, minutes, saves, sensitive)| Arrival {
                step,
                vcluster,
                nodes,
                class,
                minutes,
                saves,
                sensitive,
            },
        )
}

#[derive(Debug, Default)]
struct World {
    cluster: Cluster,
    jobs: BTreeMap<AllocationId, Arrival>,
    queues: [VecDeque<AllocationId>; 3],
    /// End of each running job: its own end, or earlier if it is stopped.
    goes_at: BTreeMap<AllocationId, UnixMillis>,
    stopped: BTreeSet<AllocationId>,
    /// Time since when the first job of a queue would run if no node had been lent.
    would_run: [Option<(AllocationId, UnixMillis)>; 3],
}

impl World {
    fn job(&self, id: AllocationId) -> PendingView {
        let arrival = &self.jobs[&id];
        PendingView {
            walltime_ms: Some(arrival.minutes * MINUTE),
            sensitive: arrival.sensitive,
            ..job(arrival.nodes, arrival.class)
        }
    }

    /// Frees the nodes of jobs that have ended.
    fn end(&mut self) {
        let now = self.cluster.now;
        let over: Vec<AllocationId> = self
            .goes_at
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.goes_at.remove(&id);
            for node in self
                .cluster
                .view
                .nodes
                .values_mut()
                .filter(|n| n.holder == Some(id))
            {
                node.holder = None;
            }
            self.cluster.view.running.remove(&id);
            self.cluster.work.remove(&id);
            if self.stopped.remove(&id) {
                let arrival = self.jobs[&id].clone();
                self.queues[arrival.vcluster].push_back(id);
            }
        }
    }

    /// Starts the first job of each queue while nodes are available.
    fn start(&mut self) {
        for (v, vcluster) in NAMES.into_iter().enumerate() {
            while let Some(id) = self.queues[v].front().copied() {
                let arrival = self.jobs[&id].clone();
                let job = self.job(id);
                let borrows = may_borrow(&job, arrival.saves, 5 * MINUTE).is_ok();
                let is_open = |node: &NodeId| {
                    let place = &self.cluster.places[node];
                    let here = place.current == name(vcluster);
                    here && place.reclaimed_at.is_none()
                        && (borrows || place.home == place.current)
                        && self.cluster.view.nodes[node].holder.is_none()
                };
                let open = self.cluster.places.keys().filter(|n| is_open(n));
                let open: Vec<NodeId> = open.take(arrival.nodes as usize).cloned().collect();
                if open.len() < arrival.nodes as usize {
                    break;
                }
                self.run(id, &arrival, &open);
                self.queues[v].pop_front();
            }
        }
    }

    fn run(&mut self, id: AllocationId, arrival: &Arrival, nodes: &[NodeId]) {
        let now = self.cluster.now;
        let end = now.after(arrival.minutes * MINUTE);
        for node in nodes {
            self.cluster.view.nodes.get_mut(node).unwrap().holder = Some(id);
        }
        let running = RunningView {
            ends_at: Some(end),
            walltime_ms: Some(arrival.minutes * MINUTE),
            ..RunningView::default()
        };
        self.cluster.view.running.insert(id, running);
        let saves = if arrival.saves {
            CheckpointAbility::In { write_ms: MINUTE }
        } else {
            CheckpointAbility::Never
        };
        let work = HolderFacts {
            saves,
            since: now,
            sensitive: arrival.sensitive,
            ..work(arrival.class)
        };
        self.cluster.work.insert(id, work);
        self.goes_at.insert(id, end);
    }

    /// Lends and returns nodes, and stops jobs on reclaimed nodes at the last moment.
    fn lend(&mut self) {
        self.cluster.view.pending.clear();
        for (v, vcluster) in NAMES.into_iter().enumerate() {
            self.cluster.member(vcluster).wanting.clear();
            for id in self.queues[v].clone() {
                let saves = self.jobs[&id].saves;
                let job = self.job(id);
                self.cluster.want_job(vcluster, id.0, job).saves = saves;
            }
        }
        let moves = self.cluster.decide();
        self.cluster.apply(&moves);
        for reclaim in moves
            .reclaims
            .iter()
            .filter(|r| r.how == ReleaseManner::Stop)
        {
            let goes_at = self.goes_at.get_mut(&reclaim.from).unwrap();
            if reclaim.back_by < *goes_at {
                *goes_at = reclaim.back_by;
                self.stopped.insert(reclaim.from);
            }
        }
    }

    /// The first job of a queue starts within the guarantee, counted from when it would run without lending.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let now = self.cluster.now;
        for (v, vcluster) in NAMES.into_iter().enumerate() {
            let first = self.queues[v].front().copied();
            let Some(id) = first else {
                self.would_run[v] = None;
                continue;
            };
            let not_its_own = |node: &&NodeId| {
                let holder = self.cluster.view.nodes[*node].holder;
                let is_home = self.cluster.places[*node].home == name(vcluster);
                is_home && holder.is_none_or(|id| self.jobs[&id].vcluster != v)
            };
            let room = self.cluster.places.keys().filter(not_its_own).count();
            let would = room >= self.jobs[&id].nodes as usize;
            let since = self.would_run[v]
                .filter(|(of, _)| *of == id)
                .map_or(now, |(_, at)| at);
            self.would_run[v] = would.then_some((id, since));
            prop_assert!(
                !would || now.since(since) <= PROMISE + 3 * STEP,
                "{id} of {}",
                vcluster
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(64)))]

    #[test]
    fn no_owner_waits_longer_for_what_it_has_lent_than_was_promised(
        sizes in vec(0..10_usize, 3),
        arrivals in vec(any_arrival(), 0..40),
    ) {
        let sizes: Vec<(&str, usize)> = NAMES.into_iter().zip(sizes).collect();
        let mut world = World {
            cluster: Cluster::new(&sizes),
            ..World::default()
        };
        world.jobs = (1..).map(AllocationId).zip(arrivals).collect();
        let mut to_come: Vec<(u64, AllocationId)> = world.jobs.iter().map(|(id, a)| (a.step, *id)).collect();
        to_come.sort_unstable();
        for step in 0..3_000_u64 {
            world.cluster.now = NOW.after(step * STEP);
            for (_, id) in to_come.iter().filter(|(at, _)| *at == step) {
                let v = world.jobs[id].vcluster;
                world.queues[v].push_back(*id);
            }
            world.end();
            world.start();
            world.lend();
            world.start();
            world.check()?;
            // The remaining jobs wait for nodes that do not exist.
            if step > 200 && world.goes_at.is_empty() {
                break;
            }
        }
        prop_assert!(world.goes_at.is_empty(), "work goes on and on: {:?}", world.goes_at);
        for _ in 0..8 {
            world.cluster.now = world.cluster.now.after(31_000);
            world.queues = Default::default();
            world.lend();
        }
        prop_assert!(world.cluster.places.values().all(|place| place.home == place.current), "all nodes are home");
    }
}
