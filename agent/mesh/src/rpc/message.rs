//! Messages: small, unanswered, and dropped on overload. Each message is one unidirectional stream; gossip uses
//! messages.

use super::router::{Caller, Router};
use bytes::Bytes;
use quinn::{Connection, RecvStream};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Longest message, bytes: the payload of a UDP datagram, so that gossip written for UDP fits, plus 256 bytes for
/// addressing.
pub const MAX_MESSAGE_BYTES: usize = 65_507 + 256;
/// Length of the header of a message: version, kind and length.
const HEADER_BYTES: usize = 7;
const VERSION: u8 = 1;
/// Longest time to read a message; a slower message is dropped.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why a message was not queued. Messages are hints: the sender continues without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageDropped {
    /// The message is longer than [`MAX_MESSAGE_BYTES`].
    #[error("the message is longer than {} bytes", MAX_MESSAGE_BYTES)]
    TooLarge,
    /// The peer accepts messages more slowly than they arrive, or is unreachable.
    #[error("the peer's queue is full")]
    QueueFull,
    /// The endpoint is shut down.
    #[error("this mesh endpoint is shut down")]
    Closed,
}

/// Writes `[version u8][kind u16][length u32][bytes]`, big endian. The length distinguishes a complete message from a
/// partial one: a stream that its sender drops after a partial write ends like a complete stream.
pub(crate) async fn write_message(
    connection: &Connection,
    kind: u16,
    message: &[u8],
) -> Result<(), String> {
    let mut send = connection.open_uni().await.map_err(|e| e.to_string())?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + message.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    send.write_all(&bytes).await.map_err(|e| e.to_string())?;
    send.finish().map_err(|e| e.to_string())
}

/// Reads one message and passes it to its handler. An unwanted message is dropped with a debug log entry. The body of a
/// message that the sender's role may not send is not read.
pub(crate) async fn serve_message(
    router: &OnceLock<Arc<Router>>,
    caller: Caller,
    mut recv: RecvStream,
) {
    let dropped =
        |why: &str| tracing::debug!(peer = %caller.identity, "mesh message dropped: {why}");
    let read = async {
        let mut header = [0; HEADER_BYTES];
        recv.read_exact(&mut header)
            .await
            .map_err(|_| "no header")?;
        let [VERSION, high, low, length @ ..] = header else {
            return Err("another version");
        };
        let kind = u16::from_be_bytes([high, low]);
        let length = u32::from_be_bytes(length) as usize;
        let entry = router
            .get()
            .and_then(|router| router.messages.get(&kind))
            .ok_or("unknown kind")?;
        if !entry.callers.contains(&caller.identity.role()) {
            return Err("its sender's role may not send it");
        }
        if length > MAX_MESSAGE_BYTES {
            return Err("too long");
        }
        let body = recv.read_to_end(length).await.map_err(|_| "lost")?;
        if body.len() != length {
            return Err("cut short");
        }
        Ok((entry, body))
    };
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(Ok((entry, body))) => (entry.handler)(caller, Bytes::from(body)),
        Ok(Err(why)) => dropped(why),
        Err(_) => dropped("too slow"),
    }
}
