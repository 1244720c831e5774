//! Frame of gossip messages: the name of the cell in front of chitchat's bytes.

use crate::CellName;
use bytes::Bytes;

/// Mesh message kind of gossip: `[length of cell name u8][cell name][chitchat's bytes]`.
pub const MESSAGE_KIND: u16 = 1;

/// Prefix of every message of a cell.
pub(crate) fn header(cell: &CellName) -> Vec<u8> {
    // A cell name has at most 64 bytes.
    let mut header = vec![u8::try_from(cell.as_str().len()).unwrap_or(u8::MAX)];
    header.extend_from_slice(cell.as_str().as_bytes());
    header
}

/// Splits a message into the name of its cell and chitchat's bytes.
pub(crate) fn split(message: &Bytes) -> Option<(&str, Bytes)> {
    let (&length, rest) = message.split_first()?;
    let name = rest.get(..usize::from(length))?;
    let bytes = message.slice(1 + name.len()..);
    Some((std::str::from_utf8(name).ok()?, bytes))
}
