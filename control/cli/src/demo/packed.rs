//! Captured hosts and recorded workload in the program, for a demo without a checkout.
//!
//! `build.rs` writes the archive. Numbers have four bytes, little-endian; a text or content is its length and its bytes.
//! 1. The number of contents, and each content.
//! 2. The number of files, and for each its path and the number of its content, from 0.
//! 3. The number of symbolic links, and for each its path and its target.
//!
//! Paths are relative to `fixtures/`.

use anyhow::Context as _;
use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Archive of this build.
static ARCHIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/demo-fixtures.bin"));

/// Entries of an archive.
struct Entries<'a> {
    /// Paths of files, with their contents.
    files: Vec<(&'a str, &'a [u8])>,
    /// Paths of symbolic links, with their targets.
    links: Vec<(&'a str, &'a str)>,
}

/// Unread rest of an archive.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> anyhow::Result<&'a [u8]> {
        let split = self.0.split_at_checked(count);
        let (taken, rest) = split.context("the captured hosts in the program are cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> anyhow::Result<usize> {
        let bytes = <[u8; 4]>::try_from(self.take(4)?)?;
        Ok(usize::try_from(u32::from_le_bytes(bytes))?)
    }

    fn bytes(&mut self) -> anyhow::Result<&'a [u8]> {
        let length = self.number()?;
        self.take(length)
    }

    fn text(&mut self) -> anyhow::Result<&'a str> {
        Ok(std::str::from_utf8(self.bytes()?)?)
    }
}

impl<'a> Entries<'a> {
    fn read(archive: &'a [u8]) -> anyhow::Result<Self> {
        let mut reader = Reader(archive);
        let contents = (0..reader.number()?)
            .map(|_| reader.bytes())
            .collect::<anyhow::Result<Vec<_>>>()?;
        let files = (0..reader.number()?).map(|_| {
            let (path, content) = (reader.text()?, reader.number()?);
            let content = contents.get(content);
            anyhow::Ok((
                path,
                *content.with_context(|| format!("{path} has no content"))?,
            ))
        });
        let files = files.collect::<anyhow::Result<Vec<_>>>()?;
        let links = (0..reader.number()?).map(|_| anyhow::Ok((reader.text()?, reader.text()?)));
        let links = links.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { files, links })
    }
}

/// Name of the file with the hash of the archive that a folder was unpacked from. It is written last, so that a folder
/// without it is incomplete or older than this file.
const MARKER: &str = ".packed";

/// Provides the fixtures in the folder `into`. A folder that was unpacked from the same archive stays as it is, with any
/// edits; the folder of another version of the program is renamed, and its new path is returned.
///
/// # Errors
/// A file or folder cannot be read, renamed or written; the error names it.
pub fn unpack(into: &Path) -> anyhow::Result<Option<PathBuf>> {
    let about = |path: &Path| path.display().to_string();
    let hash = blake3::hash(ARCHIVE).to_hex();
    let marker = into.join(MARKER);
    match fs::read_to_string(&marker) {
        Ok(text) if text.trim() == hash.as_str() => return Ok(None),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| about(&marker));
        }
        _ => {}
    }
    let earlier = set_aside(into)?;
    write_entries(into)?;
    fs::write(&marker, format!("{hash}\n")).with_context(|| about(&marker))?;
    Ok(earlier)
}

/// Renames a folder to the first free name of `NAME.old-1`, `NAME.old-2` and so on, and returns the new path; `None` if
/// there is no such folder.
fn set_aside(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let about = |path: &Path| path.display().to_string();
    let exists = |path: &Path| match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| about(path)),
    };
    if !exists(folder)? {
        return Ok(None);
    }
    let mut number = 1_u32;
    let earlier = loop {
        let mut name = folder.as_os_str().to_owned();
        name.push(format!(".old-{number}"));
        let earlier = PathBuf::from(name);
        if !exists(&earlier)? {
            break earlier;
        }
        number += 1;
    };
    fs::rename(folder, &earlier)
        .with_context(|| format!("{} to {}", about(folder), about(&earlier)))?;
    Ok(Some(earlier))
}

/// Writes all entries of the archive into the new folder `into`.
fn write_entries(into: &Path) -> anyhow::Result<()> {
    let about = |path: &Path| path.display().to_string();
    let entries = Entries::read(ARCHIVE)?;
    // Entries are sorted, so that the files of a folder follow each other.
    let mut folder = PathBuf::new();
    let mut in_folder = |path: &str| {
        let path = into.join(path);
        if let Some(parent) = path.parent().filter(|parent| *parent != folder) {
            fs::create_dir_all(parent).with_context(|| about(parent))?;
            folder = parent.to_owned();
        }
        anyhow::Ok(path)
    };
    for (path, content) in entries.files {
        let path = in_folder(path)?;
        fs::write(&path, content).with_context(|| about(&path))?;
    }
    for (path, target) in entries.links {
        let path = in_folder(path)?;
        symlink(target, &path).with_context(|| about(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::demo::fixtures::Fixtures;

    /// Counts files and links below a folder.
    fn count(folder: &Path) -> usize {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let counts = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
            true => count(&entry.path()),
            false => 1,
        });
        counts.sum()
    }

    #[test]
    fn program_has_the_hosts_of_the_checkout() {
        let source = Fixtures::of_checkout();
        let entries = Entries::read(ARCHIVE).unwrap();
        for (path, content) in &entries.files {
            assert_eq!(fs::read(source.file(path)).unwrap(), *content, "{path}");
        }
        for (path, target) in &entries.links {
            let link = fs::read_link(source.file(path)).unwrap();
            assert_eq!(link, Path::new(target), "{path}");
        }
        let below = |folder: &str| {
            let files = entries.files.iter().map(|(path, _)| *path);
            let paths = files.chain(entries.links.iter().map(|(path, _)| *path));
            paths.filter(|path| path.starts_with(folder)).count()
        };
        for host in ["hosts/gpu001", "hosts/gpu012", "hosts/gpu111", "bmc/xe9680"] {
            assert_eq!(
                below(&format!("{host}/")),
                count(&source.file(host)),
                "{host}"
            );
        }
        assert!(ARCHIVE.len() < 4 << 20, "{} bytes", ARCHIVE.len());
    }

    #[test]
    fn unpacked_hosts_are_those_of_a_demo() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("fixtures");
        fs::create_dir(&into).unwrap();
        fs::write(into.join("earlier-version"), "x").unwrap();
        let earlier = unpack(&into).unwrap().unwrap();
        assert_eq!(earlier, folder.path().join("fixtures.old-1"));
        assert_eq!(fs::read(earlier.join("earlier-version")).unwrap(), b"x");
        assert!(!into.join("earlier-version").exists());
        let here = lattice_quorum_types::NodeId::new("here").unwrap();
        let nodes = |fixtures: &Fixtures| fixtures.nodes(24, here.clone()).unwrap();
        let (unpacked, source) = (
            Fixtures::open(into.clone()).unwrap(),
            Fixtures::of_checkout(),
        );
        let names = |fixtures: &Fixtures| {
            let nodes = nodes(fixtures).into_iter();
            nodes.map(|node| node.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&unpacked), names(&source));
        for node in nodes(&unpacked)
            .iter()
            .filter_map(|node| node.root.as_ref())
        {
            assert!(node.join("proc/meminfo").is_file(), "{}", node.display());
        }
        assert!(unpacked.trace().is_file());
        assert_eq!(
            count(&into.join("hosts/gpu101")),
            count(&source.file("hosts/gpu101"))
        );
    }

    /// Edits survive a restart of the same program, and an update keeps them in the renamed folder.
    #[test]
    fn edited_hosts_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("fixtures");
        assert_eq!(unpack(&into).unwrap(), None);
        let edited = "hosts/cluster.yaml";
        fs::write(into.join(edited), "edited").unwrap();
        assert_eq!(unpack(&into).unwrap(), None);
        assert_eq!(fs::read(into.join(edited)).unwrap(), b"edited");
        for number in 1..=2 {
            fs::write(into.join(edited), format!("edit {number}")).unwrap();
            fs::write(into.join(MARKER), "hash of another version\n").unwrap();
            let earlier = folder.path().join(format!("fixtures.old-{number}"));
            assert_eq!(unpack(&into).unwrap(), Some(earlier.clone()));
            let kept = fs::read_to_string(earlier.join(edited)).unwrap();
            assert_eq!(kept, format!("edit {number}"));
            let source = Fixtures::of_checkout();
            let unpacked = fs::read(into.join(edited)).unwrap();
            assert_eq!(unpacked, fs::read(source.file(edited)).unwrap());
        }
    }

    #[test]
    fn cut_archive_is_an_error() {
        for length in [0, 3, 100, ARCHIVE.len() - 1] {
            let error = Entries::read(&ARCHIVE[..length]).err().unwrap();
            assert!(error.to_string().contains("cut off"), "{error}");
        }
    }
}
