//! Where a BMC lists its tasks and what it logged.

use crate::documents::{Documents, ResourcePath};
use crate::own;
use crate::systems::{self, System};
use crate::walk::{Walk, link, string, type_name};
use lattice_hwprobe::Reading;
use serde_json::Value;
use std::collections::BTreeSet;

/// The most logs of one BMC that are read.
const MOST_LOGS: usize = 8;
/// The most log services of one list that are looked at.
const MOST_SERVICES: usize = 16;

/// Where to read, found once. Empty for a BMC that lists neither, which is usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeedRoute {
    pub(super) tasks: Option<ResourcePath>,
    pub(super) logs: Vec<Log>,
    pub(super) systems: Vec<Name>,
}

/// A log's list of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) name: String,
    pub(super) entries: ResourcePath,
    /// The ids of the systems it is of.
    pub(super) of: Vec<String>,
}

/// A system that is a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) id: String,
    path: ResourcePath,
}

/// What looking for them gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeedsFound {
    /// As far as the documents go.
    pub route: DeedRoute,
    /// Whether every resource on the way answered: where one did not, there may be more.
    pub is_whole: bool,
    /// What to fetch before asking again. Empty when the route is final.
    pub wanted: BTreeSet<ResourcePath>,
}

/// Finds by links, from the service's root, where tasks and logs are listed.
#[must_use]
pub fn find_deeds(documents: &Documents) -> DeedsFound {
    let mut walk = Walk::new(documents);
    let route = find(&mut walk);
    DeedsFound {
        route: route.unwrap_or_default(),
        is_whole: walk.is_answered(),
        wanted: walk.wanted(),
    }
}

fn find(walk: &mut Walk<'_>) -> Option<DeedRoute> {
    let Reading::Present(root) = walk.get(&ResourcePath::root()) else {
        return None;
    };
    let mut route = DeedRoute {
        tasks: tasks(walk, root),
        ..DeedRoute::default()
    };
    let systems = systems::systems(walk, root).ok()?;
    for system in systems.found.iter().filter(|system| system.is_node()) {
        route.systems.push(Name {
            id: system.name.id.clone(),
            path: system.path.clone(),
        });
        let (managers, _) = own::managers(walk, root, system);
        let (chassis, _) = own::chassis(walk, root, &systems, system);
        let chassis = chassis.iter().filter(|one| !one.is_shared);
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

fn tasks(walk: &mut Walk<'_>, root: &Value) -> Option<ResourcePath> {
    let service = walk.follow(root, "Tasks");
    link(service.present()?, "Tasks")
}

fn logs(walk: &mut Walk<'_>, holder: &Value, system: &System<'_>, found: &mut Vec<Log>) {
    let Some(path) = link(holder, "LogServices") else {
        return;
    };
    let Reading::Present(services) = walk.members(&path) else {
        return;
    };
    for member in services.iter().take(MOST_SERVICES) {
        let name = member.path.last();
        if is_of_access(name) {
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
            log.of.push(id);
            log.of.dedup();
        } else if found.len() < MOST_LOGS {
            let name = string(service, "Id").unwrap_or(name);
            found.push(Log {
                name: name.chars().take(super::MOST_NAME_CHARS).collect(),
                entries,
                of: vec![id],
            });
        }
    }
}

/// Logs of who came in and was refused say nothing of the hardware, and everything of people.
fn is_of_access(name: &str) -> bool {
    name.to_ascii_lowercase().contains("audit")
}

impl DeedRoute {
    /// Whether there is nothing to read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tasks.is_none() && self.logs.is_empty()
    }

    /// How many lists there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.tasks.is_some()) + self.logs.len()
    }

    /// A list by its number, alone; the first is that of the tasks where there is one.
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

    /// Whether everything of the first page of a part is among these documents already.
    #[must_use]
    pub fn is_at_hand(&self, documents: &Documents) -> bool {
        let lists = self.logs.iter().map(|log| &log.entries).chain(&self.tasks);
        lists.into_iter().all(|list| documents.get(list).is_some())
    }

    /// Whether it is of tasks: what is under way ends, so these are read each time.
    #[must_use]
    pub const fn has_tasks(&self) -> bool {
        self.tasks.is_some()
    }
}

/// Which of `of` something concerns that came of `origin`: those whose own resource it is, else all.
pub(super) fn concerned(of: &[String], systems: &[Name], origin: Option<&str>) -> Vec<String> {
    let Some(origin) = origin else {
        return of.to_vec();
    };
    let is_of = |system: &Name| {
        let inside = origin.strip_prefix(system.path.as_str());
        if inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return true;
        }
        // `Chassis/Node0/…`, `FirmwareInventory/Node0.BIOS`; a number alone is no name.
        let has_name = system.id.chars().any(char::is_alphabetic);
        let named = |part: &str| {
            part.strip_prefix(&system.id)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_', '-', ':']))
        };
        has_name && origin.split('/').any(named)
    };
    let own: Vec<&Name> = systems.iter().filter(|system| is_of(system)).collect();
    if own.is_empty() {
        return of.to_vec();
    }
    let mut of = of.to_vec();
    of.retain(|id| own.iter().any(|name| name.id == *id));
    of
}
