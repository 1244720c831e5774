//! Dependency rules between crates, as in ARCHITECTURE.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Permitted dependencies between the project's packages, outside tests; no others exist. Daemons are used by the
/// founder of in-process clusters, by the command line, which runs all of them in its demo, and by the whole-system
/// tests.
const ARROWS: [(&str, &[&str]); 28] = [
    ("lattice-host", &[]),
    ("lattice-rng", &[]),
    ("lattice-conformance", &[]),
    ("lattice-hwprobe", &["conformance"]),
    ("lattice-redfish", &["conformance", "host"]),
    ("lattice-quorum-types", &[]),
    ("lattice-config", &[]),
    ("lattice-fake-nvml", &[]),
    ("lattice-checkpointer", &[]),
    ("lattice-fake-bmc", &["conformance", "redfish"]),
    ("lattice-fake-waldur", &[]),
    // The package builds the four programs from their sources, so it has their dependencies.
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
    // The quorum daemon in a simulated environment; no package uses it.
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
            "conformance",
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
            "conformance",
            "redfish",
            "api",
            "config",
            "host",
        ],
    ),
    (
        "lattice-cluster",
        &[
            "quorum-types",
            "quorum-client",
            "mesh",
            "gossip",
            "hwprobe",
            "quorum",
            "agent",
            "control",
        ],
    ),
    (
        "lattice-cli",
        &[
            "cluster",
            "quorum-types",
            "mesh",
            "conformance",
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

/// Name of a package, and its dependencies on the project's packages outside tests.
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
    for folder in [
        "quorum/state",
        "control/placement",
        "control/view",
        "hwprobe/conformance",
    ] {
        let rules = fs::read_to_string(root().join(folder).join("clippy.toml")).unwrap();
        for banned in ["SystemTime::now", "Instant::now", "HashMap", "std::fs"] {
            assert!(
                rules.contains(banned),
                "{folder}/clippy.toml does not ban {banned}"
            );
        }
    }
}

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
