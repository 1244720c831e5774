//! Disposable processes that run the probes.
//!
//! A driver call, or a read of an attribute, can block for ever in the kernel, where no signal reaches it. So the
//! probing process is a new execution of the caller's own binary:
//!
//! ```text
//! agent ── __probe ──┬─ a thread for each probe (files)
//!                    └─ __probe-gpu (the driver's library)
//! ```
//!
//! [`probe_isolated`] sends the [`crate::Host`] to `__probe` and reads one line for each finished probe. A probe
//! without a line at its deadline is *hung*, and the whole process group is killed. A process that survives the kill is
//! counted (`Stuck`); while a probe has too many of these, the probe is not started again. The driver's library runs
//! in another process below that one ([`ask`]), because a crash in the library would end the other probes.

mod isolated;
mod job;
mod nvml;
mod parent;
mod pipes;
mod report;
mod stuck;
mod watch;
mod worker;

pub use crate::process::Outstanding;
pub use isolated::probe_isolated;
pub(crate) use isolated::traced_isolated;
pub use parent::ask;
pub use report::{Ancestor, DeviceReport, Envelope, GpuReport, LinkReport, REPORT_VERSION};
pub(crate) use stuck::Stuck;
pub use watch::WATCH_SUBCOMMAND;
pub(crate) use watch::{Line, News, keep};

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Hidden subcommand that queries the GPU driver. A binary that passes its own path to `NvmlSource::child` must call
/// [`run_if_child`] before anything else.
pub const SUBCOMMAND: &str = "__probe-gpu";

/// Hidden subcommand that runs the probes. A binary that passes its own path to [`probe_isolated`] must call
/// [`run_if_child`] before anything else.
pub const PROBE_SUBCOMMAND: &str = "__probe";

/// NVML library loaded without `--library`.
pub const DEFAULT_LIBRARY: &str = "libnvidia-ml.so.1";

/// Entry point of the child, `program __probe-gpu [--library PATH]`. Prints the report and returns success; returns
/// exit code 2 on unknown arguments.
#[must_use]
pub fn main() -> ExitCode {
    die_with_parent();
    let args: Vec<OsString> = std::env::args_os().skip(2).collect();
    let library = match args.as_slice() {
        [] => OsString::from(DEFAULT_LIBRARY),
        [flag, path] if flag == "--library" => path.clone(),
        _ => {
            eprintln!("usage: {SUBCOMMAND} [--library PATH]");
            return ExitCode::from(2);
        }
    };
    let envelope = Envelope {
        version: REPORT_VERSION,
        report: nvml::report(&library),
    };
    let Ok(mut line) = serde_json::to_vec(&envelope) else {
        return ExitCode::FAILURE;
    };
    line.push(b'\n');
    match std::io::stdout().write_all(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Ensures that a child does not outlive an agent killed during the wait.
fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Runs a child and exits if this process was started as a child; otherwise returns. Call it in the first line of a
/// binary's `main`.
pub fn run_if_child() {
    let Some(first) = std::env::args_os().nth(1) else {
        return;
    };
    let code = if first == SUBCOMMAND {
        main()
    } else if first == PROBE_SUBCOMMAND {
        worker::main()
    } else if first == WATCH_SUBCOMMAND {
        watch::main()
    } else {
        return;
    };
    // An exit code has no accessor; it is 0 exactly on success.
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}
