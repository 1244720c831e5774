//! One lease: taken, renewed, and given back. What is done under it carries its epoch, so that a
//! control that lost it without noticing changes nothing.

use crate::{
    core::{Core, Wakes},
    feed::Change,
};
use lattice_quorum_types::{
    Applied, Command, Outcome, Refusal, Revision, command::Fence, id::LeaseName, wire::Unavailable,
};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};

/// How long a lease is held without renewal: longer than an election of the quorum takes.
const TTL: Duration = Duration::from_secs(6);
/// Between two renewals; three may fail before the lease is lost.
pub(crate) const RENEWAL: Duration = Duration::from_millis(1500);
/// We stop acting this long before the lease ends, for a command under way.
const MARGIN: Duration = Duration::from_millis(500);
/// Between two tries while somebody else holds it.
pub(crate) const RETRY: Duration = Duration::from_millis(1000);

/// Between two proposals, however many doubt it.
const SOONEST: Duration = Duration::from_millis(250);

/// A lease that is held until a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    epoch: u64,
    /// It was granted at this revision, or before.
    granted_at: Revision,
    until: Instant,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lease {
    name: LeaseName,
    /// This run of the process: a restart is another holder, with an epoch of its own.
    holder: String,
    held: Mutex<Option<Held>>,
    /// The epoch held, 0 for none.
    changes: watch::Sender<u64>,
    /// Asks for a renewal before its time.
    doubt: Notify,
}

/// What one round did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseReport {
    /// Taken, or renewed.
    Held {
        /// With this epoch.
        epoch: u64,
    },
    /// Somebody else has it.
    HeldByOther {
        /// Who.
        holder: String,
    },
    /// The quorum did not answer; what was held is held until its time is over.
    NoAnswer {
        /// Why.
        reason: String,
    },
}

impl Lease {
    pub(crate) fn new(name: LeaseName, holder: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            holder,
            held: Mutex::new(None),
            changes: watch::Sender::new(0),
            doubt: Notify::new(),
        })
    }

    /// Proof for a command, while the lease is surely held.
    pub(crate) fn fence(&self) -> Option<Fence> {
        let held = *self.held.lock();
        let held = held.filter(|held| Instant::now() + MARGIN < held.until)?;
        Some(Fence {
            lease: self.name.clone(),
            epoch: held.epoch,
        })
    }

    /// A revision at which the lease was held with this epoch: nobody else acted under it from then
    /// on. `None` when it is not held so.
    pub(crate) fn granted_at(&self, epoch: u64) -> Option<Revision> {
        let held = *self.held.lock();
        Some(held.filter(|held| held.epoch == epoch)?.granted_at)
    }

    /// Wakes when the lease is taken or lost.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Somebody who is not the quorum doubts that this epoch is in force: the quorum is asked now.
    /// Until it says otherwise the lease is held; one broken agent must not end it.
    pub(crate) fn is_doubted(&self, epoch: u64) {
        let held = *self.held.lock();
        if held.is_some_and(|held| held.epoch == epoch) {
            self.doubt.notify_one();
        }
    }

    /// The quorum said that this epoch is over.
    pub(crate) fn is_over(&self, epoch: u64) {
        let held = *self.held.lock();
        if held.is_some_and(|held| held.epoch == epoch) {
            self.set(None);
        }
    }

    fn set(&self, next: Option<Held>) {
        *self.held.lock() = next;
        let epoch = next.map_or(0, |held| held.epoch);
        self.changes
            .send_if_modified(|known| std::mem::replace(known, epoch) != epoch);
    }

    /// The epoch it is surely held with.
    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.fence()?.epoch)
    }

    /// Takes or renews them, by one proposal; what became of each.
    pub(crate) async fn ask_for(core: &Core, leases: &[Arc<Self>]) -> Vec<LeaseReport> {
        // Counted from before the proposal: the quorum cannot have counted from earlier.
        let asked_at = Instant::now();
        let wishes = leases.iter().map(|lease| Command::AcquireLease {
            lease: lease.name.clone(),
            holder: lease.holder.clone(),
            ttl_ms: u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
        });
        let envelope = |wish| core.envelope(core.service(), None, None, wish);
        let answers = core.store.propose(wishes.map(envelope).collect()).await;
        let mut answers = answers.map(Vec::into_iter);
        let each = leases.iter().map(|lease| {
            let answer = match &mut answers {
                Ok(answers) => answers.next().ok_or(Unavailable::OutcomeUnknown),
                Err(error) => Err(error.clone()),
            };
            lease.answered(asked_at, answer)
        });
        each.collect()
    }

    fn answered(
        &self,
        asked_at: Instant,
        answer: Result<Result<Applied, Refusal>, Unavailable>,
    ) -> LeaseReport {
        let report = match answer {
            Ok(Ok(applied)) => match applied.outcome {
                Outcome::Leased { epoch, .. } => {
                    let held = Held {
                        epoch,
                        granted_at: self.granted_at(epoch).unwrap_or(applied.revision),
                        until: asked_at + TTL,
                    };
                    self.set(Some(held));
                    LeaseReport::Held { epoch }
                }
                other => LeaseReport::NoAnswer {
                    reason: format!("the quorum answered {other:?}"),
                },
            },
            Ok(Err(Refusal::LeaseHeld { holder, .. })) => {
                self.set(None);
                LeaseReport::HeldByOther { holder }
            }
            Ok(Err(refusal)) => LeaseReport::NoAnswer {
                reason: refusal.to_string(),
            },
            Err(error) => LeaseReport::NoAnswer {
                reason: error.to_string(),
            },
        };
        if self.fence().is_none() {
            self.set(None);
        }
        report
    }

    /// Takes or renews it.
    pub(crate) async fn reconcile(self: &Arc<Self>, core: &Core) -> LeaseReport {
        let mut said = Self::ask_for(core, std::slice::from_ref(self)).await;
        said.pop().unwrap_or(LeaseReport::NoAnswer {
            reason: "nothing was asked".to_owned(),
        })
    }

    /// Writes down what became of it, where that is news.
    pub(crate) fn tell(&self, last: &mut Option<LeaseReport>, report: LeaseReport) {
        if last.as_ref() != Some(&report) {
            tracing::info!(lease = %self.name, ?report, "lease");
            *last = Some(report);
        }
    }

    /// Keeps it for ever.
    pub(crate) async fn keep(self: Arc<Self>, core: Arc<Core>) {
        let mut last = None;
        loop {
            let report = self.reconcile(&core).await;
            let pause = match &report {
                LeaseReport::Held { .. } => RENEWAL,
                LeaseReport::HeldByOther { .. } | LeaseReport::NoAnswer { .. } => RETRY,
            };
            self.tell(&mut last, report);
            sleep(SOONEST).await;
            tokio::select! {
                () = sleep(pause.saturating_sub(SOONEST)) => {}
                () = self.doubt.notified() => {}
            }
        }
    }

    /// Gives it back, so that another control need not wait for its end.
    pub(crate) async fn give_back(self: &Arc<Self>, core: &Core) {
        Self::give_all_back(core, std::slice::from_ref(self)).await;
    }

    /// Gives all of them back that are held, by one proposal.
    pub(crate) async fn give_all_back(core: &Core, leases: &[Arc<Self>]) {
        let held = leases.iter().filter(|lease| lease.fence().is_some());
        let returns = held.map(|lease| {
            lease.set(None);
            let command = Command::ReleaseLease {
                lease: lease.name.clone(),
                holder: lease.holder.clone(),
            };
            core.envelope(core.service(), None, None, command)
        });
        let returns: Vec<_> = returns.collect();
        if returns.is_empty() {
            return;
        }
        if let Err(error) = core.store.propose(returns).await {
            tracing::info!(%error, "leases not given back; they run out by themselves");
        }
    }
}

/// Shows in the view whether this control dispatches.
pub(crate) async fn show(core: Arc<Core>, dispatch: Arc<Lease>) {
    let mut changes = dispatch.changes();
    loop {
        let epoch = *changes.borrow_and_update();
        let dispatches = epoch != 0;
        core.moved.counts_since(dispatch.granted_at(epoch));
        core.publish(Wakes::Readers, |view| {
            let changed = view.dispatches != dispatches;
            view.dispatches = dispatches;
            view.acts();
            // No node and no allocation; but whoever follows looks at the view again.
            changed.then(|| vec![Change::Observed(Arc::default())])
        });
        if changes.changed().await.is_err() {
            return;
        }
    }
}
