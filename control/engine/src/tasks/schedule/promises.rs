//! Promised nodes: assigned as soon as all of them are free. A promise that cannot be kept is withdrawn, so that no
//! node stays idle for a job that will not receive it.

use super::{
    Schedule,
    unassigned::{PERSISTENT_REFUSAL_TIME, is_transient},
    under_boots,
};
use crate::error::ProposeError;
use lattice_placement::{Health, Liveness};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, NodeId, Refusal, UnixMillis, VclusterName,
    command::{ExpectedNode, Fence},
    node::{Lifecycle, Node},
    size,
};
use lattice_view::View;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Jobs with a rejected assignment to promised nodes: the refusal code, and since when it has persisted.
#[derive(Debug, Default)]
pub(super) struct RejectedPromises(BTreeMap<AllocationId, (&'static str, Instant)>);

impl RejectedPromises {
    /// Whether the refusal has lasted longer than a view may lag behind. If so, keeping nodes for the job is pointless.
    fn is_persistent(&mut self, id: AllocationId, refusal: &Refusal, now: Instant) -> bool {
        if is_transient(refusal) {
            self.0.remove(&id);
            return false;
        }
        let code = refusal.code();
        let met = self.0.entry(id).or_insert((code, now));
        if met.0 != code {
            *met = (code, now);
        }
        met.1 + PERSISTENT_REFUSAL_TIME <= now
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// State of a promise.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// All nodes are free and can be assigned; ordered by name.
    Ready(Vec<ExpectedNode>),
    /// Number of nodes that are still held by others or are not alive.
    Waits(usize),
    /// A node is no longer promised to the job or no longer usable, so the whole promise is withdrawn.
    Broken,
}

/// Longest time that stopping processes may stay on a promised node, milliseconds. Stopping processes are killed long
/// before; a process that survives a kill hangs in the kernel and blocks its node.
const STUCK_AFTER_MS: u64 = 600_000;

/// State of every promise to jobs of a vCluster.
pub(super) fn promises(
    view: &View,
    vcluster: &VclusterName,
    now: UnixMillis,
) -> Vec<(AllocationId, Promise)> {
    let mine = |id: AllocationId| {
        let held = view.allocation(id)?;
        let waits = held.state == AllocationState::Pending && held.spec.vcluster == *vcluster;
        waits.then_some(held.spec.nodes as usize)
    };
    let rooms = view.promises.iter();
    rooms
        .filter_map(|(id, nodes)| Some((id, promise(view, nodes, mine(id)?, now))))
        .collect()
}

fn promise(view: &View, nodes: &BTreeSet<NodeId>, wanted: usize, now: UnixMillis) -> Promise {
    // A node that is drained or reclaimed loses its promise individually.
    if nodes.len() < wanted {
        return Promise::Broken;
    }
    let (mut ready, mut missing) = (Vec::with_capacity(nodes.len()), 0);
    for id in nodes {
        let Some(entry) = view.node(id) else {
            return Promise::Broken;
        };
        let Some(record) = &entry.record else {
            return Promise::Broken;
        };
        let facts = entry.facts();
        let usable = record.lifecycle == Lifecycle::Ready
            && record.drain.is_empty()
            && facts.liveness != Liveness::Unreachable
            && facts.health != Health::Faulty
            && !is_stuck(view, record, now);
        if !usable {
            return Promise::Broken;
        }
        // A suspect node becomes alive again or unreachable; until then nothing is launched there.
        match record.holder {
            None if facts.liveness == Liveness::Alive => ready.push(ExpectedNode {
                node: id.clone(),
                version: record.version,
                boot: entry.boot.clone(),
            }),
            _ => missing += 1,
        }
    }
    match missing {
        0 => Promise::Ready(ready),
        missing => Promise::Waits(missing),
    }
}

/// Whether the holder of a node should have released it long ago.
fn is_stuck(view: &View, record: &Node, now: UnixMillis) -> bool {
    let holder = record.holder.as_ref();
    let held = holder.and_then(|holder| view.allocation(holder.allocation));
    held.is_some_and(|held| {
        held.state == AllocationState::Stopping && now.since(held.state_since) > STUCK_AFTER_MS
    })
}

impl Schedule {
    /// Assigns promised nodes as soon as they are free, and withdraws promises that cannot be kept.
    pub(super) async fn keep_promises(&mut self, view: &View, fence: &Fence) {
        let promises = promises(view, &self.vcluster, self.core.now());
        let is_promised = |id: &AllocationId| promises.iter().any(|(promised, _)| promised == id);
        self.promised_refused.0.retain(|id, _| is_promised(id));
        for (id, promise) in promises {
            let due = match promise {
                Promise::Waits(_) => continue,
                Promise::Broken => Err("a promised node is no longer usable".to_owned()),
                Promise::Ready(nodes) => match self.promised_assignment(view, id, &nodes) {
                    Some(due) => due,
                    None => continue,
                },
            };
            let kept = match due {
                Ok(command) => self.assign_promised(id, command, fence).await,
                Err(why) => Err(why),
            };
            if let Err(why) = kept {
                tracing::info!(%id, why, "node promise of allocation withdrawn");
                let withdraw = Command::WithdrawPromise { id };
                let proposed = self.core.propose_as_service(Some(fence.clone()), withdraw);
                if let Err(error) = proposed.await {
                    tracing::info!(%id, %error, "node promise not withdrawn yet");
                }
            }
        }
    }

    /// Returns the assignment of promised nodes, or the reason why it can never be made. A sensitive job receives its
    /// nodes once they are attested. `None`: not yet.
    fn promised_assignment(
        &mut self,
        view: &View,
        id: AllocationId,
        nodes: &[ExpectedNode],
    ) -> Option<Result<Command, String>> {
        let held: &Allocation = view.allocation(id)?;
        let nodes = under_boots(view, held, nodes).ok()?;
        if !held.spec.sensitive {
            return Some(Ok(Command::Assign { id, nodes }));
        }
        match self.attestations.confirm(view, &nodes) {
            Some(nodes) => Some(Ok(Command::AssignSensitive { id, nodes })),
            None => {
                let refused = self.attestations.refused_node(view, &nodes)?;
                Some(Err(format!(
                    "node {refused} is not eligible for sensitive allocations"
                )))
            }
        }
    }

    /// Proposes the assignment. A rejected assignment is retried with newer data.
    ///
    /// # Errors
    /// Reason why the assignment can never be accepted.
    async fn assign_promised(
        &mut self,
        id: AllocationId,
        command: Command,
        fence: &Fence,
    ) -> Result<(), String> {
        let core = &self.core;
        let envelope = core.envelope(core.service(), None, Some(fence.clone()), command);
        let (bytes, most) = (size::encoded_bytes(&envelope), self.max_command_bytes);
        if bytes > most {
            return Err(format!(
                "its assignment is {bytes} bytes; the quorum accepts at most {most} per command"
            ));
        }
        let refusal = match core.propose_one(envelope).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(refusal)) => refusal,
            Err(error) => {
                tracing::info!(%id, error = %ProposeError::from(error), "allocation with \
                    promised nodes not assigned yet");
                return Ok(());
            }
        };
        tracing::info!(%id, %refusal, "allocation with promised nodes not assigned yet");
        self.handle_refusal(&refusal, fence);
        match self
            .promised_refused
            .is_persistent(id, &refusal, Instant::now())
        {
            true => Err(format!("assignment refused repeatedly: {refusal}")),
            false => Ok(()),
        }
    }
}
