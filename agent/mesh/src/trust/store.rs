//! Credentials on disk. A crash at any moment leaves a key and a certificate that belong together.
//!
//! The certificate decides which key is valid. A save first writes the new key to `identity.key.next`, then replaces
//! the certificate in one step, and then renames the new key to `identity.key`. A reader between the last two steps
//! finds the certificate's key in `identity.key.next`.

use super::{
    bundle::{BundleInForce, MAX_BUNDLE_BYTES, SignedBundle},
    credentials::{Credentials, CredentialsError, PrivateKey},
    reset::ResetKey,
};
use crate::pki::{
    atomic_file::{BeforeStep, rename, replace},
    certificate::CertificateFields,
    pem::to_pem,
};
use lattice_host::private_file::{self, PrivateFileError};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject};
use secrecy::{ExposeSecret, SecretString};
use std::{io, path::Path, sync::Arc};

const CHAIN_FILE: &str = "identity.pem";
const KEY_FILE: &str = "identity.key";
/// A new key, until its certificate is in place.
const NEXT_KEY_FILE: &str = "identity.key.next";
/// Key for stateless resets, which outlives the identity's key.
const RESET_FILE: &str = "identity.reset";
const ROOTS_FILE: &str = "roots.pem";
const BUNDLE_FILE: &str = "trust.bundle";
/// Size limit of the bundle file: the bundle's body with its signatures and pins.
const BUNDLE_FILE_BYTES: u64 = MAX_BUNDLE_BYTES as u64 + (16 << 10);

fn file_error(path: &Path, reason: impl ToString) -> CredentialsError {
    CredentialsError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

impl Credentials {
    /// Writes `identity.pem`, `identity.key` and `identity.reset` (the last two with mode 0600), `roots.pem` and, with
    /// a bundle, `trust.bundle`. A crash during the save leaves the old credentials or the new ones.
    pub fn save(&self, folder: &Path) -> Result<(), CredentialsError> {
        self.save_stepwise(folder, &mut |_| Ok(()))
    }

    /// Writes only the trust in force: `trust.bundle` and `roots.pem`.
    pub fn save_trust(&self, folder: &Path) -> Result<(), CredentialsError> {
        self.save_trust_stepwise(folder, &mut |_| Ok(()))
    }

    pub(crate) fn save_stepwise(
        &self,
        folder: &Path,
        before: BeforeStep<'_>,
    ) -> Result<(), CredentialsError> {
        let path = |name| folder.join(name);
        let create = |folder: &Path| std::fs::create_dir_all(folder);
        create(folder).map_err(|e| file_error(folder, e))?;
        finish_interrupted_save(folder, before).map_err(|e| file_error(&path(NEXT_KEY_FILE), e))?;
        let key = SecretString::from(self.key().pair()?.serialize_pem());
        let (next, chain) = (path(NEXT_KEY_FILE), path(CHAIN_FILE));
        let text = key.expose_secret().as_bytes();
        replace(&next, text, 0o600, before).map_err(|e| file_error(&next, e))?;
        let (reset, text) = (path(RESET_FILE), self.reset().to_text());
        let text = text.expose_secret().as_bytes();
        replace(&reset, text, 0o600, before).map_err(|e| file_error(&reset, e))?;
        let pem = to_pem(self.chain());
        replace(&chain, pem.as_bytes(), 0o644, before).map_err(|e| file_error(&chain, e))?;
        rename(&next, &path(KEY_FILE), before).map_err(|e| file_error(&next, e))?;
        self.save_trust_stepwise(folder, before)
    }

    /// Returns whether `folder` contains complete credentials. An interrupted first save does not count.
    pub fn are_in(folder: &Path) -> bool {
        // The files in the order in which they are written. The last one would suffice if no file was removed by hand.
        [CHAIN_FILE, ROOTS_FILE]
            .iter()
            .all(|name| folder.join(name).exists())
    }

    /// Names of the files of credentials that are missing in `folder`.
    pub fn missing_in(folder: &Path) -> Vec<&'static str> {
        let is_missing = |name: &&str| match *name {
            KEY_FILE => ![KEY_FILE, NEXT_KEY_FILE]
                .iter()
                .any(|name| folder.join(name).exists()),
            name => !folder.join(name).exists(),
        };
        let needed = [CHAIN_FILE, KEY_FILE, ROOTS_FILE];
        needed.into_iter().filter(is_missing).collect()
    }

    fn save_trust_stepwise(
        &self,
        folder: &Path,
        before: BeforeStep<'_>,
    ) -> Result<(), CredentialsError> {
        let (bundle, roots) = (folder.join(BUNDLE_FILE), folder.join(ROOTS_FILE));
        if let Some(signed) = self.bundle() {
            let saved = match signed.to_file() {
                Ok(bytes) => replace(&bundle, &bytes, 0o644, before),
                Err(reason) => Err(io::Error::other(reason)),
            };
            saved.map_err(|e| file_error(&bundle, e))?;
        }
        let pem = to_pem(self.roots());
        replace(&roots, pem.as_bytes(), 0o644, before).map_err(|e| file_error(&roots, e))?;
        if self.bundle().is_none() && bundle.exists() {
            // The bundle is from an earlier membership; its authorities are no longer trusted. It is removed last:
            // with its roots on disk but without its number, older bundles of that membership would be accepted again.
            let removed = before(&bundle).and_then(|()| remove(&bundle));
            removed.map_err(|e| file_error(&bundle, e))?;
        }
        Ok(())
    }

    /// Reads the credentials that [`Credentials::save`] wrote. Rejects a key that other users can read.
    ///
    /// A saved bundle is verified against the authorities that it names itself. That check detects a damaged file,
    /// which must not pass for "nothing is revoked". The check is no defence against an attacker with write access to
    /// the folder: such an attacker could also write `roots.pem`, or copy the key.
    pub fn load(folder: &Path) -> Result<Self, CredentialsError> {
        let read_certificates = |name: &str| {
            let path = folder.join(name);
            CertificateDer::pem_file_iter(&path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|e| file_error(&path, e))
        };
        let chain = read_certificates(CHAIN_FILE);
        let key = read_key(folder, chain.as_deref().ok().and_then(<[_]>::first))?;
        let read = Self::new(chain?, key, read_certificates(ROOTS_FILE)?)?;
        // Without a usable reset file, or with one that other users can read, the reset key is derived from the present
        // private key. Peers of an earlier run then wait for their timeout.
        let reset = folder.join(RESET_FILE);
        let reset = private_file::read(&reset).ok();
        let reset = reset.and_then(|text| ResetKey::from_text(text.expose_secret()));
        let read = match reset {
            Some(reset) => read.with_reset(reset),
            None => read,
        };
        match read_bundle(&folder.join(BUNDLE_FILE))? {
            None => Ok(read),
            Some(in_force) if in_force.bundle.cluster != read.identity().cluster() => {
                let (found, own) = (&in_force.bundle.cluster, read.identity());
                let reason =
                    format!("the bundle belongs to cluster {found}, but the certificate to {own}");
                Err(file_error(&folder.join(BUNDLE_FILE), reason))
            }
            Some(in_force) => Ok(read.with_trust(Arc::new(in_force))),
        }
    }
}

/// Reads the key of `leaf` from its file, or from `identity.key.next` after a crash.
fn read_key(
    folder: &Path,
    leaf: Option<&CertificateDer<'_>>,
) -> Result<PrivateKey, CredentialsError> {
    let key = read_key_file(&folder.join(KEY_FILE));
    let belongs = |key: &PrivateKey| leaf.is_some_and(|leaf| is_key_of(key, leaf));
    if key.as_ref().is_ok_and(&belongs) {
        return key;
    }
    match read_key_file(&folder.join(NEXT_KEY_FILE)) {
        Ok(next) if belongs(&next) => Ok(next),
        _ => key,
    }
}

fn is_key_of(key: &PrivateKey, leaf: &CertificateDer<'_>) -> bool {
    CertificateFields::read(leaf)
        .is_ok_and(|leaf| key.public().is_ok_and(|public| public == leaf.public_key))
}

fn read_key_file(path: &Path) -> Result<PrivateKey, CredentialsError> {
    let pem = private_file::read(path).map_err(|error| match error {
        PrivateFileError::Exposed(exposed) => exposed.into(),
        PrivateFileError::Unreadable { source, .. } => file_error(path, source),
    })?;
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem.expose_secret().as_bytes());
    let key = key.map_err(|e| file_error(path, e))?;
    Ok(PrivateKey::from_pkcs8(key.secret_pkcs8_der()))
}

fn read_bundle(path: &Path) -> Result<Option<BundleInForce>, CredentialsError> {
    let unusable = |reason: String| {
        let advice = "; remove it to trust roots.pem until a member sends the current trust bundle";
        file_error(path, reason + advice)
    };
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(file_error(path, e)),
        Ok(metadata) if metadata.len() > BUNDLE_FILE_BYTES => {
            return Err(unusable("it is too large".to_owned()));
        }
        Ok(_) => {}
    }
    let bytes = std::fs::read(path).map_err(|e| file_error(path, e))?;
    let signed = SignedBundle::from_file(&bytes).map_err(unusable)?;
    let bundle = signed
        .verify_by_itself()
        .map_err(|e| unusable(e.to_string()))?;
    Ok(Some(BundleInForce { signed, bundle }))
}

/// Completes or undoes a save that a crash interrupted. If the key in `identity.key.next` belongs to the certificate,
/// the file is renamed to `identity.key`; otherwise it is removed. Without this step, a later save could overwrite the
/// only valid key.
fn finish_interrupted_save(folder: &Path, before: BeforeStep<'_>) -> io::Result<()> {
    let next = folder.join(NEXT_KEY_FILE);
    if !next.exists() {
        return Ok(());
    }
    let leaf = CertificateDer::from_pem_file(folder.join(CHAIN_FILE)).ok();
    let belongs = |key: &PrivateKey| leaf.as_ref().is_some_and(|leaf| is_key_of(key, leaf));
    if read_key_file(&next).as_ref().is_ok_and(belongs) {
        rename(&next, &folder.join(KEY_FILE), before)
    } else {
        before(&next)?;
        remove(&next)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
