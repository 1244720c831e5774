//! The newest members of a list, however it is paged and whichever way it is ordered.

use crate::documents::ResourcePath;
use crate::walk::{Member, Walk, listed as listed_in, member_of, next_page};
use lattice_hwprobe::Reading;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The most members of a list that are looked at: the newest.
pub(super) const MOST_LOOKED_AT: usize = 256;
/// The most pages of a list that are looked at in one look.
const MOST_PAGES: usize = 4;

/// The newest members of a list.
#[derive(Clone, Debug)]
pub(super) struct Newest<'a> {
    /// The oldest of them first.
    pub(super) listed: Vec<Member<'a>>,
    /// Whether none of its pages failed for the moment.
    pub(super) is_whole: bool,
    /// Whether its end was come to, where the newest are at its end.
    pub(super) is_reached: bool,
    /// What of it leads nowhere. It hides nothing else, and is said.
    pub(super) wrong: Option<String>,
}

/// Whether what came of a fetch stands: the next one may give what this one did not otherwise.
pub(super) const fn is_settled<T>(reading: &Reading<T>) -> bool {
    matches!(reading, Reading::Present(_) | Reading::Absent)
}

/// The newest members of the list at `path`, the oldest of them first. `newest` is the one that was
/// newest at the last look: pages are turned until it is there.
pub(super) fn newest<'a>(
    walk: &mut Walk<'a>,
    path: &ResourcePath,
    newest: Option<&ResourcePath>,
) -> Reading<Newest<'a>> {
    let first = match walk.get(path) {
        Reading::Present(first) => first,
        other => return other.and_then(|_| Reading::Absent),
    };
    let mut wrong = None;
    let mut listed = match members(first, &mut wrong) {
        Ok(listed) => listed,
        Err(why) => return Reading::failed(format!("{path}: {why}")),
    };
    let is_descending = is_descending(&listed);
    let mut pages = BTreeSet::from([path.clone()]);
    let mut next = next_of(first, &mut wrong);
    if !is_descending && let Some(jump) = next.as_ref().and_then(|next| last_page(first, next)) {
        // The newest are on the last page.
        next = Some(jump);
    }
    let mut is_whole = true;
    for _ in 1..MOST_PAGES {
        let is_known = |newest: &ResourcePath| listed.iter().any(|one| one.path == *newest);
        let is_enough = is_descending && newest.is_none_or(is_known);
        let Some(page) = next.take().filter(|_| !is_enough) else {
            break;
        };
        if !pages.insert(page.clone()) {
            break;
        }
        // What was read stands, whatever comes of further pages.
        let value = match walk.get(&page) {
            Reading::Present(value) => value,
            other => {
                is_whole = is_settled(&other);
                break;
            }
        };
        match members(value, &mut wrong) {
            Ok(further) => listed.extend(further),
            Err(why) => wrong = Some(why),
        }
        next = next_of(value, &mut wrong);
    }
    let is_reached = is_descending || next.is_none();
    if is_descending {
        listed.reverse();
    }
    let mut seen = BTreeSet::new();
    listed.retain(|one| seen.insert(one.path.clone()));
    let too_many = listed.len().saturating_sub(MOST_LOOKED_AT);
    listed.drain(..too_many);
    Reading::Present(Newest {
        listed,
        is_whole,
        is_reached,
        wrong,
    })
}

/// Those of one page, in its order: at either end no more than are looked at. An entry that leads
/// nowhere is left out and noted.
fn members<'a>(page: &'a Value, wrong: &mut Option<String>) -> Result<Vec<Member<'a>>, String> {
    let all = listed_in(page)?;
    let is_long = all.len() > 2 * MOST_LOOKED_AT;
    let (head, tail) = match is_long {
        true => (&all[..MOST_LOOKED_AT], &all[all.len() - MOST_LOOKED_AT..]),
        false => (all, &[][..]),
    };
    let mut found = Vec::new();
    for entry in head.iter().chain(tail) {
        match member_of(entry) {
            Ok(member) => found.push(member),
            Err(why) => *wrong = Some(why),
        }
    }
    Ok(found)
}

fn next_of(page: &Value, wrong: &mut Option<String>) -> Option<ResourcePath> {
    next_page(page).unwrap_or_else(|why| {
        *wrong = Some(why);
        None
    })
}

/// Whether the newest come first: by the numbers in their ids, else by their times.
fn is_descending(listed: &[Member<'_>]) -> bool {
    let (Some(first), Some(last)) = (listed.first(), listed.last()) else {
        return false;
    };
    match (number(&first.path), number(&last.path)) {
        // With another text before them they do not count on: `1700000000_1` follows `1700000000`.
        (Some((before, first)), Some((same, last))) if before == same && first != last => {
            return first > last;
        }
        _ => {}
    }
    let times = || {
        listed
            .iter()
            .filter_map(|one| super::log::when(one.inline?))
    };
    let order = times().next().cmp(&times().next_back());
    order == Ordering::Greater
}

/// The number at the end of a member's path, and what is before it: `JID_` and `471269252011`.
fn number(path: &ResourcePath) -> Option<(&str, u64)> {
    let last = path.last();
    let digits = last.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((digits, last.get(digits.len()..)?.parse().ok()?))
}

/// Where the last page is, by how the list leads to its second one: `?$skip=50`.
fn last_page(first: &Value, next: &ResourcePath) -> Option<ResourcePath> {
    let count = first.get("Members@odata.count")?.as_u64()?;
    let (before, rest) = next.as_str().split_once("skip=")?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let (skip, after) = rest.split_at(end.unwrap_or(rest.len()));
    let skip: u64 = skip.parse().ok()?;
    let last = count.checked_sub(skip).filter(|last| *last > skip)?;
    ResourcePath::parse(&format!("{before}skip={last}{after}"))
}
