//! Somebody wants a BMC looked at now.

use super::readings::Parts;
use lattice_hwprobe::Class;
use lattice_quorum_types::NodeId;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

/// Asks that may wait for one worker; who comes after them waits to ask.
pub(super) const MOST_WAITING: usize = 16;

/// One who asks.
#[derive(Debug)]
pub(super) struct Ask {
    /// About which of the BMC's nodes.
    pub(super) node: NodeId,
    /// Who.
    pub(super) who: String,
    /// Where the answer goes.
    pub(super) answer: oneshot::Sender<Looked>,
}

/// Why it tells nothing for a moment; a bug of ours.
pub(crate) const BROKE_DOWN: &str = "what reads it broke down, and is started again";

/// What came of a look that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Looked {
    /// It answered.
    Read {
        /// Classes that it tells otherwise than before; they count once read twice.
        differs: Vec<Class>,
    },
    /// It told nothing of the node.
    Silent {
        /// Why.
        why: String,
    },
    /// The look goes on.
    Late {
        /// How long it was waited for.
        within: Duration,
    },
}

/// What the BMC of the node that is asked about has told by now.
type Told<'a> = &'a (dyn Fn() -> Option<Arc<Parts>> + Sync);

/// A look that went on without who asked for it is theirs for this long, when they ask again.
const LATE_WITHIN: Duration = Duration::from_secs(120);

/// A look that was asked for, and is not over.
#[derive(Debug)]
struct Underway {
    answered: oneshot::Receiver<Looked>,
    /// What the BMC had told when it was asked for.
    before: Option<Arc<Parts>>,
    /// Since when nobody waits for it.
    left_at: Option<Instant>,
}

impl Underway {
    /// What it tells may be the answer to a question of now, before which the BMC told this. What was
    /// not suspected when it was asked for, and is by now, was seen by this very look, and must not be
    /// confirmed by it.
    fn is_of_use(&self, now: Option<&Parts>) -> bool {
        let drains = |parts: Option<&Parts>| parts.is_some_and(|p| p.drains_now().next().is_some());
        let is_suspected_by_it = drains(now) && !drains(self.before.as_deref());
        self.is_kept() && !is_suspected_by_it
    }

    fn is_kept(&self) -> bool {
        self.left_at.is_none_or(|at| at.elapsed() <= LATE_WITHIN)
    }
}

/// Waits for a look. Who stops waiting, for whatever reason, leaves it where their next question finds
/// it.
struct Waiting<'a> {
    asks: &'a Asks,
    key: (NodeId, String),
    underway: Option<Underway>,
}

impl Waiting<'_> {
    /// None where who reads the BMC broke down.
    async fn look(mut self, told: Told<'_>) -> Option<Looked> {
        let underway = self.underway.as_mut()?;
        let looked = (&mut underway.answered).await;
        let Underway {
            before, left_at, ..
        } = self.underway.take()?;
        let mut looked = looked.ok()?;
        if let Looked::Read { differs } = &mut looked
            && left_at.is_some()
            && let Some((before, now)) = before.zip(told())
        {
            // What that look has confirmed counts by now, before this question.
            differs.retain(|class| before.records.get(class) == now.records.get(class));
        }
        Some(looked)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut underway) = self.underway.take() else {
            return;
        };
        underway.left_at = Some(Instant::now());
        let mut all = self.asks.late.lock();
        all.retain(|_, late| late.is_kept());
        all.insert(self.key.clone(), underway);
    }
}

/// Whom to ask, and the looks that outlasted who asked for them.
#[derive(Debug, Clone, Default)]
pub(super) struct Asks {
    /// The worker of each node's BMC.
    workers: Arc<Mutex<BTreeMap<NodeId, mpsc::Sender<Ask>>>>,
    /// By node, and by who asked.
    late: Arc<Mutex<BTreeMap<(NodeId, String), Underway>>>,
}

impl Asks {
    pub(super) fn put_worker(&self, node: NodeId, worker: mpsc::Sender<Ask>) {
        self.workers.lock().insert(node, worker);
    }

    /// See [`Readings::look`](super::Readings::look).
    pub(super) async fn look(
        &self,
        (node, who): (&NodeId, &str),
        within: Duration,
        told: Told<'_>,
    ) -> Option<Looked> {
        let worker = self.workers.lock().get(node).cloned()?;
        let key = (node.clone(), who.to_owned());
        let until = Instant::now() + within;
        let broke_down = || Looked::Silent {
            why: BROKE_DOWN.to_owned(),
        };
        let before = told();
        let late = self.late.lock().remove(&key);
        let underway = match late.filter(|late| late.is_of_use(before.as_deref())) {
            Some(late) => late,
            None => {
                let (answer, answered) = oneshot::channel();
                let (node, who) = key.clone();
                let ask = worker.send(Ask { node, who, answer });
                match timeout_at(until, ask).await {
                    Ok(Ok(())) => Underway {
                        answered,
                        before,
                        left_at: None,
                    },
                    Ok(Err(_)) => return Some(broke_down()),
                    // So many wait for it that the question was not taken.
                    Err(_) => return Some(Looked::Late { within }),
                }
            }
        };
        let waiting = Waiting {
            asks: self,
            key,
            underway: Some(underway),
        };
        match timeout_at(until, waiting.look(told)).await {
            Ok(looked) => Some(looked.unwrap_or_else(broke_down)),
            Err(_) => Some(Looked::Late { within }),
        }
    }
}
