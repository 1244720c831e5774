//! Issuer of tokens for tests: a real HTTPS server with a discovery document and keys, which signs any token requested.

use super::fixture::server_tls;
use crate::Role;
use crate::{oidc::Issuer, oidc_config::OidcConfig};
use axum::{Json, Router, extract::State, routing::get};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use lattice_mesh::{Clock as _, SystemClock};
use ring::{
    rand::SystemRandom,
    signature::{
        self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair, RsaPublicKeyComponents,
    },
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
};
use tempfile::NamedTempFile;
use tokio::{net::TcpSocket, task::JoinHandle};

pub(super) const AUDIENCE: &str = "lattice";

/// A key pair with a key id.
pub(super) struct Pair {
    pub(super) id: String,
    keys: Keys,
}

enum Keys {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Pair {
    /// `ring` cannot generate RSA keys; this one was made for these tests only.
    pub(super) fn rsa(id: &str) -> Self {
        let pem = include_bytes!("issuer/rsa.pem");
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
        let keys = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
        Self {
            id: id.to_owned(),
            keys: Keys::Rsa(keys),
        }
    }

    pub(super) fn ec(id: &str) -> Self {
        let (how, random) = (
            &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            SystemRandom::new(),
        );
        let made = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        let keys = EcdsaKeyPair::from_pkcs8(how, made.as_ref(), &random).unwrap();
        Self {
            id: id.to_owned(),
            keys: Keys::Ec(keys),
        }
    }

    pub(super) fn ed(id: &str) -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let keys = Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap();
        Self {
            id: id.to_owned(),
            keys: Keys::Ed(keys),
        }
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match &self.keys {
            Keys::Rsa(_) => "RS256",
            Keys::Ec(_) => "ES256",
            Keys::Ed(_) => "EdDSA",
        }
    }

    /// Public key in the form published by the issuer.
    pub(super) fn public(&self) -> Value {
        let mut shown = match &self.keys {
            Keys::Rsa(pair) => {
                let public: RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({"kty": "RSA", "n": text(&public.n), "e": text(&public.e)})
            }
            Keys::Ec(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..])})
            }
            Keys::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref())})
            }
        };
        shown["kid"] = json!(self.id);
        shown["use"] = json!("sig");
        shown
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.keys {
            Keys::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let how = &signature::RSA_PKCS1_SHA256;
                pair.sign(how, &random, message, &mut signature).unwrap();
                signature
            }
            Keys::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Keys::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// Token with these claims.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_headed(
            &json!({"alg": self.algorithm(), "kid": self.id, "typ": "JWT"}),
            claims,
        )
    }

    /// Token with this header.
    pub(super) fn token_headed(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = text(&self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }
}

/// Text that is signed.
pub(super) fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| text(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

#[derive(Default)]
struct Shown {
    issuer: String,
    keys: Vec<Value>,
    asked: usize,
}

/// Issuer server; see the module.
pub(super) struct Idp {
    addr: SocketAddr,
    /// Bound and never listening, so that no other process gets the port while the issuer is down.
    _port: TcpSocket,
    tls: Arc<rustls::ServerConfig>,
    ca: NamedTempFile,
    shown: Arc<Mutex<Shown>>,
    serving: Option<(Handle<SocketAddr>, JoinHandle<()>)>,
}

impl Drop for Idp {
    fn drop(&mut self) {
        if let Some((handle, _)) = &self.serving {
            handle.shutdown();
        }
    }
}

impl Idp {
    /// An issuer that is down, with these keys.
    pub(super) fn down(keys: &[&Pair]) -> Self {
        let port = TcpSocket::new_v4().unwrap();
        port.set_reuseaddr(true).unwrap();
        port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = port.local_addr().unwrap();
        let (tls, pem) = server_tls();
        let ca = NamedTempFile::new().unwrap();
        std::fs::write(ca.path(), pem).unwrap();
        let idp = Self {
            addr,
            _port: port,
            tls,
            ca,
            shown: Arc::default(),
            serving: None,
        };
        idp.names_itself(&idp.url());
        idp.shows(keys);
        idp
    }

    /// An issuer that answers, with these keys.
    pub(super) fn up(keys: &[&Pair]) -> Self {
        let mut idp = Self::down(keys);
        idp.open();
        idp
    }

    pub(super) fn open(&mut self) {
        let listener = TcpListener::bind(self.addr).unwrap();
        listener.set_nonblocking(true).unwrap();
        let jwks = format!("{}/keys", self.url());
        let discovery = move |State(shown): State<Arc<Mutex<Shown>>>| async move {
            let issuer = shown.lock().unwrap().issuer.clone();
            Json(json!({"issuer": issuer, "jwks_uri": jwks, "other": 1}))
        };
        let keys = async |State(shown): State<Arc<Mutex<Shown>>>| {
            let mut shown = shown.lock().unwrap();
            shown.asked += 1;
            Json(json!({"keys": shown.keys}))
        };
        let app = Router::new()
            .route("/realm/.well-known/openid-configuration", get(discovery))
            .route("/realm/keys", get(keys))
            .with_state(self.shown.clone());
        let handle = Handle::new();
        let tls = RustlsConfig::from_config(self.tls.clone());
        let server = axum_server::from_tcp_rustls(listener, tls).unwrap();
        let serving = server.handle(handle.clone()).serve(app.into_make_service());
        let serving = tokio::spawn(async move { serving.await.unwrap() });
        self.serving = Some((handle, serving));
    }

    pub(super) async fn close(&mut self) {
        let (handle, serving) = self.serving.take().unwrap();
        handle.shutdown();
        serving.await.unwrap();
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}/realm", self.addr)
    }

    /// Sets the issuer name in the discovery document.
    pub(super) fn names_itself(&self, issuer: &str) {
        issuer.clone_into(&mut self.shown.lock().unwrap().issuer);
    }

    /// Replaces the published keys.
    pub(super) fn shows(&self, keys: &[&Pair]) {
        let mut public: Vec<Value> = keys.iter().map(|pair| pair.public()).collect();
        // Keys for other purposes or of unsupported kinds stand between the others.
        public.insert(0, json!({"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}));
        public.push(json!({"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB", "kid": "sealed"}));
        self.shown.lock().unwrap().keys = public;
    }

    /// Number of key requests received.
    pub(super) fn asked(&self) -> usize {
        self.shown.lock().unwrap().asked
    }

    pub(super) fn config(&self) -> OidcConfig {
        let roles = [
            ("look", Role::Viewer),
            ("work", Role::User),
            ("lead", Role::TenantAdmin),
            ("run", Role::Operator),
            ("own", Role::Admin),
            ("books", Role::Service),
        ];
        OidcConfig {
            issuer: self.url(),
            audience: AUDIENCE.to_owned(),
            ca_file: Some(self.ca.path().to_owned()),
            name_claim: None,
            roles_claim: "realm_access.roles".to_owned(),
            roles: BTreeMap::from(roles.map(|(word, role)| (word.to_owned(), role))),
            tenants_claim: None,
            leeway_s: 60,
            refresh_s: 3_600,
        }
    }

    /// Client side of this issuer, which keeps its keys up to date for the duration of the test.
    pub(super) fn trusted(&self, config: &OidcConfig) -> Arc<Issuer> {
        let issuer = Arc::new(Issuer::new(config).unwrap());
        tokio::spawn(issuer.clone().follow());
        issuer
    }

    /// Claims that identify `ada` as a user for five minutes.
    pub(super) fn claims(&self) -> Value {
        let now = SystemClock.now().0 / 1_000;
        json!({
            "iss": self.url(), "aud": [AUDIENCE, "account"], "sub": "f3a1", "preferred_username": "ada",
            "iat": now, "nbf": now, "exp": now + 300, "realm_access": {"roles": ["offline", "work"]},
        })
    }

    /// The same claims with changes; a null removes a claim.
    pub(super) fn claims_with(&self, changes: Value) -> Value {
        let mut claims = self.claims();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }
}
