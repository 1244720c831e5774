//! Connections to the port, and how many there may be: beyond that, new ones are closed at once,
//! and those that are open notice nothing.

use axum_server::accept::Accept;
use std::{
    future::{Ready, ready},
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// See the module. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    max: usize,
    free: Arc<Semaphore>,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self {
            max,
            free: Arc::new(Semaphore::new(max)),
        }
    }

    /// Open now, handshakes included.
    pub(crate) fn open(&self) -> usize {
        self.max - self.free.available_permits()
    }
}

impl<S> Accept<TcpStream, S> for Connections {
    type Stream = Counted;
    type Service = S;
    type Future = Ready<io::Result<(Counted, S)>>;

    /// Refuses by dropping the connection; else has it send at once what it is given.
    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let taken = self.free.clone().try_acquire_owned();
        let counted = match taken {
            Ok(place) => stream.set_nodelay(true).map(|()| Counted {
                stream,
                _place: place,
            }),
            Err(_) => {
                tracing::debug!(max = self.max, "a connection too many was closed");
                Err(io::ErrorKind::ConnectionRefused.into())
            }
        };
        ready(counted.map(|counted| (counted, service)))
    }
}

/// A connection with its place, which is free again when both are dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
