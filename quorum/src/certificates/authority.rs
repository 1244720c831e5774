//! Issuing keys of this member. The replicated state decides which of them issues. The keys stay in this process and in
//! their folder.

use lattice_mesh::{Authority, CaError};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::watch;

/// File name of an authority's certificate.
const CERT_FILE: &str = "ca.pem";

/// Issuing keys, replaceable while the member runs. Clones share them.
#[derive(Clone)]
pub(crate) struct Authorities(watch::Sender<Vec<Arc<Authority>>>);

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

impl Authorities {
    pub(crate) fn new(held: Vec<Arc<Authority>>) -> Self {
        Self(watch::Sender::new(held))
    }
    /// Replaces the keys.
    pub(crate) fn set(&self, held: Vec<Arc<Authority>>) {
        self.0.send_replace(held);
    }
    /// All keys.
    pub(crate) fn all(&self) -> Vec<Arc<Authority>> {
        self.0.borrow().clone()
    }
    /// Key with this pin.
    pub(crate) fn with_pin(&self, pin: &str) -> Option<Arc<Authority>> {
        let held = self.0.borrow();
        held.iter().find(|a| a.pin().to_string() == pin).cloned()
    }
    /// Subscribes to the keys and their changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Vec<Arc<Authority>>> {
        self.0.subscribe()
    }
}

/// Loads the authority in `folder` (`ca.pem` and `ca.key`), and those in its direct subfolders. A rotation places the
/// next authority in such a subfolder.
///
/// # Errors
/// No authority exists, or one of them cannot be used.
pub fn load_authorities(folder: &Path) -> Result<Vec<Arc<Authority>>, CaError> {
    let folders = authority_folders(folder)?.into_iter();
    folders
        .map(|folder| Ok(Arc::new(Authority::load(&folder)?)))
        .collect()
}

/// Folders of the authorities: `folder` itself, if it holds one, and then its subfolders that hold one, by name. Only
/// `folder` if no authority exists; an error of loading then names the missing file.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn authority_folders(folder: &Path) -> Result<Vec<PathBuf>, CaError> {
    let unreadable = |source| CaError::File {
        path: folder.to_owned(),
        source,
    };
    let mut below = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.join(CERT_FILE).exists() {
            below.push(path);
        }
    }
    below.sort();
    if folder.join(CERT_FILE).exists() || below.is_empty() {
        below.insert(0, folder.to_owned());
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use crate::certificates::authority::*;
    use lattice_mesh::{Clock, SystemClock, Validity};
    use std::time::Duration;

    fn authority() -> Authority {
        let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(3600));
        Authority::create("test", validity).unwrap()
    }

    #[test]
    fn next_authority_is_stored_with_present_one() {
        let folder = tempfile::tempdir().unwrap();
        let missing = load_authorities(folder.path()).unwrap_err();
        assert!(missing.to_string().contains("ca.key"), "{missing}");
        let (present, next) = (authority(), authority());
        next.save(&folder.path().join("next")).unwrap();
        let pins = || {
            let held = load_authorities(folder.path()).unwrap();
            held.iter().map(|a| a.pin()).collect::<Vec<_>>()
        };
        assert_eq!(pins(), [next.pin()]);
        present.save(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("notes")).unwrap();
        assert_eq!(pins(), [present.pin(), next.pin()]);
        let held = Authorities::new(load_authorities(folder.path()).unwrap());
        assert!(held.with_pin(&next.pin().to_string()).is_some());
        assert!(held.with_pin(&authority().pin().to_string()).is_none());
    }
}
