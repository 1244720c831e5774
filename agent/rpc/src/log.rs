//! Captured output of ranks.

use crate::AttemptKey;
use bytes::Bytes;
use lattice_quorum_types::rpc::{Role, StreamRpc};
use serde::{Deserialize, Serialize};

/// Output stream of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Beginning and end of the line in place of output that is not kept.
const LEFT_OUT: (&str, &str) = (
    "\n[lattice: ",
    " bytes are left out here: the output exceeds its limit]\n",
);

/// Line in place of `bytes` bytes of output that are not kept. In the reply to [`ReadLog`] the line is an item of its
/// own.
pub fn left_out_line(bytes: u64) -> String {
    let (before, after) = LEFT_OUT;
    format!("{before}{bytes}{after}")
}

/// Number of bytes that an item of the reply to [`ReadLog`] stands for in the output: those that [`left_out_line`]
/// replaces, otherwise those of the item. A job that prints such a line itself affects only a reader of its own output
/// that resumes after it.
pub fn covered_bytes(item: &[u8]) -> u64 {
    let (before, after) = LEFT_OUT;
    let line = std::str::from_utf8(item).ok();
    let number = line.and_then(|line| line.strip_prefix(before)?.strip_suffix(after));
    let left_out = number.and_then(|number| number.parse().ok());
    left_out.unwrap_or(item.len() as u64)
}

/// Streams the captured output of a rank from an offset on; with `follow`, until the rank ends. Where output is not
/// kept, an item is [`left_out_line`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadLog {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Output stream.
    pub stream: LogStream,
    /// Position of the first byte in the output as the rank wrote it.
    pub offset: u64,
    /// Whether to wait for further output.
    pub follow: bool,
}
impl StreamRpc for ReadLog {
    const METHOD: &'static str = "agent.log";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Item = Result<Bytes, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_as_the_bytes_it_replaces() {
        assert_eq!(covered_bytes(left_out_line(12_345).as_bytes()), 12_345);
        for item in ["", "a line\n", "[lattice: 5 bytes are left out here]\n"] {
            assert_eq!(covered_bytes(item.as_bytes()), item.len() as u64);
        }
        let longer = left_out_line(7) + "more";
        assert_eq!(covered_bytes(longer.as_bytes()), longer.len() as u64);
        assert_eq!(covered_bytes(&[0xff, 0xfe]), 2);
    }
}
