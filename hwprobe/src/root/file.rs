//! Opening of regular files, and reading within a limit.

use rustix::fs::{FileType, Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file only: a FIFO waits for a writer, and opening a device may have side effects.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    refuse_special(FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode))?;
    // The file type may have changed meanwhile, so the open must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    refuse_special(FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode))?;
    Ok(file.into())
}

fn refuse_special(kind: FileType) -> io::Result<()> {
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Fifo => "is a FIFO",
        FileType::Socket => "is a socket",
        FileType::Directory => "is a directory",
        FileType::CharacterDevice | FileType::BlockDevice => "is a device",
        FileType::Symlink | FileType::Unknown => "is not a regular file",
    };
    Err(io::Error::other(what))
}

/// The complete content, or an error if there are more than `most` bytes. The size reported by the file system is not
/// used: in sysfs and procfs it has no meaning.
pub(crate) fn read_all(from: &mut impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a record next to a tree: a regular file, and not a link to one.
pub(crate) fn read_record(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        return Err(io::Error::other("is a link"));
    }
    read_all(&mut open_file(path)?, most)
}
