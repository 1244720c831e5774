//! The event stream.

use crate::{
    Subscription,
    http::{Caller, answer::Fail, extract::Params, ops::changes, state::Api, streams::StreamPlace},
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
use lattice_quorum_types::Revision;
use serde::Deserialize;
use std::{convert::Infallible, time::Duration};
use utoipa::IntoParams;

/// A comment is sent in a silence this long, so that a dead stream is told from a quiet one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Names the revision a stream starts after.
const REVISION: HeaderName = HeaderName::from_static("lattice-revision");

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Since {
    /// Everything after this revision; without it, from now on. `Last-Event-ID` says the same.
    since: Option<u64>,
}

/// Changes as they happen, as server-sent events: `changes` (with its revision as id), `observed`,
/// and `compacted` for a reader that fell behind, who reads the lists again and goes on.
///
/// Resuming after a revision covers every later one, at whichever control. What is `observed`
/// (liveness, health, digests, reasons to wait) is no part of a revision: the control that told it
/// before tells what it has seen since, any other only what it sees from now on. A reader that
/// shows such things reads the nodes again once it has connected anew.
#[utoipa::path(get, path = "/events", tag = "service", params(Since), responses(
    (status = 200, body = Changes, content_type = "text/event-stream")))]
pub(super) async fn events(
    State(api): State<Api>,
    caller: Caller,
    Params(q): Params<Since>,
    headers: HeaderMap,
) -> Result<impl IntoResponse + use<>, Fail> {
    let place = api.streams().open(&caller.name, None)?;
    let since = q.since.or(last_event_id(&headers)?).map(Revision);
    let subscription = api.core().subscribe(since);
    let from = subscription.after();
    let ended = caller.ended();
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
    let wrong = || Problem::field("Last-Event-ID", "it must be a revision: a whole number");
    number.map(Some).ok_or_else(wrong)
}

/// One reader. Nothing is queued for it: it takes the next change when its connection takes more.
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
            let core = self.api.core();
            let view = core.view();
            if let Some(event) = changes::shown(core, &view, &self.caller, &change)
                && let Some(event) = written(&event)
            {
                return event;
            }
        }
    }
}

fn written(event: &StreamEvent) -> Option<Event> {
    let (name, revision, data) = event.write().ok()?;
    let event = Event::default().event(name).data(data);
    Some(match revision {
        Some(revision) => event.id(revision.to_string()),
        None => event,
    })
}
