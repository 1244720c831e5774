//! Pin of an authority: the digest of its certificate.

use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::fmt;

/// blake3 digest of a CA certificate (DER), by which an unenrolled process recognises the servers of its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pin(pub(crate) [u8; 32]);

impl Pin {
    /// Returns the pin of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(*blake3::hash(certificate).as_bytes())
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({self})")
    }
}

/// Joins all pins with `between` as the separator.
pub(crate) fn join_pins(pins: &[Pin], between: &str) -> String {
    let pins: Vec<String> = pins.iter().map(Pin::to_string).collect();
    pins.join(between)
}
