//! Usage meter: for how long an allocation uses each of its nodes.
//!
//! Usage of a node lasts from the commit of the report after which all ranks run to the commit that releases the node,
//! in state time. A node that is added later is in use from the commit of the report that its rank runs. Nodes of an
//! attempt that ended before it was reported running count as used since their assignment.

use lattice_quorum_types::{
    Allocation, AllocationState, NodeId, UnixMillis,
    allocation::{Rank, RankExit, RankPhase},
    usage_record::UsagePeriod,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Usage meter of one allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meter {
    /// Time at which the current attempt was assigned its nodes.
    assigned_at: UnixMillis,
    /// Number of ranks at assignment.
    assigned_with: u32,
    /// Assignment times of the ranks that were added before the attempt began to run, by rank number.
    grown_at: BTreeMap<u32, UnixMillis>,
    /// Time at which all ranks of the attempt ran; `None` before that.
    began_at: Option<UnixMillis>,
    /// Number of ranks when the attempt began to run. Later ranks are in `later`.
    began_with: u32,
    /// Time since which each later rank runs, by rank number.
    later: BTreeMap<u32, UnixMillis>,
    /// Closed usage of all attempts, node-milliseconds.
    over_ms: u64,
}

/// Effect of a record change on the usage of nodes.
#[derive(Debug, Default)]
pub(super) struct MeterChange {
    /// Nodes with usage that starts now.
    pub(super) started_nodes: Vec<NodeId>,
    /// Whether `started_nodes` are the nodes with which the attempt begins.
    pub(super) began: bool,
    /// Uses that this change closes.
    pub(super) uses: Vec<UsagePeriod>,
}

impl Meter {
    /// Restarts the meter for an attempt that was assigned its nodes.
    pub(super) fn assigned(&mut self, ranks: usize, now: UnixMillis) {
        *self = Meter {
            assigned_at: now,
            assigned_with: u32::try_from(ranks).unwrap_or(u32::MAX),
            over_ms: self.over_ms,
            ..Meter::default()
        };
    }

    /// Closed usage of all attempts, node-milliseconds.
    pub(super) fn node_ms(&self) -> u64 {
        self.over_ms
    }

    /// Updates the meter after a change of the allocation record.
    pub(super) fn follow(
        &mut self,
        before: Option<&Allocation>,
        after: &Allocation,
        now: UnixMillis,
    ) -> MeterChange {
        let mut change = MeterChange::default();
        let held = before.is_some_and(|before| before.state.holds());
        if after.state.holds() {
            let had_begun = self.began_at.is_some();
            self.begin(after, now, &mut change);
            self.grow(after, now, &mut change);
            // A node released by the change that starts the attempt is not in its `Started` usage record, so it has no
            // use to close either.
            if let Some(before) = before.filter(|_| had_begun) {
                let left = newly_left(before, after);
                change.uses = self.close_uses(left, now);
            }
        } else if held {
            if self.began_at.is_none() && after.ranks.iter().any(has_run) {
                // The attempt ended before it was reported running. Its nodes count as held from their assignment.
                // Nodes that were added later count from when they were added: another allocation may have used them
                // before.
                self.began_at = Some(self.assigned_at);
                self.began_with = self.assigned_with;
                self.later = std::mem::take(&mut self.grown_at);
            }
            let gone: Vec<bool> = before
                .map(|before| before.ranks.iter().map(has_left).collect())
                .unwrap_or_default();
            let left = (0..)
                .zip(&after.ranks)
                .filter(|(n, _)| gone.get(*n as usize) != Some(&true));
            let left: Vec<(u32, &Rank)> = left.collect();
            change.uses = self.close_uses(left, now);
            *self = Meter {
                over_ms: self.over_ms,
                ..Meter::default()
            };
        }
        change
    }

    /// Nodes in use, by the start time of their use.
    pub(super) fn open(&self, record: &Allocation) -> BTreeMap<UnixMillis, Vec<NodeId>> {
        let ranks = (0..).zip(&record.ranks).filter(|(_, rank)| !has_left(rank));
        self.by_begin(ranks)
    }

    fn begin(&mut self, after: &Allocation, now: UnixMillis, change: &mut MeterChange) {
        use AllocationState::{Checkpointing, Running};
        if self.began_at.is_some() || !matches!(after.state, Running | Checkpointing) {
            return;
        }
        self.began_at = Some(now);
        self.grown_at.clear();
        self.began_with = u32::try_from(after.ranks.len()).unwrap_or(u32::MAX);
        let stay = after.ranks.iter().filter(|rank| !has_left(rank));
        change.started_nodes = stay.map(|rank| rank.node.clone()).collect();
        change.began = true;
    }

    fn grow(&mut self, after: &Allocation, now: UnixMillis, change: &mut MeterChange) {
        if self.began_at.is_none() {
            let ranks = u32::try_from(after.ranks.len()).unwrap_or(u32::MAX);
            for n in self.assigned_with..ranks {
                self.grown_at.entry(n).or_insert(now);
            }
            return;
        }
        let came = (0..).zip(&after.ranks).skip(self.began_with as usize);
        for (n, rank) in came {
            if !self.later.contains_key(&n) && is_used(rank) {
                self.later.insert(n, now);
                change.started_nodes.push(rank.node.clone());
            }
        }
    }

    /// Closes the uses of these ranks' nodes.
    fn close_uses(&mut self, ranks: Vec<(u32, &Rank)>, now: UnixMillis) -> Vec<UsagePeriod> {
        let over = self.by_begin(ranks.iter().copied());
        for (n, _) in ranks {
            self.later.remove(&n);
        }
        let uses = over.into_iter().map(|(from, nodes)| UsagePeriod {
            nodes,
            from,
            until: now,
        });
        let uses: Vec<UsagePeriod> = uses.collect();
        let ms = uses
            .iter()
            .map(UsagePeriod::node_ms)
            .fold(0, u64::saturating_add);
        self.over_ms = self.over_ms.saturating_add(ms);
        uses
    }

    fn by_begin<'a>(
        &self,
        ranks: impl Iterator<Item = (u32, &'a Rank)>,
    ) -> BTreeMap<UnixMillis, Vec<NodeId>> {
        let mut by_begin: BTreeMap<UnixMillis, Vec<NodeId>> = BTreeMap::new();
        for (n, rank) in ranks {
            let from = match n < self.began_with {
                true => self.began_at,
                false => self.later.get(&n).copied(),
            };
            if let Some(from) = from {
                by_begin.entry(from).or_default().push(rank.node.clone());
            }
        }
        by_begin
    }
}

fn has_left(rank: &Rank) -> bool {
    matches!(rank.phase, RankPhase::Left { .. })
}

/// Returns whether a rank that was added later runs, or has run. A rank that has left does not count.
fn is_used(rank: &Rank) -> bool {
    match &rank.phase {
        RankPhase::Assigned | RankPhase::Leaving { running: None } | RankPhase::Left { .. } => {
            false
        }
        RankPhase::Running { .. } | RankPhase::Leaving { running: Some(_) } => true,
        RankPhase::Ended { .. } => has_run(rank),
    }
}

/// Returns whether a process of the rank has run, derived from the exit of the rank.
fn has_run(rank: &Rank) -> bool {
    matches!(
        rank.phase.exit(),
        Some(RankExit::Exited { .. } | RankExit::Signaled { .. } | RankExit::Walltime)
    )
}

/// Ranks with nodes that this change released while the allocation keeps others.
fn newly_left<'a>(before: &Allocation, after: &'a Allocation) -> Vec<(u32, &'a Rank)> {
    let pairs = (0..).zip(before.ranks.iter().zip(&after.ranks));
    let left = pairs.filter(|(_, (was, is))| !has_left(was) && has_left(is));
    left.map(|(n, (_, is))| (n, is)).collect()
}
