//! Dependencies between the packages of the workspace.

use super::workspace::{Package, packages};
use std::collections::{BTreeMap, BTreeSet};

/// Permitted dependencies between the project's packages, outside tests; no others exist. Daemons are used by the
/// founder of in-process clusters, by the command line, which runs all of them in its demo, and by the whole-system
/// tests.
const ARROWS: &[(&str, &[&str])] = &[
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

/// Daemons; a package that depends on one contains it.
const DAEMONS: &[&str] = &["agent", "control", "quorum"];

/// Packages that run daemons: in one process with others, in a simulation, or from their sources.
const DAEMON_USERS: &[&str] = &["cli", "cluster", "quorum-sim", "tests"];

#[test]
fn dependencies_are_the_permitted_ones() {
    let permitted: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let packages = packages();
    let names: BTreeSet<&str> = packages.iter().map(|package| &package.name[..]).collect();
    let listed: BTreeSet<&str> = permitted.keys().copied().collect();
    assert_eq!(
        names, listed,
        "packages of the workspace, and rows of ARROWS"
    );
    for package in &packages {
        let uses: BTreeSet<&str> = package
            .uses
            .iter()
            .map(|name| Package::short(name))
            .collect();
        let may: BTreeSet<&str> = permitted[&package.name[..]].iter().copied().collect();
        assert_eq!(
            uses, may,
            "dependencies of {}, and its row of ARROWS",
            package.name
        );
    }
}

#[test]
fn daemons_are_used_only_by_packages_that_run_them() {
    let packages = packages();
    let mut found = 0;
    for package in &packages {
        let name = Package::short(&package.name);
        found += usize::from(DAEMONS.contains(&name));
        let uses = package.uses.iter().map(|name| Package::short(name));
        let daemons: Vec<&str> = uses.filter(|used| DAEMONS.contains(used)).collect();
        assert!(
            daemons.is_empty() || DAEMON_USERS.contains(&name),
            "{} depends on daemons: {daemons:?}; move what it needs to a crate of its own",
            package.name
        );
    }
    assert_eq!(found, DAEMONS.len(), "daemons in the workspace");
}
