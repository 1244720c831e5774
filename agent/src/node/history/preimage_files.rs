//! Preimages by digest, as files. Every reader verifies them.

use crate::attempt::write_durably;
use bytes::Bytes;
use lattice_conformance::{ClassRecord, Digest, verify};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Longest preimage that is read back, bytes: the largest known one has about 40 KiB.
const MOST_BYTES: u64 = 4 << 20;

/// Folder of preimages.
#[derive(Debug)]
pub(super) struct PreimageStore {
    folder: PathBuf,
    /// For each digest, the last entry that references it, and the size of its file (0: no file).
    references: BTreeMap<Digest, PreimageUse>,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct PreimageUse {
    last: u64,
    bytes: u64,
}

impl PreimageStore {
    pub(super) fn new(journal: &Path) -> Self {
        Self {
            folder: journal.join("content"),
            references: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Measures existing files, and removes files without an entry.
    pub(super) fn measure(&mut self) -> io::Result<()> {
        let listed = match std::fs::read_dir(&self.folder) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for file in listed {
            let file = file?;
            let digest = file.file_name().to_str().and_then(|name| name.parse().ok());
            match digest.and_then(|digest: Digest| self.references.get_mut(&digest)) {
                Some(named) => {
                    named.bytes = file.metadata()?.len();
                    self.bytes += named.bytes;
                }
                None if digest.is_some() => drop(std::fs::remove_file(file.path())),
                None => {}
            }
        }
        Ok(())
    }

    /// Records that entry `seq` references `digest`.
    pub(super) fn add_reference(&mut self, digest: Digest, seq: u64) {
        let named = self.references.entry(digest).or_default();
        named.last = named.last.max(seq);
    }

    /// Writes a preimage durably, unless its file exists.
    pub(super) fn store(&mut self, digest: Digest, bytes: &[u8]) -> io::Result<()> {
        let path = path(&self.folder, &digest);
        if !path.is_file() {
            make_folder(&self.folder)?;
            write_durably(&path, bytes)?;
        }
        let named = self.references.entry(digest).or_default();
        self.bytes -= named.bytes;
        named.bytes = bytes.len() as u64;
        self.bytes += named.bytes;
        Ok(())
    }

    /// Writes a preimage again if entries reference it.
    pub(super) fn restore(&mut self, digest: Digest, bytes: &[u8]) -> io::Result<()> {
        match self.references.contains_key(&digest) {
            true => self.store(digest, bytes),
            false => Ok(()),
        }
    }

    /// Removes preimages that no entry from `first_kept` on references, then the oldest others until at most
    /// `most_bytes` are left. Preimages in `needed` stay.
    pub(super) fn prune(&mut self, first_kept: u64, needed: &[Digest], most_bytes: u64) {
        let mut oldest_first: Vec<(u64, Digest)> = self
            .references
            .iter()
            .filter(|(digest, _)| !needed.contains(digest))
            .map(|(digest, named)| (named.last, *digest))
            .collect();
        oldest_first.sort_unstable();
        for (last, digest) in oldest_first {
            if last >= first_kept && self.bytes <= most_bytes {
                return;
            }
            let _ = std::fs::remove_file(path(&self.folder, &digest));
            if let Some(named) = self.references.remove(&digest) {
                self.bytes -= named.bytes;
            }
        }
    }
}

/// Creates a folder with mode 0700.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

fn path(folder: &Path, digest: &Digest) -> PathBuf {
    folder.join(digest.to_string())
}

/// Reads and verifies a preimage. A file that does not match its digest is removed: the next read that finds the class
/// in that state writes the file again.
pub(super) fn read(folder: &Path, digest: &Digest) -> Option<(Bytes, ClassRecord)> {
    let path = path(folder, digest);
    let mut bytes = Vec::new();
    let file = File::open(&path).ok()?;
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    match verify(digest, &bytes) {
        Ok(record) => Some((bytes.into(), record)),
        Err(error) => {
            let error = crate::with_causes(&error);
            tracing::error!(path = %path.display(), %error, "corrupt preimage file removed");
            let _ = std::fs::remove_file(&path);
            None
        }
    }
}
