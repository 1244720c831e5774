//! Cryptography provider of rustls: ring.

use rustls::crypto::CryptoProvider;
use std::sync::Arc;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
