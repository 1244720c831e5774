//! The newest members of a list, for any paging and either order.

use crate::documents::ResourcePath;
use crate::walk::{DocumentWalk, Member, listed as listed_in, member_of, next_page};
use lattice_conformance::Reading;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Maximum number of list members read, starting with the newest.
pub(super) const MAX_MEMBERS: usize = 256;
/// Maximum number of pages read per list and pass.
const MAX_PAGES: usize = 4;

/// The newest members of a list.
#[derive(Clone, Debug)]
pub(super) struct NewestMembers<'a> {
    /// Members, oldest first.
    pub(super) listed: Vec<Member<'a>>,
    /// Whether no page failed temporarily.
    pub(super) is_complete: bool,
    /// Whether the end of the list was reached, if the newest members are at its end.
    pub(super) is_reached: bool,
    /// An invalid entry or page link. It does not hide other members, and is reported.
    pub(super) invalid_entry: Option<String>,
}

/// Whether the result of a fetch is final; otherwise the next fetch may return the document.
pub(super) const fn is_settled<T>(reading: &Reading<T>) -> bool {
    matches!(reading, Reading::Present(_) | Reading::Absent)
}

/// The newest members of the list at `path`, oldest first. `newest` is the newest member of the previous pass: in a
/// list with descending order, pages are read until this member is found, at most [`MAX_PAGES`]; only the first page if
/// `newest` is `None`.
pub(super) fn newest<'a>(
    walk: &mut DocumentWalk<'a>,
    path: &ResourcePath,
    newest: Option<&ResourcePath>,
) -> Reading<NewestMembers<'a>> {
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
    let mut next = next_of(path, first, &mut wrong);
    if !is_descending && let Some(jump) = next.as_ref().and_then(|next| last_page(first, next)) {
        // The newest members are on the last page.
        next = Some(jump);
    }
    let mut is_whole = true;
    for _ in 1..MAX_PAGES {
        let is_known = |newest: &ResourcePath| listed.iter().any(|one| one.path == *newest);
        let is_enough = is_descending && newest.is_none_or(is_known);
        let Some(page) = next.take().filter(|_| !is_enough) else {
            break;
        };
        if !pages.insert(page.clone()) {
            break;
        }
        // Members read so far are valid, whatever the result of further pages is.
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
        next = next_of(&page, value, &mut wrong);
    }
    let is_reached = is_descending || next.is_none();
    if is_descending {
        listed.reverse();
    }
    let mut seen = BTreeSet::new();
    listed.retain(|one| seen.insert(one.path.clone()));
    let too_many = listed.len().saturating_sub(MAX_MEMBERS);
    listed.drain(..too_many);
    Reading::Present(NewestMembers {
        listed,
        is_complete: is_whole,
        is_reached,
        invalid_entry: wrong,
    })
}

/// The members of one page in its order; of a long page, only the first and the last [`MAX_MEMBERS`]. An entry with
/// an invalid link is skipped and recorded in `wrong`.
fn members<'a>(page: &'a Value, wrong: &mut Option<String>) -> Result<Vec<Member<'a>>, String> {
    let all = listed_in(page)?;
    let is_long = all.len() > 2 * MAX_MEMBERS;
    let (head, tail) = match is_long {
        true => (&all[..MAX_MEMBERS], &all[all.len() - MAX_MEMBERS..]),
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

fn next_of(path: &ResourcePath, page: &Value, wrong: &mut Option<String>) -> Option<ResourcePath> {
    next_page(path, page).unwrap_or_else(|why| {
        *wrong = Some(why);
        None
    })
}

/// Whether the newest members come first: by the numbers in their ids, else by their times.
fn is_descending(listed: &[Member<'_>]) -> bool {
    let (Some(first), Some(last)) = (listed.first(), listed.last()) else {
        return false;
    };
    match (number(&first.path), number(&last.path)) {
        // With different text before the numbers they are not comparable: `1700000000_1` follows `1700000000`.
        (Some((before, first)), Some((same, last))) if before == same && first != last => {
            return first > last;
        }
        _ => {}
    }
    let times = || {
        listed
            .iter()
            .filter_map(|one| super::entry_time(one.inline?))
    };
    let order = times().next().cmp(&times().next_back());
    order == Ordering::Greater
}

/// The last part of a member's path, split into a text and the number at its end: `JID_` and `471269252011`.
fn number(path: &ResourcePath) -> Option<(&str, u64)> {
    let last = path.last();
    let digits = last.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((digits, last.get(digits.len()..)?.parse().ok()?))
}

/// Path of the last page, derived from the link to the second one: `?$skip=50`.
fn last_page(first: &Value, next: &ResourcePath) -> Option<ResourcePath> {
    let count = first.get("Members@odata.count")?.as_u64()?;
    let (before, rest) = next.as_str().split_once("skip=")?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let (skip, after) = rest.split_at(end.unwrap_or(rest.len()));
    let skip: u64 = skip.parse().ok()?;
    let last = count.checked_sub(skip).filter(|last| *last > skip)?;
    ResourcePath::parse(&format!("{before}skip={last}{after}"))
}
