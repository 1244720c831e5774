//! Dependencies between the packages of the workspace.

use super::workspace::{Package, packages};
use std::collections::{BTreeMap, BTreeSet};

/// Permitted dependencies between the project's packages, outside tests; no others exist. Daemons are used by the
/// founder of in-process clusters, by the command line, which runs all of them in its demo, and by the whole-system
/// tests.
const ARROWS: &[(&str, &[&str])] = &[
    ("lattice-conformance", &[]),
    ("lattice-hwprobe", &["conformance"]),
    ("lattice-fake-nvml", &[]),
    ("lattice-host", &[]),
    ("lattice-redfish", &["conformance", "host"]),
    ("lattice-fake-bmc", &["conformance", "redfish"]),
    ("lattice-config", &[]),
    ("lattice-quorum-types", &[]),
    ("lattice-mesh", &["host", "quorum-types"]),
    ("lattice-quorum-state", &["quorum-types"]),
    (
        "lattice-quorum",
        &["config", "host", "mesh", "quorum-state", "quorum-types"],
    ),
    ("lattice-rng", &[]),
    ("lattice-quorum-client", &["mesh", "quorum-types"]),
    // The quorum daemon in a simulated environment; no package uses it.
    (
        "lattice-quorum-sim",
        &[
            "mesh",
            "quorum",
            "quorum-client",
            "quorum-state",
            "quorum-types",
            "rng",
        ],
    ),
    ("lattice-agent-rpc", &["quorum-types"]),
    ("lattice-gossip", &["mesh"]),
    (
        "lattice-agent",
        &[
            "agent-rpc",
            "config",
            "conformance",
            "gossip",
            "host",
            "hwprobe",
            "mesh",
            "quorum-types",
            "redfish",
        ],
    ),
    ("lattice-checkpointer", &[]),
    ("lattice-api", &["quorum-types"]),
    ("lattice-ledger", &["quorum-types"]),
    ("lattice-placement", &["quorum-types"]),
    (
        "lattice-view",
        &["conformance", "placement", "quorum-types"],
    ),
    (
        "lattice-waldur",
        &["config", "host", "ledger", "quorum-types"],
    ),
    // `fake-bmc` and `quorum-state` are optional: the feature `testing` needs them.
    (
        "lattice-engine",
        &[
            "agent-rpc",
            "api",
            "config",
            "conformance",
            "fake-bmc",
            "gossip",
            "host",
            "ledger",
            "mesh",
            "placement",
            "quorum-client",
            "quorum-state",
            "quorum-types",
            "redfish",
            "view",
            "waldur",
        ],
    ),
    (
        "lattice-http",
        &[
            "agent-rpc",
            "api",
            "config",
            "conformance",
            "engine",
            "host",
            "ledger",
            "mesh",
            "placement",
            "quorum-client",
            "quorum-types",
            "redfish",
            "view",
            "waldur",
        ],
    ),
    (
        "lattice-control",
        &[
            "config",
            "conformance",
            "engine",
            "gossip",
            "host",
            "http",
            "mesh",
            "placement",
            "quorum-client",
            "quorum-types",
            "waldur",
        ],
    ),
    ("lattice-fake-waldur", &[]),
    (
        "lattice-replay",
        &[
            "agent-rpc",
            "config",
            "placement",
            "quorum-state",
            "quorum-types",
            "rng",
            "view",
        ],
    ),
    ("lattice-client", &["api", "config", "host", "quorum-types"]),
    (
        "lattice-cluster",
        &[
            "agent",
            "control",
            "gossip",
            "http",
            "hwprobe",
            "mesh",
            "quorum",
            "quorum-client",
            "quorum-types",
        ],
    ),
    (
        "lattice-cli",
        &[
            "agent",
            "api",
            "client",
            "cluster",
            "config",
            "conformance",
            "control",
            "fake-bmc",
            "fake-nvml",
            "host",
            "hwprobe",
            "mesh",
            "quorum",
            "quorum-types",
            "replay",
        ],
    ),
    // The package builds the four programs from their sources, so it has their dependencies.
    (
        "lattice-tests",
        &[
            "agent",
            "agent-rpc",
            "api",
            "cli",
            "client",
            "config",
            "control",
            "engine",
            "fake-bmc",
            "fake-nvml",
            "host",
            "hwprobe",
            "mesh",
            "quorum",
            "quorum-client",
            "quorum-types",
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
