//! What becomes of promised nodes: they are given as soon as all of them are free, and are promised no more where that
//! cannot be, so that nothing stands empty for who does not get it.

use super::{
    Schedule,
    unassigned::{REFUSED_FOR, passes},
    under_boots,
};
use crate::{error::ProposeError, view::View};
use lattice_placement::{Health, Liveness};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, NodeId, Refusal, UnixMillis, VclusterName,
    command::{ExpectedNode, Fence},
    node::{Lifecycle, Node},
    weight,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Who was refused what it is promised: for what, and since when without a break.
#[derive(Debug, Default)]
pub(super) struct Refused(BTreeMap<AllocationId, (&'static str, Instant)>);

impl Refused {
    /// Whether it lasts for longer than a view may lag behind: then there is no use in nodes that wait for it.
    fn lasts(&mut self, id: AllocationId, refusal: &Refusal, now: Instant) -> bool {
        if passes(refusal) {
            self.0.remove(&id);
            return false;
        }
        let code = refusal.code();
        let met = self.0.entry(id).or_insert((code, now));
        if met.0 != code {
            *met = (code, now);
        }
        met.1 + REFUSED_FOR <= now
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What becomes of a promise now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// All nodes are free: they are given, in the order of their names.
    Ready(Vec<ExpectedNode>),
    /// So many of them are still held by others, or not heard of just now.
    Waits(usize),
    /// One of them cannot be used any more: it is promised no more, or what is known of it speaks against it.
    Broken,
}

/// How long processes that are being stopped may stay on a promised node, milliseconds. They are killed long before
/// that; what a kill does not end hangs in the kernel, and its node with it.
const STUCK_AFTER_MS: u64 = 600_000;

/// How things stand with what is promised to the jobs of a vCluster.
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
    let rooms = view.room.iter();
    rooms
        .filter_map(|(id, nodes)| Some((id, promise(view, nodes, mine(id)?, now))))
        .collect()
}

fn promise(view: &View, nodes: &BTreeSet<NodeId>, wanted: usize, now: UnixMillis) -> Promise {
    // A node that is drained, or wanted back, loses its promise alone.
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
        // One that is suspect comes back, or becomes unreachable: until then nobody is launched there.
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

/// Whether what holds a node should have been gone from it for long.
fn is_stuck(view: &View, record: &Node, now: UnixMillis) -> bool {
    let holder = record.holder.as_ref();
    let held = holder.and_then(|holder| view.allocation(holder.allocation));
    held.is_some_and(|held| {
        held.state == AllocationState::Stopping && now.since(held.state_since) > STUCK_AFTER_MS
    })
}

impl Schedule {
    /// Gives what was promised as soon as it is free, and takes back what cannot be kept.
    pub(super) async fn keep_promises(&mut self, view: &View, fence: &Fence) {
        let promises = promises(view, &self.vcluster, self.core.now());
        let is_promised = |id: &AllocationId| promises.iter().any(|(promised, _)| promised == id);
        self.promised_refused.0.retain(|id, _| is_promised(id));
        for (id, promise) in promises {
            let due = match promise {
                Promise::Waits(_) => continue,
                Promise::Broken => Err("a promised node cannot be used any more".to_owned()),
                Promise::Ready(nodes) => match self.given(view, id, &nodes) {
                    Some(due) => due,
                    None => continue,
                },
            };
            let kept = match due {
                Ok(command) => self.give(id, command, fence).await,
                Err(why) => Err(why),
            };
            if let Err(why) = kept {
                tracing::info!(%id, why, "it is promised its nodes no more");
                let withdraw = Command::WithdrawPromise { id };
                let proposed = self.core.propose_as_service(Some(fence.clone()), withdraw);
                if let Err(error) = proposed.await {
                    tracing::info!(%id, %error, "a promise is not withdrawn yet");
                }
            }
        }
    }

    /// Promised nodes as they are assigned, or why they never will be. Sensitive work has them once they have said
    /// what they are. `None`: not yet.
    fn given(
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
        match self.claims.confirm(view, &nodes) {
            Some(nodes) => Some(Ok(Command::AssignSensitive { id, nodes })),
            None => {
                let refused = self.claims.refuses(view, &nodes)?;
                Some(Err(format!("{refused} is not fit for sensitive work")))
            }
        }
    }

    /// Proposes it. What is refused is tried again with what is known by then.
    ///
    /// # Errors
    /// Why it never will be taken.
    async fn give(
        &mut self,
        id: AllocationId,
        command: Command,
        fence: &Fence,
    ) -> Result<(), String> {
        let core = &self.core;
        let envelope = core.envelope(core.service(), None, Some(fence.clone()), command);
        let (bytes, most) = (weight::on_wire(&envelope), self.max_command_bytes);
        if bytes > most {
            return Err(format!(
                "its assignment is {bytes} bytes, and the quorum takes {most} at once"
            ));
        }
        let refusal = match core.propose_one(envelope).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(refusal)) => refusal,
            Err(error) => {
                tracing::info!(%id, error = %ProposeError::from(error), "a promise is not kept yet");
                return Ok(());
            }
        };
        tracing::info!(%id, %refusal, "a promise is not kept yet");
        self.heed(&refusal, fence);
        match self.promised_refused.lasts(id, &refusal, Instant::now()) {
            true => Err(format!("the quorum refuses it again and again: {refusal}")),
            false => Ok(()),
        }
    }
}
