//! Certificate fingerprint.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// SHA-256 of a certificate as transmitted (DER), as printed by `openssl x509 -fingerprint -sha256`. Parsed with or
/// without colons, and with or without the prefix `sha256:`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pin([u8; 32]);

/// The text is not a fingerprint of 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a valid SHA-256 fingerprint: 64 hexadecimal digits are needed")]
pub struct PinError {
    /// The rejected text.
    text: String,
}

impl Pin {
    /// The fingerprint of this certificate.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        use rustls::SupportedCipherSuite as Suite;
        use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
        // The crypto provider's SHA-256, taken from this cipher suite.
        let hash = match TLS13_AES_128_GCM_SHA256 {
            Suite::Tls13(suite) => suite.common.hash_provider,
            Suite::Tls12(suite) => suite.common.hash_provider,
        };
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.hash(certificate).as_ref());
        Self(bytes)
    }
}

impl FromStr for Pin {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, PinError> {
        let wrong = || PinError {
            text: text.to_owned(),
        };
        let digits = text.trim();
        let digits = digits.strip_prefix("sha256:").unwrap_or(digits);
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
        let bytes = HEXLOWER_PERMISSIVE.decode(&digits).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(wrong)
    }
}

impl TryFrom<String> for Pin {
    type Error = PinError;

    fn try_from(text: String) -> Result<Self, PinError> {
        text.parse()
    }
}

impl From<Pin> for String {
    fn from(pin: Pin) -> Self {
        pin.to_string()
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        write!(f, "{}", HEXLOWER.encode_display(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// SHA-256 of "abc" (FIPS 180-2, appendix B.1).
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_pin_is_the_sha256_and_reads_in_every_usual_form() {
        let pin = Pin::of(b"abc");
        assert_eq!(pin.to_string(), format!("sha256:{ABC}"));
        let upper = ABC.to_ascii_uppercase();
        let pairs: Vec<_> = upper.as_bytes().chunks(2).collect();
        let colons = String::from_utf8(pairs.join(&b':')).unwrap();
        for text in [ABC, &upper, &colons, &pin.to_string()] {
            assert_eq!(text.parse::<Pin>().unwrap(), pin, "{text}");
        }
        assert!("ba78".parse::<Pin>().is_err());
        assert!("g".repeat(64).parse::<Pin>().is_err());
    }
}
