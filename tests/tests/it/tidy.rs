//! The walls between crates, as the map in ARCHITECTURE.md draws them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// What each package uses of ours, outside its tests: these arrows and no others. A daemon is used by the command line,
/// which runs all of them in its demo, and by the tests of the whole.
const ARROWS: [(&str, &[&str]); 26] = [
    ("lattice-host", &[]),
    ("lattice-rng", &[]),
    ("lattice-hwprobe", &[]),
    ("lattice-redfish", &["hwprobe", "host"]),
    ("lattice-quorum-types", &[]),
    ("lattice-config", &[]),
    ("lattice-fake-nvml", &[]),
    ("lattice-checkpointer", &[]),
    ("lattice-fake-bmc", &["hwprobe", "redfish"]),
    ("lattice-fake-waldur", &[]),
    // It builds the four programs again from their own sources, so it needs what these need.
    (
        "lattice-tests",
        &[
            "quorum-types",
            "quorum-client",
            "mesh",
            "config",
            "hwprobe",
            "api",
            "cli",
            "client",
            "fake-nvml",
            "fake-bmc",
            "quorum",
            "agent",
            "control",
        ],
    ),
    ("lattice-quorum-state", &["quorum-types"]),
    ("lattice-placement", &["quorum-types"]),
    ("lattice-view", &["quorum-types", "placement"]),
    ("lattice-accounting", &["quorum-types", "config", "host"]),
    (
        "lattice-replay",
        &["quorum-types", "quorum-state", "placement", "view", "rng"],
    ),
    ("lattice-mesh", &["quorum-types", "host"]),
    ("lattice-gossip", &["mesh"]),
    ("lattice-quorum-client", &["quorum-types", "mesh"]),
    ("lattice-api", &["quorum-types"]),
    ("lattice-client", &["quorum-types", "api", "host"]),
    (
        "lattice-quorum",
        &["quorum-types", "quorum-state", "mesh", "config", "host"],
    ),
    // The daemon itself on simulated ground; nothing uses it.
    (
        "lattice-quorum-sim",
        &[
            "quorum",
            "quorum-types",
            "quorum-state",
            "quorum-client",
            "mesh",
            "rng",
        ],
    ),
    (
        "lattice-agent",
        &[
            "quorum-types",
            "hwprobe",
            "redfish",
            "gossip",
            "mesh",
            "config",
            "host",
        ],
    ),
    (
        "lattice-control",
        &[
            "quorum-types",
            "quorum-client",
            "placement",
            "view",
            "accounting",
            "gossip",
            "mesh",
            "hwprobe",
            "redfish",
            "api",
            "config",
            "host",
        ],
    ),
    (
        "lattice-cli",
        &[
            "quorum-types",
            "quorum-client",
            "mesh",
            "hwprobe",
            "api",
            "client",
            "replay",
            "fake-nvml",
            "fake-bmc",
            "quorum",
            "agent",
            "control",
            "host",
        ],
    ),
];

fn members() -> Vec<PathBuf> {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let list = text
        .split_once("members = [")
        .unwrap()
        .1
        .split_once(']')
        .unwrap()
        .0;
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(|folder| root().join(folder))
        .collect()
}

/// Name and our own packages it uses outside its tests.
fn manifest(folder: &Path) -> (String, BTreeSet<String>) {
    let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let name = text
        .split_once("name = \"")
        .unwrap()
        .1
        .split_once('"')
        .unwrap()
        .0
        .to_owned();
    let mut section = "";
    let mut used = BTreeSet::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix('[') {
            section = title.trim_end_matches(']');
        } else if section == "dependencies" && line.starts_with("lattice-") {
            let end = line.find(['.', ' ', '=']).unwrap();
            used.insert(line[..end].to_owned());
        }
    }
    (name, used)
}

#[test]
fn no_crate_reaches_through_a_wall() {
    let allowed: BTreeMap<_, _> = ARROWS.into_iter().collect();
    let members = members();
    assert_eq!(
        members.len(),
        allowed.len(),
        "a new crate belongs into the list above"
    );
    for folder in members {
        let (name, used) = manifest(&folder);
        let may = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("{name} is not listed"));
        let may: BTreeSet<_> = may.iter().map(|short| format!("lattice-{short}")).collect();
        assert_eq!(used, may, "what {name} uses is not what is drawn");
    }
}

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
fn every_source_file_says_what_it_is() {
    let mut files = Vec::new();
    for member in members() {
        rust_files(&member.join("src"), &mut files);
    }
    assert!(files.len() > 100, "{} files", files.len());
    let silent: Vec<_> = files
        .iter()
        .filter(|path| !path.ends_with("tests.rs"))
        .filter(|path| {
            !fs::read_to_string(path)
                .unwrap()
                .trim_start()
                .starts_with("//!")
        })
        .collect();
    assert!(silent.is_empty(), "no //! at the top: {silent:#?}");
}

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
