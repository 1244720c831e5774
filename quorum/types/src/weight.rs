//! Size of values: one measure for all limits on sent, stored or batched data.
//!
//! Sizes are measured, not estimated. A new field of a command or record therefore counts automatically.

use crate::{Allocation, Event, allocation::Rank, event::EventKind};
use postcard::ser_flavors::Size;
use serde::Serialize;

/// Allocator overhead for the name and the boot id of a rank, bytes.
const ALLOCATED: usize = 64;

/// Exact size on the wire, bytes.
pub fn on_wire<T: Serialize>(value: &T) -> usize {
    // A value that cannot be encoded is not sent either, so it exceeds every limit.
    postcard::serialize_with_flavor::<T, Size, usize>(value, Size::default()).unwrap_or(usize::MAX)
}

/// Approximate size in memory, bytes: the encoded size, plus the fixed parts of the event, the record and its ranks.
pub fn in_memory(event: &Event) -> usize {
    let held = match &event.kind {
        EventKind::Allocation { record, .. } => {
            size_of::<Allocation>() + record.ranks.len() * (size_of::<Rank>() + ALLOCATED)
        }
        _ => 0,
    };
    (size_of::<Event>() + held).saturating_add(on_wire(event))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{
        AllocationId, Command, NodeId, Revision, UnixMillis,
        allocation::RankExit,
        audit::{AuditAction, AuditEntry},
        command::{Power, Principal, RankReport},
        rpc::Role,
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
        assert!(on_wire(&small) < 64);
        for command in [failed, lost, fault] {
            assert!(on_wire(&command) > TEXT, "{command:?}");
            let written = postcard::to_stdvec(&command).unwrap();
            assert_eq!(on_wire(&command), written.len());
        }
    }

    #[test]
    fn an_events_texts_count() {
        let by = Principal {
            name: "root".to_owned(),
            power: Power::Admin,
        };
        let action = AuditAction::CertificatesRevoked {
            role: Role::Agent,
            name: "n1".to_owned(),
            reason: text(),
        };
        let entry = AuditEntry::following(None, Revision(1), UnixMillis(1), by, action);
        let event = Event {
            revision: Revision(1),
            ordinal: 0,
            at: UnixMillis(1),
            kind: EventKind::Audit { entry },
        };
        assert!(in_memory(&event) > TEXT);
    }
}
