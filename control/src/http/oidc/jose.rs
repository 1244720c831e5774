//! Signatures of an issuer's tokens: keys (RFC 7517), compact form (RFC 7515), verification.
//!
//! `jsonwebtoken` reads the keys and names the algorithms. [`RING`] makes `ring`, the TLS provider, verify
//! for it: its own two providers are AWS-LC, which the build denies, and RustCrypto, whose `rsa` has an open
//! advisory. Three things stay here because the crate does not keep them: `crit` is refused (it is ignored
//! there), `Ed25519` is an algorithm (RFC 9864), and times are checked by the injected clock (`claims.rs`).
//!
//! **A key has one algorithm**, published with it by the issuer. Verification uses that one; a token that
//! names another is refused before anything is computed. Therefore `none` does not exist, and no public key
//! can become the secret of an HMAC. Keys inside a token (`jwk`, `jku`, `x5c`, `x5u`) are not even parsed.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind,
    crypto::{self, CryptoProvider, JwtVerifier, KeyUtils},
    errors::{ErrorKind, new_error},
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
    signature::{Error as SignatureError, Verifier},
};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

/// Limit on the keys of one issuer: more than any publishes, and few enough for a linear search.
const MAX_KEYS: usize = 64;
/// Accepted token types. Issuers sign others, such as logout notices, with the same keys for the same
/// audience.
const TYPES: [&str; 2] = ["jwt", "at+jwt"];
/// Name of `EdDSA` over Ed25519 since RFC 9864.
const ED25519: &str = "Ed25519";
const EDDSA: &str = "EdDSA";

/// Verification by `ring`; signing and key conversion are not offered.
static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: |algorithm, key| {
        let (algorithm, key) = (*algorithm, key.clone());
        Ok(Box::new(RingVerifier { algorithm, key }))
    },
    key_utils: KeyUtils::new_unimplemented(),
};

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let verified = match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let how = match self.algorithm {
                    Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return Err(SignatureError::new()),
                };
                let (n, e) = (significant(n), significant(e));
                RsaPublicKeyComponents { n, e }.verify(how, message, signature)
            }
            DecodingKeyKind::SecretOrDer(point) => {
                let how: &'static dyn signature::VerificationAlgorithm = match self.algorithm {
                    Algorithm::ES256 => &signature::ECDSA_P256_SHA256_FIXED,
                    Algorithm::ES384 => &signature::ECDSA_P384_SHA384_FIXED,
                    Algorithm::EdDSA => &signature::ED25519,
                    _ => return Err(SignatureError::new()),
                };
                UnparsedPublicKey::new(how, point).verify(message, signature)
            }
        };
        verified.map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// A number without leading zeros: some issuers write one before a first byte above 127.
fn significant(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// The signature algorithm of this name. HMAC is not one: its key is shared, not published.
fn algorithm(name: &str) -> Option<Algorithm> {
    let name = if name == ED25519 { EDDSA } else { name };
    let found = name.parse::<Algorithm>().ok()?;
    (found.family() != AlgorithmFamily::Hmac).then_some(found)
}

/// A public key of the issuer.
#[derive(Clone)]
pub(super) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {:?})", self.id, self.algorithm)
    }
}

impl Key {
    /// `None` for a key that does not verify signatures, or of an unsupported kind.
    fn read(mut jwk: Value) -> Option<Self> {
        if jwk.get("alg").and_then(Value::as_str) == Some(ED25519) {
            jwk["alg"] = EDDSA.into();
        }
        let jwk: Jwk = serde_json::from_value(jwk).ok()?;
        let purpose = jwk.common.public_key_use.as_ref();
        let operations = jwk.common.key_operations.as_ref();
        if purpose.is_some_and(|purpose| *purpose != PublicKeyUse::Signature)
            || operations.is_some_and(|all| !all.contains(&KeyOperations::Verify))
        {
            return None;
        }
        let (usual, point_bytes) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, None),
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => (Algorithm::ES256, Some(65)),
                EllipticCurve::P384 => (Algorithm::ES384, Some(97)),
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                (Algorithm::EdDSA, Some(32))
            }
            _ => return None,
        };
        let algorithm = match jwk.common.key_algorithm {
            None => usual,
            Some(named) => Algorithm::try_from(named).ok()?,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let fits = match point_bytes {
            None => algorithm.family() == AlgorithmFamily::Rsa,
            // A curve has one algorithm.
            Some(length) => algorithm == usual && key.try_get_as_bytes().ok()?.len() == length,
        };
        fits.then_some(Self {
            id: jwk.common.key_id,
            algorithm,
            key,
        })
    }

    /// Whether this key signed the token.
    pub(super) fn signed(&self, token: &Token<'_>) -> bool {
        self.algorithm == token.algorithm
            && crypto::verify(
                token.signature,
                token.signed.as_bytes(),
                &self.key,
                self.algorithm,
            )
            .unwrap_or(false)
    }
}

/// The published keys of an issuer.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys(Vec<Key>);

impl Keys {
    /// Reads a set of keys. Keys for other purposes, or of unsupported kinds, are skipped.
    pub(super) fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        // Without a provider the crate panics at the first verification, which takes a key. A second
        // installation changes nothing.
        let _ = RING.install_default();
        let set: Set = serde_json::from_slice(text)?;
        let keys = set.keys.into_iter().filter_map(Key::read);
        Ok(Self(keys.take(MAX_KEYS).collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The key that a token names. A token without a name is matched with the key of an issuer that has
    /// one only.
    pub(super) fn of(&self, token: &Token<'_>) -> Option<&Key> {
        match (&token.key_id, self.0.as_slice()) {
            // Keys of one name differ by their algorithm.
            (Some(id), keys) => {
                let mut named = keys.iter().filter(|key| key.id.as_ref() == Some(id));
                let first = named.clone().next();
                named.find(|key| key.algorithm == token.algorithm).or(first)
            }
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }
}

/// A signed token, parsed and not verified.
pub(super) struct Token<'a> {
    algorithm: Algorithm,
    key_id: Option<String>,
    /// The bytes under the signature.
    signed: &'a str,
    payload: Vec<u8>,
    /// In base64.
    signature: &'a str,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that a recipient must understand; none is supported.
    crit: Option<Value>,
}

impl<'a> Token<'a> {
    /// Whether a text has the form of a signed token: three parts of base64.
    pub(super) fn looks_like_one(text: &str) -> bool {
        let is_base64 = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        let parts = text.split('.');
        // The third part of an unsigned token is empty: such a token gets its own error text.
        let is_part = |part: &str| part.bytes().all(is_base64);
        text.starts_with("ey") && parts.clone().count() == 3 && parts.clone().all(is_part)
    }

    /// Parses a token. The error text contains nothing of the token.
    pub(super) fn read(text: &'a str) -> Result<Self, &'static str> {
        let (signed, signature) = text.rsplit_once('.').ok_or("it has no signature")?;
        let (header, payload) = signed.split_once('.').ok_or("it has no payload")?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part);
        let header = decode(header).map_err(|_| "its header is not base64")?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|_| "its header is not JSON with `alg`")?;
        let Some(algorithm) = algorithm(&header.alg) else {
            return Err("it is signed with none of RS, PS, ES (256, 384) and EdDSA");
        };
        if header.crit.is_some() {
            return Err("it demands extensions (`crit`)");
        }
        let is_accepted = |typ: &String| {
            let typ = typ.to_ascii_lowercase();
            let typ = typ.strip_prefix("application/").unwrap_or(&typ);
            TYPES.contains(&typ)
        };
        if !header.typ.as_ref().is_none_or(is_accepted) {
            return Err("by its `typ` it lets nobody in");
        }
        decode(signature).map_err(|_| "its signature is not base64")?;
        Ok(Self {
            algorithm,
            key_id: header.kid,
            signed,
            payload: decode(payload).map_err(|_| "its payload is not base64")?,
            signature,
        })
    }

    /// Whether its header names a key.
    pub(super) fn names_key(&self) -> bool {
        self.key_id.is_some()
    }

    /// The claims, to be used only after an issuer's key [signed](Key::signed) the token.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}
