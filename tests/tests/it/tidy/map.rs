//! Map of the crates in ARCHITECTURE.md: one line for each, with its purpose and its dependencies.
//!
//! The map is written from the manifests with `LATTICE_BLESS=1` (`just bless`).

use super::workspace::{Package, packages, root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

const START: &str = "<!-- map of crates, written by `just bless` -->\n";
const END: &str = "<!-- end of the map of crates -->\n";

/// Most characters of the purpose of a package.
const LONGEST_PURPOSE: usize = 160;

/// Number of the layer of each package: a package is above all that it depends on.
fn layers(packages: &[Package]) -> BTreeMap<&str, usize> {
    let mut layers: BTreeMap<&str, usize> = BTreeMap::new();
    while layers.len() < packages.len() {
        let before = layers.len();
        for package in packages {
            let below = package.uses.iter().map(|used| layers.get(&used[..]));
            let below: Option<Vec<usize>> = below.map(Option::<&usize>::copied).collect();
            if let Some(below) = below {
                let layer = below.iter().max().map_or(0, |highest| highest + 1);
                layers.insert(&package.name, layer);
            }
        }
        assert!(layers.len() > before, "a circle of packages");
    }
    layers
}

/// Table of the packages, lower layers first.
fn map(packages: &[Package]) -> String {
    let layers = layers(packages);
    let mut sorted: Vec<&Package> = packages.iter().collect();
    sorted.sort_by_key(|package| (layers[&package.name[..]], &package.folder));
    let mut text = "| crate | package | purpose | depends on |\n|---|---|---|---|\n".to_owned();
    for package in sorted {
        let purpose = package.description.as_deref().unwrap_or_default();
        assert!(
            !purpose.is_empty()
                && purpose.chars().count() <= LONGEST_PURPOSE
                && !purpose.contains('|'),
            "the `description` of {} must be a line of at most {LONGEST_PURPOSE} characters: {purpose:?}",
            package.name
        );
        let uses: BTreeSet<&str> = package
            .uses
            .iter()
            .map(|name| Package::short(name))
            .collect();
        let uses: Vec<&str> = uses.into_iter().collect();
        writeln!(
            text,
            "| `{}` | `{}` | {purpose} | {} |",
            package.folder,
            package.name,
            uses.join(", ")
        )
        .unwrap();
    }
    text
}

#[test]
fn map_of_crates_is_that_of_the_manifests() {
    let file = root().join("ARCHITECTURE.md");
    let document = fs::read_to_string(&file).unwrap();
    let (before, rest) = document.split_once(START).expect("no start of the map");
    let (stored, after) = rest.split_once(END).expect("no end of the map");
    let map = format!("\n{}\n", map(&packages()));
    if std::env::var_os("LATTICE_BLESS").is_some() {
        fs::write(&file, [before, START, &map, END, after].concat()).unwrap();
        return;
    }
    let stored: BTreeSet<&str> = stored.lines().collect();
    let found: BTreeSet<&str> = map.lines().collect();
    let old: Vec<_> = stored.difference(&found).collect();
    let new: Vec<_> = found.difference(&stored).collect();
    assert!(
        old.is_empty() && new.is_empty(),
        "the map of ARCHITECTURE.md is old; `just bless` writes it\n- {old:#?}\n+ {new:#?}"
    );
}

#[test]
fn lower_layers_come_first() {
    let package = |folder: &str, uses: &[&str]| Package {
        folder: folder.to_owned(),
        name: format!("lattice-{folder}"),
        description: Some(format!("Purpose of {folder}")),
        uses: uses.iter().map(|used| format!("lattice-{used}")).collect(),
    };
    let packages = [
        package("agent", &["mesh", "types"]),
        package("mesh", &["types"]),
        package("types", &[]),
    ];
    let expected = "\
| crate | package | purpose | depends on |
|---|---|---|---|
| `types` | `lattice-types` | Purpose of types |  |
| `mesh` | `lattice-mesh` | Purpose of mesh | types |
| `agent` | `lattice-agent` | Purpose of agent | mesh, types |
";
    assert_eq!(map(&packages), expected);
}
