//! Firmware managed by the BMC of one node: the version of the BMC itself, and of every listed component.

mod component;

use crate::chassis_managers;
use crate::documents::ResourcePath;
use crate::systems::{System, Systems};
use crate::walk::{DocumentWalk, Member, link, links, target, text};
use component::{Component, Role};
use lattice_conformance::{ClassRecord, Finding, FindingCode, Power, Reading};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The firmware inventory, as far as it concerns one system.
pub(crate) struct Inventory {
    /// State of the list: present, absent, or the reason why it is unknown. A list with an unusable entry is unknown;
    /// its other entries are known.
    list: Reading<()>,
    /// Versions by component.
    versions: BTreeMap<String, Reading<String>>,
    /// Version of the BMC's entry.
    bmc: Reading<String>,
    /// Version of the BIOS's entry. It belongs to class `bios` and is not among the components.
    pub(crate) bios: Reading<String>,
    missing_members: Vec<ResourcePath>,
}

impl Inventory {
    const fn unknown(list: Reading<()>) -> Self {
        Self {
            list,
            versions: BTreeMap::new(),
            bmc: Reading::Absent,
            bios: Reading::Absent,
            missing_members: Vec::new(),
        }
    }

    /// Reports members that the BMC lists but does not provide.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        /// Maximum number of names listed in a finding.
        const MOST_NAMES: usize = 5;
        let Some(first) = self.missing_members.first() else {
            return Vec::new();
        };
        let names = self
            .missing_members
            .iter()
            .take(MOST_NAMES)
            .map(ResourcePath::decoded_last);
        let names: Vec<String> = names.collect();
        let more = self.missing_members.len() - names.len();
        let (parent, names) = (first.parent(), names.join(", "));
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let detail = format!("{parent} lists resources that do not exist: {names}{more}");
        vec![Finding::new(FindingCode::BmcDeadLink, detail)]
    }

    /// The reading of `entry`, or the state of the list if an unknown part of the list may contain the entry.
    pub(crate) fn or_list_state(&self, entry: &Reading<String>) -> Reading<String> {
        match (&self.list, entry) {
            (Reading::Present(()) | Reading::Absent, entry) | (_, entry @ Reading::Present(_)) => {
                entry.clone()
            }
            (unknown, _) => unknown.clone().map(|()| String::new()),
        }
    }
}

/// Reads the inventory: entries of this system and entries shared by all systems, without copies that do not run.
pub(crate) fn inventory<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    systems: &Systems<'a>,
    system: &System<'a>,
) -> Inventory {
    let service = walk.follow(root, "UpdateService");
    let path = service.and_then(|service| target(service, "FirmwareInventory"));
    let list = match path.and_then(|path| walk.members(&path)) {
        Reading::Present(list) => list,
        other => return Inventory::unknown(other.map(|_| ())),
    };
    let images = Images::of(walk, root, system);
    let mut inventory = Inventory::unknown(match list.unread() {
        Reading::Absent => Reading::Present(()),
        unread => unread,
    });
    let mut components = Vec::new();
    for member in list.members {
        let last = member.path.decoded_last();
        let last = last.as_str();
        if component::is_copy(last)
            || images.is_copy(&member.path)
            || is_name_of_other_system(last, systems, system)
        {
            continue;
        }
        match read(walk, &member, systems, system, &images) {
            MemberReading::Component(component) => components.push(component),
            MemberReading::Unread(reading) => {
                if reading == Reading::Absent {
                    inventory.missing_members.push(member.path.clone());
                }
                let name = component::name_of_unread(last, &system.name.id);
                inventory.versions.insert(name, reading);
            }
            MemberReading::OtherSystem => {}
        }
    }
    for (name, component) in component::with_unique_names(components) {
        match component.role {
            Role::Bios if inventory.bios == Reading::Absent => inventory.bios = component.version,
            Role::Bmc => {
                if inventory.bmc.present().is_none() {
                    inventory.bmc = component.version.clone();
                }
                inventory.versions.insert(name, component.version);
            }
            Role::Bios | Role::Other => {
                inventory.versions.insert(name, component.version);
            }
        }
    }
    inventory
}

enum MemberReading {
    Component(Component),
    Unread(Reading<String>),
    OtherSystem,
}

fn read<'a>(
    walk: &mut DocumentWalk<'a>,
    member: &Member<'a>,
    systems: &Systems<'a>,
    system: &System<'a>,
    images: &Images,
) -> MemberReading {
    let value = match walk.member(member) {
        Reading::Present(value) => value,
        other => return MemberReading::Unread(other.map(|_| String::new())),
    };
    let related = links(value, "RelatedItem");
    let of_systems = |path: &&ResourcePath| systems.found.iter().any(|one| one.path.is_same(path));
    let mut named = related.iter().filter(of_systems).peekable();
    if named.peek().is_some() && !named.any(|path| path.is_same(&system.path)) {
        return MemberReading::OtherSystem;
    }
    let mut component = Component::read(value, &member.path.decoded_last(), &system.name.id);
    if images.bmc.contains(&member.path) {
        component.role = Role::Bmc;
    }
    if images.bios.contains(&member.path) {
        component.role = Role::Bios;
    }
    if component.is_copy {
        return MemberReading::OtherSystem;
    }
    MemberReading::Component(component)
}

/// Whether an entry's name begins with the id of another system: `Node1.BIOS` on a blade of two.
fn is_name_of_other_system(name: &str, systems: &Systems<'_>, system: &System<'_>) -> bool {
    let others = systems.found.iter().filter(|one| one.path != system.path);
    let mut others = others.map(|one| one.name.id.as_str());
    others.any(|id| component::without_prefix(name, id) != name)
        && component::without_prefix(name, &system.name.id) == name
}

/// The running (`bmc`, `bios`) and other (`idle`) images of the BMC and the BIOS, if the BMC identifies them by links.
#[derive(Default)]
struct Images {
    bmc: BTreeSet<ResourcePath>,
    bios: BTreeSet<ResourcePath>,
    idle: BTreeSet<ResourcePath>,
}

impl Images {
    fn of<'a>(walk: &mut DocumentWalk<'a>, root: &Value, system: &System<'a>) -> Self {
        let mut images = Self::default();
        let (managers, _) = chassis_managers::managers(walk, root, system);
        for (_, manager) in managers.iter().take(1) {
            images.bmc = images.note(manager);
        }
        if let Reading::Present(bios) = system.follow(walk, "Bios") {
            images.bios = images.note(bios);
        }
        images
    }

    fn note(&mut self, owner: &Value) -> BTreeSet<ResourcePath> {
        let linked = owner.get("Links").unwrap_or(&Value::Null);
        let active: BTreeSet<_> = link(linked, "ActiveSoftwareImage").into_iter().collect();
        if !active.is_empty() {
            let all = links(linked, "SoftwareImages").into_iter();
            self.idle.extend(all.filter(|path| !active.contains(path)));
        }
        active
    }

    fn is_copy(&self, path: &ResourcePath) -> bool {
        self.idle.contains(path)
    }
}

/// Fills class `bmc`. Every key is required: an unreadable key makes the class incomplete, so that a slow BMC does not
/// look like a changed one.
pub(crate) fn record<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    system: &System<'a>,
    inventory: &Inventory,
    power: &Power,
    record: &mut ClassRecord,
) {
    let (managers, silent) = chassis_managers::managers(walk, root, system);
    record.require("bmc.firmware", version(&managers, &silent, inventory));
    let manager = managers.first().map(|(_, value)| *value);
    let model = manager.map_or_else(
        || silent.map(|()| String::new()),
        |value| text(value, "Model"),
    );
    record.require("bmc.model", model);
    record.require("bmc.power.exception_action", power.exception_action.clone());
    record.require(
        "bmc.power.restore_policy",
        text(system.value, "PowerRestorePolicy"),
    );
    let names: Vec<String> = inventory.versions.keys().cloned().collect();
    record.require(
        "bmc.inventory.names",
        inventory.list.clone().map(|()| names),
    );
    for (component, version) in &inventory.versions {
        let key = format!("bmc.inventory.{component}.version");
        record.require(key, version.clone());
    }
}

/// Version of the BMC, as reported by its manager, else by its inventory entry.
fn version(
    managers: &[(ResourcePath, &Value)],
    silent: &Reading<()>,
    inventory: &Inventory,
) -> Reading<String> {
    let reported_versions: Vec<Reading<String>> = managers
        .iter()
        .map(|(_, value)| text(value, "FirmwareVersion"))
        .collect();
    let entry = inventory.or_list_state(&inventory.bmc);
    let unread = silent.clone().map(|()| String::new());
    let all = || reported_versions.iter().chain([&entry, &unread]);
    let unknown = |reading: &&Reading<String>| !reading.is_known();
    all()
        .find(|reading| reading.present().is_some())
        .or_else(|| all().find(unknown))
        .or_else(|| all().find(|reading| **reading == Reading::Unsupported))
        .cloned()
        .unwrap_or(Reading::Absent)
}
