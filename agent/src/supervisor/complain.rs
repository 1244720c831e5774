//! What a supervisor says of itself.

use std::fmt::Display;
use std::io::Write;

/// One line on standard error, which is the attempt's `supervisor.log`. `eprintln!` panics where it
/// cannot write: that log is on a disk that the job may have filled, and a supervisor that goes takes
/// the job with it.
pub(super) fn complain(what: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{what}");
}
