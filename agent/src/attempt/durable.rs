//! Files that are whole or not there, and room kept for the ones that must not fail.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The names of a folder's reserves, in the order they are used.
const RESERVES: [&str; 2] = ["reserve", "reserve.2"];
/// One block of common filesystems; every record written from a reserve fits.
const RESERVE_BYTES: usize = 4096;

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
    File::open(folder)?.sync_all()
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
    let written = fill(&temporary, bytes, sync).and_then(|()| std::fs::rename(&temporary, path));
    if let Err(error) = written {
        // It may hold the last inode.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    File::open(folder)
}

fn fill(path: &Path, bytes: &[u8], sync: Sync) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    match sync {
        Sync::Data => file.sync_all(),
        Sync::None => Ok(()),
    }
}
