//! What a node's BMC did, written down once: however often its lists are read, by whichever run of
//! control, and whatever its clock says.

use super::{
    book::Book,
    event::{BmcDid, What},
    store::HistoryStore,
    tables::{DEEDS, HistoryError, encode},
};
use lattice_redfish::{Deed, DeedOf, DeedSeverity, ResourcePath};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most deeds that are told of lists that are read for the first time: the newest.
const MOST_AT_FIRST: usize = 32;
/// Lines of one share within an hour; what is beyond is counted.
const MOST_HOURLY: usize = 30;
const HOUR_MS: u64 = 3_600_000;
/// Deeds that are remembered: more than are ever listed at a time (8 logs of 256, 32 tasks).
const MOST_REMEMBERED: usize = 4_096;

/// Lists that are remembered beside those of the last look: a BMC may name others each time.
const MOST_LISTS: usize = 64;

/// What was told of one node's BMC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    /// Lists that were read before: what is new there happened since.
    lists: BTreeSet<ResourcePath>,
    /// Whatever was listed and is not to be told again, those listed last at the end.
    known: VecDeque<u64>,
    /// When lines were written, Unix milliseconds.
    lines: BTreeMap<Share, VecDeque<u64>>,
    /// Entries that were not written since the last line of a log.
    left_out: u32,
}

/// Each has its own lines: a storm of warnings hides no update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Share {
    Task,
    /// An update, a change of configuration.
    Ok,
    Warning,
    Critical,
}

impl Share {
    const fn of(deed: &Deed) -> Self {
        match (&deed.of, deed.severity) {
            (DeedOf::Task { .. }, _) => Self::Task,
            (DeedOf::Log { .. }, DeedSeverity::Ok) => Self::Ok,
            (DeedOf::Log { .. }, DeedSeverity::Warning) => Self::Warning,
            (DeedOf::Log { .. }, DeedSeverity::Critical) => Self::Critical,
        }
    }
}

impl HistoryStore {
    /// Adds those of `deeds`, read at `read_at` in `lists`, that were not added before, and remembers
    /// them, all or nothing. How many lines came of it.
    pub(crate) fn append_deeds(
        &self,
        node: &str,
        (lists, deeds): (&BTreeSet<ResourcePath>, &[Deed]),
        read_at: u64,
    ) -> Result<usize, HistoryError> {
        let before = self.read(|txn| {
            let kept = txn.open_table(DEEDS)?.get(node)?;
            // What cannot be read is as none: better told twice than a history that stands still.
            Ok(kept.and_then(|kept| serde_json::from_slice::<Remembered>(kept.value()).ok()))
        })?;
        let before = before.unwrap_or_default();
        let Some((remembered, lines)) = choose(before, (lists, deeds), read_at) else {
            return Ok(0);
        };
        self.write(|txn| {
            let mut book = Book::open(txn, node)?;
            for did in &lines {
                book.event(did.stands_at(), &What::Bmc(Box::new(did.clone())))?;
            }
            book.close(None)?;
            let json = serde_json::to_vec(&remembered).map_err(encode)?;
            txn.open_table(DEEDS)?.insert(node, json.as_slice())?;
            Ok(lines.len())
        })
    }
}

/// What to write, and what to remember then; nothing where nothing is new. Pure.
fn choose(
    mut kept: Remembered,
    (lists, deeds): (&BTreeSet<ResourcePath>, &[Deed]),
    read_at: u64,
) -> Option<(Remembered, Vec<BmcDid>)> {
    let known: BTreeSet<u64> = kept.known.iter().copied().collect();
    let mut listed = BTreeSet::new();
    let is_new = |deed: &&Deed| listed.insert(deed.identity) && !known.contains(&deed.identity);
    let new: Vec<&Deed> = deeds.iter().filter(is_new).collect();
    if new.is_empty() && lists.is_subset(&kept.lists) {
        return None;
    }
    kept.known.retain(|identity| !listed.contains(identity));
    kept.known.extend(listed);
    let too_many = kept.known.len().saturating_sub(MOST_REMEMBERED);
    kept.known.drain(..too_many);
    let (new, mut at_first): (Vec<_>, Vec<_>) = together(new, read_at)
        .into_iter()
        .partition(|did| kept.lists.contains(&did.deed.list));
    let others = kept.lists.difference(lists).take(MOST_LISTS);
    kept.lists = others.chain(lists).cloned().collect();
    // What was there before, at a time that nobody knows, is no news.
    at_first.retain(|did| did.believed().is_some());
    at_first.sort_by_key(BmcDid::stands_at);
    let old = at_first.len().saturating_sub(MOST_AT_FIRST);
    let mut lines: Vec<BmcDid> = at_first.drain(old..).chain(new).collect();
    // Those of one moment stay as listed.
    lines.sort_by_key(BmcDid::stands_at);
    lines.retain_mut(|did| kept.has_room(did, read_at));
    Some((kept, lines))
}

/// Equal entries of one log that were read at once are one line. A task is always its own.
fn together(new: Vec<&Deed>, read_at: u64) -> Vec<BmcDid> {
    let mut lines: Vec<BmcDid> = Vec::new();
    for deed in new {
        let is_same = |did: &&mut BmcDid| {
            let (a, b) = (&did.deed, deed);
            matches!(a.of, DeedOf::Log { .. })
                && (&a.of, a.severity, &a.code, &a.message)
                    == (&b.of, b.severity, &b.code, &b.message)
                && a.list == b.list
        };
        let Some(same) = lines.iter_mut().find(is_same) else {
            lines.push(BmcDid {
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

impl Remembered {
    /// Whether this hour has a line for it. What has none is counted, and the next line of a log
    /// says how many these were.
    fn has_room(&mut self, did: &mut BmcDid, now: u64) -> bool {
        let share = Share::of(&did.deed);
        let lines = self.lines.entry(share).or_default();
        lines.retain(|at| *at <= now && now - at < HOUR_MS);
        if lines.len() >= MOST_HOURLY {
            self.left_out = self.left_out.saturating_add(did.count);
            return false;
        }
        lines.push_back(now);
        if share != Share::Task {
            did.left_out = std::mem::take(&mut self.left_out);
        }
        true
    }
}

#[cfg(test)]
mod tests;
