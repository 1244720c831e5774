//! Asks nodes whether a drain reason holds, or is over, and hears what they say: so many at a time,
//! each however long it takes, none in another's way. What follows from it is not known here.

use super::cause::Cause;
use crate::{
    bmc::Readings,
    core::Core,
    tasks::{
        gate,
        told::{Answer, Freshness},
    },
    view::{NodeEntry, View},
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId, Revision,
    node::{Lifecycle, Node},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, timeout},
};

/// Nodes asked at a time to confirm, and as many again whether it is over: each looks at its
/// hardware anew.
const MAX_CALLS: usize = 16;
/// Answers that come together are acted upon together.
const TOGETHER: Duration = Duration::from_millis(20);

/// What a node is asked for. What takes it out of service comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wanted {
    /// To confirm what is gossiped of it.
    Drain,
    /// That nothing is left of what it was drained for.
    Clear,
}

/// A node that was asked, and what it said.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) wanted: Wanted,
    pub(super) cause: Cause,
    /// As it was when it was asked.
    pub(super) entry: Arc<NodeEntry>,
    /// The baselines of then.
    pub(super) number: u64,
    /// Whether it was suspected then.
    was_suspect: bool,
    /// Why it may be drained, or that its reason may be cleared; else why not.
    pub(super) said: Result<String, String>,
}

/// What a node that was asked waits for before it is asked again.
#[derive(Debug)]
enum Wait {
    /// The end of a pause, or news: that it is suspected where it was not, or no longer is.
    Pause { until: Instant, was_suspect: bool },
    /// A view that shows what was written: an earlier one tells of a reason that is gone.
    Shown(Revision),
}

impl Wait {
    fn is_over(&self, bmcs: &Readings, view: &View, now: Instant, of: &(Cause, NodeId)) -> bool {
        match self {
            Self::Pause { until, was_suspect } => {
                let (cause, node) = of;
                let suspects = view.node(node).map(|entry| cause.suspects(bmcs, entry));
                *until <= now || suspects != Some(*was_suspect)
            }
            Self::Shown(written) => view.revision >= *written,
        }
    }
}

/// Who is asked, and who has answered.
#[derive(Debug)]
pub(super) struct Asking {
    core: Arc<Core>,
    waits: BTreeMap<(Cause, NodeId), Wait>,
    /// Who is asked now.
    under_way: BTreeMap<(Cause, NodeId), Wanted>,
    asks: JoinSet<Heard>,
    /// Answers that have come and were not acted upon yet.
    heard: Vec<Heard>,
}

impl Asking {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            waits: BTreeMap::new(),
            under_way: BTreeMap::new(),
            asks: JoinSet::new(),
            heard: Vec::new(),
        }
    }

    /// Asks those for which that holds, as many as may be asked at a time.
    pub(super) fn ask_for(
        &mut self,
        view: &Arc<View>,
        wanted: Wanted,
        is_one: impl Fn(Cause, &NodeEntry) -> bool,
    ) {
        let now = Instant::now();
        let bmcs = &self.core.bmc;
        self.waits
            .retain(|key, wait| !wait.is_over(bmcs, view, now, key));
        let others = self.under_way.values().filter(|other| **other == wanted);
        let free = MAX_CALLS.saturating_sub(others.count());
        let due = candidates(view, is_one).filter(|(cause, entry)| {
            let key = (*cause, entry.id.clone());
            !self.under_way.contains_key(&key) && !self.waits.contains_key(&key)
        });
        let due: Vec<(Cause, Arc<NodeEntry>)> = due.take(free).collect();
        for (cause, entry) in due {
            let (core, view) = (self.core.clone(), view.clone());
            let was_suspect = cause.suspects(&core.bmc, &entry);
            self.under_way.insert((cause, entry.id.clone()), wanted);
            self.asks.spawn(async move {
                let said = match wanted {
                    Wanted::Drain => match cause.ask(&core, &view, &entry).await {
                        Answer::Drains(reason) => Ok(reason),
                        Answer::Fine => Err("it says that nothing is wrong".to_owned()),
                        Answer::Unknown(why) => Err(why),
                    },
                    Wanted::Clear => may_clear(&core, &view, cause, &entry).await,
                };
                let number = view.baselines.number;
                Heard {
                    wanted,
                    cause,
                    entry,
                    number,
                    was_suspect,
                    said,
                }
            });
        }
    }

    /// Resolves when nodes that were asked have answered, or cannot. What has come is kept when this
    /// is dropped before it resolves.
    pub(super) async fn hear(&mut self) {
        if self.heard.is_empty() {
            match self.asks.join_next().await {
                None => return std::future::pending().await,
                Some(ended) => self.take(ended),
            }
        }
        let more = async {
            while let Some(ended) = self.asks.join_next().await {
                self.take(ended);
            }
        };
        let _ = timeout(TOGETHER, more).await;
    }

    fn take(&mut self, ended: Result<Heard, JoinError>) {
        match ended {
            Ok(heard) => {
                self.under_way.remove(&key(&heard));
                self.heard.push(heard);
            }
            // Whose it was is not known: nobody counts as being asked.
            Err(error) => {
                tracing::error!(%error, "asking a node broke down");
                self.under_way.clear();
            }
        }
    }

    /// What has come since, what takes nodes out of service first.
    pub(super) fn answers(&mut self) -> Vec<Heard> {
        while let Some(ended) = self.asks.try_join_next() {
            self.take(ended);
        }
        let mut heard = std::mem::take(&mut self.heard);
        heard.sort_by_key(|heard| (heard.wanted, heard.cause));
        heard
    }

    /// Has it asked again after a pause.
    pub(super) fn again(&mut self, heard: &Heard, pause: Duration) {
        let wait = Wait::Pause {
            until: Instant::now() + pause,
            was_suspect: heard.was_suspect,
        };
        self.waits.insert(key(heard), wait);
    }

    /// Nothing is left of what it was asked for, as that revision says. What it is asked for next is
    /// another matter, and waits for nothing else.
    pub(super) fn settled(&mut self, heard: &Heard, written: Revision) {
        self.waits.insert(key(heard), Wait::Shown(written));
    }

    /// Whether the node was asked and waits to be asked again.
    pub(super) fn waits(&self, cause: Cause, node: &NodeId) -> bool {
        self.waits.contains_key(&(cause, node.clone()))
    }

    /// As if the time had passed after which everybody is asked again.
    #[cfg(test)]
    pub(super) fn forget_pauses(&mut self) {
        self.waits.clear();
    }

    /// How many are asked now.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

fn key(heard: &Heard) -> (Cause, NodeId) {
    (heard.cause, heard.entry.id.clone())
}

/// Whether it is in the cluster: neither on its way in nor gone.
pub(super) fn is_member(record: &Node) -> bool {
    !matches!(record.lifecycle, Lifecycle::Joining | Lifecycle::Retired)
}

/// Living members for which that holds, by cause.
pub(super) fn candidates(
    view: &View,
    is_one: impl Fn(Cause, &NodeEntry) -> bool,
) -> impl Iterator<Item = (Cause, Arc<NodeEntry>)> {
    let all = Cause::ALL.into_iter();
    let all = all.flat_map(|cause| view.nodes.values().map(move |entry| (cause, entry)));
    let found = all.filter(move |(cause, entry)| {
        let is_member = entry.record.as_ref().is_some_and(is_member);
        entry.liveness == Liveness::Alive && is_member && is_one(*cause, entry)
    });
    found.map(|(cause, entry)| (cause, entry.clone()))
}

/// Whether the reason may be cleared. While another one stays that takes the node's own word that
/// nothing is left of this one; the last takes everything that brings a node back into service.
async fn may_clear(
    core: &Core,
    view: &View,
    cause: Cause,
    entry: &NodeEntry,
) -> Result<String, String> {
    let drains = entry.record.iter().flat_map(|record| &record.drain);
    if drains.count() > 1 {
        return match cause.ask(core, view, entry).await {
            Answer::Fine => Ok(String::new()),
            Answer::Drains(why) | Answer::Unknown(why) => Err(why),
        };
    }
    let passed = gate::check(core, &entry.id, &Freshness::NOW).await;
    passed
        .map(|()| String::new())
        .map_err(|error| error.to_string())
}
