//! Connection limit of the port: new connections beyond the limit are closed at once; open connections are not
//! affected.

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

/// Connection counter with a limit; see the module. Clones share the count.
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

    /// Open connections, including those in a handshake.
    pub(crate) fn open(&self) -> usize {
        self.max - self.free.available_permits()
    }
}

impl<S> Accept<TcpStream, S> for Connections {
    type Stream = CountedConnection;
    type Service = S;
    type Future = Ready<io::Result<(CountedConnection, S)>>;

    /// Drops the connection if the limit is reached; otherwise disables Nagle's algorithm on it.
    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let taken = self.free.clone().try_acquire_owned();
        let counted = match taken {
            Ok(place) => stream.set_nodelay(true).map(|()| CountedConnection {
                stream,
                _place: place,
            }),
            Err(_) => {
                tracing::debug!(
                    max = self.max,
                    "connection closed: connection limit reached"
                );
                Err(io::ErrorKind::ConnectionRefused.into())
            }
        };
        ready(counted.map(|counted| (counted, service)))
    }
}

/// Accepted connection; dropping it frees its place for another connection.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for CountedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedConnection {
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
