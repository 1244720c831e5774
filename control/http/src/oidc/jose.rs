//! Signatures of an issuer's tokens: keys (RFC 7517), compact form (RFC 7515), verification.
//!
//! The crate `jsonwebtoken` reads the keys and names the algorithms. [`RING`] makes it verify with `ring`, the TLS
//! provider. The crate's own two providers are AWS-LC, which the build denies, and RustCrypto, which uses an `rsa`
//! crate with an open advisory. This module implements what the crate lacks: it rejects tokens with `crit` (the crate
//! ignores `crit`), and it accepts the algorithm name `Ed25519` (RFC 9864). `claims.rs` checks times by the injected
//! clock.
//!
//! **A key has one algorithm**: the one that the issuer publishes with the key, or else the usual one of its kind. A
//! token that names another algorithm is rejected before any computation. Therefore the algorithm `none` is never
//! accepted, and a public key cannot be misused as the secret of an HMAC. Keys inside a token (`jwk`, `jku`, `x5c`,
//! `x5u`) are not parsed.

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

/// Maximum number of keys of one issuer: more than any issuer publishes, and few enough for a linear search.
const MAX_KEYS: usize = 64;
/// Accepted token types. Issuers sign tokens of other types, such as logout tokens, with the same keys for the same
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
                let (n, e) = (without_leading_zeros(n), without_leading_zeros(e));
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

/// Number without leading zero bytes. Some issuers write a zero byte before a first byte above 127.
fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// Signature algorithm of this name. HMAC algorithms are rejected: their key is a shared secret, not published.
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
    /// Parses a key; `None` for a key that does not verify signatures, or of an unsupported kind.
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
    pub(super) fn verifies(&self, token: &Token<'_>) -> bool {
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
    /// Reads a set of keys. Keys for other purposes or of unsupported kinds, and usable keys beyond [`MAX_KEYS`], are
    /// skipped.
    pub(super) fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        // Without an installed provider, the crate panics at the first verification. A repeated installation has no
        // effect.
        let _ = RING.install_default();
        let set: Set = serde_json::from_slice(text)?;
        let keys = set.keys.into_iter().filter_map(Key::read);
        Ok(Self(keys.take(MAX_KEYS).collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Key that a token names. A token that names no key matches only if the issuer has exactly one key.
    pub(super) fn for_token(&self, token: &Token<'_>) -> Option<&Key> {
        match (&token.key_id, self.0.as_slice()) {
            // Keys with the same name differ in their algorithm.
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
    /// Signed part: header and payload, in base64.
    signed: &'a str,
    payload: Vec<u8>,
    /// Signature, in base64.
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
    pub(super) fn has_token_form(text: &str) -> bool {
        let is_base64 = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        let parts = text.split('.');
        // The third part of an unsigned token is empty. Such a token passes here; `read` returns a specific error.
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
            return Err("its algorithm is not one of RS, PS, ES (256, 384) and EdDSA");
        };
        if header.crit.is_some() {
            return Err("it requires extensions (`crit`)");
        }
        let is_accepted = |typ: &String| {
            let typ = typ.to_ascii_lowercase();
            let typ = typ.strip_prefix("application/").unwrap_or(&typ);
            TYPES.contains(&typ)
        };
        if !header.typ.as_ref().is_none_or(is_accepted) {
            return Err("its `typ` is not that of an access token");
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

    /// Whether the token's header names a key.
    pub(super) fn names_key(&self) -> bool {
        self.key_id.is_some()
    }

    /// The claims, to be used only after an issuer's key [signed](Key::verifies) the token.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use ring::{
        rand::SystemRandom,
        signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair},
    };
    use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
    use serde_json::json;

    fn encoded(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Token with this header; `sign` computes the signature of the given bytes.
    fn token(header: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let message = format!("{}.e30", encoded(header.to_string().as_bytes()));
        let signature = encoded(&sign(message.as_bytes()));
        format!("{message}.{signature}")
    }

    fn keys(all: &[Value]) -> Keys {
        Keys::read(json!({ "keys": all }).to_string().as_bytes()).unwrap()
    }

    fn verified(keys: &Keys, token: &str) -> bool {
        let token = Token::read(token).unwrap();
        keys.for_token(&token)
            .is_some_and(|key| key.verifies(&token))
    }

    /// RSA public key in JSON form, and the key pair to sign with.
    fn rsa(alg: &str) -> (Value, RsaKeyPair) {
        let pem = include_bytes!("../tests/issuer/rsa.pem");
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
        let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
        let public: RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
        // Some issuers write a leading zero.
        let modulus = [&[0], &public.n[..]].concat();
        let (n, e) = (encoded(&modulus), encoded(&public.e));
        (json!({"kty": "RSA", "alg": alg, "n": n, "e": e}), pair)
    }

    #[test]
    fn verifies_each_rsa_algorithm_with_its_own_key() {
        let all: [(&str, &dyn RsaEncoding); 6] = [
            ("RS256", &signature::RSA_PKCS1_SHA256),
            ("RS384", &signature::RSA_PKCS1_SHA384),
            ("RS512", &signature::RSA_PKCS1_SHA512),
            ("PS256", &signature::RSA_PSS_SHA256),
            ("PS384", &signature::RSA_PSS_SHA384),
            ("PS512", &signature::RSA_PSS_SHA512),
        ];
        for (alg, how) in all {
            let signed = token(&json!({ "alg": alg }), |message| {
                let (_, pair) = rsa(alg);
                let mut signature = vec![0; pair.public().modulus_len()];
                let random = SystemRandom::new();
                pair.sign(how, &random, message, &mut signature).unwrap();
                signature
            });
            for (of_key, _) in all {
                let is_its_own = of_key == alg;
                assert_eq!(
                    verified(&keys(&[rsa(of_key).0]), &signed),
                    is_its_own,
                    "{alg} {of_key}"
                );
            }
        }
    }

    #[test]
    fn verifies_curves_by_both_names_of_ed25519() {
        let random = SystemRandom::new();
        let how = &signature::ECDSA_P384_SHA384_FIXED_SIGNING;
        let made = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(how, made.as_ref(), &random).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
        let public = json!({"kty": "EC", "crv": "P-384", "x": encoded(x), "y": encoded(y)});
        let signed = token(&json!({"alg": "ES384"}), |message| {
            pair.sign(&random, message).unwrap().as_ref().to_vec()
        });
        assert!(verified(&keys(&[public]), &signed));

        let made = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap();
        let x = encoded(pair.public_key().as_ref());
        for of_key in [json!(null), json!("EdDSA"), json!("Ed25519")] {
            let mut public = json!({"kty": "OKP", "crv": "Ed25519", "x": x});
            if !of_key.is_null() {
                public["alg"] = of_key;
            }
            for alg in ["EdDSA", "Ed25519"] {
                let signed = token(&json!({ "alg": alg }), |message| {
                    pair.sign(message).as_ref().to_vec()
                });
                assert!(
                    verified(&keys(&[public.clone()]), &signed),
                    "{public} {alg}"
                );
            }
        }
    }

    #[test]
    fn skips_keys_that_do_not_verify_signatures() {
        let (good, _) = rsa("RS256");
        let with = |name: &str, value: Value| {
            let mut key = good.clone();
            key[name] = value;
            key
        };
        let x = encoded(&[1; 32]);
        let (short, coordinate) = (encoded(&[1; 31]), encoded(&[1; 32]));
        for skipped in [
            with("use", json!("enc")),
            with("key_ops", json!(["sign"])),
            with("alg", json!("HS256")),
            with("alg", json!("ES256")),
            with("alg", json!("RSA-OAEP")),
            with("alg", json!("none")),
            with("n", json!("?")),
            json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
            json!({"kty": "OKP", "crv": "X25519", "x": x}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": short}),
            json!({"kty": "OKP", "crv": "Ed25519", "alg": "ECDH-ES", "x": x}),
            json!({"kty": "EC", "crv": "P-256", "x": short, "y": coordinate}),
            json!({"kty": "EC", "crv": "P-256", "alg": "ES384", "x": coordinate, "y": coordinate}),
            json!({"kty": "EC", "crv": "P-521", "x": coordinate, "y": coordinate}),
            json!({"kty": "EC", "crv": "Ed25519", "x": coordinate, "y": coordinate}),
            json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"}),
            json!(7),
        ] {
            assert_eq!(keys(std::slice::from_ref(&skipped)).len(), 0, "{skipped}");
        }
        assert_eq!(keys(&[with("use", json!("sig"))]).len(), 1);
        assert_eq!(keys(&[with("key_ops", json!(["verify"]))]).len(), 1);
    }
}
