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

/// Writes the fixtures into the folder `into`, in place of those of an earlier version of the program.
pub fn unpack(into: &Path) -> anyhow::Result<()> {
    let about = |path: &Path| path.display().to_string();
    match fs::remove_dir_all(into) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| about(into));
        }
        _ => {}
    }
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
        unpack(&into).unwrap();
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

    #[test]
    fn cut_archive_is_an_error() {
        for length in [0, 3, 100, ARCHIVE.len() - 1] {
            let error = Entries::read(&ARCHIVE[..length]).err().unwrap();
            assert!(error.to_string().contains("cut off"), "{error}");
        }
    }
}
