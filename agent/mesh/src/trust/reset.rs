//! Connection ids and stateless resets that survive a restart.
//!
//! A killed process has lost the state of its old connections. With quinn's defaults, which are random keys, the
//! restarted process cannot reset them. Peers would then keep sending until their idle timeout, half a minute. With a
//! reset key derived from the private key, the restarted process answers the first packet with a reset. Its peer
//! accepts the reset and dials again. A renewal creates a new private key; the reset key stays the same, and is saved
//! in a separate file.

use quinn::{
    ConnectionId, ConnectionIdGenerator,
    crypto::{CryptoError, HmacKey},
};
use secrecy::SecretString;
use std::time::Duration;

const ID_BYTES: usize = 8;

/// Random connection ids. A reset is valid for every id, including those of an earlier run.
pub(crate) struct RandomConnectionIds;

impl ConnectionIdGenerator for RandomConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&rand::random::<[u8; ID_BYTES]>())
    }
    fn cid_len(&self) -> usize {
        ID_BYTES
    }
    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Keyed blake3 under a key derived from the first private key of the process's identity. A holder of the reset key can
/// end the connections of the process, and nothing else.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ResetKey([u8; 32]);

impl ResetKey {
    pub(crate) fn derive(private_key: &[u8]) -> Self {
        Self(blake3::derive_key(
            "lattice mesh 1 stateless reset",
            private_key,
        ))
    }

    /// Returns the form in which the key is saved.
    pub(crate) fn to_text(&self) -> SecretString {
        blake3::Hash::from_bytes(self.0).to_hex().to_string().into()
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text.trim()).ok()?;
        Some(Self(*hash.as_bytes()))
    }
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], out: &mut [u8]) {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(data);
        hasher.finalize_xof().fill(out);
    }
    fn signature_len(&self) -> usize {
        32
    }
    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        // The comparison in blake3 takes constant time.
        let signature: [u8; 32] = signature.try_into().map_err(|_| CryptoError)?;
        let expected = blake3::keyed_hash(&self.0, data);
        if expected == blake3::Hash::from_bytes(signature) {
            Ok(())
        } else {
            Err(CryptoError)
        }
    }
}
