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
//! counted; while a probe has too many such processes, the probe is not started again. The driver's library runs in a
//! child process of `__probe` ([`gpu_driver`]), because a crash in the library would end the other probes.

mod isolated;
mod job;
mod pipes;
mod worker;

pub use isolated::probe_isolated;
pub(crate) use isolated::traced_isolated;

use crate::gpu_driver;
use std::process::ExitCode;

/// Hidden subcommand that runs the probes. A binary that passes its own path to [`probe_isolated`] must call
/// [`run_if_child`] before anything else.
pub const PROBE_SUBCOMMAND: &str = "__probe";

/// Runs a child and exits if this process was started as a child; otherwise returns. Call it in the first line of a
/// binary's `main`.
pub fn run_if_child() {
    let Some(first) = std::env::args_os().nth(1) else {
        return;
    };
    let code = if first == gpu_driver::SUBCOMMAND {
        gpu_driver::main()
    } else if first == PROBE_SUBCOMMAND {
        worker::main()
    } else if first == gpu_driver::WATCH_SUBCOMMAND {
        gpu_driver::watch_main()
    } else {
        return;
    };
    // `ExitCode` has no accessor for its number, so every failure becomes exit code 1.
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}
