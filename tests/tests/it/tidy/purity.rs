//! Pure crates: their results depend only on their arguments.
//!
//! The `clippy.toml` of each bans what differs between machines or runs, and no dependency of one, at any depth, does
//! input or output.

use super::workspace::{packages, root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

const CLOCKS: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::sleep",
];

const RANDOMNESS: &[&str] = &["std::collections::hash_map::RandomState"];

/// Collections with an order that differs between runs.
const RANDOM_ORDER: &[&str] = &["std::collections::HashMap", "std::collections::HashSet"];

const FILES: &[&str] = &[
    "std::fs::File",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::read_dir",
    "std::fs::write",
];

const ENVIRONMENT: &[&str] = &["std::env::var", "std::env::var_os", "std::process::id"];

/// Bans of most pure crates.
const ALL: &[&[&str]] = &[CLOCKS, RANDOMNESS, RANDOM_ORDER, FILES, ENVIRONMENT];

/// Folders of the pure crates, and what their `clippy.toml` must ban.
const PURE: &[(&str, &[&[&str]])] = &[
    ("quorum/types", ALL),
    ("quorum/state", ALL),
    ("control/placement", ALL),
    ("control/view", ALL),
    ("control/ledger", ALL),
    ("hwprobe/conformance", ALL),
    // Reads traces and policies from files, so only its dependencies are checked.
    ("control/replay", &[]),
];

/// Packages that no pure crate depends on: runtimes, network, system calls, storage, drivers and random numbers.
const IMPURE: &[&str] = &[
    "async-std",
    "chitchat",
    "getrandom",
    "hyper",
    "mio",
    "nix",
    "nvml-wrapper",
    "nvml-wrapper-sys",
    "openraft",
    "quinn",
    "rand",
    "redb",
    "reqwest",
    "rustix",
    "rustls",
    "socket2",
    "sysinfo",
    "tempfile",
    "tokio",
    "tonic",
    "uuid",
];

#[test]
fn pure_crates_ban_clocks_randomness_and_files() {
    for (folder, bans) in PURE {
        let file = root().join(folder).join("clippy.toml");
        let rules = fs::read_to_string(&file).unwrap_or_default();
        let banned: BTreeSet<&str> = rules
            .split("path = \"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        let missing: Vec<&&str> = bans
            .iter()
            .copied()
            .flatten()
            .filter(|path| !banned.contains(*path))
            .collect();
        assert!(
            missing.is_empty(),
            "{} does not ban {missing:?}",
            file.display()
        );
    }
}

#[test]
fn pure_crates_depend_on_pure_crates() {
    let packages = packages();
    let pure: Vec<&str> = PURE
        .iter()
        .map(|(folder, _)| {
            let package = packages.iter().find(|package| package.folder == *folder);
            let package = package.unwrap_or_else(|| panic!("no package in {folder}"));
            &package.name[..]
        })
        .collect();
    let graph = dependencies(&pure);
    for package in pure {
        assert!(graph.contains_key(package), "{package} is not in the tree");
        let chain = chain_to_impure(&graph, package);
        assert!(chain.is_none(), "{package} is not pure: {chain:?}");
    }
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Dependencies of these packages at any depth, without those of tests and of builds.
fn dependencies(packages: &[&str]) -> Graph {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--edges=normal,no-proc-macro", "--prefix=depth"])
        .args(["--format= {p}", "--locked", "--offline"])
        .args(
            packages
                .iter()
                .map(|package| format!("--package={package}")),
        )
        .current_dir(root())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{errors}");
    graph(&String::from_utf8(tree.stdout).unwrap())
}

/// Graph of a tree in which each line is `DEPTH NAME …`. The dependencies of a package follow it only once.
fn graph(tree: &str) -> Graph {
    let mut graph = Graph::new();
    let mut above: Vec<&str> = Vec::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        let (Some(depth), Some(name)) = (words.next(), words.next()) else {
            continue;
        };
        above.truncate(depth.parse().unwrap());
        if let Some(user) = above.last() {
            let used = graph.entry((*user).to_owned()).or_default();
            used.insert(name.to_owned());
        }
        graph.entry(name.to_owned()).or_default();
        above.push(name);
    }
    graph
}

/// A shortest chain of dependencies from a package to one of [`IMPURE`].
fn chain_to_impure(graph: &Graph, package: &str) -> Option<Vec<String>> {
    let mut chains = vec![vec![package.to_owned()]];
    let mut seen = BTreeSet::from([package.to_owned()]);
    while !chains.is_empty() {
        let mut longer = Vec::new();
        for chain in chains {
            let last = &chain[chain.len() - 1];
            if IMPURE.contains(&&last[..]) {
                return Some(chain);
            }
            for next in graph.get(last).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    longer.push(chain.iter().chain([next]).cloned().collect());
                }
            }
        }
        chains = longer;
    }
    None
}

#[test]
fn planted_impure_dependency_is_found() {
    let graph = graph(
        "0 lattice-view v0.1.0\n1 lattice-placement v0.1.0\n2 serde v1.0.0\n1 serde v1.0.0 (*)\n\
         0 lattice-state v0.1.0\n1 lattice-placement v0.1.0 (*)\n1 lattice-ids v0.1.0\n2 uuid v1.0.0\n",
    );
    assert_eq!(chain_to_impure(&graph, "lattice-view"), None);
    let chain = chain_to_impure(&graph, "lattice-state").unwrap();
    assert_eq!(chain, ["lattice-state", "lattice-ids", "uuid"]);
}
