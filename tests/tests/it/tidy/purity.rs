//! Pure crates: their results depend only on their arguments.

use super::workspace::root;
use std::fs;

#[test]
fn pure_crates_ban_clocks_randomness_and_files() {
    for folder in ["quorum/state", "control/placement", "control/view"] {
        let rules = fs::read_to_string(root().join(folder).join("clippy.toml")).unwrap();
        for banned in ["SystemTime::now", "Instant::now", "HashMap", "std::fs"] {
            assert!(
                rules.contains(banned),
                "{folder}/clippy.toml does not ban {banned}"
            );
        }
    }
}
