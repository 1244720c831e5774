//! PEM text of certificates.

use rustls_pki_types::CertificateDer;
use std::fmt::Write as _;

/// Encodes certificates as PEM text.
pub(crate) fn to_pem(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in base64(certificate).as_bytes().chunks(64) {
            let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// Encodes RFC 4648 base64, which is all that PEM needs.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4u32 {
            let index = (word >> (18 - 6 * i)) & 63;
            text.push(if i as usize <= chunk.len() {
                ALPHABET[index as usize] as char
            } else {
                '='
            });
        }
    }
    text
}
