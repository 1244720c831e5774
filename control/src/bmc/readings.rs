//! What the BMCs said last, by node, and whom to ask to look again.

use super::{
    ask::{Ask, Asks, Looked},
    health::WRONG_SYSTEM,
};
use crate::view::Named;
use lattice_hwprobe::{Class, ClassRecord, Finding, LimitState, Power, health};
use lattice_placement::Health;
use lattice_quorum_types::{NodeId, UnixMillis};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, watch};

/// The BMC's parts of a node's classes, once read twice alike.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parts {
    /// Of classes `bmc` and `bios`.
    pub(crate) records: BTreeMap<Class, ClassRecord>,
    /// Contradictions and pending settings.
    pub(crate) findings: Vec<Finding>,
    /// What is wrong by the table of checks, and that the BMC does not answer, worst first.
    pub(crate) reasons: Vec<health::Reason>,
    /// When they were read.
    pub(crate) read_at: UnixMillis,
    /// Whether the BMC was asked at all since this control was started.
    pub(crate) was_asked: bool,
    /// Whether any check of the table looks at what a BMC tells such that it drains.
    pub(crate) may_drain: bool,
    /// Those checks of which the last look that was answered does not tell whether anything is wrong.
    pub(crate) untold: BTreeSet<String>,
}

impl Parts {
    /// What needs the node empty by the last look. What an earlier one saw and this one did not see
    /// gone is none of that.
    pub(crate) fn drains_now(&self) -> impl Iterator<Item = &health::Reason> {
        let at = self.read_at.0;
        self.drains()
            .filter(move |reason| reason.last_seen_ms == at)
    }

    /// Why it may be another machine's BMC that tells this.
    pub(crate) fn of_another(&self) -> Option<&str> {
        let mut reasons = self.reasons.iter();
        let other = reasons.find(|reason| reason.code == WRONG_SYSTEM)?;
        Some(&other.evidence)
    }

    /// What is not only watched, and what follows from it for placement. What it named stands while it
    /// is silent.
    pub(crate) fn named(&self) -> Named {
        let mut named = Named::default();
        for reason in self.reasons.iter().filter(|reason| !reason.observe_only) {
            named
                .reasons
                .insert((reason.code.clone(), reason.entity.clone()));
            let follows = match reason.severity {
                _ if reason.code == super::health::SILENT => Health::Healthy,
                health::Severity::Inform => Health::Healthy,
                health::Severity::Degraded => Health::Degraded,
                health::Severity::Faulty => Health::Faulty,
            };
            named.health = named.health.max(follows);
        }
        named
    }

    /// What needs the node empty by the look that saw it last: nothing has said since that it is over.
    pub(crate) fn drains(&self) -> impl Iterator<Item = &health::Reason> {
        self.reasons.iter().filter(|reason| reason.drains())
    }
}

#[cfg(test)]
impl Parts {
    /// Of a BMC that names these and tells nothing else.
    pub(crate) fn naming<const N: usize>(reasons: [health::Reason; N]) -> Self {
        Self {
            records: BTreeMap::new(),
            findings: Vec::new(),
            reasons: reasons.into(),
            read_at: UnixMillis(1),
            was_asked: true,
            may_drain: true,
            untold: BTreeSet::new(),
        }
    }

    /// What drains by its last look.
    pub(crate) fn critical() -> health::Reason {
        health::Reason {
            code: "bmc.system_critical".to_owned(),
            entity: "bmc".to_owned(),
            evidence: "bmc.health is Critical".to_owned(),
            severity: health::Severity::Faulty,
            action: health::Action::Inspect,
            observe_only: false,
            first_seen_ms: 1,
            last_seen_ms: 1,
            count: 1,
        }
    }
}

/// A node's power, by its BMC.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PowerSeen {
    /// What came of the last look.
    pub(crate) power: Power,
    /// When the BMC last told anything of it; none where it never did.
    pub(crate) read_at: Option<UnixMillis>,
}

/// Whether a BMC told any of it: a request that was not made, or not answered, tells nothing.
fn is_told(power: &Power) -> bool {
    power.draw.is_known() || power.limit_state != LimitState::Unknown
}

/// Shared by the workers, which write, and everybody who asks.
#[derive(Debug, Clone)]
pub(crate) struct Readings {
    power: Arc<Mutex<BTreeMap<NodeId, Arc<PowerSeen>>>>,
    parts: Arc<Mutex<BTreeMap<NodeId, Arc<Parts>>>>,
    /// Whom to ask to look again.
    asks: Asks,
    /// Grows with every change of a part; power changes all the time and wakes nobody.
    version: watch::Sender<u64>,
}

impl Default for Readings {
    fn default() -> Self {
        Self {
            power: Arc::default(),
            parts: Arc::default(),
            asks: Asks::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl Readings {
    /// A node's power; `None` where no BMC of it is read, or none was asked yet.
    pub(crate) fn power(&self, node: &NodeId) -> Option<Arc<PowerSeen>> {
        self.power.lock().get(node).cloned()
    }

    /// The BMC's parts of a node's classes.
    pub(crate) fn parts(&self, node: &NodeId) -> Option<Arc<Parts>> {
        self.parts.lock().get(node).cloned()
    }

    /// Whether by the last look at its BMC the node is to be drained.
    pub(crate) fn drains_now(&self, node: &NodeId) -> bool {
        self.parts(node)
            .is_some_and(|parts| parts.drains_now().next().is_some())
    }

    /// The parts of all nodes.
    pub(crate) fn all_parts(&self) -> BTreeMap<NodeId, Arc<Parts>> {
        self.parts.lock().clone()
    }

    /// Lets a node's BMC be looked at now, because `who` asks and waits so long. What it says counts
    /// as ever: what changed is read a second time first. Slow BMCs take minutes for everything: that
    /// look goes on, and is what comes of the question when `who` asks again soon; or else such a BMC
    /// would answer nobody. `None` where no BMC of the node is read.
    pub(crate) async fn look(&self, node: &NodeId, who: &str, within: Duration) -> Option<Looked> {
        let told = || self.parts(node);
        self.asks.look((node, who), within, &told).await
    }

    pub(super) fn put_worker(&self, node: NodeId, worker: mpsc::Sender<Ask>) {
        self.asks.put_worker(node, worker);
    }

    /// Who looks at the BMC says this, for tests.
    #[cfg(test)]
    pub(crate) fn answers(&self, node: NodeId, looks: impl Fn() -> Looked + Send + 'static) {
        let (worker, mut asks) = mpsc::channel::<Ask>(super::ask::MOST_WAITING);
        self.put_worker(node, worker);
        tokio::spawn(async move {
            while let Some(ask) = asks.recv().await {
                let _ = ask.answer.send(looks());
            }
        });
    }

    /// Resolves when a part changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// What came of a look at `now`; the time of what was told before stays where it told nothing.
    pub(crate) fn put_power(&self, node: NodeId, power: Power, now: UnixMillis) {
        let mut all = self.power.lock();
        let read_at = match is_told(&power) {
            true => Some(now),
            false => all.get(&node).and_then(|seen| seen.read_at),
        };
        all.insert(node, Arc::new(PowerSeen { power, read_at }));
    }

    pub(crate) fn put_parts(&self, node: NodeId, parts: Parts) {
        let is_news = {
            let mut all = self.parts.lock();
            let old = all.insert(node, Arc::new(parts.clone()));
            // What it names is news by itself: a fault may come and go with nothing else.
            old.is_none_or(|old| {
                (&old.records, &old.findings) != (&parts.records, &parts.findings)
                    || old.named() != parts.named()
            })
        };
        if is_news {
            self.version.send_modify(|version| *version += 1);
        }
    }
}
