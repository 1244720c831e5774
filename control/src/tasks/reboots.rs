//! Ranks whose boot is over. A node that answers a direct, mutually authenticated ping under
//! another boot id than the one a rank was assigned under has none of its processes left, whether
//! its agent remembers the rank or not. Agents that remember report that themselves; where none
//! does within a short time, the rank is reported lost here, with what was seen.

use crate::{
    core::Core,
    error::ProposeError,
    tasks::{activation::Activation, lease::Lease},
    view::View,
};
use lattice_quorum_types::{
    Applied, Command, NodeId, UnixMillis,
    allocation::{Rank, RankExit, RankPhase},
    command::{Fence, RankReport},
    wire::{AttemptKey, Ping},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(1);
/// Nobody waits for it.
const SPACING: Duration = Duration::from_millis(200);
/// How long a node may take to name its boot once more.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A rank and the boot it was assigned under, which seems to be over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Over {
    node: NodeId,
    key: AttemptKey,
    boot: String,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reboots {
    core: Arc<Core>,
    lease: Arc<Lease>,
    /// Since when each is known here.
    since: BTreeMap<Over, Instant>,
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RebootsReport {
    /// Ranks of a boot that seems to be over.
    pub(crate) found: usize,
    /// Of those, reported lost.
    pub(crate) reported: usize,
}

impl Reboots {
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>) -> Self {
        Self {
            core,
            lease,
            since: BTreeMap::new(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING).with_lease(&self.lease);
        loop {
            activation.next().await;
            match self.lease.fence() {
                Some(fence) => {
                    self.reconcile(&fence).await;
                }
                None => self.since.clear(),
            }
        }
    }

    /// Reports every rank whose boot has been over for long enough.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> RebootsReport {
        let found = over(&self.core.view());
        let now = Instant::now();
        self.since.retain(|known, _| found.contains(known));
        for new in &found {
            self.since.entry(new.clone()).or_insert(now);
        }
        let mut report = RebootsReport {
            found: found.len(),
            reported: 0,
        };
        let grace = self.core.timings.reboot_grace;
        for lost in found {
            let since = self.since.get(&lost).copied().unwrap_or(now);
            if now.saturating_duration_since(since) < grace {
                continue;
            }
            match self.confirm(fence, &lost).await {
                Ok(reported) => report.reported += usize::from(reported),
                Err(error) => {
                    tracing::warn!(node = %lost.node, id = %lost.key.allocation, %error, "a lost rank is not reported yet");
                }
            }
        }
        report
    }

    /// Asks the node once more: the boot in the view may be older than the assignment, the answer
    /// to a question that is asked now is not.
    async fn confirm(&self, fence: &Fence, lost: &Over) -> Result<bool, ProposeError> {
        let core = &self.core;
        let view = core.view();
        let asked = core.agents.call(&view, &lost.node, &Ping, PING_TIMEOUT);
        let Ok(pong) = asked.await else {
            return Ok(false);
        };
        if pong.node != lost.node || pong.boot_id == lost.boot {
            return Ok(false);
        }
        report_lost(core, fence, lost, &pong.boot_id, pong.at).await?;
        Ok(true)
    }
}

/// Reports a rank that was refused because its node is under another boot.
pub(crate) async fn report_refused(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    key: AttemptKey,
    (then, now): (&str, &str),
) -> Result<Applied, ProposeError> {
    let lost = Over {
        node: node.clone(),
        key,
        boot: then.to_owned(),
    };
    report_lost(core, fence, &lost, now, core.now()).await
}

async fn report_lost(
    core: &Core,
    fence: &Fence,
    lost: &Over,
    now: &str,
    at: UnixMillis,
) -> Result<Applied, ProposeError> {
    let Over { node, key, boot } = lost;
    let evidence = format!("node rebooted: boot {boot} is over, {now} is");
    tracing::warn!(%node, id = %key.allocation, attempt = key.attempt, evidence, "a rank is lost");
    let command = Command::Report {
        id: key.allocation,
        attempt: key.attempt,
        node: node.clone(),
        report: RankReport::Ended {
            at,
            exit: RankExit::Lost { evidence },
            fault: None,
        },
    };
    core.propose_as_service(Some(fence.clone()), command).await
}

/// Every rank that has not ended and was assigned under another boot than its node last named.
fn over(view: &View) -> Vec<Over> {
    let of_node = |entry: &Arc<crate::view::NodeEntry>| {
        let (holder, now) = (entry.record.as_ref()?.holder?, entry.boot.as_ref()?);
        let allocation = view.allocation(holder.allocation)?;
        if allocation.attempt != holder.attempt {
            return None;
        }
        let is_here = |rank: &&Rank| rank.node == entry.id;
        let rank = allocation.ranks.iter().find(is_here)?;
        let boot = rank.boot.clone().filter(|boot| boot != now)?;
        let has_ended = matches!(rank.phase, RankPhase::Ended { .. });
        (!has_ended).then(|| Over {
            node: entry.id.clone(),
            key: AttemptKey {
                allocation: holder.allocation,
                attempt: holder.attempt,
            },
            boot,
        })
    };
    view.nodes.values().filter_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{self, KEY};

    fn found(boot: Option<&str>, phase: RankPhase) -> Vec<String> {
        let view = testing::view_of_rank("a", Some("b1"), phase, boot);
        let named = |over: Over| format!("{} {:?} {}", over.node, over.key == KEY, over.boot);
        over(&view).into_iter().map(named).collect()
    }

    #[test]
    fn a_rank_of_another_boot_is_over() {
        let runs = || RankPhase::Running { at: UnixMillis(1) };
        assert_eq!(found(Some("b2"), runs()), ["a true b1"]);
        assert_eq!(found(Some("b2"), RankPhase::Assigned), ["a true b1"]);
        assert_eq!(found(Some("b1"), runs()), [""; 0]);
        assert_eq!(found(None, runs()), [""; 0]);
        let ended = RankPhase::Ended {
            at: UnixMillis(2),
            exit: RankExit::Stopped,
        };
        assert_eq!(found(Some("b2"), ended), [""; 0]);
    }

    #[test]
    fn a_rank_without_a_boot_is_not_judged() {
        let view = testing::view_of_rank("a", None, RankPhase::Assigned, Some("b2"));
        assert_eq!(over(&view), []);
    }
}
