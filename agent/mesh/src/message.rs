//! Messages: small, unanswered, droppable. Each is one unidirectional stream; gossip rides on
//! them.

use crate::{Caller, endpoint::Core};
use bytes::Bytes;
use quinn::{Connection, RecvStream};

/// Longest message, bytes: what a UDP datagram can hold, so that gossip written for UDP fits, and
/// a few more to address it with.
pub const MAX_MESSAGE_BYTES: usize = 65_507 + 256;
/// Version, kind and length in front of every message.
const HEADER_BYTES: usize = 7;
const VERSION: u8 = 1;
/// A message that arrives more slowly is dropped.
const READ_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// `[version u8][kind u16][length u32][bytes]`, big endian. The length tells a whole message from
/// one whose sender gave up: a stream dropped half written ends like any other.
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

/// Reads one message and hands it to its handler. What is not wanted is dropped with a note, and
/// what the sender may not send is not even read.
pub(crate) async fn serve_message(core: &Core, caller: Caller, mut recv: RecvStream) {
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
        let entry = core
            .router
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
