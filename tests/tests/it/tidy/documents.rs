//! Documents that name files of the project.

use super::workspace::root;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Documents that guide a reader to files by paths from the root of the project.
const DOCUMENTS: &[&str] = &["ARCHITECTURE.md"];

/// Paths in backticks that begin with a folder of the root and name a Rust file or a decision record.
fn named_paths(text: &str) -> BTreeSet<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|path| {
            let first = path.split('/').next().unwrap_or_default();
            let is_path = path.contains('/') && !path.contains([' ', '*', '{', '<', ':']);
            is_path && !first.is_empty() && root().join(first).is_dir()
        })
        .collect()
}

/// Whether the path exists. A decision record is named by its number: `quorum/0005`.
fn exists(path: &str) -> bool {
    let path = root().join(path.trim_end_matches('/'));
    if path.exists() {
        return true;
    }
    let (Some(folder), Some(number)) = (path.parent(), path.file_name()) else {
        return false;
    };
    let number = format!("{}-", number.to_string_lossy());
    records(folder).any(|record| record.starts_with(&number))
}

fn records(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .filter_map(|path: PathBuf| Some(path.file_name()?.to_string_lossy().into_owned()))
}

#[test]
fn named_files_exist() {
    for document in DOCUMENTS {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let paths = named_paths(&text);
        let missing: Vec<_> = paths.iter().filter(|path| !exists(path)).collect();
        assert!(missing.is_empty(), "{document} names {missing:?}");
        assert!(paths.len() > 5, "{document}: {paths:?}");
    }
}

#[test]
fn missing_path_is_found() {
    assert!(exists("quorum/0005") && exists("control/view/src/lib.rs"));
    assert!(!exists("quorum/0999") && !exists("control/view/src/none.rs"));
}
