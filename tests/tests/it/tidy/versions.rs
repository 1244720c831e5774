//! Versions of dependencies.

use super::workspace::root;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

/// `cargo deny` rejects a second version of a package without a reason in `deny.toml`. It is not part of CI; this test
/// checks the same rule with `cargo tree`.
#[test]
fn each_second_version_of_a_package_has_its_reason() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--duplicates",
            "--depth=0",
            "--prefix=none",
        ])
        .args(["--format={p}", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{errors}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in tree.lines() {
        if let Some((name, version)) = line.split_once(" v") {
            let version = version.split(' ').next().unwrap();
            versions.entry(name).or_default().insert(version);
        }
    }
    let deny = fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, skips) = deny.split_once("\nskip = [").unwrap();
    let (skips, _) = skips.split_once("\n]").unwrap();
    let skip = |line: &str| {
        let (_, named) = line.split_once("crate = \"")?;
        let (package, rest) = named.split_once('"')?;
        assert!(rest.contains("reason = \""), "{package} has no reason");
        package.split_once('@').map(|(name, _)| name.to_owned())
    };
    let explained: BTreeSet<String> = skips.lines().filter_map(skip).collect();
    let several = versions.iter().filter(|(_, versions)| versions.len() > 1);
    let several: BTreeSet<String> = several.map(|(name, _)| (*name).to_owned()).collect();
    assert!(several.len() > 3, "{tree}");
    assert_eq!(
        several, explained,
        "packages with several versions, and skips of deny.toml"
    );
}
