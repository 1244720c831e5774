//! Archives of captures: a tree packed into one `.tar.zst` file and unpacked within bounds, never outside its folder.

mod extensions;
mod links;

use extensions::Extensions;
use links::Links;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Builder, EntryType, Header};

/// Maximum unpacked size of an archive, in bytes. A capture of a large node is 5 MiB.
pub const MAX_UNPACKED_BYTES: u64 = 512 << 20;
/// Maximum number of files, folders and links in one archive.
pub const MAX_ENTRIES: u64 = 1 << 18;
/// Maximum length of an entry's path or of a link target, in bytes.
const MAX_PATH_BYTES: usize = 4 << 10;
/// Maximum number of components of one path; sysfs uses about twenty.
const MAX_PATH_COMPONENTS: usize = 32;
/// Memory bound for reading an archive, as the base-2 logarithm of zstd's window size: 128 MiB, the limit of zstd's own
/// command line.
const WINDOW_LOG: u32 = 27;
/// Compression level: the default of zstd.
const LEVEL: i32 = 3;

/// Reason why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive cannot be read, or is not in this format.
    #[error("the archive cannot be read")]
    Unreadable(#[source] io::Error),
    /// An entry cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The path that was being written.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The archive exceeds a limit for captures.
    #[error("archive exceeds the limit of {what}")]
    TooLarge {
        /// The exceeded limit.
        what: String,
    },
    /// The archive holds an entry that no capture contains.
    #[error("invalid archive: entry {entry} {why}")]
    InvalidEntry {
        /// Path of the entry.
        entry: String,
        /// The rule that the entry breaks.
        why: &'static str,
    },
}

/// Writes the tree at `from` to the new file `to`. The same tree gives the same bytes.
///
/// # Errors
/// An I/O error, or `to` already exists.
pub fn pack(from: &Path, to: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).open(to)?;
    let packed = pack_into(from, &file).and_then(|()| file.sync_all());
    if packed.is_err() {
        // A partial archive must not remain.
        let _ = fs::remove_file(to);
    }
    packed
}

fn pack_into(from: &Path, file: &File) -> io::Result<()> {
    let encoder = zstd::Encoder::new(file, LEVEL)?;
    let mut archive = Builder::new(encoder);
    let mut todo = vec![PathBuf::new()];
    while let Some(folder) = todo.pop() {
        let entries = fs::read_dir(from.join(&folder))?;
        let mut names = entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        for name in names {
            let path = folder.join(name);
            let kind = fs::symlink_metadata(from.join(&path))?.file_type();
            if kind.is_dir() {
                archive.append_data(&mut header(EntryType::Directory, 0), &path, io::empty())?;
                todo.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(from.join(&path))?;
                archive.append_link(&mut header(EntryType::Symlink, 0), &path, target)?;
            } else {
                let bytes = fs::read(from.join(&path))?;
                let mut header = header(EntryType::Regular, bytes.len() as u64);
                archive.append_data(&mut header, &path, bytes.as_slice())?;
            }
        }
    }
    archive.into_inner()?.finish()?.flush()
}

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(if kind == EntryType::Directory {
        0o755
    } else {
        0o644
    });
    header.set_mtime(0);
    header
}

/// Unpacks `archive` into the empty folder `to`: regular files, folders, and links that stay inside.
///
/// # Errors
/// The archive cannot be read, holds an entry that no capture contains, or exceeds a limit; or an entry cannot be
/// written. Entries unpacked before the error stay in `to`.
pub fn unpack(archive: impl Read, to: &Path) -> Result<(), ArchiveError> {
    let mut decoder = zstd::Decoder::new(archive).map_err(ArchiveError::Unreadable)?;
    let bounded = decoder.window_log_max(WINDOW_LOG);
    bounded.map_err(ArchiveError::Unreadable)?;
    // The bound leaves room for tar headers: each takes 512 bytes, and a long name needs several.
    let bounded = decoder.take(MAX_UNPACKED_BYTES + MAX_ENTRIES * 2048);
    let mut archive = Archive::new(bounded);
    let mut unpacking = UnpackTarget {
        to,
        bytes_left: MAX_UNPACKED_BYTES,
        entries_left: MAX_ENTRIES,
    };
    let mut links = Links::default();
    let mut said = Extensions::default();
    // Raw entries: otherwise the tar reader loads extension data before an entry without a size limit.
    let entries = archive
        .entries()
        .map_err(ArchiveError::Unreadable)?
        .raw(true);
    for entry in entries {
        let mut entry = entry.map_err(ArchiveError::Unreadable)?;
        unpacking.count()?;
        if said.take_if_extension(&mut entry)? {
            continue;
        }
        let said = std::mem::take(&mut said);
        let path = said.path(&entry)?;
        let path = plain_path(&path, entry.header().entry_type())?;
        match entry.header().entry_type() {
            EntryType::Directory => unpacking.make_dir(&path)?,
            EntryType::Regular => unpacking.write_file(&path, &mut entry)?,
            EntryType::Symlink => links.add(path, said.target(&entry)?)?,
            _ => return Err(invalid_entry(&path, "is not a file, directory or link")),
        }
    }
    // Links are created last, so that no entry is written through a link.
    links.check()?;
    let mut links = links.iter();
    links.try_for_each(|(path, target)| unpacking.make_link(path, target))
}

fn invalid_entry(path: &Path, why: &'static str) -> ArchiveError {
    ArchiveError::InvalidEntry {
        entry: path.display().to_string(),
        why,
    }
}

fn too_large(what: String) -> ArchiveError {
    ArchiveError::TooLarge { what }
}

/// Checks that a path consists of names only and is within the limits.
fn plain_path(path: &Path, kind: EntryType) -> Result<PathBuf, ArchiveError> {
    check_path_length(path)?;
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            _ => {
                return Err(invalid_entry(
                    path,
                    "is not below the directory of the archive",
                ));
            }
        }
    }
    if plain.as_os_str().is_empty() && !kind.is_dir() {
        return Err(invalid_entry(path, "has no name"));
    }
    Ok(plain)
}

fn check_path_length(path: &Path) -> Result<(), ArchiveError> {
    if path.as_os_str().len() > MAX_PATH_BYTES {
        return Err(too_large(format!("{MAX_PATH_BYTES} bytes in one path")));
    }
    if path.components().count() > MAX_PATH_COMPONENTS {
        return Err(too_large(format!(
            "{MAX_PATH_COMPONENTS} parts of one path"
        )));
    }
    Ok(())
}

/// The target folder, with the remaining budget.
struct UnpackTarget<'a> {
    to: &'a Path,
    bytes_left: u64,
    /// Remaining entries, including extension entries and parent folders created for the entries.
    entries_left: u64,
}

impl UnpackTarget<'_> {
    fn count(&mut self) -> Result<(), ArchiveError> {
        let left = self.entries_left.checked_sub(1);
        self.entries_left = left.ok_or_else(|| too_large(format!("{MAX_ENTRIES} entries")))?;
        Ok(())
    }

    fn make_dir(&mut self, path: &Path) -> Result<(), ArchiveError> {
        let mut so_far = self.to.to_owned();
        for part in path.components() {
            so_far.push(part);
            let failed = |source| ArchiveError::Write {
                path: so_far.clone(),
                source,
            };
            match fs::symlink_metadata(&so_far) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => {
                    return Err(invalid_entry(
                        path,
                        "is below an entry that is not a directory",
                    ));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.count()?;
                    fs::create_dir(&so_far).map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    fn write_file(&mut self, path: &Path, content: &mut impl Read) -> Result<(), ArchiveError> {
        self.make_dir(path.parent().unwrap_or(Path::new("")))?;
        let place = self.to.join(path);
        let failed = |source| ArchiveError::Write {
            path: place.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        let mut file = match options.write(true).create_new(true).open(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(invalid_entry(path, "occurs twice"));
            }
            other => other.map_err(failed)?,
        };
        let mut piece = vec![0; 64 << 10];
        loop {
            let count = content.read(&mut piece).map_err(ArchiveError::Unreadable)?;
            if count == 0 {
                return Ok(());
            }
            let left = self.bytes_left.checked_sub(count as u64);
            self.bytes_left =
                left.ok_or_else(|| too_large(format!("{MAX_UNPACKED_BYTES} bytes")))?;
            file.write_all(&piece[..count]).map_err(failed)?;
        }
    }

    fn make_link(&mut self, path: &Path, target: &Path) -> Result<(), ArchiveError> {
        self.make_dir(path.parent().unwrap_or(Path::new("")))?;
        let place = self.to.join(path);
        match std::os::unix::fs::symlink(target, &place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(invalid_entry(path, "occurs twice"))
            }
            other => other.map_err(|source| ArchiveError::Write {
                path: place,
                source,
            }),
        }
    }
}
