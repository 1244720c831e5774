//! Request router: the handler of each method, and the roles that may call it.

use super::frame::Fault;
use crate::{
    Enroller, Identity, Role, Rpc, StreamRpc,
    encoding::{decode, encode},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use lattice_quorum_types::UnixMillis;
use std::{
    collections::HashMap, fmt, future::Future, marker::PhantomData, net::SocketAddr, sync::Arc,
};
use tokio::sync::mpsc;

/// Caller of a request, from its certificate and its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Identity in the caller's certificate.
    pub identity: Identity,
    /// Issue time of the caller's certificate. Revocation compares against this time.
    pub issued_at: UnixMillis,
    /// Source address of the caller, which is also the address where the caller listens.
    pub addr: SocketAddr,
}

/// Failure of a handler that could not answer. Outcomes that a caller should act on belong in the reply type; this type
/// is for all others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HandlerFailed {
    /// Reason in words, without secrets: the caller receives it.
    pub reason: String,
}

impl HandlerFailed {
    /// Creates a failure from any displayable reason.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
        }
    }
}

/// Sending end of a stream handler. Sending waits while the peer reads more slowly.
pub struct ItemSender<T> {
    queue: mpsc::Sender<Vec<u8>>,
    item: PhantomData<fn(T)>,
}

impl<T> fmt::Debug for ItemSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ItemSender")
    }
}

impl<T: serde::Serialize> ItemSender<T> {
    /// Sends one item.
    ///
    /// # Errors
    /// The item cannot be encoded, or the peer has closed the stream.
    pub async fn send(&self, item: &T) -> Result<(), HandlerFailed> {
        let bytes = encode(item).map_err(HandlerFailed::new)?;
        self.queue
            .send(bytes)
            .await
            .map_err(|_| HandlerFailed::new("the reader closed the stream"))
    }
    /// Resolves when the peer has closed the stream.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }
}

pub(crate) type UnaryFn = Arc<
    dyn Fn(Caller, &[u8]) -> Result<BoxFuture<'static, Result<Vec<u8>, Fault>>, Fault>
        + Send
        + Sync,
>;
pub(crate) type StreamFn = Arc<
    dyn Fn(
            Caller,
            &[u8],
            mpsc::Sender<Vec<u8>>,
        ) -> Result<BoxFuture<'static, Result<(), Fault>>, Fault>
        + Send
        + Sync,
>;
pub(crate) type MessageFn = Arc<dyn Fn(Caller, Bytes) + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Handler {
    Unary(UnaryFn),
    Stream(StreamFn),
}

pub(crate) struct Method {
    pub(crate) callers: &'static [Role],
    pub(crate) handler: Handler,
}

pub(crate) struct Messages {
    pub(crate) callers: &'static [Role],
    pub(crate) handler: MessageFn,
}

/// Methods and messages that an endpoint answers. The endpoint refuses unlisted methods.
#[derive(Default)]
pub struct Router {
    pub(crate) methods: HashMap<&'static str, Method>,
    pub(crate) messages: HashMap<u16, Messages>,
    pub(crate) enroller: Option<Arc<dyn Enroller>>,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("methods", &self.methods.keys())
            .field("messages", &self.messages.keys())
            .field("enrols", &self.enroller.is_some())
            .finish()
    }
}

impl Router {
    /// Creates a router without handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the handler of the call `R`. The mesh drops the handler after [`crate::MeshConfig::request_timeout`],
    /// but not when the caller disconnects. A handler spawns a task for anything that must never be cut short.
    #[must_use]
    pub fn rpc<R, H, F>(mut self, handler: H) -> Self
    where
        R: Rpc,
        H: Fn(Caller, R) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R::Reply, HandlerFailed>> + Send + 'static,
    {
        let unary: UnaryFn = Arc::new(move |caller, body| {
            let request = decode::<R>(body).map_err(Fault::malformed)?;
            let reply = handler(caller, request);
            Ok(Box::pin(async move {
                let failed = |reason| Fault::HandlerFailed { reason };
                let reply = reply.await.map_err(|f| failed(f.reason))?;
                encode(&reply).map_err(failed)
            }))
        });
        let method = Method {
            callers: R::CALLERS,
            handler: Handler::Unary(unary),
        };
        self.methods.insert(R::METHOD, method);
        self
    }

    /// Registers the handler of the stream `S`, which sends items until it returns. The mesh drops the handler when its
    /// reader disconnects or the endpoint shuts down.
    #[must_use]
    pub fn stream<S, H, F>(mut self, handler: H) -> Self
    where
        S: StreamRpc,
        H: Fn(Caller, S, ItemSender<S::Item>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerFailed>> + Send + 'static,
    {
        let stream: StreamFn = Arc::new(move |caller, body, queue| {
            let request = decode::<S>(body).map_err(Fault::malformed)?;
            let done = handler(
                caller,
                request,
                ItemSender {
                    queue,
                    item: PhantomData,
                },
            );
            Ok(Box::pin(async move {
                done.await
                    .map_err(|f| Fault::HandlerFailed { reason: f.reason })
            }))
        });
        let method = Method {
            callers: S::CALLERS,
            handler: Handler::Stream(stream),
        };
        self.methods.insert(S::METHOD, method);
        self
    }

    /// Registers the handler of messages of `kind` from `callers`. The handler must not block: it queues or drops.
    #[must_use]
    pub fn messages(
        mut self,
        kind: u16,
        callers: &'static [Role],
        handler: impl Fn(Caller, Bytes) + Send + Sync + 'static,
    ) -> Self {
        self.messages.insert(
            kind,
            Messages {
                callers,
                handler: Arc::new(handler),
            },
        );
        self
    }

    /// Offers enrolment to processes without a certificate.
    #[must_use]
    pub fn enrolment(mut self, enroller: Arc<dyn Enroller>) -> Self {
        self.enroller = Some(enroller);
        self
    }
}

/// Method of an endpoint, with the roles that may call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServedMethod {
    /// Method name on the wire.
    pub method: &'static str,
    /// Roles that may call the method.
    pub callers: &'static [Role],
}
