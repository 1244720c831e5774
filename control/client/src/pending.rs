//! Requests without an answer yet, for programs that show what they wait for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Request that has no answer yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRequest {
    /// Number of the request, unique in its client; later requests have higher numbers.
    pub number: u64,
    /// HTTP method, such as `POST`.
    pub method: String,
    /// Path of the URL, percent-encoded.
    pub path: String,
    /// Time at which the request was sent.
    pub since: Instant,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, PendingRequest>,
}

/// Pending requests of one client and its clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingRequests(Arc<Mutex<Table>>);

impl PendingRequests {
    /// The table is consistent between statements, so a panic elsewhere leaves it valid.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, which is pending until the guard is dropped.
    pub(crate) fn begin(&self, method: &str, path: &str) -> PendingGuard {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        let request = PendingRequest {
            number,
            method: method.to_owned(),
            path: path.to_owned(),
            since: Instant::now(),
        };
        table.open.insert(number, request);
        drop(table);
        PendingGuard {
            requests: self.clone(),
            number,
        }
    }

    pub(crate) fn oldest(&self) -> Option<PendingRequest> {
        let table = self.table();
        table.open.values().next().cloned()
    }
}

/// Removes its request when dropped, also if the caller gives up.
#[derive(Debug)]
pub(crate) struct PendingGuard {
    requests: PendingRequests,
    number: u64,
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.requests.table().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_request_is_shown_until_it_is_answered() {
        let requests = PendingRequests::default();
        assert_eq!(requests.oldest(), None);
        let first = requests.begin("POST", "/api/v1/allocations");
        let second = requests.begin("GET", "/api/v1/nodes");
        let path = |requests: &PendingRequests| requests.oldest().map(|request| request.path);
        assert_eq!(path(&requests).as_deref(), Some("/api/v1/allocations"));
        drop(first);
        assert_eq!(path(&requests).as_deref(), Some("/api/v1/nodes"));
        assert_eq!(requests.oldest().map(|request| request.number), Some(1));
        drop(second);
        assert_eq!(requests.oldest(), None);
    }
}
