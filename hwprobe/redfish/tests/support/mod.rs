//! Recorded trees for tests and the example, one or more per archive.

#![allow(dead_code, reason = "no test uses all of it")]

use lattice_conformance::Reading;
use lattice_redfish::{
    BmcEventsRead, BmcReport, Breadth, Documents, EventListRoute, FetchedEventDocuments,
    ResourcePath, Scope, Selector, find_event_lists, interpret, read_events, recorded,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Trees by name: `<archive>`, or `<archive>/<part>` for an archive of several trees.
pub const TREES: &[(&str, &str, &[&str])] = &[
    ("cray-ex235a-mi250x", "cray-ex235a-mi250x", &[]),
    ("cray-ex235n-a100", "cray-ex235n-a100", &[]),
    ("hpe-dl325-ilo5", "hpe-dl325-ilo5", &[]),
    ("hpe-dl380a-gen11-ilo6", "hpe-dl380a-gen11-ilo6", &[]),
    ("dell-poweredge-idrac", "dell-poweredge-idrac", &[]),
    ("gigabyte-h262-ami", "gigabyte-h262-ami", &[]),
    ("supermicro-x10sdv", "supermicro-x10sdv", &[]),
    ("bmclib/dell", "dell-and-supermicro-bmclib", &["/dell/"]),
    (
        "bmclib/supermicro-1.9",
        "dell-and-supermicro-bmclib",
        &[
            "/serviceroot.json",
            "/systems.json",
            "/systems_1.json",
            "/systems_bios.json",
            "/managers.json",
            "/managers_1.json",
        ],
    ),
    (
        "bmclib/supermicro-1.14",
        "dell-and-supermicro-bmclib",
        &["/smc_1.14.0_"],
    ),
    (
        "powershelves/delta",
        "nvidia-powershelves",
        &["powershelf_delta/"],
    ),
    (
        "powershelves/liteon",
        "nvidia-powershelves",
        &["powershelf_liteon/"],
    ),
    (
        "powershelves/none",
        "nvidia-powershelves",
        &["powershelf_none/"],
    ),
    (
        "sushy-samples",
        "openstack-sushy-samples",
        &[
            "/root.json",
            "/system.json",
            "/system_collection.json",
            "/manager.json",
            "/manager_collection.json",
            "/updateservice.json",
            "/firmwareinventory_collection.json",
            "/softwareinventory.json",
            "/bios.json",
            "/bios_settings.json",
            "/secure_boot.json",
            "/chassis.json",
            "/chassis_collection.json",
            "/power.json",
        ],
    ),
];

/// Folder of the archives.
pub fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures/redfish")
}

/// One tree of [`TREES`]; a missing resource counts as 404, as on the recorded BMC.
pub fn tree(name: &str) -> Documents {
    let (_, archive, parts) = TREES
        .iter()
        .find(|(tree, _, _)| *tree == name)
        .unwrap_or_else(|| panic!("no tree {name}"));
    let path = captures().join(format!("{archive}.tar.gz"));
    let documents = if parts.is_empty() {
        recorded::load(&path).expect("tree loads")
    } else {
        let folder = tempfile::tempdir().expect("temporary folder");
        unpack(&path, parts, folder.path());
        recorded::load(folder.path()).expect("part loads")
    };
    rooted(documents)
}

/// Unpacks the files of an archive with one of `parts` in their path, below that part.
fn unpack(archive: &Path, parts: &[&str], into: &Path) {
    let file = std::fs::File::open(archive).expect("archive opens");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("entry");
        let name = entry.path().expect("path").to_string_lossy().into_owned();
        let Some((at, part)) = parts
            .iter()
            .find_map(|part| Some((name.find(part)?, *part)))
        else {
            continue;
        };
        let is_folder = part.ends_with('/');
        let below = if is_folder {
            &name[at + part.len()..]
        } else {
            &name[at + 1..]
        };
        if !below.is_empty() && !below.ends_with('/') {
            let target = into.join(below);
            std::fs::create_dir_all(target.parent().expect("parent")).expect("folder");
            entry.unpack(target).expect("unpacks");
        }
    }
}

/// Adds a service root to a recording without one, with links to its collections.
fn rooted(mut documents: Documents) -> Documents {
    let root = ResourcePath::root();
    if documents.get(&root).is_some() {
        return documents;
    }
    let mut made =
        json!({"@odata.id": "/redfish/v1", "@odata.type": "#ServiceRoot.v1_0_0.ServiceRoot"});
    for (path, reading) in &documents.0 {
        let kind = reading
            .present()
            .and_then(|value| value["@odata.type"].as_str())
            .unwrap_or_default();
        for (collection, property) in [
            ("#ComputerSystemCollection.", "Systems"),
            ("#ChassisCollection.", "Chassis"),
            ("#ManagerCollection.", "Managers"),
            ("#UpdateService.", "UpdateService"),
        ] {
            if kind.starts_with(collection) {
                made[property] = json!({"@odata.id": path.as_str()});
            }
        }
    }
    documents.0.insert(root, Reading::Present(made));
    documents
}

/// Reads a tree as a client would: starts without documents and fetches the wanted ones. Returns the report and the
/// number of resources fetched.
pub fn read(tree: &Documents, scope: &Scope) -> (BmcReport, usize) {
    let mut at_hand = Documents::default();
    for _ in 0..64 {
        let read = interpret(&at_hand, scope);
        if read.wanted.is_empty() {
            return (read.report, at_hand.0.len());
        }
        for path in read.wanted {
            let answer = tree.get(&path).cloned().unwrap_or(Reading::Absent);
            let again = at_hand.0.insert(path.clone(), answer);
            assert!(again.is_none(), "{path} was fetched before");
        }
    }
    panic!("the reader never has enough");
}

/// The event lists of a tree, as a client finds them, and the number of resources fetched.
pub fn deed_route(tree: &Documents) -> (EventListRoute, usize) {
    let mut at_hand = Documents::default();
    loop {
        let found = find_event_lists(&at_hand);
        if found.wanted.is_empty() {
            return (found.route, at_hand.0.len());
        }
        fetch(tree, &mut at_hand, found.wanted);
    }
}

/// The events of a tree, as a client reads them, and the number of resources fetched.
pub fn deeds(
    tree: &Documents,
    route: &EventListRoute,
    seen: &FetchedEventDocuments,
) -> (BmcEventsRead, usize) {
    let mut at_hand = Documents::default();
    loop {
        let mut read = read_events(&at_hand, route, seen);
        if read.wanted.is_empty() {
            return (read, at_hand.0.len());
        }
        fetch(tree, &mut at_hand, std::mem::take(&mut read.wanted));
    }
}

fn fetch(tree: &Documents, at_hand: &mut Documents, wanted: BTreeSet<ResourcePath>) {
    for path in wanted {
        let answer = tree.get(&path).cloned().unwrap_or(Reading::Absent);
        let again = at_hand.0.insert(path.clone(), answer);
        assert!(again.is_none(), "{path} was fetched before");
    }
}

/// Everything about every system.
pub fn everything() -> Scope {
    scope(Selector::Every, Breadth::Everything)
}

pub fn scope(systems: Selector, breadth: Breadth) -> Scope {
    Scope { systems, breadth }
}

/// The documents of one pass, as a client collects them.
pub fn fetched(tree: &Documents, scope: &Scope) -> Documents {
    let mut at_hand = Documents::default();
    loop {
        let wanted = interpret(&at_hand, scope).wanted;
        if wanted.is_empty() {
            return at_hand;
        }
        for path in wanted {
            let answer = tree.get(&path).cloned().unwrap_or(Reading::Absent);
            at_hand.0.insert(path, answer);
        }
    }
}

/// The document at a path, for modification.
pub fn document<'a>(documents: &'a mut Documents, path: &str) -> &'a mut Value {
    let path = ResourcePath::parse(path).expect("path");
    match documents.0.get_mut(&path) {
        Some(Reading::Present(value)) => value,
        other => panic!("{path}: {other:?}"),
    }
}

/// Number of cases per property: `LATTICE_FUZZ_CASES`, else `usual`.
pub fn cases(usual: u32) -> u32 {
    let asked = std::env::var("LATTICE_FUZZ_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}
