//! Durable files: each is complete or absent, and a reserve lets the end records succeed on a full disk.

use lattice_host::durable::{NewFile, replace, sync_folder_of};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Names of a folder's reserve files, in order of use.
const RESERVES: [&str; 2] = ["reserve", "reserve.2"];
/// Size of a reserve: one block of common filesystems. Every record written from a reserve fits.
const RESERVE_BYTES: usize = 4096;
/// Mode of each record: a launch record holds the user's environment.
const MODE: u32 = 0o600;

/// Writes `bytes` durably, with mode 0600. After a crash the file is the old one, the new one, or, if there was none
/// before, absent.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, MODE)
}

/// Writes `bytes` without waiting for the disk. Readers never see a partial file; a machine crash may lose it.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = NewFile::create(path, MODE)?;
    file.write_all(bytes)?;
    file.commit_without_sync()
}

/// Reserves space for `records` (two at most) in `folder`: files that occupy their block and inode from now on.
pub(super) fn keep_reserve(folder: &Path, records: usize) -> io::Result<()> {
    for name in RESERVES.iter().take(records) {
        let reserve = folder.join(name);
        if !std::fs::metadata(&reserve).is_ok_and(|meta| meta.len() > 0) {
            write_atomically(&reserve, &[0; RESERVE_BYTES])?;
        }
    }
    Ok(())
}

/// Writes like [`write_durably`]; if that fails, for example without a free block or inode, uses the folder's reserve.
pub fn write_durably_from_reserve(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Err(error) = write_durably(path, bytes) else {
        return Ok(());
    };
    // The operator needs the first error of the disk, so this one is returned.
    let mut reserves = RESERVES.iter();
    match reserves.any(|name| replace_from_reserve(name, path, bytes).is_ok()) {
        true => Ok(()),
        false => Err(error),
    }
}

/// Overwrites the reserve's own block, then renames the reserve to the record's name. The previous record, if any,
/// becomes the reserve, so this can be repeated.
fn replace_from_reserve(name: &str, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let reserve = folder.join(name);
    let mut file = OpenOptions::new().write(true).open(&reserve)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()?;
    if renameat_with(CWD, &reserve, CWD, path, RenameFlags::EXCHANGE).is_err() {
        std::fs::rename(&reserve, path)?;
    }
    sync_folder_of(path)
}
