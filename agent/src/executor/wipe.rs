//! The wipe of a node that its user gave back: the site's hook, once for each order, written down
//! before it runs and when it has ended, so that the answer to a repeat is the same after a restart
//! and after a boot.

use super::runner::Runner;
use crate::attempt::{Hook, HookName, RecordError, write_durably_from_reserve};
use crate::supervisor::{Process, signal_process, with_variable};
use lattice_mesh::Clock;
use lattice_quorum_types::tenure::WipeOutcome;
use lattice_quorum_types::wire::{Wipe, WipeStatus};
use lattice_quorum_types::{NodeId, UnixMillis};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

const FORMAT: u32 = 1;
/// What a hook and everything below it has in its environment.
const MARK: &str = "LATTICE_WIPE";
/// Between two looks at processes that were killed, and between two tries of a disk that is full.
const PAUSE: Duration = Duration::from_millis(100);
/// Processes that a killed agent left are waited for so long; one that stays is stuck in the kernel.
const END_WITHIN: Duration = Duration::from_secs(10);

/// The last wipe, on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u32,
    number: u64,
    since: UnixMillis,
    boot: String,
    /// `None`: it runs, or was cut short.
    outcome: Option<WipeOutcome>,
}

/// See the module.
pub(super) struct Wiper {
    hook: Option<Hook>,
    /// The site says that there is nothing to wipe.
    is_needless: bool,
    runner: Runner,
    path: PathBuf,
    /// Of this agent: another one on the machine must not take its processes for its own.
    agent: String,
    boot: String,
    clock: Arc<dyn Clock>,
    /// The one that an agent before this one began and did not see the end of.
    cut_short: Option<u64>,
    last: tokio::sync::Mutex<Option<Record>>,
}

/// What a wiper is made of.
pub(super) struct Site<'a> {
    pub(super) hook: Option<Hook>,
    pub(super) is_needless: bool,
    pub(super) node: NodeId,
    pub(super) boot: String,
    pub(super) folder: &'a Path,
    pub(super) agent: String,
    pub(super) clock: Arc<dyn Clock>,
}

impl Wiper {
    /// Reads what was written down.
    pub(super) fn open(site: Site<'_>) -> Result<Self, RecordError> {
        let path = site.folder.join("wipe.json");
        let last = match std::fs::read(&path) {
            Ok(bytes) => Some(read(&path, &bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(RecordError::Io { path, source }),
        };
        let open = last.as_ref().filter(|record| record.outcome.is_none());
        Ok(Self {
            cut_short: open.map(|record| record.number),
            hook: site.hook,
            is_needless: site.is_needless,
            runner: Runner::new(HookName::Wipe, site.node, site.boot.clone(), site.folder),
            path,
            agent: site.agent,
            boot: site.boot,
            clock: site.clock,
            last: tokio::sync::Mutex::new(last),
        })
    }

    /// A wipe that an agent before this one began and did not see the end of has failed: nobody knows
    /// how far it came. What is left of it is ended first.
    pub(super) async fn recover(&self) {
        let mut last = self.last.lock().await;
        // One that was begun since runs.
        let is_cut =
            |record: &Record| record.outcome.is_none() && self.cut_short == Some(record.number);
        let Some(cut) = last.clone().filter(is_cut) else {
            return;
        };
        let reason = match cut.boot == self.boot {
            true => {
                let left = self.end_what_is_left(cut.number).await;
                format!("it was cut short: the agent ended while it ran{left}")
            }
            false => "it was cut short: the node was booted anew while it ran".to_owned(),
        };
        tracing::error!(wipe = cut.number, %reason, "the last wipe has failed");
        let outcome = WipeOutcome::Failed {
            at: self.clock.now(),
            boot: self.boot.clone(),
            reason,
        };
        *last = Some(
            self.keep(Record {
                outcome: Some(outcome),
                ..cut
            })
            .await,
        );
    }

    /// Begins it, or says where it stands. One at a time, and none while work runs here.
    pub(super) async fn ask(&self, asked: &Wipe, has_work: bool) -> Result<Asked, String> {
        let mut last = self.last.lock().await;
        if let Some(known) = last.as_ref() {
            if known.number == asked.number {
                return Ok(Asked::Known(known.status()));
            }
            if known.number > asked.number {
                let (number, newer) = (asked.number, known.number);
                return Err(format!(
                    "wipe {number} is over; {newer} was asked for since"
                ));
            }
            if known.outcome.is_none() {
                return Err(format!("wipe {} still runs", known.number));
            }
        }
        if has_work {
            return Err("work still runs here; it is ended first".to_owned());
        }
        let record = Record {
            version: FORMAT,
            number: asked.number,
            since: self.clock.now(),
            boot: self.boot.clone(),
            outcome: None,
        };
        let written = self.write(record.clone()).await;
        written.map_err(|error| format!("the wipe cannot be written down: {error}"))?;
        let status = record.status();
        *last = Some(record);
        Ok(Asked::Begun(status))
    }

    /// Runs what [`Wiper::ask`] began, and writes down how it ended.
    pub(super) async fn run(&self, asked: &Wipe) {
        let outcome = self.outcome(asked).await;
        tracing::info!(wipe = asked.number, %outcome, "the wipe has ended");
        let mut last = self.last.lock().await;
        let Some(begun) = last.clone().filter(|record| record.number == asked.number) else {
            return;
        };
        *last = Some(
            self.keep(Record {
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
                    (MARK, self.mark(asked.number)),
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
                evidence: self.runner.told("exit code 0").await,
            },
            Err(reason) => WipeOutcome::Failed { at, boot, reason },
        }
    }

    fn mark(&self, number: u64) -> String {
        format!("{}-{number}", self.agent)
    }

    /// Ends the processes of a hook whose agent was killed; says where that was not possible.
    async fn end_what_is_left(&self, number: u64) -> String {
        let variable = format!("{MARK}={}", self.mark(number));
        let begun = Instant::now();
        loop {
            let wanted = variable.clone();
            let found = spawn_blocking(move || with_variable(wanted.as_bytes())).await;
            let found: Vec<Process> = match found {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    return format!("; what is left of it cannot be looked for: {error}");
                }
                Err(error) => return format!("; what is left of it cannot be looked for: {error}"),
            };
            if found.is_empty() {
                return String::new();
            }
            if begun.elapsed() >= END_WITHIN {
                return format!("; {} processes of it could not be ended", found.len());
            }
            found
                .iter()
                .for_each(|process| signal_process(process, Signal::KILL));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes an end down, however long the disk takes it. It is answered with only then.
    async fn keep(&self, record: Record) -> Record {
        let mut is_told = false;
        while let Err(error) = self.write(record.clone()).await {
            if !std::mem::replace(&mut is_told, true) {
                tracing::error!(%error, "the end of a wipe cannot be written down yet");
            }
            tokio::time::sleep(PAUSE).await;
        }
        record
    }

    async fn write(&self, record: Record) -> io::Result<()> {
        let path = self.path.clone();
        let written = spawn_blocking(move || {
            let bytes = serde_json::to_vec(&record).map_err(io::Error::other)?;
            write_durably_from_reserve(&path, &bytes)
        });
        written.await.map_err(io::Error::other)?
    }
}

/// The answer to an order.
#[derive(Debug)]
pub(super) enum Asked {
    /// It is to be run now.
    Begun(WipeStatus),
    /// It runs, or has ended.
    Known(WipeStatus),
}

impl Record {
    fn status(&self) -> WipeStatus {
        match &self.outcome {
            Some(outcome) => WipeStatus::Ended(outcome.clone()),
            None => WipeStatus::Running { since: self.since },
        }
    }
}

fn read(path: &Path, bytes: &[u8]) -> Result<Record, RecordError> {
    let path = path.to_owned();
    match serde_json::from_slice::<Record>(bytes) {
        Ok(record) if record.version == FORMAT => Ok(record),
        Ok(record) => Err(RecordError::OtherFormat {
            path,
            found: record.version,
        }),
        Err(source) => Err(RecordError::DamagedWipe { path, source }),
    }
}
