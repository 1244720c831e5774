//! BMC events in the node history: each event is stored once, however often its list is read, by any run of control,
//! and whatever time the BMC's clock shows.

use super::{
    event::{EventContent, ReportedBmcEvent},
    store::HistoryStore,
    tables::{BMC_EVENTS, HistoryError, encode},
    writer::NodeTables,
};
use lattice_redfish::{BmcEvent, BmcEventKind, BmcEventSeverity, ResourcePath};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum events reported from lists that are read for the first time: the newest ones.
const MAX_INITIAL_EVENTS: usize = 32;
/// Maximum lines per rate limit class and hour; further events are only counted.
const MOST_HOURLY: usize = 30;
const HOUR_MS: u64 = 3_600_000;
/// Maximum number of remembered events: more than are listed at the same time (8 logs of 256, 32 tasks).
const MOST_REMEMBERED: usize = 4_096;

/// Maximum number of remembered lists beyond those of the last reading. A BMC may list others each time.
const MOST_LISTS: usize = 64;

/// Events of one node's BMC that were reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ReportedEvents {
    /// Lists that were read before: an unknown event in one of them is new.
    lists: BTreeSet<ResourcePath>,
    /// Identities of listed events that must not be reported again, the latest listed at the end.
    known: VecDeque<u64>,
    /// Times of written lines, in Unix milliseconds.
    lines: BTreeMap<RateLimitClass, VecDeque<u64>>,
    /// Number of entries left out since the last written line of a log.
    left_out: u32,
}

/// Rate limit class. Each class has its own limit, so that a storm of warnings hides no update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RateLimitClass {
    Task,
    /// An update or a change of configuration.
    Ok,
    Warning,
    Critical,
}

impl RateLimitClass {
    const fn of(deed: &BmcEvent) -> Self {
        match (&deed.of, deed.severity) {
            (BmcEventKind::Task { .. }, _) => Self::Task,
            (BmcEventKind::Log { .. }, BmcEventSeverity::Ok) => Self::Ok,
            (BmcEventKind::Log { .. }, BmcEventSeverity::Warning) => Self::Warning,
            (BmcEventKind::Log { .. }, BmcEventSeverity::Critical) => Self::Critical,
        }
    }
}

impl HistoryStore {
    /// Adds the events of `deeds` that were not added before, and remembers them, in one transaction. The events were
    /// read from `lists` at `read_at`. Returns the number of lines added.
    pub(crate) fn append_bmc_events(
        &self,
        node: &str,
        (lists, deeds): (&BTreeSet<ResourcePath>, &[BmcEvent]),
        read_at: u64,
    ) -> Result<usize, HistoryError> {
        let before = self.read(|txn| {
            let kept = txn.open_table(BMC_EVENTS)?.get(node)?;
            // An unreadable record counts as missing: a duplicate event is better than a history without new events.
            Ok(kept.and_then(|kept| serde_json::from_slice::<ReportedEvents>(kept.value()).ok()))
        })?;
        let before = before.unwrap_or_default();
        let Some((remembered, lines)) = select_new(before, (lists, deeds), read_at) else {
            return Ok(0);
        };
        self.write(|txn| {
            let mut book = NodeTables::open(txn, node)?;
            for did in &lines {
                book.event(
                    did.history_time(),
                    &EventContent::Bmc(Box::new(did.clone())),
                )?;
            }
            book.close(None)?;
            let json = serde_json::to_vec(&remembered).map_err(encode)?;
            txn.open_table(BMC_EVENTS)?.insert(node, json.as_slice())?;
            Ok(lines.len())
        })
    }
}

/// Selects the lines to write and the state to remember; `None` if there is no news. Pure function.
fn select_new(
    mut kept: ReportedEvents,
    (lists, deeds): (&BTreeSet<ResourcePath>, &[BmcEvent]),
    read_at: u64,
) -> Option<(ReportedEvents, Vec<ReportedBmcEvent>)> {
    let known: BTreeSet<u64> = kept.known.iter().copied().collect();
    let mut listed = BTreeSet::new();
    let is_new = |deed: &&BmcEvent| listed.insert(deed.identity) && !known.contains(&deed.identity);
    let new: Vec<&BmcEvent> = deeds.iter().filter(is_new).collect();
    if new.is_empty() && lists.is_subset(&kept.lists) {
        return None;
    }
    kept.known.retain(|identity| !listed.contains(identity));
    kept.known.extend(listed);
    let too_many = kept.known.len().saturating_sub(MOST_REMEMBERED);
    kept.known.drain(..too_many);
    let (new, mut at_first): (Vec<_>, Vec<_>) = merge_equal(new, read_at)
        .into_iter()
        .partition(|did| kept.lists.contains(&did.deed.list));
    let others = kept.lists.difference(lists).take(MOST_LISTS);
    kept.lists = others.chain(lists).cloned().collect();
    // An event of unknown time in a list that is read for the first time is not reported.
    at_first.retain(|did| did.plausible_time().is_some());
    at_first.sort_by_key(ReportedBmcEvent::history_time);
    let old = at_first.len().saturating_sub(MAX_INITIAL_EVENTS);
    let mut lines: Vec<ReportedBmcEvent> = at_first.drain(old..).chain(new).collect();
    // The sort is stable: events of the same time stay in the order of their list.
    lines.sort_by_key(ReportedBmcEvent::history_time);
    lines.retain_mut(|did| kept.has_room(did, read_at));
    Some((kept, lines))
}

/// Merges equal entries of one log that are read together into one line. A task always has its own line.
fn merge_equal(new: Vec<&BmcEvent>, read_at: u64) -> Vec<ReportedBmcEvent> {
    let mut lines: Vec<ReportedBmcEvent> = Vec::new();
    for deed in new {
        let is_same = |did: &&mut ReportedBmcEvent| {
            let (a, b) = (&did.deed, deed);
            matches!(a.of, BmcEventKind::Log { .. })
                && (&a.of, a.severity, &a.code, &a.message)
                    == (&b.of, b.severity, &b.code, &b.message)
                && a.list == b.list
        };
        let Some(same) = lines.iter_mut().find(is_same) else {
            lines.push(ReportedBmcEvent {
                deed: deed.clone(),
                read_at,
                count: 1,
                first_at: None,
                left_out: 0,
            });
            continue;
        };
        let first_at = [same.first_at, same.deed.at, deed.at];
        same.first_at = first_at.into_iter().flatten().min();
        same.count = same.count.saturating_add(1);
        if deed.at >= same.deed.at {
            same.deed = deed.clone();
        }
    }
    lines
}

impl ReportedEvents {
    /// Whether the hourly limit allows this line. A line beyond the limit is counted, and the next line of a log
    /// carries the count.
    fn has_room(&mut self, did: &mut ReportedBmcEvent, now: u64) -> bool {
        let share = RateLimitClass::of(&did.deed);
        let lines = self.lines.entry(share).or_default();
        lines.retain(|at| *at <= now && now - at < HOUR_MS);
        if lines.len() >= MOST_HOURLY {
            self.left_out = self.left_out.saturating_add(did.count);
            return false;
        }
        lines.push_back(now);
        if share != RateLimitClass::Task {
            did.left_out = std::mem::take(&mut self.left_out);
        }
        true
    }
}

#[cfg(test)]
mod tests;
