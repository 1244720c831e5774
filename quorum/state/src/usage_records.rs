//! Usage records: node usage per user and project, derived from changes of records. See `../0010-usage-records.md`.

mod meter;

use crate::{
    segment::{Row, SealedSegment, Segment, Table},
    table::{AppendOnlyTable, SegmentLimits},
    topics::Topic,
};
use lattice_quorum_types::{
    Allocation, AllocationId, NodeId, Revision, UnixMillis, VclusterName,
    node::Node,
    node_claim::{NodeClaim, NodeClaimPhase, WipeOutcome},
    usage_record::{
        AccountedAllocation, Claimant, NodeUser, OpenUse, UsagePeriod, UsageRecord,
        UsageRecordKind, UsageRecordsHead,
    },
};
use meter::Meter;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Table of usage records, with the open uses from which the next ones are derived.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UsageRecords {
    log: AppendOnlyTable<UsageRecord>,
    /// Number of the last usage record.
    last: u64,
    /// Allocations that hold nodes, or that have used nodes and have not ended.
    meters: BTreeMap<AllocationId, Meter>,
    /// Claimed nodes on which no allocation runs.
    idle: BTreeMap<NodeId, IdleNode>,
    /// Number up to which an accounting system has the usage records, or will never receive them.
    acknowledged: u64,
    /// Number of acknowledged usage records that an accounting system never received.
    dropped: u64,
}

/// Claimed node on which no allocation runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct IdleNode {
    claim: Claimant,
    since: UnixMillis,
}

impl Row for UsageRecord {
    const TABLE: Table = Table::UsageRecords;
    fn key(&self) -> u64 {
        self.number
    }
    fn at(&self) -> UnixMillis {
        self.at
    }
    /// Usage records are read by number and time only.
    fn topics(&self, _: &mut dyn FnMut(Topic<'_>)) {}
}

impl UsageRecords {
    pub(crate) fn new(bounds: SegmentLimits) -> Self {
        UsageRecords {
            log: AppendOnlyTable::new(bounds),
            last: 0,
            meters: BTreeMap::new(),
            idle: BTreeMap::new(),
            acknowledged: 0,
            dropped: 0,
        }
    }

    /// Usage records in memory, oldest first.
    pub(crate) fn tail(&self) -> &[UsageRecord] {
        self.log.tail()
    }

    /// Sealed segments with the usage records before those of [`UsageRecords::tail`].
    pub(crate) fn sealed(&self) -> &Arc<Vec<Segment>> {
        self.log.sealed()
    }

    /// Numbers of the last and of the last acknowledged usage record, and the number of dropped usage records, at the
    /// given revision and time.
    pub(crate) fn head(&self, revision: Revision, at: UnixMillis) -> UsageRecordsHead {
        UsageRecordsHead {
            last: self.last,
            acknowledged: self.acknowledged,
            dropped: self.dropped,
            revision,
            at,
        }
    }

    /// Notes that an accounting system has the usage records up to `through`, or will never receive them.
    pub(crate) fn acknowledge(&mut self, through: u64, dropped: u64) {
        self.acknowledged = self.acknowledged.max(through);
        self.dropped = self.dropped.saturating_add(dropped);
    }

    /// Uses that are open now: nodes of running allocations, and idle claimed nodes.
    pub(crate) fn open(&self, hot: &BTreeMap<AllocationId, Arc<Allocation>>) -> Vec<OpenUse> {
        let mut open = Vec::new();
        for (id, meter) in &self.meters {
            let Some(record) = hot.get(id) else { continue };
            let by = NodeUser::Work(accounted_allocation(record));
            open.extend(meter.open(record).into_iter().map(|(from, nodes)| OpenUse {
                by: by.clone(),
                nodes,
                from,
            }));
        }
        let mut idle: BTreeMap<(&Claimant, UnixMillis), Vec<NodeId>> = BTreeMap::new();
        for (node, IdleNode { claim, since }) in &self.idle {
            idle.entry((claim, *since)).or_default().push(node.clone());
        }
        open.extend(idle.into_iter().map(|((claim, from), nodes)| OpenUse {
            by: NodeUser::Claim(claim.clone()),
            nodes,
            from,
        }));
        open
    }

    /// Derives the usage records of a changed allocation. `nodes` are the node records of the state.
    pub(crate) fn follow_allocation(
        &mut self,
        before: Option<&Allocation>,
        after: &Allocation,
        nodes: &BTreeMap<NodeId, Node>,
        now: UnixMillis,
    ) -> Vec<UsageRecordKind> {
        let mut made = Vec::new();
        if after.state.holds() && before.is_none_or(|before| !before.state.holds()) {
            let meter = self.meters.entry(after.id).or_default();
            meter.assigned(after.ranks.len(), now);
        }
        if let Some(meter) = self.meters.get_mut(&after.id) {
            let change = meter.follow(before, after, now);
            if !change.started_nodes.is_empty() {
                let taken = change.started_nodes.clone();
                made.extend(self.end_idle(&taken, now));
                made.push(match change.began {
                    true => UsageRecordKind::Started {
                        work: accounted_allocation(after),
                        nodes: change.started_nodes,
                        walltime_ms: after.walltime_left_ms(),
                    },
                    false => UsageRecordKind::Grew {
                        work: accounted_allocation(after),
                        nodes: change.started_nodes,
                    },
                });
            }
            let left: Vec<NodeId> = change
                .uses
                .iter()
                .flat_map(|used| used.nodes.clone())
                .collect();
            match after.state.is_terminal() {
                true => made.push(completed(
                    after,
                    change.uses,
                    meter_ms(&self.meters, after.id),
                )),
                false if !change.uses.is_empty() => made.push(UsageRecordKind::Used {
                    work: accounted_allocation(after),
                    uses: change.uses,
                }),
                false => {}
            }
            made.extend(self.begin_idle(&left, nodes, now));
        } else if after.state.is_terminal() {
            made.push(completed(after, Vec::new(), 0));
        }
        if after.state.is_terminal() {
            self.meters.remove(&after.id);
        }
        made.extend(checkpointed(before, after));
        made
    }

    /// Derives the usage records of a changed node.
    pub(crate) fn follow_node(
        &mut self,
        before: Option<&Node>,
        after: &Node,
        now: UnixMillis,
    ) -> Vec<UsageRecordKind> {
        let open = |node: &Node| {
            node.node_claim
                .as_ref()
                .is_some_and(|node_claim| node_claim.is_open())
        };
        let was_open = before.is_some_and(open);
        match (was_open, open(after)) {
            (false, true) => {
                if let Some(claim) = claimant(after) {
                    let since = now;
                    self.idle
                        .insert(after.id.clone(), IdleNode { claim, since });
                }
                Vec::new()
            }
            (true, false) => self.end_idle(std::slice::from_ref(&after.id), now),
            _ => Vec::new(),
        }
    }

    /// Ends the idle time of each of these nodes that was idle.
    fn end_idle(&mut self, nodes: &[NodeId], now: UnixMillis) -> Vec<UsageRecordKind> {
        let mut over: BTreeMap<(Claimant, UnixMillis), Vec<NodeId>> = BTreeMap::new();
        for node in nodes {
            if let Some(IdleNode { claim, since }) = self.idle.remove(node) {
                over.entry((claim, since)).or_default().push(node.clone());
            }
        }
        let over = over.into_iter();
        let records = over.map(|((claim, from), nodes)| UsageRecordKind::Idled {
            claim,
            uses: vec![UsagePeriod {
                nodes,
                from,
                until: now,
            }],
        });
        records.collect()
    }

    /// Starts the idle time of each of these nodes that is claimed: no allocation runs on these nodes any more.
    fn begin_idle(
        &mut self,
        left: &[NodeId],
        nodes: &BTreeMap<NodeId, Node>,
        now: UnixMillis,
    ) -> Vec<UsageRecordKind> {
        let mut idle: BTreeMap<Claimant, Vec<NodeId>> = BTreeMap::new();
        for node in left.iter().filter_map(|id| nodes.get(id)) {
            let is_open = node
                .node_claim
                .as_ref()
                .is_some_and(|node_claim| node_claim.is_open());
            let Some(claim) = claimant(node).filter(|_| is_open) else {
                continue;
            };
            let since = now;
            let known = IdleNode {
                claim: claim.clone(),
                since,
            };
            self.idle.insert(node.id.clone(), known);
            idle.entry(claim).or_default().push(node.id.clone());
        }
        let records = idle
            .into_iter()
            .map(|(claim, nodes)| UsageRecordKind::Idles { claim, nodes });
        records.collect()
    }

    /// Appends the usage records of one command; returns the segments that this sealed.
    pub(crate) fn append(
        &mut self,
        kinds: Vec<UsageRecordKind>,
        revision: Revision,
        at: UnixMillis,
    ) -> Vec<SealedSegment> {
        let mut sealed = Vec::new();
        for (ordinal, kind) in (0..).zip(kinds) {
            self.last += 1;
            let record = UsageRecord {
                number: self.last,
                revision,
                ordinal,
                at,
                kind,
            };
            sealed.extend(self.log.append(record).1);
        }
        sealed
    }

    /// Number of the last usage record.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }
}

/// Accounting identity of an allocation: number, attempt, user, project, vCluster and whether it is sensitive.
pub(crate) fn accounted_allocation(record: &Allocation) -> AccountedAllocation {
    AccountedAllocation {
        allocation: record.id,
        attempt: record.attempt,
        user: record.user.clone(),
        project: record.spec.project.clone(),
        vcluster: record.spec.vcluster.clone(),
        sensitive: record.spec.sensitive,
    }
}

/// Claimant of a node: user, project and home vCluster; `None` for an unclaimed node.
pub(crate) fn claimant(node: &Node) -> Option<Claimant> {
    let node_claim = node.node_claim.as_ref()?;
    Some(Claimant {
        user: node_claim.user.clone(),
        project: node_claim.project.clone(),
        vcluster: node.home.clone(),
    })
}

/// Usage records of newly claimed nodes, one per claimant and home vCluster.
pub(crate) fn claim_records<'a>(nodes: impl Iterator<Item = &'a Node>) -> Vec<UsageRecordKind> {
    let mut by_claim: BTreeMap<Claimant, Vec<NodeId>> = BTreeMap::new();
    for node in nodes {
        if let Some(claim) = claimant(node) {
            by_claim.entry(claim).or_default().push(node.id.clone());
        }
    }
    let claimed = by_claim.into_iter();
    let claimed = claimed.map(|(claim, nodes)| UsageRecordKind::Claimed { claim, nodes });
    claimed.collect()
}

/// Usage record of a released node with home vCluster `home`.
pub(crate) fn release_record(
    node: &NodeId,
    home: &VclusterName,
    node_claim: &NodeClaim,
    wipe: &WipeOutcome,
) -> UsageRecordKind {
    let released_at = match node_claim.phase {
        NodeClaimPhase::Releasing { released_at, .. }
        | NodeClaimPhase::Unclean { released_at, .. } => released_at,
        NodeClaimPhase::Claimed => node_claim.since,
    };
    UsageRecordKind::Released {
        claim: Claimant {
            user: node_claim.user.clone(),
            project: node_claim.project.clone(),
            vcluster: home.clone(),
        },
        node: node.clone(),
        claimed_at: node_claim.since,
        released_at,
        wipe: wipe.to_string(),
        wiped: !matches!(wipe, WipeOutcome::Failed { .. }),
    }
}

fn meter_ms(meters: &BTreeMap<AllocationId, Meter>, id: AllocationId) -> u64 {
    meters.get(&id).map_or(0, Meter::node_ms)
}

fn completed(record: &Allocation, uses: Vec<UsagePeriod>, node_ms: u64) -> UsageRecordKind {
    UsageRecordKind::Completed {
        work: accounted_allocation(record),
        state: record.state,
        cause: record.stop.as_ref().map(ToString::to_string),
        started_at: record.started_at,
        uses,
        node_ms,
    }
}

/// Usage record of a job checkpoint that this change completed.
fn checkpointed(before: Option<&Allocation>, after: &Allocation) -> Option<UsageRecordKind> {
    let kept = after.progress.kept.as_ref()?;
    let former = before.and_then(|before| before.progress.kept.as_ref());
    (former.map(|former| former.number) != Some(kept.number)).then(|| {
        UsageRecordKind::Checkpointed {
            work: accounted_allocation(after),
            number: kept.number,
            bytes: kept.bytes,
            took_ms: kept.took_ms,
        }
    })
}
