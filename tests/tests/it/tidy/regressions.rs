//! Seeds of failed property tests.

use super::workspace::{packages, root};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Name of the folders in which proptest keeps seeds.
const FOLDER: &str = "proptest-regressions";

fn seed_files(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            seed_files(&path, into);
        } else {
            into.push(path);
        }
    }
}

/// Whether a source file with properties reads the seeds. Proptest derives the path of the seeds from that of the
/// source file below the folder with `lib.rs` or `main.rs`; the folder of the seeds has the same parent.
fn is_read(seeds: &Path, siblings: &[PathBuf]) -> bool {
    siblings.iter().any(|sources| {
        let source = sources.join(seeds).with_extension("rs");
        fs::read_to_string(source).is_ok_and(|text| text.contains("proptest!"))
    })
}

#[test]
fn seeds_are_read_by_a_property_test() {
    let (mut checked, mut stale) = (0, Vec::new());
    for package in packages() {
        for parent in ["", "tests"] {
            let parent = root().join(&package.folder).join(parent);
            let below = parent.join(FOLDER);
            let mut files = Vec::new();
            seed_files(&below, &mut files);
            let siblings: Vec<PathBuf> = fs::read_dir(&parent)
                .into_iter()
                .flatten()
                .map(|entry| entry.unwrap().path())
                .collect();
            checked += files.len();
            let is_stale = |file: &PathBuf| !is_read(file.strip_prefix(&below).unwrap(), &siblings);
            stale.extend(files.into_iter().filter(is_stale));
        }
    }
    assert!(stale.is_empty(), "no property test reads {stale:#?}");
    assert!(checked > 5, "{checked} files");
}
