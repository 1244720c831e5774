//! Files of keys and certificates: each is replaced in one step, and a crash leaves the old content or the new one.

use lattice_host::durable::{NewFile, sync_folder_of};
use secrecy::{ExposeSecret, SecretString};
use std::{
    io::{self, Write as _},
    path::Path,
};

/// Callback before each file operation of a save, with the affected path; tests simulate a crash in it.
pub(crate) type BeforeStep<'a> = &'a mut dyn FnMut(&Path) -> io::Result<()>;

/// Renames a file and flushes its folder, so that the rename is durable before the next step.
pub(crate) fn rename(from: &Path, to: &Path, before: BeforeStep<'_>) -> io::Result<()> {
    before(to)?;
    std::fs::rename(from, to)?;
    // The order of two renames survives a loss of power only if the folder is synced in between.
    sync_folder_of(to)
}

/// Writes a secret text so that no other user can read it at any moment.
pub(crate) fn write_secret(path: &Path, text: &SecretString) -> io::Result<()> {
    replace(
        path,
        text.expose_secret().as_bytes(),
        0o600,
        &mut |_| Ok(()),
    )
}

/// Replaces a file atomically: a reader finds the old content or the new one, also after a crash.
pub(crate) fn replace(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    before: BeforeStep<'_>,
) -> io::Result<()> {
    before(&NewFile::temporary_path(path)?)?;
    let mut file = NewFile::create(path, mode)?;
    file.write_all(bytes)?;
    before(path)?;
    file.commit()
}
