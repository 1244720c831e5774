//! Unpacks a tree in ttar text form (`Path:`, `Lines:`, `SymlinkTo:`) below a folder.

use crate::support::Tree;
use std::path::Path;

/// Adds the files of `archive` to `tree`, with their leading folders.
pub fn unpack(tree: &Tree, archive: &Path) {
    let bytes = std::fs::read(archive).unwrap();
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let mut path = None;
    while let Some(line) = lines.next() {
        let text = String::from_utf8_lossy(line).into_owned();
        if let Some(found) = text.strip_prefix("Path: ") {
            path = Some(found.to_owned());
        } else if let (Some(target), Some(path)) = (text.strip_prefix("SymlinkTo: "), &path) {
            tree.link(path, target);
        } else if let (Some(count), Some(path)) = (text.strip_prefix("Lines: "), &path) {
            let count: usize = count.parse().unwrap();
            let mut content = Vec::new();
            for _ in 0..count {
                content.extend_from_slice(lines.next().unwrap());
                content.push(b'\n');
            }
            // A file without a final line end.
            if content.ends_with(b"EOF\n") {
                content.truncate(content.len() - 4);
            }
            tree.bytes(path, &content);
        }
    }
}
