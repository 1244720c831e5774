//! Queries of the GPU driver, in a process of their own: a crash in the driver's library ends only that process.
//!
//! [`query_driver`] starts the child, which loads the library and prints one [`GpuReport`]. A second kind of child
//! receives the driver's events and prints a line for each ([`WATCH_SUBCOMMAND`]). [`NvmlSource`] selects the live
//! driver or a record.

mod line;
mod nvml;
mod query;
mod report;
mod source;
mod watch;

pub use crate::process::UnreapedPrograms;
pub(crate) use line::Line;
pub use query::query_driver;
pub use report::{Ancestor, DeviceReport, Envelope, GpuReport, LinkReport, REPORT_VERSION};
pub use source::NvmlSource;
pub(crate) use watch::{ChildMessage, main as watch_main, supervise_listener};

use crate::process::die_with_parent;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Hidden subcommand that queries the GPU driver. A binary that passes its own path to `NvmlSource::child` must call
/// [`crate::child::run_if_child`] before anything else.
pub const SUBCOMMAND: &str = "__probe-gpu";

/// Hidden subcommand that receives the driver's events.
pub const WATCH_SUBCOMMAND: &str = "__watch-gpu";

/// NVML library loaded without `--library`.
pub const DEFAULT_LIBRARY: &str = "libnvidia-ml.so.1";

/// Entry point of the child, `program __probe-gpu [--library PATH]`. Prints the report and returns success. Returns
/// exit code 2 on unknown arguments, and a failure if the report cannot be written.
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
