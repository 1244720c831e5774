//! Supervisor log: messages to the attempt's `supervisor.log`.

use std::fmt::Display;
use std::io::Write;

/// Writes one line to standard error, which is the attempt's `supervisor.log`. `eprintln!` panics if it cannot write.
/// The log is on a disk that the job may have filled, and an exiting supervisor ends its job.
pub(super) fn log_line(what: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{what}");
}
