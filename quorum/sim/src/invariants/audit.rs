//! The audit is one chain, and only grows.

use lattice_quorum_state::State;
use lattice_quorum_types::{
    audit::{AuditEntry, verify_chain},
    view::{Answer, Query},
};

/// Checks the chain, and that it begins with what was seen of it before.
pub fn audit(state: &State, before: &mut Vec<AuditEntry>) -> Result<(), String> {
    let (after, limit) = (0, u32::MAX);
    let Answer::Audit(entries) = state.query(&Query::Audit { after, limit }) else {
        return Err("the audit was not answered".to_owned());
    };
    if !entries.starts_with(before) {
        return Err("the audit was changed".to_owned());
    }
    verify_chain(&entries).map_err(|fault| format!("the audit is no chain: {fault}"))?;
    if let Some(last) = entries.last()
        && last.number != entries.len() as u64
    {
        let (number, entries) = (last.number, entries.len());
        return Err(format!("audit entry {number} is the last of {entries}"));
    }
    *before = entries;
    Ok(())
}
