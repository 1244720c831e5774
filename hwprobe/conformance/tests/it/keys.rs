//! `KEYS.md` is the key table. `LATTICE_BLESS=1` rewrites it.
#![expect(clippy::disallowed_methods, reason = "compares a file with the table")]

use lattice_conformance::keys::markdown;
use std::path::Path;

#[test]
fn the_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("KEYS.md");
    if std::env::var_os("LATTICE_BLESS").is_some() {
        std::fs::write(&path, markdown()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == markdown(),
        "KEYS.md is old: LATTICE_BLESS=1 rewrites it"
    );
}
