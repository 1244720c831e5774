//! Parent side of isolated probing: sends the host to a probing process and waits for answers, at most until the
//! deadlines.

use super::PROBE_SUBCOMMAND;
use super::job::{Job, ProbeLine};
use super::pipes::{ChildOutput, Pipes};
use crate::process::MAX_STUCK_GROUPS;
use crate::root::AccessedPaths;
use crate::{Host, Probe};
use lattice_conformance::{Inventory, ProbeFailure, ProbeResult, Reading, text};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Maximum output of a child, in bytes; the records of the largest node take less than 1 MiB.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Maximum output of a child with a trace of the files read, as text in JSON, in bytes.
const MAX_TRACED_OUTPUT_BYTES: usize = 512 << 20;

/// Time for a child that closed its output to exit by itself.
const EXIT_GRACE: Duration = Duration::from_millis(200);

/// Runs the probes of `host` in one disposable process, `program` (normally the running executable, see
/// [`super::run_if_child`]). A probe that exceeds its deadline is hung, and one that panics has failed; the other
/// probes are not affected. If the process ends, every probe without an answer has failed. Blocks for the longest
/// deadline and a few hundred milliseconds at most.
#[must_use]
pub fn probe_isolated(host: &Host, program: &Path) -> Inventory {
    traced_isolated(host, program, false).0
}

/// Probes in a separate process; returns the touched paths as well if `is_traced`.
pub(crate) fn traced_isolated(
    host: &Host,
    program: &Path,
    is_traced: bool,
) -> (Inventory, AccessedPaths) {
    let stuck = host.stuck.count_by_probe();
    let mut round = ChildRun::new(host, &stuck);
    if !round.pending.is_empty() {
        round.run(host, program, is_traced);
    }
    let mut inventory = Inventory::default();
    for probe in host.probes() {
        let Some(answer) = round.answers.remove(probe.name) else {
            continue;
        };
        match answer {
            Answer::Completed(took, probed) => inventory.add_result(probe.name, took, *probed),
            Answer::Lost(took, loss) => inventory.add_loss(probe.name, probe.class, took, &loss),
        }
    }
    inventory.add_disabled_classes();
    inventory.stuck = host.stuck.count_by_probe();
    (inventory, round.touched)
}

enum Answer {
    Completed(Duration, Box<ProbeResult>),
    Lost(Duration, ProbeFailure),
}

/// One run of the child.
struct ChildRun {
    started_at: Instant,
    /// Probes without an answer, each with the time at which it counts as hung.
    pending: BTreeMap<&'static str, Instant>,
    answers: BTreeMap<&'static str, Answer>,
    touched: AccessedPaths,
}

impl ChildRun {
    fn new(host: &Host, stuck: &BTreeMap<String, u32>) -> Self {
        let started_at = Instant::now();
        let mut round = Self {
            started_at,
            pending: BTreeMap::new(),
            answers: BTreeMap::new(),
            touched: AccessedPaths::default(),
        };
        for probe in host.probes() {
            match answer_without_run(probe, host, stuck) {
                Some(answer) => drop(round.answers.insert(probe.name, answer)),
                None => {
                    let until = started_at + host.deadline(probe.class);
                    round.pending.insert(probe.name, until);
                }
            }
        }
        round
    }

    fn run(&mut self, host: &Host, program: &Path, is_traced: bool) {
        let started: Vec<String> = self.pending.keys().map(|&name| name.to_owned()).collect();
        let job = Job {
            host: host.clone(),
            probes: started.clone(),
            is_traced,
        };
        let most = match is_traced {
            true => MAX_TRACED_OUTPUT_BYTES,
            false => MAX_OUTPUT_BYTES,
        };
        let running = serde_json::to_vec(&job)
            .map_err(std::io::Error::other)
            .and_then(|job| {
                let mut child = start(program)?;
                match Pipes::of(&mut child, job, most) {
                    Ok(pipes) => Ok((child, pipes)),
                    Err(error) => {
                        host.stuck.kill_and_track(child, started.clone());
                        Err(error)
                    }
                }
            });
        let (child, mut pipes) = match running {
            Ok(running) => running,
            Err(error) => {
                let why = format!("cannot start {}: {error}", program.display());
                return self.fail_pending(&why);
            }
        };
        let end = self.receive_answers(&mut pipes);
        if let Some(end) = end {
            let why = end.why(&child, pipes.into_stderr());
            self.fail_pending(&why);
        }
        // If no probe is known to hang, any of them may.
        let hung = match self.hung() {
            hung if hung.is_empty() => started,
            hung => hung,
        };
        host.stuck.kill_and_track(child, hung);
    }

    /// Receives answers until none is pending. Returns the reason if the wait ends before every probe answered or timed
    /// out.
    fn receive_answers(&mut self, pipes: &mut Pipes) -> Option<End> {
        while let Some(until) = self.pending.values().min().copied() {
            match pipes.next(until) {
                ChildOutput::Line(line) => match serde_json::from_slice(&line) {
                    Ok(line) => self.take(line),
                    Err(error) => return Some(End::InvalidLine(error.to_string())),
                },
                ChildOutput::Nothing => self.expire(),
                ChildOutput::End => return Some(End::Closed),
                ChildOutput::TooMuch => return Some(End::TooMuch),
            }
        }
        None
    }

    /// Stores an answer. An answer after the deadline, or from a probe that was not requested, is ignored.
    fn take(&mut self, line: ProbeLine) {
        let Some((name, _)) = self.pending.remove_entry(line.probe.as_str()) else {
            return;
        };
        let took = Duration::from_micros(line.took_us);
        let answer = match line.result {
            Ok(probed) => Answer::Completed(took, Box::new(probed)),
            Err(why) => Answer::Lost(took, ProbeFailure::Failed { why }),
        };
        self.answers.insert(name, answer);
        if let Some(touched) = line.touched {
            self.touched.absorb(touched);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let pending = std::mem::take(&mut self.pending);
        for (name, until) in pending {
            if until > now {
                self.pending.insert(name, until);
                continue;
            }
            let after_ms = millis(until - self.started_at);
            let lost = Answer::Lost(now - self.started_at, ProbeFailure::Hung { after_ms });
            self.answers.insert(name, lost);
        }
    }

    fn fail_pending(&mut self, why: &str) {
        let took = self.started_at.elapsed();
        for name in std::mem::take(&mut self.pending).into_keys() {
            let why = why.to_owned();
            let lost = Answer::Lost(took, ProbeFailure::Failed { why });
            self.answers.insert(name, lost);
        }
    }

    /// Probes that may have left a stuck process: those that hung, and those that report a timeout of their own
    /// program.
    fn hung(&self) -> Vec<String> {
        let is_timeout = |reading: &_| matches!(reading, &Reading::Timeout { .. });
        let is_hung = |answer: &Answer| match answer {
            Answer::Completed(_, probed) => probed.record.entries.values().any(is_timeout),
            Answer::Lost(_, ProbeFailure::Hung { .. }) => true,
            Answer::Lost(..) => false,
        };
        let answers = self.answers.iter();
        answers
            .filter(|(_, answer)| is_hung(answer))
            .map(|(&name, _)| name.to_owned())
            .collect()
    }
}

/// The answer that is available without starting the probe: its class is disabled, the capture has no result of the
/// probe, or too many of its processes are stuck.
fn answer_without_run(probe: &Probe, host: &Host, stuck: &BTreeMap<String, u32>) -> Option<Answer> {
    if host.disabled.contains(&probe.class) {
        let off = Box::new(probe.disabled_result());
        return Some(Answer::Completed(Duration::ZERO, off));
    }
    if let Some(loss) = host.lost.get(probe.name) {
        return Some(Answer::Lost(Duration::ZERO, loss.clone()));
    }
    let processes = stuck.get(probe.name).copied().unwrap_or(0);
    (processes >= MAX_STUCK_GROUPS).then(|| {
        let after_ms = millis(host.deadline(probe.class));
        let stuck = ProbeFailure::Stuck {
            processes,
            after_ms,
        };
        Answer::Lost(Duration::ZERO, stuck)
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn start(program: &Path) -> std::io::Result<Child> {
    Command::new(program)
        .arg(PROBE_SUBCOMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// Reason why a child sends no further lines.
enum End {
    Closed,
    InvalidLine(String),
    TooMuch,
}

impl End {
    fn why(self, child: &Child, complaints: Vec<u8>) -> String {
        let end = match self {
            Self::InvalidLine(error) => {
                return format!("the probe child printed an invalid answer: {error}");
            }
            Self::TooMuch => {
                return "the probe child printed more than the limit".to_owned();
            }
            Self::Closed => exit_description(child),
        };
        let said = String::from_utf8_lossy(&complaints);
        match said
            .lines()
            .map(text::collapse)
            .find(|line| !line.is_empty())
        {
            Some(said) => format!("{end}: {said}"),
            None => end,
        }
    }
}

/// Reads the exit status of a child without reaping it: the id of its process group must stay reserved.
fn exit_description(child: &Child) -> String {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return "the probe child has no process id".to_owned();
    };
    let ends_at = Instant::now() + EXIT_GRACE;
    loop {
        if let Ok(Some(status)) = waitid(WaitId::Pid(pid), options) {
            let code = status.exit_status().map(|code| code << 8);
            let signal = status.terminating_signal();
            let raw = code.or(signal).unwrap_or_default();
            return format!("the probe child ended with {}", ExitStatus::from_raw(raw));
        }
        if Instant::now() >= ends_at {
            return "the probe child closed its output and did not exit".to_owned();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
