//! Parent side of the GPU query: starts the child and waits until the deadline at most.

use super::report::{Envelope, GpuReport, REPORT_VERSION};
use crate::process::{self, Bounds, RunFailure, UnreapedPrograms};
use crate::{NvmlSource, source};
use lattice_conformance::Reading;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Maximum report size in bytes; 16 GPUs with 18 NVLinks each take about 140 KiB.
const MAX_REPORT_BYTES: u64 = 4 << 20;

/// Queries the GPU driver through the source `from`.
#[must_use]
pub fn query_driver(from: &NvmlSource, outstanding: &UnreapedPrograms) -> Reading<GpuReport> {
    match from {
        NvmlSource::Disabled => Reading::disabled("GPU driver queries are disabled"),
        NvmlSource::Recorded(path) => source::bytes(path).and_then(|bytes| parse(&bytes)),
        NvmlSource::Child {
            program,
            args,
            env,
            deadline,
        } => run(program, args, env, *deadline, outstanding),
    }
}

fn parse(bytes: &[u8]) -> Reading<GpuReport> {
    match serde_json::from_slice::<Envelope>(bytes) {
        Ok(envelope) if envelope.version == REPORT_VERSION => Reading::Present(envelope.report),
        Ok(envelope) => Reading::failed(format!(
            "probe child uses report version {}, expected {REPORT_VERSION}",
            envelope.version
        )),
        Err(error) => Reading::failed(format!("probe child's report is unreadable: {error}")),
    }
}

fn run(
    program: &Path,
    args: &[OsString],
    env: &[(OsString, OsString)],
    deadline: Duration,
    outstanding: &UnreapedPrograms,
) -> Reading<GpuReport> {
    let mut command = Command::new(program);
    command
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)));
    let bounds = Bounds {
        deadline,
        max_output_bytes: MAX_REPORT_BYTES,
    };
    match process::run(command, bounds, outstanding) {
        Ok(finished) if finished.status.success() => parse(&finished.stdout),
        Ok(finished) => Reading::failed(finished.failure_text("probe child")),
        Err(RunFailure::NotStarted(error)) => {
            Reading::failed(format!("cannot start {}: {error}", program.display()))
        }
        Err(RunFailure::TimedOut) => Reading::timed_out(deadline),
        Err(RunFailure::TooLong) => Reading::failed(format!(
            "probe child's report is longer than {MAX_REPORT_BYTES} bytes"
        )),
    }
}
