//! Links of an archive. No link may lead outside the archive, alone or through other links.

use super::{ArchiveError, MAX_ENTRIES, check_path_length, invalid_entry, too_large};
use crate::commands;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links followed for one path, as in the kernel.
const MAX_LINKS_FOLLOWED: usize = 40;
/// Maximum number of path components visited for all links together.
const MAX_STEPS: u64 = MAX_ENTRIES * 64;

/// Link targets by the path of the link.
#[derive(Default)]
pub(super) struct Links(BTreeMap<PathBuf, PathBuf>);

impl Links {
    /// Adds a link. The files recorded next to the tree are read without regard to links, so no link is allowed there.
    pub(super) fn add(&mut self, path: PathBuf, target: PathBuf) -> Result<(), ArchiveError> {
        check_path_length(&target)?;
        let is_beside = path.components().count() < 2 || path.starts_with(commands::RECORDS);
        if is_beside {
            return Err(invalid_entry(&path, "is a link outside the tree"));
        }
        if target.is_absolute() {
            return Err(invalid_entry(&path, "is a link that leads out of the tree"));
        }
        match self.0.insert(path.clone(), target) {
            Some(_) => Err(invalid_entry(&path, "occurs twice")),
            None => Ok(()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PathBuf, &PathBuf)> {
        self.0.iter()
    }

    /// Follows each link as the kernel would, through the other links.
    pub(super) fn check(&self) -> Result<(), ArchiveError> {
        let mut left = MAX_STEPS;
        self.0
            .keys()
            .try_for_each(|path| self.follow(path, &mut left))
    }

    fn follow(&self, path: &Path, left: &mut u64) -> Result<(), ArchiveError> {
        let mut done = PathBuf::new();
        let mut todo = parts(path);
        let mut followed = 0;
        while let Some(part) = todo.pop_front() {
            let steps = left.checked_sub(1);
            *left = steps
                .ok_or_else(|| too_large(format!("{MAX_STEPS} path components in all links")))?;
            if part == ".." {
                if !done.pop() {
                    return Err(invalid_entry(path, "is a link that leads out of the tree"));
                }
                continue;
            }
            done.push(&part);
            let Some(target) = self.0.get(&done) else {
                continue;
            };
            followed += 1;
            // The kernel stops here too, so the link leads nowhere.
            if followed > MAX_LINKS_FOLLOWED {
                return Ok(());
            }
            done.pop();
            let mut ahead = parts(target);
            ahead.append(&mut todo);
            todo = ahead;
        }
        Ok(())
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.collect()
}
