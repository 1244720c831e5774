//! Event stream route (server-sent events).

use crate::Caller;
use crate::{
    answer::ProblemResponse, extract::Params, ops::changes, state::Api, streams::StreamPlace,
};
use axum::{
    extract::State,
    http::{HeaderMap, HeaderName},
    response::{
        IntoResponse,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt};
use lattice_api::{
    Problem,
    event::{Changes, StreamEvent},
};
use lattice_engine::Subscription;
use lattice_quorum_types::Revision;
use serde::Deserialize;
use std::{convert::Infallible, time::Duration};
use utoipa::IntoParams;

/// Interval of keep-alive comments, which distinguish a dead stream from a quiet one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Header with the revision after which a stream starts.
const REVISION: HeaderName = HeaderName::from_static("lattice-revision");

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Start after this revision; without it, with the next change. `Last-Event-ID` has the same meaning.
    since: Option<u64>,
}

/// Stream changes as server-sent events.
///
/// The events are `changes` (with the revision as id), `observed` and `compacted`. A client that fell behind receives
/// `compacted`, and must read the lists again before it continues.
///
/// A control without a view of the cluster refuses the stream with `no_view`: it has no revision from which changes
/// follow.
///
/// Resuming after a revision covers every later one, on any control. `observed` data (liveness, health, digests, wait
/// reasons, exhausted budgets) is not part of a revision. On the same control, a resumed stream includes the
/// observations made since that revision; on another control, only new ones. A client that shows such data must read
/// the nodes again after a reconnect.
#[utoipa::path(get, path = "/events", tag = "service", params(EventsQuery), responses(
    (status = 200, body = Changes, content_type = "text/event-stream")))]
pub(super) async fn events(
    State(api): State<Api>,
    caller: Caller,
    Params(q): Params<EventsQuery>,
    headers: HeaderMap,
) -> Result<impl IntoResponse + use<>, ProblemResponse> {
    let place = api.streams().open(&caller.name, None)?;
    let since = q.since.or(last_event_id(&headers)?).map(Revision);
    let subscription = api.core().subscribe(since);
    let from = subscription.after();
    let ended = caller.expired();
    let reader = Reader {
        subscription,
        api: api.clone(),
        caller,
        _place: place,
    };
    let stop = api.stop().clone().cancelled_owned();
    let stream = reader.stream().take_until(stop).take_until(ended);
    let sse = Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(([(REVISION, from.to_string())], sse))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || Problem::field("Last-Event-ID", "must be a revision, a whole number");
    number.map(Some).ok_or_else(wrong)
}

/// One stream client. No events are queued: the next change is taken when the connection accepts more data.
struct Reader {
    subscription: Subscription,
    api: Api,
    caller: Caller,
    _place: StreamPlace,
}

impl Reader {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        futures::stream::unfold(self, |mut reader| async {
            let event = reader.next().await;
            Some((Ok(event), reader))
        })
    }

    async fn next(&mut self) -> Event {
        loop {
            let change = self.subscription.next().await;
            let view = self.api.core().view();
            if let Some(event) = changes::shown(&self.api, &view, &self.caller, &change)
                && let Some(event) = to_sse_event(&event)
            {
                return event;
            }
        }
    }
}

fn to_sse_event(event: &StreamEvent) -> Option<Event> {
    let (name, revision, data) = event.write().ok()?;
    let event = Event::default().event(name).data(data);
    Some(match revision {
        Some(revision) => event.id(revision.to_string()),
        None => event,
    })
}
