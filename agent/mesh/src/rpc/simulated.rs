//! Simulated mesh without sockets: calls and streams use a [`Wire`] that the simulation implements, and all other code
//! is the production code. Encoding, roles and request sizes are checked as on QUIC. Handshakes, peer certificates,
//! connections and reply limits are not simulated.

use super::{
    error::CallError,
    frame::Fault,
    router::{Caller, Handler, Router},
};
use crate::Identity;
use futures::future::BoxFuture;
use std::{fmt, io, net::SocketAddr, sync::Arc};
use tokio::sync::mpsc;

/// Maximum number of stream items that wait for a slow reader.
const ITEM_QUEUE: usize = 16;

/// Transport that replaces QUIC for one endpoint, as its [`crate::MeshConfig::wire`]. The caller enforces deadlines.
pub trait Wire: Send + Sync + 'static {
    /// Registers the handlers of the endpoint, which answers from now on.
    fn serve(&self, answers: EndpointHandlers);
    /// Returns the identity that answers at `to`. The error states why `to` cannot be reached.
    fn dial(&self, to: SocketAddr) -> BoxFuture<'static, Result<Identity, String>>;
    /// Calls `method` with an encoded request; returns the encoded reply.
    fn call(
        &self,
        to: SocketAddr,
        method: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, CallError>>;
    /// Opens a stream. The channel ends with the stream; an error is the last item.
    fn open(
        &self,
        to: SocketAddr,
        method: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<mpsc::Receiver<EncodedItem>, CallError>>;
}

/// Encoded item of a stream, or the error that ended the stream.
pub type EncodedItem = Result<Vec<u8>, CallError>;

/// Handlers of one endpoint, as a [`Wire`] calls them.
#[derive(Clone)]
pub struct EndpointHandlers {
    addr: SocketAddr,
    router: Arc<Router>,
}

impl fmt::Debug for EndpointHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answers({})", self.addr)
    }
}

/// Items of a stream, and a future that runs its handler and returns the handler's result.
pub type OpenedStream = (
    mpsc::Receiver<Vec<u8>>,
    BoxFuture<'static, Result<(), CallError>>,
);

impl EndpointHandlers {
    pub(crate) fn new(addr: SocketAddr, router: Arc<Router>) -> Self {
        Self { addr, router }
    }

    fn handler(&self, caller: &Caller, method: &str) -> Result<Handler, Fault> {
        let unknown = || Fault::UnknownMethod {
            method: method.to_owned(),
        };
        let entry = self.router.methods.get(method).ok_or_else(unknown)?;
        let role = caller.identity.role();
        if entry.callers.contains(&role) {
            return Ok(entry.handler.clone());
        }
        let method = method.to_owned();
        Err(Fault::Denied { method, role })
    }

    /// Answers one call.
    ///
    /// # Errors
    /// The error that the caller receives.
    pub async fn call(
        &self,
        caller: Caller,
        method: &str,
        body: &[u8],
    ) -> Result<Vec<u8>, CallError> {
        let failed = |fault: Fault| fault.into_error(self.addr);
        match self.handler(&caller, method).map_err(failed)? {
            Handler::Unary(handler) => handler(caller, body).map_err(failed)?.await.map_err(failed),
            Handler::Stream(_) => Err(failed(Fault::malformed(
                "the method is a stream, not a call",
            ))),
        }
    }

    /// Opens one stream.
    ///
    /// # Errors
    /// The error that the caller receives.
    pub fn open(
        &self,
        caller: Caller,
        method: &str,
        body: &[u8],
    ) -> Result<OpenedStream, CallError> {
        let addr = self.addr;
        let failed = move |fault: Fault| fault.into_error(addr);
        match self.handler(&caller, method).map_err(failed)? {
            Handler::Stream(handler) => {
                let (queue, items) = mpsc::channel(ITEM_QUEUE);
                let work = handler(caller, body, queue).map_err(failed)?;
                let ended = Box::pin(async move { work.await.map_err(failed) });
                Ok((items, ended))
            }
            Handler::Unary(_) => Err(failed(Fault::malformed(
                "the method is a call, not a stream",
            ))),
        }
    }
}

/// Socket that sends and receives nothing.
#[derive(Debug)]
pub(crate) struct NoSocket(pub(crate) SocketAddr);

impl quinn::AsyncUdpSocket for NoSocket {
    fn create_io_poller(self: Arc<Self>) -> std::pin::Pin<Box<dyn quinn::UdpPoller>> {
        Box::pin(AlwaysWritable)
    }
    fn try_send(&self, _: &quinn::udp::Transmit<'_>) -> io::Result<()> {
        Ok(())
    }
    fn poll_recv(
        &self,
        _: &mut std::task::Context<'_>,
        _: &mut [io::IoSliceMut<'_>],
        _: &mut [quinn::udp::RecvMeta],
    ) -> std::task::Poll<io::Result<usize>> {
        std::task::Poll::Pending
    }
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0)
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl quinn::UdpPoller for AlwaysWritable {
    fn poll_writable(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}
