//! Enrolment: a process with a join token obtains a certificate.
//!
//! Enrolment has a separate protocol, on which the server serves nothing else. The unenrolled process verifies the
//! server by the token's pins. The server authorises the process by the token alone. The token determines the name in
//! the certificate, never the CSR.
//!
//! Imports [`crate::endpoint`] and the layers below it. The decision is that of a [`crate::Enroller`].

pub(crate) mod client;
pub(crate) mod proof;
pub(crate) mod request;
pub(crate) mod server;
