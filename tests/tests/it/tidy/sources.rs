//! Comments that source files must have.

use super::workspace::{packages, root};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn every_module_has_a_comment() {
    let mut files = Vec::new();
    for package in packages() {
        rust_files(&root().join(package.folder).join("src"), &mut files);
    }
    assert!(files.len() > 100, "{} files", files.len());
    let without: Vec<_> = files
        .iter()
        .filter(|path| !path.ends_with("tests.rs"))
        .filter(|path| {
            !fs::read_to_string(path)
                .unwrap()
                .trim_start()
                .starts_with("//!")
        })
        .collect();
    assert!(without.is_empty(), "no //! at the top: {without:#?}");
}
