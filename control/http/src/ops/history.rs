//! Node history: earlier states, and when and why they changed.

use super::{history_lines, node_id, nodes, paging, time};
use crate::{Role, caller::Caller, state::Api};
use lattice_api::{
    conformance::DiffView,
    history::{ChangesView, FleetChangeView, HistoryEntryView, KeyChangeView, LINE_KINDS},
    page::Page,
    problem::{Kind, Problem},
    text,
};
use lattice_conformance::{
    Class, ClassRecord, Difference, Reading, UnknownClass, diff, diff_by_parts, history::Cause,
};
use lattice_engine::{
    Core, HistoryError,
    history::{BMC_KIND, History, HistoryEntry, Listing, PastClassState, Source},
};
use lattice_quorum_types::{NodeId, UnixMillis, hostlist};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Maximum number of changes combined for one query about the cluster.
const MAX_CHANGES: usize = 50_000;
/// Maximum number of entries read for one query about the cluster. A newly installed cluster of 10,000 nodes has 90,000
/// first readings of classes.
const MAX_ENTRIES: usize = 500_000;
/// Entries read at a time.
const ENTRIES_PER_READ: usize = 500;

/// Filter as given by the caller.
#[derive(Debug, Default)]
pub(crate) struct HistoryQuery<'a> {
    pub(crate) since: Option<&'a str>,
    pub(crate) class: Option<&'a str>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) around: Option<&'a str>,
    pub(crate) within: Option<&'a str>,
    pub(crate) limit: Option<u32>,
    pub(crate) cursor: Option<&'a str>,
}

/// Lists the history of a node, newest first, from the data of this control, so also while the node is down. Lines from
/// the audit and from BMC logs may name people, so only operators of the whole cluster see them.
pub(crate) async fn of_node(
    api: &Api,
    caller: &Caller,
    node: &str,
    asked: &HistoryQuery<'_>,
) -> Result<Page<HistoryEntryView>, Problem> {
    let core = api.core();
    let id = node_id(node)?;
    let limit = paging::limit(asked.limit)?;
    let kinds = kinds(asked.kind)?;
    let reads_people = |what| caller.check_cluster_role(Role::Operator, what);
    let hides_people = reads_people("reading the audit").is_err();
    for (kind, what) in [
        ("audit", "reading the audit"),
        (BMC_KIND, "reading the BMC log"),
    ] {
        if kinds.as_ref().is_some_and(|kinds| kinds.contains(kind)) {
            reads_people(what)?;
        }
    }
    let mut listing = Listing {
        class: class(asked.class)?,
        kinds,
        since: parse_time(core, "since", asked.since)?.map(|at| at.0),
        until: None,
        after: paging::after(asked.cursor)?,
        hides_users: hides_people,
    };
    if let Some((from, to)) = around_range(api, &id, asked, hides_people).await? {
        listing.since = listing.since.max(Some(from));
        listing.until = Some(to);
    }
    let found = api
        .stores()
        .history
        .list(id.to_string(), listing, limit + 1);
    let found = found.await.map_err(|error| problem(&error))?;
    if found.is_empty() && core.view().node(&id).is_none() {
        return Err(Problem::unknown_node(node));
    }
    let page = paging::page(found.into_iter(), limit, |item| item.position().to_string());
    Ok(page.map(history_lines::view))
}

/// Time range of an `around` query, Unix milliseconds.
async fn around_range(
    api: &Api,
    node: &NodeId,
    asked: &HistoryQuery<'_>,
    hides_people: bool,
) -> Result<Option<(u64, u64)>, Problem> {
    let core = api.core();
    let Some(around) = asked.around.filter(|text| !text.is_empty()) else {
        return match asked.within {
            None | Some("") => Ok(None),
            Some(_) => Err(Problem::field(
                "within",
                "is valid only together with `around`",
            )),
        };
    };
    let within = lattice_api::history::context_ms(asked.within);
    let within = within.map_err(|reason| Problem::field("within", reason))?;
    let at = match around.parse::<u64>() {
        Ok(number) => {
            let name = node.to_string();
            let found = api
                .stores()
                .history
                .numbered(name, number, hides_people)
                .await;
            let found = found.map_err(|error| problem(&error))?;
            let none = || {
                let reason = format!("history line {number} of {node} is not stored");
                Problem::field("around", reason)
            };
            found.ok_or_else(none)?.position().when
        }
        Err(_) => {
            let at = parse_time(core, "around", Some(around))?;
            at.map_or(0, |at| at.0)
        }
    };
    Ok(Some((at.saturating_sub(within), at.saturating_add(within))))
}

fn kinds(text: Option<&str>) -> Result<Option<BTreeSet<String>>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let kinds = text.split(',').map(str::trim).map(|kind| {
        let is_known = LINE_KINDS.contains(&kind);
        let unknown = || format!("{kind:?} is not one of {}", LINE_KINDS.join(", "));
        is_known.then(|| kind.to_owned()).ok_or_else(unknown)
    });
    let kinds: Result<_, String> = kinds.collect();
    kinds
        .map(Some)
        .map_err(|reason| Problem::field("kind", reason))
}

fn class(text: Option<&str>) -> Result<Option<Class>, Problem> {
    let text = text.filter(|text| !text.is_empty());
    let read = text.map(str::parse).transpose();
    read.map_err(|error: UnknownClass| Problem::field("class", error.to_string()))
}

fn parse_time(core: &Core, field: &str, text: Option<&str>) -> Result<Option<UnixMillis>, Problem> {
    let text = text.filter(|text| !text.is_empty());
    let read = text.map(|text| text::moment(text, core.now())).transpose();
    read.map_err(|reason| Problem::field(field, reason))
}

/// Lists changes of all nodes since a time, by default of the last 24 hours; equal changes of several nodes are
/// combined.
pub(crate) async fn changes(api: &Api, since: Option<&str>) -> Result<ChangesView, Problem> {
    let core = api.core();
    let since = parse_time(core, "since", since)?;
    let since = since.unwrap_or(UnixMillis(core.now().0.saturating_sub(86_400_000)));
    let most = QueryLimits {
        changes: MAX_CHANGES,
        entries: MAX_ENTRIES,
    };
    let fleet = CombinedChanges::read(&api.stores().history, since, &most).await;
    Ok(fleet.map_err(|error| problem(&error))?.view(since))
}

/// Limits of one query.
struct QueryLimits {
    changes: usize,
    entries: usize,
}

/// Changes of all nodes; equal changes are combined.
#[derive(Default)]
struct CombinedChanges {
    entries: usize,
    changed: usize,
    left_out: u32,
    /// Time of the oldest entry read, if there are older ones, Unix milliseconds.
    reaches_back_to: Option<u64>,
    new: BTreeSet<String>,
    changes: BTreeMap<(Class, KeyChangeView), NodesWithChange>,
}

/// Nodes with the same change.
struct NodesWithChange {
    /// Whether the values before and after the change are both known.
    is_known: bool,
    nodes: BTreeSet<String>,
    causes: BTreeMap<String, u32>,
    first: u64,
    last: u64,
}

impl CombinedChanges {
    /// Reads newest first, so that the limits leave out the oldest changes.
    async fn read(
        history: &History,
        since: UnixMillis,
        most: &QueryLimits,
    ) -> Result<Self, HistoryError> {
        let mut fleet = Self::default();
        let mut before: Option<(u64, String, u64)> = None;
        loop {
            let page = history
                .changes(since.0, before.clone(), ENTRIES_PER_READ)
                .await?;
            let is_last = page.len() < ENTRIES_PER_READ;
            for by in page {
                if fleet.changed >= most.changes || fleet.entries >= most.entries {
                    fleet.reaches_back_to = before.map(|(when, ..)| when);
                    return Ok(fleet);
                }
                before = Some((by.entry.when, by.node.clone(), by.entry.number));
                fleet.add(by.node, by.entry);
            }
            if is_last {
                return Ok(fleet);
            }
        }
    }

    fn add(&mut self, node: String, history_entry: HistoryEntry) {
        self.entries += 1;
        if history_entry.entry.cause == Cause::First && history_entry.entry.from.is_none() {
            // Only agent data makes a node new, not the first answer of its BMC.
            if history_entry.source == Source::Agent {
                self.new.insert(node);
            }
            return;
        }
        self.changed += 1;
        self.left_out += u32::from(history_entry.entry.more > 0);
        let (class, when, cause) = (
            history_entry.entry.class,
            history_entry.when,
            history_entry.entry.cause.name(),
        );
        for change in history_entry.entry.changes {
            let is_known = change.from.is_known() && change.to.is_known();
            let view = KeyChangeView {
                key: change.key,
                from: change.from.to_string(),
                to: change.to.to_string(),
            };
            let alike = self
                .changes
                .entry((class, view))
                .or_insert_with(|| NodesWithChange {
                    is_known,
                    nodes: BTreeSet::new(),
                    causes: BTreeMap::new(),
                    first: when,
                    last: when,
                });
            alike.nodes.insert(node.clone());
            *alike.causes.entry(cause.to_owned()).or_default() += 1;
            (alike.first, alike.last) = (alike.first.min(when), alike.last.max(when));
        }
    }

    fn view(self, since: UnixMillis) -> ChangesView {
        let changes = self.changes.into_iter();
        let mut changes: Vec<FleetChangeView> = changes
            .map(|((class, change), alike)| FleetChangeView {
                class: class.to_string(),
                change,
                verdict: match alike.is_known {
                    true => "differs",
                    false => "unknown",
                }
                .to_owned(),
                nodes: fold(&alike.nodes),
                count: u32::try_from(alike.nodes.len()).unwrap_or(u32::MAX),
                causes: alike.causes,
                first: time(UnixMillis(alike.first)),
                last: time(UnixMillis(alike.last)),
            })
            .collect();
        // The sort is stable: changes of equal size stay ordered by class and key.
        changes.sort_by_key(|change| (change.verdict != "differs", Reverse(change.count)));
        ChangesView {
            since: time(since),
            changes,
            new: fold(&self.new),
            left_out: self.left_out,
            reaches_back_to: self.reaches_back_to.map(|at| time(UnixMillis(at))),
        }
    }
}

fn fold(names: &BTreeSet<String>) -> String {
    let nodes = names.iter().filter_map(|name| NodeId::new(name).ok());
    hostlist::fold(&nodes.collect::<Vec<_>>())
}

/// Differences between the current and an earlier state of a node.
pub(crate) async fn diff_since(api: &Api, node: &str, since: &str) -> Result<DiffView, Problem> {
    let core = api.core();
    let id = node_id(node)?;
    let at = parse_time(core, "since", Some(since))?;
    let at = at.ok_or_else(|| {
        Problem::field("since", "give the start of the time range: 2d, 2026-11-21")
    })?;
    let now = api.records().records(&id, &Class::ALL).await;
    let now = now.map_err(|error| nodes::agent_problem(&error))?;
    let (mut differences, mut reaches) = (Vec::new(), false);
    for (class, record) in now {
        let then = api.stores().history.at(id.to_string(), class, at.0).await;
        let then = then.map_err(|error| problem(&error))?;
        reaches |= then != PastClassState::NotKept;
        differences.extend(compare_with_past(class, &then, &record));
    }
    if !reaches {
        return Err(too_early(api, &id, at).await);
    }
    Ok(DiffView {
        left: format!("{node} at {}", time(at)),
        right: format!("{node} now"),
        differences: differences.into_iter().map(nodes::difference).collect(),
    })
}

/// Error for a time before the history of the node: missing data is not a difference.
async fn too_early(api: &Api, node: &NodeId, at: UnixMillis) -> Problem {
    let begins = match api.stores().history.begins(node.to_string()).await {
        Ok(begins) => begins,
        Err(error) => return problem(&error),
    };
    let at = time(at);
    let why = match begins {
        Some(begins) => format!(
            "no history of {node} reaches back to {at}: it begins at {}",
            time(UnixMillis(begins))
        ),
        None => format!("no history of {node} is stored yet, so none of {at}"),
    };
    Problem::field("since", why)
}

/// Compares a class with its earlier state. If the class was incomplete, every key is unknown, with the reason. If the
/// earlier record is not stored, the result is a single line, or none if its digest equals the present one.
fn compare_with_past(class: Class, then: &PastClassState, now: &ClassRecord) -> Vec<Difference> {
    let unknown = |why: String| {
        let mut record = ClassRecord::new(class);
        for key in now.entries.keys() {
            let reading = lattice_conformance::Reading::<String>::failed(why.clone());
            record.put(key.clone(), reading);
        }
        record
    };
    match then {
        PastClassState::Known { record, .. } => diff_by_parts(record, now),
        PastClassState::Incomplete { missing } => {
            let mut record = unknown("the class was incomplete".to_owned());
            for (key, reading) in missing {
                record.put(key.clone(), reading.clone());
            }
            diff(&record, now)
        }
        PastClassState::Disabled => diff(&ClassRecord::disabled(class, "was not probed"), now),
        PastClassState::Lost { digest } if now.state().digest() == Some(*digest) => Vec::new(),
        PastClassState::Lost { digest } => {
            let why = format!("the record of that time ({}) is not stored", digest.short());
            unknown_class_line(now, &why)
        }
        PastClassState::NotKept => unknown_class_line(
            now,
            "the stored history of the class does not reach back to that time",
        ),
    }
}

/// A single line for a class with an unknown earlier state, with its current digest.
fn unknown_class_line(now: &ClassRecord, why: &str) -> Vec<Difference> {
    let state = now.state();
    let right = match (&now.disabled, state.digest()) {
        (Some(why), _) => Reading::disabled(why.clone()),
        (None, Some(digest)) => Reading::Present(digest.short().into()),
        (None, None) => Reading::failed("the class is incomplete"),
    };
    vec![Difference {
        class: now.class,
        key: "class".to_owned(),
        left: Reading::failed(why),
        right,
        verdict: lattice_conformance::KeyVerdict::Unknown,
    }]
}

fn problem(error: &HistoryError) -> Problem {
    let detail = match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    Problem::new(Kind::Internal, "history", detail)
}

#[cfg(test)]
mod tests;
