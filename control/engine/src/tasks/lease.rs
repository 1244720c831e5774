//! Lease of a control: acquisition, renewal and release. Commands under the lease carry its epoch, so a control that
//! lost the lease unnoticed changes nothing.

use crate::{
    core::{Core, Wakes},
    feed::Change,
    movement_metrics::PreemptionCounters,
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

/// Time to live of a lease without renewal: longer than a quorum election takes.
const TTL: Duration = Duration::from_secs(6);
/// Time between two renewals. A failed renewal is repeated after [`RETRY`], so some may fail before the lease is lost.
pub(crate) const RENEWAL: Duration = Duration::from_millis(1500);
/// Time before the end of the lease at which this control stops acting, reserved for a command under way.
const MARGIN: Duration = Duration::from_millis(500);
/// Time between two attempts while another control holds the lease, or the quorum does not answer.
pub(crate) const RETRY: Duration = Duration::from_millis(1000);

/// Shortest time between two proposals, however often the epoch is doubted.
const MIN_PROPOSAL_INTERVAL: Duration = Duration::from_millis(250);

/// A lease held until a given instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldLease {
    epoch: u64,
    /// The lease was granted at this revision or earlier.
    granted_at: Revision,
    until: Instant,
}

/// A lease of this control; see the module.
#[derive(Debug)]
pub struct Lease {
    name: LeaseName,
    /// Name of this run of the control process as a holder. After a restart the process is another holder, with another
    /// epoch.
    holder: String,
    held: Mutex<Option<HeldLease>>,
    /// Epoch held, 0 for none.
    changes: watch::Sender<u64>,
    /// Requests an early renewal.
    doubt: Notify,
}

/// Result of one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseReport {
    /// Acquired or renewed.
    Held {
        /// Epoch of the lease.
        epoch: u64,
    },
    /// Another control holds the lease.
    HeldByOther {
        /// Holder of the lease.
        holder: String,
    },
    /// The quorum did not answer, or refused for a reason other than the holder. A held lease stays valid until its
    /// end.
    NoAnswer {
        /// Error, or the unexpected answer of the quorum.
        reason: String,
    },
}

impl Lease {
    /// Lease by name, not held yet.
    pub fn new(name: LeaseName, holder: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            holder,
            held: Mutex::new(None),
            changes: watch::Sender::new(0),
            doubt: Notify::new(),
        })
    }

    /// Fence for a command under this lease; `None` unless the lease is certainly held.
    pub(crate) fn fence(&self) -> Option<Fence> {
        let held = *self.held.lock();
        let held = held.filter(|held| Instant::now() + MARGIN < held.until)?;
        Some(Fence {
            lease: self.name.clone(),
            epoch: held.epoch,
        })
    }

    /// Revision at which the lease was held with this epoch: no other control has acted under it since. `None` if the
    /// lease is not held with this epoch.
    pub(crate) fn granted_at(&self, epoch: u64) -> Option<Revision> {
        let held = *self.held.lock();
        Some(held.filter(|held| held.epoch == epoch)?.granted_at)
    }

    /// Receiver that is notified when the lease is taken or lost.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Reports that a component other than the quorum doubts this epoch; the next renewal follows at once. The lease
    /// stays held until the quorum denies it, so a single broken agent cannot end it.
    pub(crate) fn report_doubt(&self, epoch: u64) {
        let held = *self.held.lock();
        if held.is_some_and(|held| held.epoch == epoch) {
            self.doubt.notify_one();
        }
    }

    /// Reports that the quorum has declared this epoch over.
    pub(crate) fn report_expired(&self, epoch: u64) {
        let held = *self.held.lock();
        if held.is_some_and(|held| held.epoch == epoch) {
            self.set(None);
        }
    }

    fn set(&self, next: Option<HeldLease>) {
        *self.held.lock() = next;
        let epoch = next.map_or(0, |held| held.epoch);
        self.changes
            .send_if_modified(|known| std::mem::replace(known, epoch) != epoch);
    }

    /// Epoch with which the lease is certainly held.
    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.fence()?.epoch)
    }

    /// Acquires or renews all leases with one proposal; returns the result of each.
    pub(crate) async fn acquire_all(core: &Core, leases: &[Arc<Self>]) -> Vec<LeaseReport> {
        // The time to live counts from before the proposal: the quorum cannot have started counting earlier.
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
                    let held = HeldLease {
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

    /// Acquires or renews this lease.
    pub async fn reconcile(self: &Arc<Self>, core: &Core) -> LeaseReport {
        let mut said = Self::acquire_all(core, std::slice::from_ref(self)).await;
        said.pop().unwrap_or(LeaseReport::NoAnswer {
            reason: "the request was empty".to_owned(),
        })
    }

    /// Logs the result if it differs from the last one.
    pub(crate) fn log_change(&self, last: &mut Option<LeaseReport>, report: LeaseReport) {
        if last.as_ref() != Some(&report) {
            tracing::info!(lease = %self.name, ?report, "lease state changed");
            *last = Some(report);
        }
    }

    /// Acquires and renews the lease forever.
    pub async fn run(self: Arc<Self>, core: Arc<Core>) {
        let mut last = None;
        loop {
            let report = self.reconcile(&core).await;
            let pause = match &report {
                LeaseReport::Held { .. } => RENEWAL,
                LeaseReport::HeldByOther { .. } | LeaseReport::NoAnswer { .. } => RETRY,
            };
            self.log_change(&mut last, report);
            sleep(MIN_PROPOSAL_INTERVAL).await;
            tokio::select! {
                () = sleep(pause.saturating_sub(MIN_PROPOSAL_INTERVAL)) => {}
                () = self.doubt.notified() => {}
            }
        }
    }

    /// Releases the lease, so that another control need not wait for its expiry.
    pub async fn release(self: &Arc<Self>, core: &Core) {
        Self::release_all(core, std::slice::from_ref(self)).await;
    }

    /// Releases all held leases with one proposal.
    pub(crate) async fn release_all(core: &Core, leases: &[Arc<Self>]) {
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
            tracing::info!(%error, "leases not released; they expire by themselves");
        }
    }
}

/// Publishes in the view whether this control dispatches, and starts or stops its preemption counters.
pub async fn publish_dispatching(core: Arc<Core>, dispatch: Arc<Lease>) {
    let preemptions = core.metrics.of::<PreemptionCounters>();
    let mut changes = dispatch.changes();
    loop {
        let epoch = *changes.borrow_and_update();
        let dispatches = epoch != 0;
        preemptions.start_counting(dispatch.granted_at(epoch));
        core.publish(Wakes::Readers, |view| {
            let changed = view.dispatches != dispatches;
            view.dispatches = dispatches;
            view.set_acting();
            // No node or allocation changed, but this change makes subscribers read the view again.
            changed.then(|| vec![Change::Observed(Arc::default())])
        });
        if changes.changed().await.is_err() {
            return;
        }
    }
}
