//! Enrolment: a process with a join token obtains a certificate.
//!
//! Enrolment has a separate protocol, on which the server serves nothing else. The unenrolled process verifies the
//! server by the token's pins. The server authorises the process by the token alone. The name in the certificate is one
//! that the token permits, never a name in the CSR.
//!
//! Imports [`crate::endpoint`] and the layers below it. A [`crate::Enroller`] makes the decision.

pub(crate) mod client;
pub(crate) mod proof;
mod rate_wait;
pub(crate) mod request;
pub(crate) mod server;
