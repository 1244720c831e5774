//! Scheduling inputs from site sources: energy price, fraction of a job's input data on the hot tier, and bandwidth
//! that others use on a storage system. Sources are configured in section `scheduling`.
//!
//! A source may be slow, wrong or gone, so each one is read by a task of its own with a deadline. The last reply is in
//! [`Inputs`], a part of the view, and scheduling reads only that. An unknown value is `None` and counts as unknown:
//! never as zero or free.

mod answer;
mod energy;
mod readiness;
mod sources;
mod storage;

pub use sources::SourceError;
pub use sources::Sources;
pub use sources::check_source_files;
pub use sources::check_sources;

pub use lattice_view::{
    Inputs, remaining_bandwidth,
    state::inputs::{Price, Source, System},
};

use lattice_quorum_types::UnixMillis;

/// Records the result of one request to a source, and logs it where it differs from the one before.
pub(crate) fn note(
    inputs: &mut Inputs,
    source: &Source,
    at: UnixMillis,
    result: Result<(), String>,
) {
    let result = result.as_ref().map(|_| ()).map_err(String::as_str);
    if !inputs.note(source, at, result) {
        return;
    }
    match result {
        Ok(()) => tracing::info!(%source, "scheduling source answers again"),
        Err(failure) => {
            tracing::warn!(%source, %failure, "scheduling source failed");
        }
    }
}

#[cfg(test)]
mod tests;
