//! As much of JOSE as it takes to judge a signed token: its compact form (RFC 7515), public keys as
//! JSON (RFC 7517), and which signatures a key makes (RFC 7518, RFC 8037). Nothing here signs, decrypts,
//! or fetches anything, and whatever a token says of keys itself (`jwk`, `jku`, `x5c`, `x5u`) is not read.
//!
//! **A key has one algorithm**, which comes with it from the issuer. A token that names another is
//! refused before anything is computed: so there is no `none`, and no public key is ever taken for the
//! secret of an HMAC.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt;

/// Keys read of one issuer: more than any has, and few enough to look through.
const MAX_KEYS: usize = 64;
/// The types of tokens that let somebody in. Issuers sign others with the same keys, for the same
/// audience: that somebody left is one.
const TYPES: [&str; 2] = ["jwt", "at+jwt"];

/// What a key signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    const ALL: [Algorithm; 9] = [
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::EdDsa,
    ];

    fn is_named(self, name: &str) -> bool {
        match self {
            Algorithm::Rs256 => name == "RS256",
            Algorithm::Rs384 => name == "RS384",
            Algorithm::Rs512 => name == "RS512",
            Algorithm::Ps256 => name == "PS256",
            Algorithm::Ps384 => name == "PS384",
            Algorithm::Ps512 => name == "PS512",
            Algorithm::Es256 => name == "ES256",
            Algorithm::Es384 => name == "ES384",
            // By its curve, as it is called since RFC 9864.
            Algorithm::EdDsa => matches!(name, "EdDSA" | "Ed25519"),
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.is_named(name))
    }
}

/// A public key of the issuer's.
#[derive(Clone)]
pub(super) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    Point(Vec<u8>),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {:?})", self.id, self.algorithm)
    }
}

/// A key as JSON, as far as it is read.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Key {
    /// `None` for what is no key to check signatures with, or one of a kind that is not taken.
    fn read(jwk: &Jwk) -> Option<Self> {
        let is_for = |word: &str, given: &Option<String>| given.as_ref().is_none_or(|g| g == word);
        let verifies = |ops: &Vec<String>| ops.iter().any(|op| op == "verify");
        if !is_for("sig", &jwk.purpose) || !jwk.key_ops.as_ref().is_none_or(verifies) {
            return None;
        }
        let algorithm = |usual: Algorithm| match &jwk.alg {
            None => Some(usual),
            Some(name) => Algorithm::named(name),
        };
        let (algorithm, material) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", None) => (algorithm(Algorithm::Rs256)?, rsa(jwk)?),
            ("EC", Some("P-256")) => (algorithm(Algorithm::Es256)?, point(jwk, 32)?),
            ("EC", Some("P-384")) => (algorithm(Algorithm::Es384)?, point(jwk, 48)?),
            ("OKP", Some("Ed25519")) => {
                let x = bytes(jwk.x.as_ref()?).filter(|x| x.len() == 32)?;
                (algorithm(Algorithm::EdDsa)?, Material::Point(x))
            }
            _ => return None,
        };
        let fits = match (&material, jwk.kty.as_str()) {
            (Material::Rsa(_), _) => matches!(
                algorithm,
                Algorithm::Rs256
                    | Algorithm::Rs384
                    | Algorithm::Rs512
                    | Algorithm::Ps256
                    | Algorithm::Ps384
                    | Algorithm::Ps512
            ),
            (Material::Point(point), "EC") => match algorithm {
                Algorithm::Es256 => point.len() == 65,
                Algorithm::Es384 => point.len() == 97,
                _ => false,
            },
            (Material::Point(_), _) => algorithm == Algorithm::EdDsa,
        };
        fits.then(|| Self {
            id: jwk.kid.clone(),
            algorithm,
            material,
        })
    }

    /// Whether the token is this key's.
    pub(super) fn signed(&self, token: &Token<'_>) -> bool {
        if !self.algorithm.is_named(&token.header.alg) {
            return false;
        }
        let (message, signature) = (token.signed.as_bytes(), &token.signature);
        match &self.material {
            Material::Rsa(key) => {
                let how = match self.algorithm {
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => &signature::RSA_PKCS1_2048_8192_SHA256,
                };
                key.verify(how, message, signature).is_ok()
            }
            Material::Point(point) => {
                let how: &'static dyn signature::VerificationAlgorithm = match self.algorithm {
                    Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
                    Algorithm::EdDsa => &signature::ED25519,
                    _ => &signature::ECDSA_P256_SHA256_FIXED,
                };
                let key = UnparsedPublicKey::new(how, point);
                key.verify(message, signature).is_ok()
            }
        }
    }
}

fn bytes(text: &String) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn rsa(jwk: &Jwk) -> Option<Material> {
    // Some write a zero before a number that would look negative elsewhere.
    let number = |text: &String| {
        let bytes = bytes(text)?;
        let first = bytes.iter().position(|byte| *byte != 0)?;
        Some(bytes[first..].to_vec())
    };
    Some(Material::Rsa(RsaPublicKeyComponents {
        n: number(jwk.n.as_ref()?)?,
        e: number(jwk.e.as_ref()?)?,
    }))
}

/// A point of a curve, uncompressed (SEC 1).
fn point(jwk: &Jwk, coordinate: usize) -> Option<Material> {
    let read = |text: &Option<String>| {
        let bytes = bytes(text.as_ref()?)?;
        (bytes.len() == coordinate).then_some(bytes)
    };
    let (x, y) = (read(&jwk.x)?, read(&jwk.y)?);
    Some(Material::Point([&[4], &x[..], &y[..]].concat()))
}

/// The keys of an issuer, as it publishes them.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys(Vec<Key>);

impl Keys {
    /// Reads a set of keys. What is no key for signatures, or of a kind that is not taken, is passed over.
    pub(super) fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Box<RawValue>>,
        }
        let set: Set = serde_json::from_slice(text)?;
        let keys = set.keys.iter().filter_map(|key| {
            let jwk: Jwk = serde_json::from_str(key.get()).ok()?;
            Key::read(&jwk)
        });
        Ok(Self(keys.take(MAX_KEYS).collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The key that a token names; of an issuer with one key alone, that one for a token that names none.
    pub(super) fn of(&self, token: &Token<'_>) -> Option<&Key> {
        match (&token.header.kid, self.0.as_slice()) {
            // Two keys of one name are told apart by what they sign with.
            (Some(id), keys) => {
                let mut named = keys.iter().filter(|key| key.id.as_ref() == Some(id));
                let first = named.clone().next();
                named
                    .find(|key| key.algorithm.is_named(&token.header.alg))
                    .or(first)
            }
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }
}

/// A signed token that was taken apart, and not judged.
pub(super) struct Token<'a> {
    header: Header,
    /// What the signature is of.
    signed: &'a str,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that must be understood; none is.
    crit: Option<serde_json::Value>,
}

impl<'a> Token<'a> {
    /// Whether a text has the form of one: three parts of base64.
    pub(super) fn looks_like_one(text: &str) -> bool {
        let is_base64 = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        let parts = text.split('.');
        // An unsigned one has an empty third part: what it is, is said of it as well.
        let is_part = |part: &str| part.bytes().all(is_base64);
        text.starts_with("ey") && parts.clone().count() == 3 && parts.clone().all(is_part)
    }

    /// Takes a token apart. An error is what is wrong with it, and holds nothing of it.
    pub(super) fn read(text: &'a str) -> Result<Self, &'static str> {
        let (signed, signature) = text.rsplit_once('.').ok_or("it has no signature")?;
        let (header, payload) = signed.split_once('.').ok_or("it has no payload")?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part);
        let header = decode(header).map_err(|_| "its header is not base64")?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|_| "its header is not JSON with `alg`")?;
        if Algorithm::named(&header.alg).is_none() {
            return Err("it is signed with none of RS, PS, ES (256, 384) and EdDSA");
        }
        if header.crit.is_some() {
            return Err("it demands extensions (`crit`)");
        }
        let is_taken = |typ: &String| {
            let typ = typ.to_ascii_lowercase();
            let typ = typ.strip_prefix("application/").unwrap_or(&typ);
            TYPES.contains(&typ)
        };
        if !header.typ.as_ref().is_none_or(is_taken) {
            return Err("by its `typ` it lets nobody in");
        }
        Ok(Self {
            header,
            signed,
            payload: decode(payload).map_err(|_| "its payload is not base64")?,
            signature: decode(signature).map_err(|_| "its signature is not base64")?,
        })
    }

    /// Whether it says which key it is of.
    pub(super) fn names_key(&self) -> bool {
        self.header.kid.is_some()
    }

    /// What it says; to be believed once a key of the issuer's [signed](Key::signed) it.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}
