//! Files that are whole or not there.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes `bytes` so that after a crash the file is the old one, the new one, or (if there was
/// none) not there. Mode 0600.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = write_whole(path, bytes, Sync::Data)?;
    folder.sync_all()
}

/// The same without waiting for the disk: readers never see half of it, a crash of the machine
/// may lose it.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_whole(path, bytes, Sync::None).map(drop)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    None,
    Data,
}

fn write_whole(path: &Path, bytes: &[u8], sync: Sync) -> io::Result<File> {
    let no_name = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "a file needs a name and a folder",
        )
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(no_name());
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(hidden);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    if sync == Sync::Data {
        file.sync_all()?;
    }
    std::fs::rename(&temporary, path)?;
    File::open(folder)
}
