//! Recorded inputs and decisions of the schedulers.

use crate::{
    caller::{Caller, Role},
    state::Api,
};
use axum::BoxError;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use lattice_api::{
    problem::{Kind, Problem},
    text,
};
use lattice_engine::decisions::DecisionsError;

/// Bytes read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Streams the recorded lines from the time `since` on. They begin with the complete inputs of the schedulers at that
/// time. Without `since`, streams everything that is kept.
pub(crate) fn since(
    api: &Api,
    caller: &Caller,
    since: Option<&str>,
) -> Result<BoxStream<'static, Result<Bytes, BoxError>>, Problem> {
    caller.check_cluster_role(Role::Operator, "reading scheduling decisions")?;
    let core = api.core();
    let since = match since {
        None => Default::default(),
        Some(since) => {
            let read = text::moment(since, core.now());
            read.map_err(|why| Problem::field("since", why.to_string()))?
        }
    };
    let lines = api.stores().decisions.since(since).map_err(unreadable)?;
    let place = api.streams().open(&caller.name, None)?;
    let pieces = stream::try_unfold((lines, place), |(mut lines, place)| async move {
        let read = tokio::task::spawn_blocking(move || (lines.next(PIECE_BYTES), lines));
        let (piece, lines) = read.await?;
        let piece = Bytes::from(piece?);
        let goes_on = !piece.is_empty();
        Ok::<_, BoxError>(goes_on.then_some((piece, (lines, place))))
    });
    Ok(pieces.boxed())
}

fn unreadable(error: DecisionsError) -> Problem {
    match error {
        DecisionsError::NotKept => Problem::new(
            Kind::NotFound,
            "no_record",
            DecisionsError::NotKept.to_string(),
        ),
        DecisionsError::File { path, source } => {
            tracing::warn!(path = %path.display(), error = %source, "decisions cannot be read");
            let detail = "this control cannot read its record of decisions; see its log";
            Problem::new(Kind::Unavailable, "record_unreadable", detail)
        }
    }
}
