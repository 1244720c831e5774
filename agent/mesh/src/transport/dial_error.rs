//! Errors of a dial: a rejected certificate, or an unreachable peer.

use super::close::{CLOSE_EXPIRED, CLOSE_NO_CERTIFICATE, CLOSE_NOT_TRUSTED, CLOSE_REVOKED};
use crate::MeshError;
use quinn::ConnectionError;
use std::net::SocketAddr;

/// Distinguishes a rejected certificate from an unreachable peer.
pub(crate) fn dial_error(addr: SocketAddr, error: &ConnectionError) -> MeshError {
    let not_trusted = |reason: String| MeshError::NotTrusted { addr, reason };
    match error {
        ConnectionError::TransportError(e) if alert(e.code).is_some() => {
            let what = "this process refuses the peer's certificate";
            not_trusted(refusal(what, e.code, &e.reason))
        }
        ConnectionError::ConnectionClosed(e) if alert(e.error_code).is_some() => {
            let reason = String::from_utf8_lossy(&e.reason);
            let what = "the peer refuses this process's certificate";
            not_trusted(refusal(what, e.error_code, &reason))
        }
        ConnectionError::ApplicationClosed(e)
            if e.error_code == CLOSE_NO_CERTIFICATE.into()
                || e.error_code == CLOSE_NOT_TRUSTED.into()
                || e.error_code == CLOSE_REVOKED.into()
                || e.error_code == CLOSE_EXPIRED.into() =>
        {
            let reason = String::from_utf8_lossy(&e.reason);
            not_trusted(format!("the peer refuses this process: {reason}"))
        }
        other => MeshError::Unreachable {
            addr,
            reason: other.to_string(),
        },
    }
}

/// TLS alert certificate_revoked (44).
const ALERT_REVOKED: u64 = 44;

/// Whether the peer closed the connection because this process's certificate is revoked.
pub(crate) fn reports_revocation(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::ConnectionClosed(close) => alert(close.error_code) == Some(ALERT_REVOKED),
        ConnectionError::ApplicationClosed(close) => close.error_code == CLOSE_REVOKED.into(),
        _ => false,
    }
}

/// TLS alert access_denied (49): the server is too busy to present its certificate to an unenrolled process.
pub(crate) const ALERT_BUSY: u64 = 49;

/// Returns the TLS alert in a QUIC error code.
pub(crate) fn alert(code: quinn::TransportErrorCode) -> Option<u64> {
    u64::from(code).checked_sub(0x100).filter(|n| *n < 0x100)
}

/// Describes a TLS alert in words an operator can act on, with the detail from rustls.
fn refusal(what: &str, code: quinn::TransportErrorCode, detail: &str) -> String {
    if alert(code) == Some(120) {
        return "the peer does not offer the requested protocol; new processes enrol at quorum \
                members"
            .to_owned();
    }
    let words = match alert(code) {
        Some(ALERT_REVOKED) => "it was revoked; enrol again, or ask the operator that revoked it",
        Some(45) => "it has expired or is not valid yet; check both clocks, then renew it",
        Some(48) => {
            "it was issued by an unknown authority: the certificate is from another cluster, or its \
             authority was retired while its process was offline; in the latter case, enrol that \
             process again"
        }
        Some(51) => "its signature is not valid; it may be from an unknown authority",
        Some(116) => "no certificate was presented; enrol first",
        _ => "it is not acceptable",
    };
    let detail = detail.trim_start_matches("invalid peer certificate: ");
    let detail = detail
        .strip_prefix("Other(OtherError(")
        .and_then(|ours| ours.strip_suffix("))"))
        .unwrap_or(detail);
    if detail.is_empty() || detail == "Revoked" {
        format!("{what}: {words}")
    } else {
        format!("{what}: {words} ({detail})")
    }
}
