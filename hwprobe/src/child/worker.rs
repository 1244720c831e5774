//! Child side: runs each probe on its own thread and prints the result of each.

use super::job::{Job, ProbeLine};
use crate::process::{die_with_parent, stay_in_group};
use crate::root::read_all;
use crate::{Host, PROBES, Probe};
use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

/// Maximum job size in bytes; one with a site's long lists takes some KiB.
const MAX_JOB_BYTES: u64 = 16 << 20;

/// Runs `program __probe`, with a [`Job`] on standard input. Returns when every probe has finished; the parent ends a
/// probe that hangs.
pub(super) fn main() -> ExitCode {
    die_with_parent();
    stay_in_group();
    let job = read_all(&mut std::io::stdin().lock(), MAX_JOB_BYTES)
        .map_err(|error| error.to_string())
        .and_then(|json| serde_json::from_slice::<Job>(&json).map_err(|error| error.to_string()));
    match job {
        Ok(job) => run(job),
        Err(error) => {
            eprintln!("invalid probe request on standard input: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(job: Job) -> ExitCode {
    let (done, answers) = channel();
    for probe in PROBES
        .iter()
        .filter(|p| job.probes.iter().any(|n| n == p.name))
    {
        let (host, is_traced, answer) = (job.host.clone(), job.is_traced, done.clone());
        let work = move || send(&answer, &run_one(probe, host, is_traced));
        let started = thread::Builder::new()
            .name(probe.name.to_owned())
            .spawn(work);
        if let Err(error) = started {
            let line = ProbeLine {
                probe: probe.name.to_owned(),
                took_us: 0,
                result: Err(format!("cannot start a thread: {error}")),
                touched: None,
            };
            send(&done, &line);
        }
    }
    drop(done);
    let mut out = std::io::stdout().lock();
    for line in answers {
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn send(to: &Sender<Vec<u8>>, line: &ProbeLine) {
    let mut json = serde_json::to_vec(line).unwrap_or_default();
    json.push(b'\n');
    // Without a reader the process is about to exit.
    let _ = to.send(json);
}

fn run_one(probe: &Probe, mut host: Host, is_traced: bool) -> ProbeLine {
    let started_at = Instant::now();
    host.is_isolated = true;
    let trace = is_traced.then(|| {
        let (root, trace) = host.root.traced();
        host.root = root;
        trace
    });
    let result = catch_unwind(AssertUnwindSafe(|| probe.run_on(&host)));
    ProbeLine {
        probe: probe.name.to_owned(),
        took_us: u64::try_from(started_at.elapsed().as_micros()).unwrap_or(u64::MAX),
        result: result.map_err(|panic| format!("panicked: {}", panic_message(&*panic))),
        touched: trace.map(|trace| {
            let mut touched = trace.lock();
            std::mem::take(&mut *touched)
        }),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}
