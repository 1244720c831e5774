//! Signed audit heads: checks that the signed head belongs to this chain.
//!
//! The leader verifies the signature before the command enters the log, and every later reader of the audit can verify
//! it again. See `../../../0008-signed-heads.md`.

use super::{Case, access::forbidden, audited, invalid, trust::MEMBERS};
use crate::change::Verdict;
use lattice_quorum_types::{
    Refusal,
    audit::{AuditAction, AuditEntry, MAX_SIGNED_HEAD_SKEW_MS, SignedHead, SignedHeadContent},
    rpc::Role,
};

/// Appends a signed audit head after the entries that it covers. A head that covers nothing new is no change, so two
/// leaders that signed the same head write one entry.
pub(super) fn sign(case: Case<'_>, signed_head: &SignedHead) -> Result<Verdict, Refusal> {
    if case.principal.name != MEMBERS {
        return Err(forbidden(case.principal, "the leader of the quorum"));
    }
    signed_head
        .check()
        .map_err(|fault| invalid(fault.field, fault.reason))?;
    let SignedHeadContent {
        number, hash, at, ..
    } = &signed_head.of;
    let tail = case.state.audit.tail();
    let place = tail.partition_point(|entry| entry.number < *number);
    let Some(signed) = tail.get(place).filter(|entry| entry.number == *number) else {
        let reason = format!("audit entry {number} is not among the recent entries in memory");
        return Err(invalid("of.number", reason));
    };
    if *hash != signed.hash.into() {
        let reason = format!("entry {number} of this audit has another hash");
        return Err(invalid("of.hash", reason));
    }
    // The newest signed head covers the most: each covers entries that earlier ones did not.
    let of_newest = tail.iter().rev().find_map(|entry| match &entry.action {
        AuditAction::SignedHead { of, .. } => Some(of.number),
        _ => None,
    });
    let covered = of_newest.unwrap_or(0);
    let from = tail.partition_point(|entry| entry.number <= covered);
    let to = tail.partition_point(|entry| entry.number <= *number);
    let is_new = |entry: &AuditEntry| !matches!(entry.action, AuditAction::SignedHead { .. });
    if from >= to || !tail[from..to].iter().any(is_new) {
        return Ok(Verdict::unchanged());
    }
    if *at < signed.at || at.since(case.now).max(case.now.since(*at)) > MAX_SIGNED_HEAD_SKEW_MS {
        let reason = format!(
            "the time {at} is before that of the signed entry, or differs from the state time {} \
             by more than {MAX_SIGNED_HEAD_SKEW_MS} ms",
            case.now
        );
        return Err(invalid("of.at", reason));
    }
    let name = signed_head.signer.strip_prefix("quorum/");
    let name = name.ok_or_else(|| invalid("signer", "only members of the quorum may sign"))?;
    let known = case.state.trust.identity(Role::Quorum, name);
    if known.is_some_and(|known| known.is_revoked(signed_head.issued_at)) {
        let reason = "its certificate was revoked; another member must sign";
        return Err(invalid("signer", reason));
    }
    let action = AuditAction::SignedHead {
        of: signed_head.of.clone(),
        signer: signed_head.signer.clone(),
        signature: signed_head.signature.clone(),
        certificates: signed_head.certificates.clone(),
    };
    Ok(Verdict::done(audited(case, action, Vec::new())))
}
