//! Event stream, which reconnects and resumes after the last revision it returned.

use crate::{
    Client, ClientError,
    sse::{Decoder, Frame},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use lattice_api::event::StreamEvent;
use lattice_quorum_types::Revision;
use reqwest::Method;
use std::{collections::VecDeque, time::Duration};

/// A stream that is silent for longer is broken: the server sends a comment every 15 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// Delays before each attempt to reconnect; after the last one the stream ends with the error.
const BACKOFF: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Events in order; created by [`Client::events`]. Each revision occurs exactly once, also after a reconnect.
///
/// [`StreamEvent::Observed`] belongs to no revision. After a reconnect the same control sends the observations made in
/// between. Another control, or a restarted one, sends only new observations. A program that shows liveness, health or
/// digests should therefore read the nodes again periodically.
///
/// After [`StreamEvent::Compacted`] the lists must be read again; the stream itself continues.
pub struct EventStream {
    client: Client,
    since: Option<Revision>,
    body: Option<BoxStream<'static, Result<Bytes, reqwest::Error>>>,
    decoder: Decoder,
    ready: VecDeque<Frame>,
    failures: usize,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Streams all events after a revision, or from now on. The method connects before it returns, so that no later
    /// event is missed.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, since: Option<Revision>) -> Result<EventStream, ClientError> {
        let mut stream = EventStream {
            client: self.clone(),
            since,
            body: None,
            decoder: Decoder::default(),
            ready: VecDeque::new(),
            failures: 0,
        };
        stream.connect().await?;
        Ok(stream)
    }
}

impl EventStream {
    /// Returns the revision after which the stream would resume; `None` until a first one is known.
    pub fn revision(&self) -> Option<Revision> {
        self.since
    }

    /// Returns the next event. Cancel safe.
    ///
    /// # Errors
    /// An event cannot be read, or the stream cannot be resumed: access is denied, or the server is unreachable for
    /// about eight seconds.
    pub async fn next_event(&mut self) -> Result<StreamEvent, ClientError> {
        loop {
            while let Some(frame) = self.ready.pop_front() {
                if let Some(event) = self.read(&frame)? {
                    return Ok(event);
                }
            }
            if let Err(error) = self.fill().await {
                self.body = None;
                let retry = matches!(
                    error,
                    ClientError::Unreachable { .. } | ClientError::Unavailable(_)
                );
                let wait = BACKOFF.get(self.failures).filter(|_| retry);
                let Some(wait) = wait else { return Err(error) };
                self.failures += 1;
                tokio::time::sleep(*wait).await;
            }
        }
    }

    /// Converts to a stream, which ends after its first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<StreamEvent, ClientError>> + Send {
        futures::stream::unfold(Some(self), |state| async {
            let mut events = state?;
            match events.next_event().await {
                Ok(event) => Some((Ok(event), Some(events))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        let mut request = self
            .client
            .request(Method::GET, &["events"])
            .header("accept", "text/event-stream");
        if let Some(since) = self.since {
            request = request.query(&[("since", since.0)]);
        }
        let sent = tokio::time::timeout(SILENCE_TIMEOUT, self.client.send(request)).await;
        let response = sent.map_err(|_| self.stream_ended_error())??;
        // Without `since` a broken connection resumes at the present revision.
        if self.since.is_none() {
            let header = response.headers().get("lattice-revision");
            let revision = header.and_then(|v| v.to_str().ok()?.parse().ok());
            self.since = revision.map(Revision);
        }
        self.decoder = Decoder::default();
        self.body = Some(response.bytes_stream().boxed());
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), ClientError> {
        let Some(body) = &mut self.body else {
            return self.connect().await;
        };
        let next = tokio::time::timeout(SILENCE_TIMEOUT, body.next()).await;
        match next {
            Err(_) => Err(self.stream_ended_error()),
            Ok(None) => {
                // The server closes streams when it stops; resume after a delay.
                self.body = None;
                self.failures += 1;
                tokio::time::sleep(BACKOFF[0]).await;
                if self.failures > BACKOFF.len() {
                    return Err(self.stream_ended_error());
                }
                Ok(())
            }
            Ok(Some(Err(e))) => Err(self.client.unreachable(e)),
            Ok(Some(Ok(bytes))) => {
                self.failures = 0;
                let mut frames = Vec::new();
                let pushed = self.decoder.push(&bytes, &mut frames);
                self.ready.extend(frames);
                pushed.map_err(|_| self.protocol("an event is too large"))
            }
        }
    }

    fn read(&mut self, frame: &Frame) -> Result<Option<StreamEvent>, ClientError> {
        let event = StreamEvent::read(&frame.event, &frame.data)
            .map_err(|e| self.protocol(&format!("event {:?}: {e}", frame.event)))?;
        match &event {
            Some(StreamEvent::Changes(changes)) => self.since = Some(changes.revision),
            Some(StreamEvent::Compacted(compacted)) => self.since = Some(compacted.oldest),
            Some(StreamEvent::Observed(_)) | None => {}
        }
        Ok(event)
    }

    fn protocol(&self, reason: &str) -> ClientError {
        ClientError::Protocol {
            url: self.client.url().to_string(),
            reason: reason.to_owned(),
        }
    }

    fn stream_ended_error(&self) -> ClientError {
        ClientError::Unreachable {
            url: self.client.url().origin().ascii_serialization(),
            source: "the event stream ended unexpectedly".into(),
        }
    }
}
