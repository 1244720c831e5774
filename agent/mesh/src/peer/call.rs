//! Client side of the mesh: calls and streams.

use super::handle::Peer;
use crate::{
    CallError, MeshError, Role, Rpc, StreamRpc, Wire,
    encoding::{decode, encode},
    endpoint::link::{CallGuard, Link},
    rpc::frame::{Fault, Status, read_frame, request_bytes},
};
use futures::{Stream, StreamExt, stream::BoxStream};
use quinn::{RecvStream, SendStream, WriteError};
use serde::de::DeserializeOwned;
use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

/// Timeout for opening a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum deadline of a call for judging its connection. A connection that receives nothing for a whole deadline of at
/// least this length is not used again; the next call dials. Shorter deadlines indicate too little.
const MIN_SILENCE: Duration = Duration::from_millis(500);

/// Items of a stream. The stream ends after an error, or when the peer's handler has returned. Dropping the stream ends
/// the handler.
pub struct ItemStream<T>(BoxStream<'static, Result<T, CallError>>);

impl<T> fmt::Debug for ItemStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Items")
    }
}

impl<T> Stream for ItemStream<T> {
    type Item = Result<T, CallError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

fn unsent(addr: SocketAddr, error: &MeshError) -> CallError {
    CallError::Transport {
        addr,
        sent: false,
        reason: error.to_string(),
    }
}

fn malformed(reason: String) -> CallError {
    CallError::Malformed { reason }
}

impl Peer {
    /// Calls `request` and waits for the reply. `deadline` includes the dial.
    pub async fn call<R: Rpc>(
        &self,
        request: &R,
        deadline: Duration,
    ) -> Result<R::Reply, CallError> {
        let body = encode(request).map_err(malformed)?;
        if let Some(wire) = self.wire() {
            let exchange = async {
                self.fits(&body)?;
                let reply = wire.call(self.addr(), R::METHOD, body).await?;
                decode(&reply).map_err(malformed)
            };
            let late = |_| CallError::Deadline { after: deadline };
            return tokio::time::timeout(deadline, exchange)
                .await
                .map_err(late)?;
        }
        let mut used: Option<(Link, u64)> = None;
        let exchange = async {
            let link = self
                .state
                .link()
                .await
                .map_err(|e| unsent(self.addr(), &e))?;
            let received = link.connection.stats().udp_rx.datagrams;
            let _running = link.running_calls.begin();
            used = Some((link.clone(), received));
            let (_send, mut recv) = self.send_request(&link, R::METHOD, &body).await?;
            let limit = self.max_reply();
            match read_frame(&mut recv, limit).await {
                Ok((Status::Item, payload)) => decode(&payload).map_err(malformed),
                Ok((status, _)) => Err(malformed(format!(
                    "frame {status:?} received instead of a reply"
                ))),
                Err(fault) => Err(fault.into_error(self.addr())),
            }
        };
        if let Ok(outcome) = tokio::time::timeout(deadline, exchange).await {
            return outcome;
        }
        if let Some((link, received)) = used
            && deadline >= MIN_SILENCE
            && link.connection.stats().udp_rx.datagrams == received
        {
            self.state.stop_using(&link);
        }
        Err(CallError::Deadline { after: deadline })
    }

    /// Opens a stream. A refusal is returned here; a later failure is the last item of the stream.
    pub async fn open<S: StreamRpc>(&self, request: &S) -> Result<ItemStream<S::Item>, CallError> {
        let body = encode(request).map_err(malformed)?;
        if let Some(wire) = self.wire() {
            self.fits(&body)?;
            let items = wire.open(self.addr(), S::METHOD, body).await?;
            let items = futures::stream::unfold(items, |mut items| async move {
                let item = items.recv().await?;
                let item = item.and_then(|bytes| decode(&bytes).map_err(malformed));
                Some((item, items))
            });
            return Ok(ItemStream(items.boxed()));
        }
        let open = async {
            let link = self
                .state
                .link()
                .await
                .map_err(|e| unsent(self.addr(), &e))?;
            let running = link.running_calls.begin();
            let (send, mut recv) = self.send_request(&link, S::METHOD, &body).await?;
            match read_frame(&mut recv, self.max_reply()).await {
                Ok((Status::Accepted, _)) => Ok(((link, running), send, recv)),
                Ok((status, _)) => Err(malformed(format!(
                    "{status:?} instead of the start of a stream"
                ))),
                Err(fault) => Err(fault.into_error(self.addr())),
            }
        };
        let (link, send, recv) = tokio::time::timeout(OPEN_TIMEOUT, open)
            .await
            .unwrap_or(Err(CallError::Deadline {
                after: OPEN_TIMEOUT,
            }))?;
        Ok(items(link, send, recv, self.addr(), self.max_reply()))
    }

    fn max_reply(&self) -> usize {
        let of_endpoint = self.state.core.upgrade().map_or(0, |core| {
            let config = &core.config;
            match self.state.expect.role {
                Role::Agent => config.max_reply_bytes.min(config.max_agent_reply_bytes),
                Role::Quorum | Role::Control => config.max_reply_bytes,
            }
        });
        self.max_reply
            .map_or(of_endpoint, |own| own.min(of_endpoint))
    }

    /// Returns the transport that replaces QUIC in a simulation.
    fn wire(&self) -> Option<std::sync::Arc<dyn Wire>> {
        self.state.core.upgrade()?.config.wire.clone()
    }

    /// Checks that the request does not exceed the endpoint's limit.
    fn fits(&self, body: &[u8]) -> Result<(), CallError> {
        let core = self.state.core.upgrade();
        let limit = core.map_or(0, |core| core.config.max_request_bytes);
        if body.len() <= limit {
            return Ok(());
        }
        let (bytes, limit_bytes) = (body.len() as u64, limit as u64);
        Err(Fault::TooLarge { bytes, limit_bytes }.into_error(self.addr()))
    }

    async fn send_request(
        &self,
        link: &Link,
        method: &str,
        body: &[u8],
    ) -> Result<(SendStream, RecvStream), CallError> {
        let addr = self.addr();
        self.fits(body)?;
        let lost = |sent: bool, reason: String| CallError::Transport {
            addr,
            sent,
            reason: format!("lost the connection to {addr}: {reason}"),
        };
        let (mut send, recv) = link
            .connection
            .open_bi()
            .await
            .map_err(|e| lost(false, e.to_string()))?;
        match send.write_all(&request_bytes(method, body)).await {
            // A peer that stops reading has refused the request, and its reply states the reason.
            Ok(()) | Err(WriteError::Stopped(_)) => {}
            Err(e) => return Err(lost(true, e.to_string())),
        }
        let _ = send.finish();
        Ok((send, recv))
    }
}

/// Converts frames into items. The link is held so that the connection outlives its replacement in the cache. The
/// sending half is held so that dropping the items notifies the peer.
fn items<T: DeserializeOwned + Send + 'static>(
    link: (Link, CallGuard),
    send: SendStream,
    recv: RecvStream,
    addr: SocketAddr,
    limit: usize,
) -> ItemStream<T> {
    let start = Some((link, send, recv));
    let stream = futures::stream::unfold(start, move |state| async move {
        let (link, send, mut recv) = state?;
        match read_frame(&mut recv, limit).await {
            Ok((Status::Item, payload)) => match decode(&payload) {
                Ok(item) => Some((Ok(item), Some((link, send, recv)))),
                Err(reason) => Some((Err(malformed(reason)), None)),
            },
            Ok((Status::End, _)) => None,
            Ok((status, _)) => Some((Err(malformed(format!("{status:?} within a stream"))), None)),
            Err(fault) => Some((Err(fault.into_error(addr)), None)),
        }
    });
    ItemStream(stream.boxed())
}
