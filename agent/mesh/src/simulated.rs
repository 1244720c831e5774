//! A mesh without sockets: calls and streams go over a [`Wire`] that a simulation holds, and
//! everything on either side of it is the product's own. Encoding, roles and limits are judged as
//! on QUIC; handshakes, certificates of peers and connections are not simulated.

use crate::{CallError, Caller, Identity, Router, router::Handler, wire::Fault};
use futures::future::BoxFuture;
use std::{fmt, io, net::SocketAddr, sync::Arc};
use tokio::sync::mpsc;

/// Items of a stream that wait for a slow reader.
const ITEM_QUEUE: usize = 16;

/// What carries calls in place of QUIC: one end of it, of the endpoint whose
/// [`crate::MeshConfig::wire`] it is. Deadlines are the caller's.
pub trait Wire: Send + Sync + 'static {
    /// The endpoint answers from now on.
    fn serve(&self, answers: Answers);
    /// Who is reached at `to`. The error says why nobody is.
    fn dial(&self, to: SocketAddr) -> BoxFuture<'static, Result<Identity, String>>;
    /// One call; a body out, a body back.
    fn call(
        &self,
        to: SocketAddr,
        method: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, CallError>>;
    /// A stream: items until the channel ends, an error being the last one.
    fn open(
        &self,
        to: SocketAddr,
        method: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<mpsc::Receiver<Item>, CallError>>;
}

/// One item of a stream, encoded, or why it ended.
pub type Item = Result<Vec<u8>, CallError>;

/// The handlers of one endpoint, as a [`Wire`] reaches them.
#[derive(Clone)]
pub struct Answers {
    addr: SocketAddr,
    router: Arc<Router>,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answers({})", self.addr)
    }
}

/// A stream's items, and how its handler ends.
pub type Opened = (
    mpsc::Receiver<Vec<u8>>,
    BoxFuture<'static, Result<(), CallError>>,
);

impl Answers {
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
    /// As the caller sees them.
    pub async fn call(
        &self,
        caller: Caller,
        method: &str,
        body: &[u8],
    ) -> Result<Vec<u8>, CallError> {
        let failed = |fault: Fault| fault.into_error(self.addr);
        match self.handler(&caller, method).map_err(failed)? {
            Handler::Unary(handler) => handler(caller, body).map_err(failed)?.await.map_err(failed),
            Handler::Stream(_) => Err(failed(Fault::malformed("a stream was called"))),
        }
    }

    /// Begins one stream.
    ///
    /// # Errors
    /// As the caller sees them.
    pub fn open(&self, caller: Caller, method: &str, body: &[u8]) -> Result<Opened, CallError> {
        let addr = self.addr;
        let failed = move |fault: Fault| fault.into_error(addr);
        match self.handler(&caller, method).map_err(failed)? {
            Handler::Stream(handler) => {
                let (queue, items) = mpsc::channel(ITEM_QUEUE);
                let work = handler(caller, body, queue).map_err(failed)?;
                let ended = Box::pin(async move { work.await.map_err(failed) });
                Ok((items, ended))
            }
            Handler::Unary(_) => Err(failed(Fault::malformed("a call was opened"))),
        }
    }
}

/// A socket on which nothing comes and nothing goes.
#[derive(Debug)]
pub(crate) struct NoSocket(pub(crate) SocketAddr);

impl quinn::AsyncUdpSocket for NoSocket {
    fn create_io_poller(self: Arc<Self>) -> std::pin::Pin<Box<dyn quinn::UdpPoller>> {
        Box::pin(Idle)
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
struct Idle;

impl quinn::UdpPoller for Idle {
    fn poll_writable(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}
