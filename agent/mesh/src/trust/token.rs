//! Join tokens: `lattice-join-1.<role>.<pin>.<secret>`. Further pins follow the first, each after a `+`.

use super::bundle::MAX_AUTHORITIES;
use crate::pki::pin::{Pin, join_pins};
use lattice_quorum_types::rpc::Role;
use secrecy::{ExposeSecret, SecretString};
use std::{fmt, str::FromStr};

/// Prefix of every token; the number is the version of the format.
const PREFIX: &str = "lattice-join-1";
/// Hex digits of the secret, which has 256 bits: its hash in replicated state cannot be inverted by guessing.
const SECRET_HEX: usize = 64;
/// Separator between the pins of a token: not special in shells or YAML.
const BETWEEN_PINS: char = '+';

/// Error for a text that is not a join token. It never contains the text, which may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a join token: {reason}; create one with `lattice admin token create`")]
pub struct InvalidToken {
    /// Reason in words.
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

/// Join token: permits a new process to enrol. Contains the role, the pins of the cluster's authorities, and a secret.
/// `Debug` never shows the secret; [`JoinToken::expose`] returns the complete text for the new process.
#[derive(Clone)]
pub struct JoinToken {
    role: Role,
    /// Between one and [`MAX_AUTHORITIES`] pins, without duplicates.
    pins: Vec<Pin>,
    secret: SecretString,
}

impl JoinToken {
    /// Creates a token with a random secret and the pin of one authority.
    pub fn generate(role: Role, pin: Pin) -> Self {
        Self::from_secret(role, pin, rand::random())
    }
    /// Creates a token with a given secret, from the caller's random source.
    pub fn from_secret(role: Role, pin: Pin, secret: [u8; 32]) -> Self {
        let secret = blake3::Hash::from_bytes(secret).to_hex().to_string();
        Self {
            role,
            pins: vec![pin],
            secret: secret.into(),
        }
    }
    /// Adds pins of further authorities, so that the token survives the change from one of them to another. Pins beyond
    /// [`MAX_AUTHORITIES`] are ignored.
    pub fn with_pins(mut self, pins: impl IntoIterator<Item = Pin>) -> Self {
        for pin in pins {
            if self.pins.len() < MAX_AUTHORITIES && !self.pins.contains(&pin) {
                self.pins.push(pin);
            }
        }
        self
    }
    /// Role that the token enrols.
    pub fn role(&self) -> Role {
        self.role
    }
    /// Pins of the cluster's authorities, in the order of the text; at least one.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }
    /// Returns the blake3 digest of the secret part, lower-case hex, which may be stored and replicated.
    pub fn hash(&self) -> String {
        hash_secret(self.secret.expose_secret())
    }
    /// Returns the complete text, including the secret.
    pub fn expose(&self) -> SecretString {
        let secret = self.secret.expose_secret();
        let pins = join_pins(&self.pins, &BETWEEN_PINS.to_string());
        format!("{PREFIX}.{}.{pins}.{secret}", self.role.as_str()).into()
    }
    pub(crate) fn secret(&self) -> &SecretString {
        &self.secret
    }
}

/// Returns the stored form of a secret.
pub(crate) fn hash_secret(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({}, {:?})", self.role, self.pins)
    }
}

impl FromStr for JoinToken {
    type Err = InvalidToken;
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let fail = |reason| InvalidToken { reason };
        let parts: Vec<&str> = text.trim().split('.').collect();
        let [prefix, role, pins, secret] = parts.as_slice() else {
            return Err(fail("the form is lattice-join-1.<role>.<pins>.<secret>"));
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
        let pins: Vec<Pin> = pins
            .split(BETWEEN_PINS)
            .take(MAX_AUTHORITIES + 1)
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let [first, others @ ..] = pins.as_slice() else {
            return Err(fail("it has no pin"));
        };
        if pins.len() > MAX_AUTHORITIES {
            return Err(fail("it has more pins than a cluster has authorities"));
        }
        let token = Self {
            role,
            pins: vec![*first],
            secret: (*secret).into(),
        };
        Ok(token.with_pins(others.iter().copied()))
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
            (read.role(), read.pins(), read.hash()),
            (Role::Agent, &[Pin([7; 32])][..], token().hash())
        );
    }

    #[test]
    fn a_token_of_several_authorities_keeps_their_order_and_has_each_once() {
        let others = [Pin([3; 32]), Pin([7; 32]), Pin([5; 32])];
        let made = token().with_pins(others);
        let pins = [Pin([7; 32]), Pin([3; 32]), Pin([5; 32])];
        assert_eq!(made.pins(), pins);
        let text = made.expose();
        let read: JoinToken = text.expose_secret().parse().unwrap();
        assert_eq!((read.pins(), read.hash()), (&pins[..], token().hash()));
        let twice = format!("{0}+{0}", Pin([7; 32]));
        let twice = text
            .expose_secret()
            .replacen(&Pin([7; 32]).to_string(), &twice, 1);
        let read: JoinToken = twice.parse().unwrap();
        assert_eq!(read.pins(), pins);
    }

    #[test]
    fn a_token_has_at_most_as_many_pins_as_a_cluster_has_authorities() {
        let many = (1..=MAX_AUTHORITIES as u8 + 3).map(|n| Pin([n; 32]));
        let full = token().with_pins(many);
        assert_eq!(full.pins().len(), MAX_AUTHORITIES);
        let text = full.expose();
        assert!(text.expose_secret().parse::<JoinToken>().is_ok());
        let one_more = format!("+{}.", "ee".repeat(32));
        let (head, secret) = text.expose_secret().rsplit_once('.').unwrap();
        let error = format!("{head}{one_more}{secret}").parse::<JoinToken>();
        assert!(error.unwrap_err().to_string().contains("more pins"));
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
            format!("lattice-join-1.agent..{secret}"),
            format!("lattice-join-1.agent.{pin}+.{secret}"),
            format!("lattice-join-1.agent.{pin},{pin}.{secret}"),
            format!("lattice-join-1.agent.{pin}.short"),
            format!("lattice-join-1.agent.{pin}.{}", "G".repeat(64)),
        ] {
            let error = text.parse::<JoinToken>().unwrap_err();
            assert!(!error.to_string().contains(&secret));
        }
    }
}
