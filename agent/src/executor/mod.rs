//! Executor: runs the allocations that control dispatches to this node.
//!
//! The executor records an attempt, starts its supervisor, and reports to control until control has acknowledged the
//! result.
//!
//! All state that must survive the agent is in the executor's folder; memory holds only pending reports. The executor
//! makes no placement decision. It starts what a `Launch` requests and ends what a `Terminate` requests. On its own
//! it ends only processes without a living supervisor or without a record.

mod answers;
mod block_reason;
mod control;
mod epoch;
mod hooks;
mod identity;
mod journal;
mod lifecycle;
mod log;
mod processes;
mod rank;
mod settings;
mod shared;

pub use crate::supervisor::{CgroupError, CgroupSettings, CgroupUse};
pub use block_reason::{BlockReason, BlockReasonChanges};
pub use control::{Control, NotReported};
pub use identity::accounts::{Accounts, LookupError};
pub use identity::ids::{AgentUser, Ids};
pub use identity::run_as::{JobAccount, RunAs};
pub use identity::trusted::DistrustCause;
pub use identity::user_map::{UserMap, UserMapError};
pub use lifecycle::spawn::OWN_PROGRAM;
pub use settings::{
    CheckpointSettings, ExecutorSettings, Hooks, ORPHAN_HOLD, OpenError, OrphanPolicy,
};

use crate::attempt::{AttemptDir, Attempts, RecordError};
use crate::supervisor::Cgroups;
use block_reason::BlockReasons;
use epoch::HighestEpoch;
use hooks::health_gate::HealthGate;
use hooks::wipe::{self, WipeAnswer, Wiper};
use journal::RecordingState;
use lattice_agent_rpc::{AttemptKey, GateFailed, Wipe, WipeStatus};
use lattice_mesh::Clock;
use lattice_quorum_types::command::RankReport;
use lifecycle::{follow, recover};
use parking_lot::Mutex;
use rank::Rank;
use shared::Shared;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum number of checks for exited supervisors while the executor stops, [`EXIT_CHECK_INTERVAL`] apart.
const MAX_EXIT_CHECKS: u32 = 20;
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Executor of one node: runs and watches ranks. Clones share the state.
#[derive(Clone)]
pub struct Executor {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Executor({})", self.shared.settings.folder.display())
    }
}

impl Executor {
    /// Opens the executor's folder. The executor starts and reports nothing before [`Executor::resume`].
    pub fn open(
        mut settings: ExecutorSettings,
        control: Arc<dyn Control>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        settings.hooks = settings.hooks.validate(settings.run_as.agent)?;
        let agent = agent_id(&settings.folder);
        let place = format!("{}-{agent}", settings.node);
        let cgroups = Cgroups::open(&settings.cgroup, &place)?;
        let attempts = Attempts::open(settings.folder.join("attempts"))?;
        let epoch = HighestEpoch::open(settings.folder.join("epoch.json"))?;
        let journal = Arc::new(RecordingState::new());
        let hindrances = Arc::new(BlockReasons::new());
        let gate = Arc::new(HealthGate::new(
            settings.hooks.health_gate.clone(),
            settings.node.clone(),
            settings.boot_id.clone(),
            &settings.folder,
            hindrances.clone(),
        ));
        let wiper = Arc::new(Wiper::open(wipe::WiperParameters {
            hook: settings.hooks.rank.wipe.clone(),
            is_needless: settings.hooks.nothing_to_wipe,
            node: settings.node.clone(),
            boot: settings.boot_id.clone(),
            folder: &settings.folder,
            agent: agent.clone(),
            clock: clock.clone(),
        })?);
        if let Err(error) = attempts.keep_reserve() {
            // Running ranks must be watched also on a full disk.
            journal.failed(&error);
        }
        Ok(Self {
            shared: Arc::new(Shared {
                settings,
                attempts,
                epoch: Arc::new(tokio::sync::Mutex::new(epoch)),
                ranks: Mutex::default(),
                unwritten: Mutex::default(),
                journal,
                block_reasons: hindrances,
                gate,
                wiper,
                agent,
                cgroups,
                control,
                clock,
                cancel: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        })
    }

    /// Resumes the attempts that a previous agent left. Running supervisors are watched again, results that control
    /// does not have are reported, and ranks that cannot have survived are recorded as lost.
    pub fn resume(&self) -> Result<(), RecordError> {
        for (key, dir, end) in recover::unfinished(&self.shared)? {
            self.follow(key, dir, end);
        }
        self.search_orphans();
        self.require_health_gate();
        let wiper = self.shared.wiper.clone();
        self.spawn(async move { wiper.recover().await });
        let pruning = recover::prune_periodically(self.shared.clone());
        self.spawn(pruning);
        let journal = self.shared.journal.clone();
        self.spawn(journal.watch(self.shared.attempts.clone()));
        Ok(())
    }

    /// Blocks jobs until the health gate has passed, if the agent starts on a node without running jobs, or after a
    /// reboot. An agent that starts while jobs run, as in an upgrade, is on a node that has passed before.
    fn require_health_gate(&self) {
        let rebooted = !self
            .shared
            .block_reasons
            .attempts(BlockReason::Finishing)
            .is_empty();
        if !self.shared.gate.is_configured() || (self.shared.has_work() && !rebooted) {
            return;
        }
        self.shared.gate.block_until_first_result();
        let shared = self.shared.clone();
        let is_idle = move || !shared.has_work();
        self.spawn(self.shared.gate.clone().run_until_passed(is_idle));
    }

    /// Whether this node runs jobs.
    pub fn is_enabled(&self) -> bool {
        self.shared.settings.enabled
    }

    /// Reason that attempts cannot be recorded, so that no job is accepted; `None` while they can be recorded.
    pub fn journal_fault(&self) -> watch::Receiver<Option<String>> {
        self.shared.journal.fault()
    }

    /// Reasons to place no job on this node, and faults for the operator to inspect ([`BlockReason::blocks_jobs`]).
    pub fn block_reasons(&self) -> Vec<BlockReason> {
        let off = (!self.is_enabled()).then_some(BlockReason::Off);
        let fault = self.journal_fault();
        let journal = fault.borrow().is_some().then_some(BlockReason::Journal);
        let others = self.shared.block_reasons.active();
        off.into_iter().chain(journal).chain(others).collect()
    }

    /// Notifies of changes to [`Executor::block_reasons`], except the journal's.
    pub fn block_reason_changes(&self) -> BlockReasonChanges {
        self.shared.block_reasons.changes()
    }

    /// Runs the site's health gate; succeeds if none is configured.
    pub async fn check_health(&self) -> Result<(), GateFailed> {
        self.shared.gate.check().await
    }

    /// Starts a wipe by the site's hook, or returns the status of a wipe that was requested before.
    pub async fn wipe(&self, order: Wipe) -> Result<WipeStatus, String> {
        let wiper = self.shared.wiper.clone();
        match wiper.accept(&order, self.shared.has_work()).await? {
            WipeAnswer::Known(status) => Ok(status),
            WipeAnswer::Begun(status) => {
                self.spawn(async move { wiper.run(&order).await });
                Ok(status)
            }
        }
    }

    /// Stops watching and reporting. Running jobs continue under their supervisors.
    pub async fn stop(&self) {
        self.shared.cancel.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        for _ in 0..MAX_EXIT_CHECKS {
            if self.shared.remove_cgroups() {
                return self.shared.remove_runtime_folder();
            }
            // A supervisor that has written its end is about to exit.
            tokio::time::sleep(EXIT_CHECK_INTERVAL).await;
        }
    }

    /// Ends every rank, for a cluster that is shut down for good, and waits at most `within` for the ends. Returns the
    /// number of ranks left.
    pub async fn end_all_ranks(&self, within: Duration) -> usize {
        let ranks: Vec<Arc<Rank>> = self.shared.known().values().cloned().collect();
        let ends = ranks.iter().map(|rank| async move {
            let (executor, at) = (self.clone(), rank.clone());
            let asked =
                tokio::task::spawn_blocking(move || executor.request_termination(&at)).await;
            if let Ok(Err(error)) = asked {
                let error = crate::with_causes(&error);
                tracing::warn!(
                    attempt = %rank,
                    %error,
                    "stop request of a rank could not be recorded"
                );
            }
            rank.wait_for_end().await;
        });
        let all = futures::future::join_all(ends);
        let _ = tokio::time::timeout(within, all).await;
        ranks.iter().filter(|rank| !rank.has_ended()).count()
    }

    /// Stops like [`Executor::stop`], without waiting.
    pub fn stop_now(&self) {
        self.shared.cancel.cancel();
        let _ = self.shared.remove_cgroups();
    }

    /// Watches an attempt and reports to control until control has its end.
    fn follow(&self, key: AttemptKey, dir: AttemptDir, report: Option<RankReport>) {
        self.follow_rank(Rank::new(key, dir, report));
    }

    fn follow_rank(&self, rank: Rank) {
        let rank = Arc::new(rank);
        self.shared.known().insert(rank.key(), rank.clone());
        self.spawn(follow::follow(self.shared.clone(), rank));
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.shared.cancel.clone();
        let until = async move {
            cancel.run_until_cancelled(work).await;
        };
        self.shared.tasks.spawn(until);
    }
}

/// Agent id, derived from the folder: equal for every agent that ever uses this folder, and different for any other on
/// the machine.
fn agent_id(folder: &Path) -> String {
    let hash = blake3::hash(folder.as_os_str().as_encoded_bytes());
    let hex = hash.to_hex();
    hex.as_str().chars().take(12).collect()
}
