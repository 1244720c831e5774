//! Locations of a BMC's task list and logs.

use crate::chassis_managers::{self, ChassisExtent};
use crate::documents::{Documents, ResourcePath};
use crate::systems::{self, System};
use crate::walk::{DocumentWalk, link, string, type_name};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of logs read per BMC.
const MAX_LOGS: usize = 8;
/// Maximum number of log services examined per list.
const MAX_LOG_SERVICES: usize = 16;

/// Locations of the lists, found once. Empty for a BMC without such lists, which is common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventListRoute {
    pub(super) tasks: Option<ResourcePath>,
    pub(super) logs: Vec<Log>,
    pub(super) systems: Vec<NodeSystem>,
}

/// A log's list of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) name: String,
    pub(super) entries: ResourcePath,
    /// Ids of the systems that the log belongs to.
    pub(super) systems: Vec<String>,
}

/// A system that is a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeSystem {
    pub(super) id: String,
    path: ResourcePath,
}

/// Result of the search for lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventListSearch {
    /// The route, as far as the documents allow.
    pub route: EventListRoute,
    /// Whether every resource on the way answered; otherwise there may be further lists.
    pub is_complete: bool,
    /// Documents to fetch before the next call. Empty if the route is final.
    pub wanted: BTreeSet<ResourcePath>,
}

/// Finds the lists of tasks and logs by links from the service root.
#[must_use]
pub fn find_event_lists(documents: &Documents) -> EventListSearch {
    let mut walk = DocumentWalk::new(documents);
    let route = find(&mut walk);
    EventListSearch {
        route: route.unwrap_or_default(),
        is_complete: walk.is_answered(),
        wanted: walk.wanted(),
    }
}

fn find(walk: &mut DocumentWalk<'_>) -> Option<EventListRoute> {
    let Reading::Present(root) = walk.get(&ResourcePath::root()) else {
        return None;
    };
    let mut route = EventListRoute {
        tasks: tasks(walk, root),
        ..EventListRoute::default()
    };
    let systems = systems::systems(walk, root).ok()?;
    for system in systems.found.iter().filter(|system| system.is_node()) {
        route.systems.push(NodeSystem {
            id: system.name.id.clone(),
            path: system.path.clone(),
        });
        let (managers, _) = chassis_managers::managers(walk, root, system);
        let nearest = ChassisExtent::Nearest;
        let search = chassis_managers::chassis(walk, root, &systems, system, nearest);
        let chassis = search.found.iter().filter(|one| !one.is_shared);
        let holders = [system.value].into_iter();
        let holders = holders
            .chain(managers.into_iter().map(|(_, value)| value))
            .chain(chassis.map(|one| one.value));
        for holder in holders.collect::<Vec<_>>() {
            logs(walk, holder, system, &mut route.logs);
        }
    }
    Some(route)
}

fn tasks(walk: &mut DocumentWalk<'_>, root: &Value) -> Option<ResourcePath> {
    let service = walk.follow(root, "Tasks");
    link(service.present()?, "Tasks")
}

fn logs(walk: &mut DocumentWalk<'_>, holder: &Value, system: &System<'_>, found: &mut Vec<Log>) {
    let Some(path) = link(holder, "LogServices") else {
        return;
    };
    let Reading::Present(services) = walk.members(&path) else {
        return;
    };
    for member in services.members.iter().take(MAX_LOG_SERVICES) {
        let name = member.path.last();
        if is_access_log(name) {
            continue;
        }
        let Reading::Present(service) = walk.member(member) else {
            continue;
        };
        if type_name(service).is_some_and(|name| name != "LogService") {
            continue;
        }
        let Some(entries) = link(service, "Entries") else {
            continue;
        };
        let id = system.name.id.clone();
        if let Some(log) = found.iter_mut().find(|log| log.entries == entries) {
            log.systems.push(id);
            log.systems.dedup();
        } else if found.len() < MAX_LOGS {
            let name = string(service, "Id").unwrap_or(name);
            found.push(Log {
                name: name.chars().take(super::MAX_NAME_CHARS).collect(),
                entries,
                systems: vec![id],
            });
        }
    }
}

/// Whether this is an access log. Such logs contain no data about the hardware, but personal data.
fn is_access_log(name: &str) -> bool {
    name.to_ascii_lowercase().contains("audit")
}

impl EventListRoute {
    /// Whether there is no list to read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tasks.is_none() && self.logs.is_empty()
    }

    /// Number of lists.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.tasks.is_some()) + self.logs.len()
    }

    /// The route to one list only, by index; index 0 is the task list if there is one.
    #[must_use]
    pub fn part(&self, number: usize) -> Self {
        let tasks = self.tasks.clone();
        let before = usize::from(tasks.is_some());
        let log = number.checked_sub(before);
        Self {
            tasks: tasks.filter(|_| number == 0),
            logs: log
                .and_then(|at| self.logs.get(at))
                .cloned()
                .into_iter()
                .collect(),
            systems: self.systems.clone(),
        }
    }

    /// Whether the first page of every list of the route is already among these documents.
    #[must_use]
    pub fn is_fetched(&self, documents: &Documents) -> bool {
        let lists = self.logs.iter().map(|log| &log.entries).chain(&self.tasks);
        lists.into_iter().all(|list| documents.get(list).is_some())
    }

    /// Whether the route includes the task list. Running tasks end, so the list is read in every pass.
    #[must_use]
    pub const fn has_tasks(&self) -> bool {
        self.tasks.is_some()
    }
}

/// The systems among `of` that an event with this `origin` concerns: those that contain the origin, else all.
pub(super) fn concerned_systems(
    of: &[String],
    systems: &[NodeSystem],
    origin: Option<&str>,
) -> Vec<String> {
    let Some(origin) = origin else {
        return of.to_vec();
    };
    let is_of = |system: &NodeSystem| {
        let inside = origin.strip_prefix(system.path.as_str());
        if inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return true;
        }
        // `Chassis/Node0/…`, `FirmwareInventory/Node0.BIOS`; a number alone is not a name.
        let has_name = system.id.chars().any(char::is_alphabetic);
        let named = |part: &str| {
            part.strip_prefix(&system.id)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_', '-', ':']))
        };
        has_name && origin.split('/').any(named)
    };
    let own: Vec<&NodeSystem> = systems.iter().filter(|system| is_of(system)).collect();
    if own.is_empty() {
        return of.to_vec();
    }
    let mut of = of.to_vec();
    of.retain(|id| own.iter().any(|name| name.id == *id));
    of
}
