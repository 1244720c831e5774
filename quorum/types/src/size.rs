//! Size of values: one measure for all limits on sent, stored or batched data.
//!
//! Sizes are measured, not estimated. A new field of a command or record therefore counts automatically.

use postcard::ser_flavors::Size;
use serde::Serialize;

/// Exact size of the postcard encoding, bytes; `usize::MAX` for a value that cannot be encoded.
pub fn encoded_bytes<T: Serialize>(value: &T) -> usize {
    // A value that cannot be encoded is not sent either, so it exceeds every limit.
    postcard::serialize_with_flavor::<T, Size, usize>(value, Size::default()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{
        AllocationId, Command, NodeId, UnixMillis, allocation::RankExit, command::RankReport,
    };

    const TEXT: usize = 100_000;

    fn text() -> String {
        "x".repeat(TEXT)
    }

    #[test]
    fn a_commands_texts_count() {
        let node = NodeId::new("n1").unwrap();
        let report = |exit, fault| Command::Report {
            id: AllocationId(1),
            attempt: 1,
            node: node.clone(),
            report: RankReport::Ended {
                at: UnixMillis(1),
                exit,
                fault,
            },
        };
        let reason = text();
        let failed = report(RankExit::SpawnFailed { reason }, None);
        let evidence = text();
        let lost = report(RankExit::Lost { evidence }, None);
        let fault = report(RankExit::Stopped, Some(text()));
        let small = report(RankExit::Stopped, None);
        assert!(encoded_bytes(&small) < 64);
        for command in [failed, lost, fault] {
            assert!(encoded_bytes(&command) > TEXT, "{command:?}");
            let written = postcard::to_stdvec(&command).unwrap();
            assert_eq!(encoded_bytes(&command), written.len());
        }
    }
}
