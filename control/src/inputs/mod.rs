//! What placement weighs and neither the quorum nor the nodes tell: the price of energy, how much of a
//! job's input data is on the hot tier, and how much bandwidth others take of a storage system. Each
//! comes from a source that the site names (`scheduling` in the configuration).
//!
//! A source may be slow, wrong or gone: each is asked by a task of its own, within a deadline. What it
//! said last is in [`Inputs`], a part of the view, and that is all that scheduling reads. What is not
//! known is `None` and weighs as unknown: it is never zero and never free.

mod answer;
mod energy;
pub(crate) mod fetch;
mod metrics;
mod readiness;
mod sources;
mod storage;

pub(crate) use metrics::{Metrics, Missing};
pub use sources::SourceError;
pub(crate) use sources::Sources;

pub use lattice_view::Inputs;
pub(crate) use lattice_view::{
    inputs::{Price, Source, System},
    left,
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
        Ok(()) => tracing::info!(%source, "a source of scheduling answers again"),
        Err(failure) => {
            tracing::warn!(%source, %failure, "a source of scheduling does not answer as it should");
        }
    }
}

#[cfg(test)]
mod tests;
