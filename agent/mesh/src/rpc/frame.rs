//! Framing of requests and replies, as specified in `README.md`.

use super::error::CallError;
use crate::{
    Role,
    encoding::{decode, encode},
};
use lattice_host::error_text::innermost;
use quinn::{RecvStream, SendStream};
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, time::Duration};

/// Protocol version: the first byte of every request.
const VERSION: u8 = 1;
/// Longest method name, bytes.
const MAX_METHOD_BYTES: usize = 128;
/// First step in which a body is read, bytes; the steps grow, so that a declared length alone occupies no memory.
const READ_STEP: usize = 64 << 10;

/// Built-in method of every endpoint: proves to the dialling side that the peer has accepted it.
pub(crate) const HELLO: &str = "mesh.hello";
/// Built-in method of every endpoint: the callee starts nothing more on the connection.
pub(crate) const LEAVE: &str = "mesh.leave";
/// Request of the enrolment protocol.
pub(crate) const ENROL: &str = "mesh.enrol";
/// Optional request before [`ENROL`], once per connection: the server proves that it holds the key of an authority.
pub(crate) const PROVE: &str = "mesh.prove";

/// Type of a reply frame: its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Reply of a call, or item of a stream.
    Item = 0,
    /// Regular end of a stream.
    End = 1,
    /// An error, encoded as [`Fault`].
    Fault = 2,
    /// The stream was opened.
    Accepted = 3,
}

/// Errors on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    Denied { method: String, role: Role },
    UnknownMethod { method: String },
    TooLarge { bytes: u64, limit_bytes: u64 },
    Malformed { reason: String },
    Deadline { after_ms: u64 },
    HandlerFailed { reason: String },
    ShuttingDown,
}

impl Fault {
    pub(crate) fn malformed(reason: impl ToString) -> Self {
        Self::Malformed {
            reason: reason.to_string(),
        }
    }

    pub(crate) fn into_error(self, addr: SocketAddr) -> CallError {
        match self {
            Self::Denied { method, role } => CallError::Denied { method, role },
            Self::UnknownMethod { method } => CallError::UnknownMethod { method },
            Self::TooLarge { bytes, limit_bytes } => CallError::TooLarge { bytes, limit_bytes },
            Self::Malformed { reason } => CallError::Malformed { reason },
            Self::Deadline { after_ms } => CallError::Deadline {
                after: Duration::from_millis(after_ms),
            },
            Self::HandlerFailed { reason } => CallError::HandlerFailed { reason },
            Self::ShuttingDown => CallError::Transport {
                addr,
                sent: true,
                reason: format!("{addr} is shutting down"),
            },
        }
    }
}

/// Encodes `[version u8][method length u16][method][body length u32][body]`, big endian.
pub(crate) fn request_bytes(method: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(7 + method.len() + body.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&(method.len() as u16).to_be_bytes());
    bytes.extend_from_slice(method.as_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Encodes `[status u8][payload length u32][payload]`, big endian.
pub(crate) fn frame_bytes(status: Status, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(5 + payload.len());
    bytes.push(status as u8);
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Encodes a fault as a frame. The encoding cannot fail, as a fault holds only strings and integers. If it did fail,
/// the peer would read the empty payload as malformed.
pub(crate) fn fault_bytes(fault: &Fault) -> Vec<u8> {
    frame_bytes(Status::Fault, &encode(fault).unwrap_or_default())
}

/// Reason why a frame could not be read.
#[derive(Debug)]
pub(crate) enum ReadFault {
    /// The stream was cut short.
    Lost(String),
    /// The bytes violate the protocol, or exceed a limit.
    Bad(Fault),
}

impl ReadFault {
    /// Returns the fault to send back to the sender.
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::Lost(reason) => Fault::malformed(reason),
            Self::Bad(fault) => fault,
        }
    }

    pub(crate) fn into_error(self, addr: SocketAddr) -> CallError {
        match self {
            Self::Lost(reason) => CallError::Transport {
                addr,
                sent: true,
                reason: format!("lost the connection to {addr}: {reason}"),
            },
            Self::Bad(fault) => fault.into_error(addr),
        }
    }
}

/// Error of a lost stream. The text of a QUIC error is only "connection lost"; its innermost cause holds the reason.
fn lost(error: &(dyn std::error::Error + 'static)) -> ReadFault {
    ReadFault::Lost(innermost(error).to_string())
}

async fn exact<const N: usize>(recv: &mut RecvStream) -> Result<[u8; N], ReadFault> {
    let mut bytes = [0u8; N];
    recv.read_exact(&mut bytes).await.map_err(|e| lost(&e))?;
    Ok(bytes)
}

/// Reads version and method of a request.
pub(crate) async fn read_method(recv: &mut RecvStream) -> Result<String, ReadFault> {
    let [version] = exact(recv).await?;
    if version != VERSION {
        let reason = format!(
            "unsupported protocol version {version}; this process supports version {VERSION}"
        );
        return Err(ReadFault::Bad(Fault::malformed(reason)));
    }
    let length = usize::from(u16::from_be_bytes(exact(recv).await?));
    if length > MAX_METHOD_BYTES {
        return Err(ReadFault::Bad(Fault::malformed(
            "the method name is too long",
        )));
    }
    let mut name = vec![0; length];
    recv.read_exact(&mut name).await.map_err(|e| lost(&e))?;
    String::from_utf8(name)
        .map_err(|_| ReadFault::Bad(Fault::malformed("the method name is not text")))
}

/// Reads a body with its length in front.
pub(crate) async fn read_body(recv: &mut RecvStream, limit: usize) -> Result<Vec<u8>, ReadFault> {
    let length = u32::from_be_bytes(exact(recv).await?) as usize;
    if length > limit {
        let (bytes, limit_bytes) = (length as u64, limit as u64);
        return Err(ReadFault::Bad(Fault::TooLarge { bytes, limit_bytes }));
    }
    let mut body = Vec::new();
    while body.len() < length {
        let start = body.len();
        body.resize(length.min(start + READ_STEP.max(start)), 0);
        let piece = body.get_mut(start..).unwrap_or_default();
        recv.read_exact(piece).await.map_err(|e| lost(&e))?;
    }
    Ok(body)
}

/// Reads one reply frame; returns a fault as `Err`.
pub(crate) async fn read_frame(
    recv: &mut RecvStream,
    limit: usize,
) -> Result<(Status, Vec<u8>), ReadFault> {
    let [status] = exact(recv).await?;
    let status = match status {
        0 => Status::Item,
        1 => Status::End,
        2 => Status::Fault,
        3 => Status::Accepted,
        other => {
            return Err(ReadFault::Bad(Fault::malformed(format!(
                "unknown reply status {other}"
            ))));
        }
    };
    let payload = read_body(recv, limit).await?;
    if status == Status::Fault {
        let fault = decode(&payload).unwrap_or_else(Fault::malformed);
        return Err(ReadFault::Bad(fault));
    }
    Ok((status, payload))
}

/// Sends the last bytes of a stream. Errors are ignored: the peer may have disconnected.
pub(crate) async fn send_last(send: &mut SendStream, bytes: &[u8]) {
    if send.write_all(bytes).await.is_ok() {
        let _ = send.finish();
    }
}
