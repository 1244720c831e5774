//! Errors of requests to a BMC.

use super::breaker::BreakerOpen;
use super::pin::Pin;
use lattice_conformance::Reading;
use std::time::Duration;

/// Reason why a resource is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// 404 or 410: the BMC has no such resource.
    #[error("the resource does not exist")]
    Absent,
    /// 401 or 403 for this resource, with a working login.
    #[error("refused with status {status}{}", message_suffix(.message))]
    Denied {
        /// HTTP status; 401 also for an answer with another status that reports an invalid session.
        status: u16,
        /// Message of the BMC.
        message: String,
    },
    /// The user name or the password is wrong.
    #[error("the BMC does not accept user \"{user}\" with the given password (status {status})")]
    LoginDenied {
        /// User name of the login.
        user: String,
        /// HTTP status.
        status: u16,
    },
    /// The BMC has no free session.
    #[error("no free session on the BMC (status {status}){}", message_suffix(.message))]
    SessionsExhausted {
        /// HTTP status.
        status: u16,
        /// Message of the BMC.
        message: String,
    },
    /// The BMC has no session service, and Basic authentication is disabled.
    #[error("the BMC has no session service, and Basic authentication is disabled")]
    NoSessionService,
    /// The certificate is not the pinned one.
    #[error(
        "certificate fingerprint is {shown}, expected {pinned}; if the certificate was replaced, \
         pin {shown}"
    )]
    OtherCertificate {
        /// Fingerprint of the expected certificate.
        pinned: Pin,
        /// Fingerprint of the presented certificate.
        shown: Pin,
    },
    /// The certificate is not valid: its authority is not trusted, or its name or dates do not match.
    #[error("the certificate is not trusted ({why}): to trust this BMC alone, pin {shown}")]
    Untrusted {
        /// Fingerprint of the presented certificate.
        shown: Pin,
        /// Reason of the rejection.
        why: String,
    },
    /// No complete answer arrived within the deadline.
    #[error("no answer within {} ms", .after.as_millis())]
    Timeout {
        /// The deadline.
        after: Duration,
    },
    /// No connection could be made.
    #[error("cannot connect: {why}")]
    Unreachable {
        /// Cause of the failure.
        why: String,
    },
    /// The connection ended before the answer was complete.
    #[error("the connection ended before the answer: {why}")]
    Broken {
        /// Cause of the failure.
        why: String,
    },
    /// Any other HTTP status, or a login answer without a token.
    #[error("status {status}{}", message_suffix(.message))]
    Status {
        /// HTTP status.
        status: u16,
        /// Message of the BMC.
        message: String,
    },
    /// The answer has a status of success, but its body is an error and not a resource.
    #[error("status {status}, but the body is an error{}", message_suffix(.message))]
    ErrorBody {
        /// HTTP status.
        status: u16,
        /// Message of the BMC.
        message: String,
    },
    /// The answer has a status of success, but its body has none of the properties that identify a resource.
    #[error(
        "status {status}, but the body is not a Redfish resource: it has no @odata.id, @odata.type, \
         Id, Name or Members"
    )]
    NotResource {
        /// HTTP status.
        status: u16,
    },
    /// The BMC redirects the client to a place that is not requested.
    #[error("redirected to {to}, which is not followed: {why}")]
    Redirected {
        /// HTTP status.
        status: u16,
        /// Target of the redirect, as the BMC wrote it; empty without a target.
        to: String,
        /// Reason.
        why: RedirectRefusal,
    },
    /// The answer exceeds the size limit.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The answer cannot be unpacked.
    #[error("the answer's content coding \"{coding}\" cannot be unpacked: {why}")]
    Encoding {
        /// Value of `Content-Encoding`.
        coding: String,
        /// Cause of the failure.
        why: String,
    },
    /// The answer is not JSON, or is nested too deeply.
    #[error("the answer is not valid JSON: {why}")]
    NotJson {
        /// Error of the parser.
        why: String,
    },
    /// The path is outside the Redfish service.
    #[error("the path is outside the Redfish service")]
    OutsideService,
    /// The BMC demanded a delay that exceeds the remaining time, or demanded another one after the repeated request.
    #[error("the BMC is busy; try again in {} s", .retry_in.as_secs())]
    Busy {
        /// Time until the next request is allowed.
        retry_in: Duration,
    },
    /// The BMC failed recently, so the open breaker sends no request.
    #[error(transparent)]
    Open(#[from] BreakerOpen),
}

/// Reason why a redirect is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectRefusal {
    /// The target has another scheme, host or port, and would receive the credentials.
    #[error(
        "its scheme, host or port is not the BMC's; if it is the same BMC, configure that address"
    )]
    OtherOrigin,
    /// The answer contains no target, or an invalid one.
    #[error("it is not a valid target")]
    InvalidTarget,
    /// The target was requested before.
    #[error("the redirects form a loop")]
    Loop,
    /// Too many redirects follow each other.
    #[error("too many redirects follow each other")]
    TooMany,
}

/// The BMC's message as a suffix, or an empty text.
fn message_suffix(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(": \"{message}\"")
    }
}

impl FetchError {
    /// Whether the error concerns the BMC and not only this resource; the breaker counts such errors. A single resource
    /// may be broken permanently on a working BMC.
    #[must_use]
    pub const fn is_bmc_failure(&self) -> bool {
        match self {
            Self::LoginDenied { .. }
            | Self::SessionsExhausted { .. }
            | Self::OtherCertificate { .. }
            | Self::Untrusted { .. }
            | Self::Timeout { .. }
            | Self::Unreachable { .. }
            | Self::Broken { .. } => true,
            Self::Status { status, .. } => matches!(status, 502..=504),
            Self::Absent
            | Self::Denied { .. }
            | Self::NoSessionService
            | Self::ErrorBody { .. }
            | Self::NotResource { .. }
            | Self::Redirected { .. }
            | Self::TooLarge { .. }
            | Self::Encoding { .. }
            | Self::NotJson { .. }
            | Self::OutsideService
            | Self::Busy { .. }
            | Self::Open(_) => false,
        }
    }

    /// The reading that the error stands for.
    #[must_use]
    pub fn into_reading<T>(self) -> Reading<T> {
        match self {
            Self::Absent => Reading::Absent,
            Self::Denied { .. } | Self::LoginDenied { .. } | Self::NoSessionService => {
                Reading::denied(self.to_string())
            }
            Self::Timeout { after } => Reading::Timeout {
                after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            },
            other => Reading::failed(other.to_string()),
        }
    }
}
