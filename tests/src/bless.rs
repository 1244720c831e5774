//! Expected outputs, stored as files.

use std::path::Path;

/// Compares `text` with `file` of this package. With `LATTICE_BLESS=1` writes `text` to the file instead.
///
/// # Panics
/// When they differ.
pub fn check(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("LATTICE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let blessed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        blessed == text,
        "{} is not what came out; review the difference, then bless it with LATTICE_BLESS=1\n\
         --- blessed\n{blessed}\n--- came out\n{text}",
        path.display()
    );
}
