//! Messages: small, unanswered, droppable. Each is one unidirectional stream; gossip rides on
//! them.

use crate::{Caller, endpoint::Core};
use bytes::Bytes;
use quinn::{Connection, RecvStream};

/// Longest message, bytes: what a UDP datagram can hold, so that gossip written for UDP fits.
pub const MAX_MESSAGE_BYTES: usize = 65_507;
/// Version and kind in front of every message.
const HEADER_BYTES: usize = 3;
const VERSION: u8 = 1;
/// A message that arrives more slowly is dropped.
const READ_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// `[version u8][kind u16][bytes]` to the end of the stream, big endian.
pub(crate) async fn write_message(
    connection: &Connection,
    kind: u16,
    message: &[u8],
) -> Result<(), String> {
    let mut send = connection.open_uni().await.map_err(|e| e.to_string())?;
    let [high, low] = kind.to_be_bytes();
    send.write_all(&[VERSION, high, low])
        .await
        .map_err(|e| e.to_string())?;
    send.write_all(message).await.map_err(|e| e.to_string())?;
    send.finish().map_err(|e| e.to_string())
}

/// Reads one message and hands it to its handler. What is not wanted is dropped with a note.
pub(crate) async fn serve_message(core: &Core, caller: Caller, mut recv: RecvStream) {
    let read = recv.read_to_end(HEADER_BYTES + MAX_MESSAGE_BYTES);
    let Ok(Ok(bytes)) = tokio::time::timeout(READ_TIMEOUT, read).await else {
        tracing::debug!(peer = %caller.identity, "mesh message dropped: lost or too long");
        return;
    };
    let Some((&[VERSION, high, low], body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        tracing::debug!(peer = %caller.identity, "mesh message dropped: no header");
        return;
    };
    let kind = u16::from_be_bytes([high, low]);
    let Some(entry) = core
        .router
        .get()
        .and_then(|router| router.messages.get(&kind))
    else {
        tracing::debug!(peer = %caller.identity, kind, "mesh message dropped: unknown kind");
        return;
    };
    if !entry.callers.contains(&caller.identity.role()) {
        tracing::info!(peer = %caller.identity, kind, "mesh message refused: role");
        return;
    }
    (entry.handler)(caller, Bytes::copy_from_slice(body));
}
