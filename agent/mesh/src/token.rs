//! Join tokens: `lattice-join-1.<role>.<pin>.<secret>`.

use lattice_quorum_types::rpc::Role;
use rustls_pki_types::CertificateDer;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// In front of every token; the number is the version of the form.
const PREFIX: &str = "lattice-join-1";
/// The secret has 256 bits: its hash can lie in replicated state without being guessed.
const SECRET_HEX: usize = 64;

/// blake3 of the certificate authority's certificate (DER): how a stranger knows our servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pin([u8; 32]);

impl Pin {
    /// The pin of a certificate.
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

/// Why a text is not a join token. Never repeats the text: it may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a join token: {reason}; create one with `lattice admin token create`")]
pub struct InvalidToken {
    /// What is wrong, in words.
    pub reason: &'static str,
}

impl FromStr for Pin {
    type Err = InvalidToken;
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        blake3::Hash::from_hex(text)
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(|_| InvalidToken {
                reason: "the pin is 64 hexadecimal digits",
            })
    }
}

/// What lets a new process enrol: its role, the authority's pin, and a secret. The secret never
/// appears in `Debug` or `Display`; [`JoinToken::expose`] gives the text to hand over.
#[derive(Clone)]
pub struct JoinToken {
    role: Role,
    pin: Pin,
    secret: SecretString,
}

impl JoinToken {
    /// A new token with a random secret.
    pub fn generate(role: Role, pin: Pin) -> Self {
        Self::from_secret(role, pin, rand::random())
    }
    /// A token with a given secret, from a source of randomness of the caller's.
    pub fn from_secret(role: Role, pin: Pin, secret: [u8; 32]) -> Self {
        let secret = blake3::Hash::from_bytes(secret).to_hex().to_string();
        Self {
            role,
            pin,
            secret: secret.into(),
        }
    }
    /// The role it enrols.
    pub fn role(&self) -> Role {
        self.role
    }
    /// The authority it trusts.
    pub fn pin(&self) -> Pin {
        self.pin
    }
    /// blake3 of the secret part, lower-case hex: what may be stored and replicated.
    pub fn hash(&self) -> String {
        hash_secret(self.secret.expose_secret())
    }
    /// The whole text, secret included.
    pub fn expose(&self) -> SecretString {
        let secret = self.secret.expose_secret();
        format!("{PREFIX}.{}.{}.{secret}", self.role.as_str(), self.pin).into()
    }
    pub(crate) fn secret(&self) -> &SecretString {
        &self.secret
    }
}

/// What is stored of a secret.
pub(crate) fn hash_secret(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({}, {})", self.role, self.pin)
    }
}

impl FromStr for JoinToken {
    type Err = InvalidToken;
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let fail = |reason| InvalidToken { reason };
        let parts: Vec<&str> = text.trim().split('.').collect();
        let [prefix, role, pin, secret] = parts.as_slice() else {
            return Err(fail("the form is lattice-join-1.<role>.<pin>.<secret>"));
        };
        if *prefix != PREFIX {
            return Err(fail("it does not start with lattice-join-1"));
        }
        let role = role
            .parse()
            .map_err(|_| fail("the role is agent, quorum or control"))?;
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if secret.len() != SECRET_HEX || !secret.bytes().all(is_hex) {
            return Err(fail("the secret is 64 lower-case hexadecimal digits"));
        }
        Ok(Self {
            role,
            pin: pin.parse()?,
            secret: (*secret).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn token() -> JoinToken {
        JoinToken::from_secret(Role::Agent, Pin([7; 32]), [9; 32])
    }

    #[test]
    fn a_token_survives_its_text() {
        let text = token().expose();
        assert!(
            text.expose_secret()
                .starts_with("lattice-join-1.agent.0707")
        );
        let read: JoinToken = format!(" {}\n", text.expose_secret()).parse().unwrap();
        assert_eq!(
            (read.role(), read.pin(), read.hash()),
            (Role::Agent, Pin([7; 32]), token().hash())
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", token());
        assert!(!shown.contains(&"09".repeat(32)), "{shown}");
    }

    #[test]
    fn two_generated_tokens_differ() {
        let make = || JoinToken::generate(Role::Quorum, Pin([1; 32])).hash();
        assert_ne!(make(), make());
    }

    #[test]
    fn texts_that_are_no_token_are_refused() {
        let (pin, secret) = ("0".repeat(64), "1".repeat(64));
        for text in [
            String::new(),
            format!("lattice-join-2.agent.{pin}.{secret}"),
            format!("lattice-join-1.root.{pin}.{secret}"),
            format!("lattice-join-1.agent.{pin}"),
            format!("lattice-join-1.agent.xyz.{secret}"),
            format!("lattice-join-1.agent.{pin}.short"),
            format!("lattice-join-1.agent.{pin}.{}", "G".repeat(64)),
        ] {
            let error = text.parse::<JoinToken>().unwrap_err();
            assert!(!error.to_string().contains(&secret));
        }
    }
}
