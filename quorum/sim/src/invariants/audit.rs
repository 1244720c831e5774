//! Audit invariant: one unbroken chain without dropped entries. The events carry exactly the entries that the state
//! holds.

use lattice_quorum_state::State;
use lattice_quorum_types::{
    Event,
    audit::{AuditEntry, verify_chain},
    event::EventKind,
};

/// Appends the audit entries of a command's events to the given list, and checks that they form a chain that ends at
/// the audit head of the state.
pub fn audit(state: &State, events: &[Event], entries: &mut Vec<AuditEntry>) -> Result<(), String> {
    for event in events {
        if let EventKind::Audit { entry } = &event.kind {
            entries.push(entry.clone());
            let from = entries.len().saturating_sub(2);
            verify_chain(entries.get(from..).unwrap_or_default())
                .map_err(|fault| format!("the audit is not a valid chain: {fault}"))?;
        }
    }
    let head = state.audit_head();
    let (number, hash) = entries.last().map_or((0, [0; 32]), |e| (e.number, e.hash));
    if head.number != number || number > 0 && head.hash != hash {
        return Err(format!(
            "the audit is at entry {}, and {number} was written last",
            head.number
        ));
    }
    if number != entries.len() as u64 {
        return Err(format!("{} audit entries end at {number}", entries.len()));
    }
    Ok(())
}
