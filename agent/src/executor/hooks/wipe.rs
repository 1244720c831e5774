//! Node wipe after a user has released the node.
//!
//! The site's hook runs once for each order. The order is recorded before the hook runs, and the result when it has
//! ended. So a repeated order gets the same answer after a restart and after a reboot.

use super::runner::HookRunner;
use crate::attempt::{Hook, HookName, RecordError, write_durably_from_reserve};
use crate::supervisor::{Process, find_with_variable, signal_process};
use lattice_agent_rpc::{Wipe, WipeStatus};
use lattice_mesh::Clock;
use lattice_quorum_types::node_claim::WipeOutcome;
use lattice_quorum_types::{NodeId, UnixMillis};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

const FORMAT: u32 = 1;
/// Variable that marks the environment of the hook and its descendants.
const MARKER_VARIABLE: &str = "LATTICE_WIPE";
/// Pause between two checks of killed processes, and between two writes to a full disk.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for the end of hook processes that a killed agent left; a process that remains is stuck in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Record of the last wipe, on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WipeRecord {
    version: u32,
    number: u64,
    since: UnixMillis,
    boot: String,
    /// Outcome of the wipe; `None` while it runs or after it was interrupted.
    outcome: Option<WipeOutcome>,
}

/// Runs wipes and records their outcome.
pub(in crate::executor) struct Wiper {
    hook: Option<Hook>,
    /// Whether the site declares that the node needs no wipe.
    is_needless: bool,
    runner: HookRunner,
    path: PathBuf,
    /// Agent id: another agent on the machine must not treat this wipe's processes as its own.
    agent: String,
    boot: String,
    clock: Arc<dyn Clock>,
    /// Number of a wipe that a previous agent started and that has no recorded outcome.
    interrupted: Option<u64>,
    last: tokio::sync::Mutex<Option<WipeRecord>>,
}

/// Parameters of [`Wiper::open`].
pub(in crate::executor) struct WiperParameters<'a> {
    pub(in crate::executor) hook: Option<Hook>,
    pub(in crate::executor) is_needless: bool,
    pub(in crate::executor) node: NodeId,
    pub(in crate::executor) boot: String,
    pub(in crate::executor) folder: &'a Path,
    pub(in crate::executor) agent: String,
    pub(in crate::executor) clock: Arc<dyn Clock>,
}

impl Wiper {
    /// Opens the wiper with the last record on disk.
    pub(in crate::executor) fn open(site: WiperParameters<'_>) -> Result<Self, RecordError> {
        let path = site.folder.join("wipe.json");
        let last = match std::fs::read(&path) {
            Ok(bytes) => Some(read(&path, &bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(RecordError::Io { path, source }),
        };
        let open = last.as_ref().filter(|record| record.outcome.is_none());
        Ok(Self {
            interrupted: open.map(|record| record.number),
            hook: site.hook,
            is_needless: site.is_needless,
            runner: HookRunner::new(HookName::Wipe, site.node, site.boot.clone(), site.folder),
            path,
            agent: site.agent,
            boot: site.boot,
            clock: site.clock,
            last: tokio::sync::Mutex::new(last),
        })
    }

    /// Records an interrupted wipe of a previous agent as failed: its progress is unknown. Remaining processes of the
    /// hook are ended first.
    pub(in crate::executor) async fn recover(&self) {
        let mut last = self.last.lock().await;
        // A wipe that this agent has started itself is running, and must continue.
        let is_cut = |record: &WipeRecord| {
            record.outcome.is_none() && self.interrupted == Some(record.number)
        };
        let Some(cut) = last.clone().filter(is_cut) else {
            return;
        };
        let reason = match cut.boot == self.boot {
            true => {
                let left = self.end_leftover_processes(cut.number).await;
                format!("interrupted: the agent ended during the wipe{left}")
            }
            false => "interrupted: the node rebooted during the wipe".to_owned(),
        };
        tracing::error!(wipe = cut.number, %reason, "the last wipe has failed");
        let outcome = WipeOutcome::Failed {
            at: self.clock.now(),
            boot: self.boot.clone(),
            reason,
        };
        *last = Some(
            self.write_until_saved(WipeRecord {
                outcome: Some(outcome),
                ..cut
            })
            .await,
        );
    }

    /// Records the order for a wipe, or returns the status of the wipe for the same order. Only one wipe runs at a
    /// time, and none starts while jobs run on the node.
    pub(in crate::executor) async fn accept(
        &self,
        order: &Wipe,
        has_work: bool,
    ) -> Result<WipeAnswer, String> {
        let mut last = self.last.lock().await;
        if let Some(known) = last.as_ref() {
            if known.number == order.number {
                return Ok(WipeAnswer::Known(known.status()));
            }
            if known.number > order.number {
                let (number, newer) = (order.number, known.number);
                return Err(format!(
                    "stale wipe number {number}; wipe {newer} was requested since"
                ));
            }
            if known.outcome.is_none() {
                return Err(format!("wipe {} still runs", known.number));
            }
        }
        if has_work {
            return Err(
                "jobs still run on this node; the wipe starts when they have ended".to_owned(),
            );
        }
        let record = WipeRecord {
            version: FORMAT,
            number: order.number,
            since: self.clock.now(),
            boot: self.boot.clone(),
            outcome: None,
        };
        let written = self.write(record.clone()).await;
        written.map_err(|error| format!("the wipe could not be recorded: {error}"))?;
        let status = record.status();
        *last = Some(record);
        Ok(WipeAnswer::Begun(status))
    }

    /// Runs the wipe that [`Wiper::accept`] accepted, and records its outcome.
    pub(in crate::executor) async fn run(&self, order: &Wipe) {
        let outcome = self.outcome(order).await;
        tracing::info!(wipe = order.number, %outcome, "the wipe has ended");
        let mut last = self.last.lock().await;
        let Some(begun) = last.clone().filter(|record| record.number == order.number) else {
            return;
        };
        *last = Some(
            self.write_until_saved(WipeRecord {
                outcome: Some(outcome),
                ..begun
            })
            .await,
        );
    }

    async fn outcome(&self, asked: &Wipe) -> WipeOutcome {
        let ended = match (&self.hook, self.is_needless) {
            (Some(hook), _) => {
                let more = [
                    (MARKER_VARIABLE, self.marker(asked.number)),
                    ("LATTICE_USER", asked.user.clone()),
                    ("LATTICE_PROJECT", asked.project.clone()),
                    ("LATTICE_SENSITIVE", "1".to_owned()),
                ];
                self.runner.run(hook, &more).await
            }
            (None, true) => {
                return WipeOutcome::NotNeeded {
                    at: self.clock.now(),
                    boot: self.boot.clone(),
                };
            }
            (None, false) => Err(
                "no wipe is configured: set executor.hooks.wipe, or executor.hooks.nothing_to_wipe"
                    .to_owned(),
            ),
        };
        let (at, boot) = (self.clock.now(), self.boot.clone());
        match ended {
            Ok(()) => WipeOutcome::Wiped {
                at,
                boot,
                evidence: self.runner.describe("exit code 0").await,
            },
            Err(reason) => WipeOutcome::Failed { at, boot, reason },
        }
    }

    fn marker(&self, number: u64) -> String {
        format!("{}-{number}", self.agent)
    }

    /// Ends the processes of a hook that a killed agent left. Returns a text for the failure reason, empty on success.
    async fn end_leftover_processes(&self, number: u64) -> String {
        let variable = format!("{MARKER_VARIABLE}={}", self.marker(number));
        let begun = Instant::now();
        loop {
            let wanted = variable.clone();
            let found = spawn_blocking(move || find_with_variable(wanted.as_bytes())).await;
            let found: Vec<Process> = match found {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    return format!(
                        "; remaining processes of the hook could not be listed: {error}"
                    );
                }
                Err(error) => {
                    return format!(
                        "; remaining processes of the hook could not be listed: {error}"
                    );
                }
            };
            if found.is_empty() {
                return String::new();
            }
            if begun.elapsed() >= KILL_TIMEOUT {
                return format!(
                    "; {} processes of the hook could not be killed",
                    found.len()
                );
            }
            found
                .iter()
                .for_each(|process| signal_process(process, Signal::KILL));
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Writes a record, and retries until the write succeeds. The outcome becomes visible to callers only afterwards.
    async fn write_until_saved(&self, record: WipeRecord) -> WipeRecord {
        let mut is_reported = false;
        while let Err(error) = self.write(record.clone()).await {
            if !std::mem::replace(&mut is_reported, true) {
                tracing::error!(%error, "outcome of a wipe could not be recorded yet");
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        record
    }

    async fn write(&self, record: WipeRecord) -> io::Result<()> {
        let path = self.path.clone();
        let written = spawn_blocking(move || {
            let bytes = serde_json::to_vec(&record).map_err(io::Error::other)?;
            write_durably_from_reserve(&path, &bytes)
        });
        written.await.map_err(io::Error::other)?
    }
}

/// Answer to a wipe order.
#[derive(Debug)]
pub(in crate::executor) enum WipeAnswer {
    /// The wipe is accepted and must be run now.
    Begun(WipeStatus),
    /// The wipe is running or has ended.
    Known(WipeStatus),
}

impl WipeRecord {
    fn status(&self) -> WipeStatus {
        match &self.outcome {
            Some(outcome) => WipeStatus::Ended(outcome.clone()),
            None => WipeStatus::Running { since: self.since },
        }
    }
}

fn read(path: &Path, bytes: &[u8]) -> Result<WipeRecord, RecordError> {
    let path = path.to_owned();
    match serde_json::from_slice::<WipeRecord>(bytes) {
        Ok(record) if record.version == FORMAT => Ok(record),
        Ok(record) => Err(RecordError::OtherFormat {
            path,
            found: record.version,
        }),
        Err(source) => Err(RecordError::DamagedWipe { path, source }),
    }
}
