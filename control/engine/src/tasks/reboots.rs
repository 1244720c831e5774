//! Reboot reconciler: reports ranks of an earlier boot.
//!
//! A node that answers a direct, mutually authenticated ping with another boot id than that of a rank's assignment has
//! no process of that rank left. The conclusion holds whether or not the agent has a record of the rank.
//!
//! An agent with a record reports the end itself. If no report arrives within a short time, this reconciler reports the
//! rank as lost, with the observed boot ids.

use crate::{
    core::Core,
    error::ProposeError,
    sanitize,
    tasks::reconciler::{Reconciler, ReconcilerPace},
};
use futures::StreamExt;
use lattice_agent_rpc::{AttemptKey, Ping};
use lattice_quorum_types::{
    Allocation, AllocationState, Applied, Command, NodeId, UnixMillis,
    allocation::{Rank, RankExit, RankPhase},
    command::{Fence, RankReport},
    rpc::Role,
    view::{Answer, Query},
    wire::Unavailable,
};
use lattice_view::View;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// No caller waits for this reconciler.
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(1),
    spacing: Duration::from_millis(200),
};
/// Timeout of the confirming ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// Additional wait for a rank that is still being launched. The dispatcher has priority there: the agent refuses the
/// launch, and only the dispatcher can determine whether the rank was ever started. Longer than the dispatcher's
/// longest pause between two calls plus one call.
const LAUNCH_GRACE: Duration = Duration::from_secs(15);
/// Maximum number of nodes pinged concurrently.
const MAX_CALLS: usize = 64;
/// Prefix of the revocation reason that the quorum writes when a node name is taken over.
const TAKEN_OVER: &str = "taken over";

/// A rank and the boot of its assignment, which seems to be over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RebootedRank {
    node: NodeId,
    key: AttemptKey,
    boot: String,
    /// The rank is still being launched.
    launches: bool,
}

/// Reconciler for ranks of an earlier boot; see the module.
#[derive(Debug)]
pub struct Reboots {
    core: Arc<Core>,
    /// Time at which this control first saw each rank.
    since: BTreeMap<RebootedRank, Instant>,
}

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RebootsReport {
    /// Ranks of a boot that seems to be over.
    pub(crate) found: usize,
    /// Ranks reported as lost.
    pub(crate) reported: usize,
}

impl Reconciler for Reboots {
    const NAME: &'static str = "reboots";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        self.reconcile(&fence).await;
    }

    fn forget(&mut self) {
        self.since.clear();
    }
}

impl Reboots {
    /// New [`Reboots`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            since: BTreeMap::new(),
        }
    }

    /// Reports every rank of a boot that has been over for long enough.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> RebootsReport {
        let found = rebooted_ranks(&self.core.view());
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
        let is_due = |lost: &RebootedRank| {
            let grace = match lost.launches {
                true => grace + LAUNCH_GRACE,
                false => grace,
            };
            let since = self.since.get(lost).copied().unwrap_or(now);
            now.saturating_duration_since(since) >= grace
        };
        let due: Vec<RebootedRank> = found.into_iter().filter(is_due).collect();
        if due.is_empty() {
            return report;
        }
        let taken = match TokenTakeovers::read(&self.core).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(%error, "lost ranks not reported yet");
                return report;
            }
        };
        let (core, taken) = (&self.core, &taken);
        let confirm = |lost: RebootedRank| async move {
            let confirmed = confirm(core, fence, taken, &lost).await;
            confirmed.unwrap_or_else(|error| {
                tracing::warn!(node = %lost.node, id = %lost.key.allocation, %error, "lost rank \
                    not reported yet");
                false
            })
        };
        let mut confirmed =
            futures::stream::iter(due.into_iter().map(confirm)).buffer_unordered(MAX_CALLS);
        while let Some(reported) = confirmed.next().await {
            report.reported += usize::from(reported);
        }
        report
    }
}

/// Pings the node again: the boot in the view may be older than the assignment, but the answer to this ping is not.
async fn confirm(
    core: &Core,
    fence: &Fence,
    taken: &TokenTakeovers,
    lost: &RebootedRank,
) -> Result<bool, ProposeError> {
    let view = core.view();
    let asked = core.agents.call(&view, &lost.node, &Ping, PING_TIMEOUT);
    let Ok(pong) = asked.await else {
        return Ok(false);
    };
    let is_another = sanitize::is_boot_id(&pong.boot_id) && pong.boot_id != lost.boot;
    if pong.node != lost.node || !is_another {
        return Ok(false);
    }
    report_lost(core, fence, taken, lost, (&pong.boot_id, pong.at)).await?;
    Ok(true)
}

/// Times at which node names were taken over with a token. Since then another machine may answer under the name.
#[derive(Debug, Default)]
struct TokenTakeovers(BTreeMap<String, UnixMillis>);

impl TokenTakeovers {
    async fn read(core: &Core) -> Result<Self, Unavailable> {
        let Answer::Certificates(all) = core.read(Query::Certificates).await? else {
            return Err(Unavailable::NoMajority);
        };
        let agents = all.into_iter().filter(|one| one.role == Role::Agent);
        let taken = agents.filter_map(|one| {
            let revoked = one.revoked?;
            let is_taken = revoked.reason.starts_with(TAKEN_OVER);
            is_taken.then_some((one.name, revoked.issued_before))
        });
        Ok(Self(taken.collect()))
    }

    /// Whether the name was taken over since the rank was assigned, as far as that is known.
    fn since(&self, view: &View, lost: &RebootedRank) -> bool {
        let taken_at = self.0.get(lost.node.as_str());
        let assigned = view.allocation(lost.key.allocation).map(|allocation| {
            match allocation.state {
                // The assignment time of a stopping attempt is not kept, so an earlier time is used.
                AllocationState::Stopping => {
                    let began = allocation.started_at.unwrap_or(allocation.eligible_at);
                    began.max(allocation.eligible_at)
                }
                _ => allocation.state_since,
            }
        });
        match (taken_at, assigned) {
            (Some(taken_at), Some(assigned)) => *taken_at >= assigned,
            _ => false,
        }
    }
}

/// Reports a rank as lost because its agent refused the launch under another boot.
pub(crate) async fn report_refused(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    key: AttemptKey,
    (then, now): (&str, &str),
) -> Result<Applied, ProposeError> {
    let lost = RebootedRank {
        node: node.clone(),
        key,
        boot: sanitize::shortened(then.to_owned()),
        launches: true,
    };
    let taken = TokenTakeovers::read(core).await?;
    report_lost(core, fence, &taken, &lost, (now, core.now())).await
}

/// Whether a waiting allocation was returned from this boot of this node without having started anything there. That
/// boot is over, whatever the view shows.
pub(crate) fn is_boot_known_over(waits: &Allocation, node: &NodeId, boot: &str) -> bool {
    waits.ranks.iter().any(|rank| {
        rank.node == *node
            && rank.boot.as_deref() == Some(boot)
            && matches!(
                rank.phase,
                RankPhase::Ended {
                    exit: RankExit::NeverStarted { .. },
                    ..
                }
            )
    })
}

/// Reports a rank that certainly never started: its node rebooted before a launch reached it.
pub(crate) async fn report_never_started(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    key: AttemptKey,
    (then, now): (&str, &str),
) -> Result<Applied, ProposeError> {
    let evidence = sanitize::shortened(format!(
        "node rebooted before the launch was accepted (boot id {now}, expected {then})"
    ));
    tracing::warn!(%node, id = %key.allocation, attempt = key.attempt, evidence, "rank never started");
    let exit = RankExit::NeverStarted { evidence };
    propose(core, fence, node, key, exit, core.now()).await
}

async fn propose(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    key: AttemptKey,
    exit: RankExit,
    at: UnixMillis,
) -> Result<Applied, ProposeError> {
    let fault = None;
    let command = Command::Report {
        id: key.allocation,
        attempt: key.attempt,
        node: node.clone(),
        report: RankReport::Ended { at, exit, fault },
    };
    core.propose_as_service(Some(fence.clone()), command).await
}

async fn report_lost(
    core: &Core,
    fence: &Fence,
    taken: &TokenTakeovers,
    lost: &RebootedRank,
    (now, at): (&str, UnixMillis),
) -> Result<Applied, ProposeError> {
    let RebootedRank {
        node, key, boot, ..
    } = lost;
    let evidence = match taken.since(&core.view(), lost) {
        true => format!(
            "another machine enrolled under the node name with a join token (boot id {boot} is no longer current)"
        ),
        false => format!("node has rebooted since the assignment (boot id {now}, expected {boot})"),
    };
    tracing::warn!(%node, id = %key.allocation, attempt = key.attempt, evidence, "rank lost");
    propose(core, fence, node, *key, RankExit::Lost { evidence }, at).await
}

/// Ranks that have not ended and were assigned under another boot than the node last reported.
fn rebooted_ranks(view: &View) -> Vec<RebootedRank> {
    let of_node = |entry: &Arc<lattice_view::NodeEntry>| {
        let (holder, now) = (entry.record.as_ref()?.holder?, entry.boot.as_ref()?);
        let allocation = view.allocation(holder.allocation)?;
        if allocation.attempt != holder.attempt {
            return None;
        }
        let is_here = |rank: &&Rank| rank.node == entry.id;
        let rank = allocation.ranks.iter().find(is_here)?;
        let boot = rank.boot.clone().filter(|boot| boot != now)?;
        (!rank.phase.is_over()).then(|| RebootedRank {
            node: entry.id.clone(),
            key: AttemptKey {
                allocation: holder.allocation,
                attempt: holder.attempt,
            },
            boot,
            launches: allocation.state != AllocationState::Stopping
                && rank.phase == RankPhase::Assigned,
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
        let named =
            |over: RebootedRank| format!("{} {:?} {}", over.node, over.key == KEY, over.boot);
        rebooted_ranks(&view).into_iter().map(named).collect()
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
        assert_eq!(rebooted_ranks(&view), []);
    }
}
