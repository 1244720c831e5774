//! Tar extension entries, which carry names too long for the header of the following entry.

use super::{ArchiveError, invalid_entry, too_large};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Entry, EntryType, PaxExtensions};

/// Maximum size of an extension entry, in bytes.
const MAX_EXTENSION_BYTES: u64 = 64 << 10;

/// Extension data for the next entry.
#[derive(Default)]
pub(super) struct Extensions {
    path: Option<PathBuf>,
    target: Option<PathBuf>,
}

impl Extensions {
    /// Stores the entry and returns true if it is an extension of the next entry.
    pub(super) fn take_if_extension<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
    ) -> Result<bool, ArchiveError> {
        match entry.header().entry_type() {
            EntryType::GNULongName => self.path = Some(name(&content(entry)?)),
            EntryType::GNULongLink => self.target = Some(name(&content(entry)?)),
            EntryType::XHeader => self.pax(&content(entry)?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn pax(&mut self, content: &[u8]) -> Result<(), ArchiveError> {
        for said in PaxExtensions::new(content) {
            let said = said.map_err(ArchiveError::Unreadable)?;
            match said.key_bytes() {
                b"path" => self.path = Some(name(said.value_bytes())),
                b"linkpath" => self.target = Some(name(said.value_bytes())),
                // The size field of the header is large enough for any file, so no capture needs this extension.
                b"size" => {
                    let path = self.path.clone().unwrap_or_default();
                    return Err(invalid_entry(
                        &path,
                        "has a size that differs from its header",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Path of the entry that the extensions describe.
    pub(super) fn path<'a, R: Read>(
        &'a self,
        entry: &'a Entry<'_, R>,
    ) -> Result<Cow<'a, Path>, ArchiveError> {
        match &self.path {
            Some(path) => Ok(Cow::Borrowed(path)),
            None => entry.header().path().map_err(ArchiveError::Unreadable),
        }
    }

    /// Link target of the entry that the extensions describe.
    pub(super) fn target<R: Read>(&self, entry: &Entry<'_, R>) -> Result<PathBuf, ArchiveError> {
        let target = match &self.target {
            Some(target) => return Ok(target.clone()),
            None => entry
                .header()
                .link_name()
                .map_err(ArchiveError::Unreadable)?,
        };
        Ok(target.unwrap_or_default().into_owned())
    }
}

fn content(entry: &mut impl Read) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    let read: io::Result<usize> = entry.take(MAX_EXTENSION_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(ArchiveError::Unreadable)?;
    match bytes.len() as u64 > MAX_EXTENSION_BYTES {
        true => Err(too_large(format!(
            "{MAX_EXTENSION_BYTES} bytes of extension data before one entry"
        ))),
        false => Ok(bytes),
    }
}

/// The bytes before the first NUL.
fn name(bytes: &[u8]) -> PathBuf {
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    PathBuf::from(OsStr::from_bytes(bytes))
}
