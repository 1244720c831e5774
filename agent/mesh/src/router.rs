//! Which handler answers what, and who may call it.

use crate::{
    Enroller, Identity, Role, Rpc, StreamRpc,
    wire::{Fault, decode, encode},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use lattice_quorum_types::UnixMillis;
use std::{
    collections::HashMap, fmt, future::Future, marker::PhantomData, net::SocketAddr, sync::Arc,
};
use tokio::sync::mpsc;

/// Who calls, as its certificate and its socket say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// From the certificate.
    pub identity: Identity,
    /// When that certificate was issued: revocation goes by it.
    pub issued_at: UnixMillis,
    /// Where it called from: also where it listens.
    pub addr: SocketAddr,
}

/// A handler that could not answer. What a caller should decide on belongs into the reply type;
/// this is for what it cannot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failed {
    /// In words, without secrets: the caller sees it.
    pub reason: String,
}

impl Failed {
    /// From anything that can be shown.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
        }
    }
}

/// Where a stream's handler puts its items. Waits when the peer reads more slowly.
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
    /// Sends one item; fails when the peer has gone.
    pub async fn send(&self, item: &T) -> Result<(), Failed> {
        let bytes = encode(item).map_err(Failed::new)?;
        self.queue
            .send(bytes)
            .await
            .map_err(|_| Failed::new("the reader has gone"))
    }
    /// Resolves when the peer has gone.
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

/// Everything an endpoint answers. Unlisted methods are refused.
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
    /// Answers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers `R`. The handler is dropped when it takes longer than
    /// [`crate::MeshConfig::request_timeout`], but not when its caller goes away; work that must
    /// never be cut short is spawned by the handler.
    #[must_use]
    pub fn rpc<R, H, F>(mut self, handler: H) -> Self
    where
        R: Rpc,
        H: Fn(Caller, R) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R::Reply, Failed>> + Send + 'static,
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

    /// Answers `S` with items until the handler returns. The handler is dropped when its reader
    /// goes away or the endpoint shuts down.
    #[must_use]
    pub fn stream<S, H, F>(mut self, handler: H) -> Self
    where
        S: StreamRpc,
        H: Fn(Caller, S, ItemSender<S::Item>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Failed>> + Send + 'static,
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

    /// Takes messages of `kind` from `callers`. The handler must not block: it queues or drops.
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

    /// Offers enrolment to strangers.
    #[must_use]
    pub fn enrolment(mut self, enroller: Arc<dyn Enroller>) -> Self {
        self.enroller = Some(enroller);
        self
    }
}

/// One method of an endpoint and who may call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// Its name on the wire.
    pub method: &'static str,
    /// Roles that may call it.
    pub callers: &'static [Role],
}

impl crate::Mesh {
    /// Everything this endpoint serves by now, by name: for checks that who may call what is as
    /// it was meant to be. What every endpoint answers by itself (`mesh.hello`, `mesh.leave`) is
    /// not among it.
    pub fn served(&self) -> Vec<Served> {
        let router = self.core().router.get();
        let methods = router.into_iter().flat_map(|router| &router.methods);
        let mut served: Vec<Served> = methods
            .map(|(&method, entry)| Served {
                method,
                callers: entry.callers,
            })
            .collect();
        served.sort();
        served
    }

    /// Kinds of messages this endpoint takes, each with the roles that may send it.
    pub fn messages_taken(&self) -> Vec<(u16, &'static [Role])> {
        let router = self.core().router.get();
        let kinds = router.into_iter().flat_map(|router| &router.messages);
        let mut taken: Vec<_> = kinds.map(|(&kind, entry)| (kind, entry.callers)).collect();
        taken.sort();
        taken
    }
}
