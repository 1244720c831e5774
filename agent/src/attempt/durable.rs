//! Files that are whole or not there, and room kept for the ones that must not fail.

use lattice_host::durable::{NewFile, replace, sync_folder_of};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The names of a folder's reserves, in the order they are used.
const RESERVES: [&str; 2] = ["reserve", "reserve.2"];
/// One block of common filesystems; every record written from a reserve fits.
const RESERVE_BYTES: usize = 4096;
/// Mode of each record: a launch holds the environment of the user.
const MODE: u32 = 0o600;

/// Writes `bytes` so that after a crash the file is the old one, the new one, or (if there was
/// none) not there. Mode 0600.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, MODE)
}

/// The same without waiting for the disk: readers never see half of it, a crash of the machine
/// may lose it.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = NewFile::create(path, MODE)?;
    file.write_all(bytes)?;
    file.commit_without_sync()
}

/// Keeps room for `records` (two at most) in `folder`: files whose block and inode are taken now.
pub(super) fn keep_reserve(folder: &Path, records: usize) -> io::Result<()> {
    for name in RESERVES.iter().take(records) {
        let reserve = folder.join(name);
        if !std::fs::metadata(&reserve).is_ok_and(|meta| meta.len() > 0) {
            write_atomically(&reserve, &[0; RESERVE_BYTES])?;
        }
    }
    Ok(())
}

/// [`write_durably`], and from the folder's reserve where the disk has no room or no inode left.
pub fn write_durably_from_reserve(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Err(error) = write_durably(path, bytes) else {
        return Ok(());
    };
    // What the disk said first is what an operator must hear.
    let mut reserves = RESERVES.iter();
    match reserves.any(|name| turn_reserve_into(name, path, bytes).is_ok()) {
        true => Ok(()),
        false => Err(error),
    }
}

/// Overwrites the reserve's own block, then gives it the record's name. The record before it, if
/// any, becomes the reserve, so this can be done again and again.
fn turn_reserve_into(name: &str, path: &Path, bytes: &[u8]) -> io::Result<()> {
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
