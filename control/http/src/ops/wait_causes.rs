//! Dependencies and mutexes for which a blocked allocation waits.

use super::elements::index_of;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NameLookup, terms::Condition, terms::WaitsFor,
};
use lattice_view::View;
use std::{cell::OnceCell, collections::BTreeMap};

/// Maximum number of allocations named in a text; the others are counted.
const MAX_NAMED: usize = 5;

/// Lookup of wait causes in one view.
pub(crate) struct WaitLookup<'a> {
    view: &'a View,
    /// Holder of each mutex, by user and mutex name; computed on first use.
    mutexes: OnceCell<BTreeMap<(&'a str, &'a str), AllocationId>>,
}

impl<'a> WaitLookup<'a> {
    pub(crate) fn new(view: &'a View) -> Self {
        let mutexes = OnceCell::new();
        Self { view, mutexes }
    }

    /// Returns what a blocked allocation waits for; `None` if it is not blocked.
    pub(crate) fn of(&self, a: &Allocation) -> Option<WaitsFor> {
        if a.state != AllocationState::Blocked {
            return None;
        }
        let after = a.spec.terms.after.iter().map(|dependency| dependency.on);
        let mutex = a.spec.terms.mutex.as_ref();
        Some(WaitsFor {
            allocations: after.filter(|on| self.has_not_ended(*on)).collect(),
            mutex: mutex
                .and_then(|mutex| self.mutexes().get(&(&*a.user, &**mutex)))
                .copied()
                .filter(|holder| *holder != a.id),
        })
    }

    /// Whether a dependency has not ended. An allocation with a dependency that ended with the wrong result no longer
    /// waits.
    fn has_not_ended(&self, id: AllocationId) -> bool {
        if self.view.allocation(id).is_some() {
            return true;
        }
        // The dependency may be an array element that has not been placed.
        let waits = self.view.array_of(id).and_then(|array| {
            let index = index_of(array, id)?;
            let tally = array.progress.tally.as_ref()?;
            Some(tally.pending.contains(index) || tally.blocked.contains(index))
        });
        waits == Some(true)
    }

    fn mutexes(&self) -> &BTreeMap<(&'a str, &'a str), AllocationId> {
        self.mutexes.get_or_init(|| {
            let all = self.view.allocations.values();
            let eligible = all.filter(|a| {
                let began = a
                    .progress
                    .tally
                    .as_ref()
                    .is_some_and(|tally| tally.alive > 0);
                began || !matches!(a.state, AllocationState::Blocked | AllocationState::Held)
            });
            let mut holders = BTreeMap::new();
            for holder in eligible {
                if let Some(mutex) = &holder.spec.terms.mutex {
                    let key = (holder.user.as_str(), mutex.as_str());
                    holders.entry(key).or_insert(holder.id);
                }
            }
            holders
        })
    }
}

/// Describes the wait as text, with the names of the other allocations.
pub(crate) fn wait_text(a: &Allocation, waits: &WaitsFor, name: NameLookup<'_>) -> String {
    if let Some(tally) = &a.progress.tally
        && tally.pending.is_empty()
        && tally.blocked.is_empty()
    {
        let alive = tally.alive;
        return format!("all its elements have been placed; {alive} of them have not ended");
    }
    if !waits.allocations.is_empty() {
        return format!("waits for {}", unmet_text(a, waits, name));
    }
    match (&a.spec.terms.mutex, waits.mutex) {
        (Some(mutex), Some(holder)) => {
            let holder = name(holder);
            format!("waits for the mutex {mutex:?}, held by allocation {holder}")
        }
        _ => "waits for another allocation".to_owned(),
    }
}

/// Unmet dependencies as text: `allocation 12 (success)`, or `allocations 12 (success), 13 (any) and 4 more`.
fn unmet_text(a: &Allocation, waits: &WaitsFor, name: NameLookup<'_>) -> String {
    let terms = a.spec.terms.after.iter();
    let unmet: Vec<(AllocationId, Condition)> = terms
        .filter(|dependency| waits.allocations.contains(&dependency.on))
        .map(|dependency| (dependency.on, dependency.condition))
        .collect();
    let named = unmet.iter().take(MAX_NAMED);
    let named: Vec<String> = named
        .map(|(on, condition)| format!("{} ({condition})", name(*on)))
        .collect();
    let more = match unmet.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = match unmet.len() {
        1 => "allocation",
        _ => "allocations",
    };
    format!("{noun} {}{more}", named.join(", "))
}
