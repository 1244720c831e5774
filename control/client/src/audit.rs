//! The audit.

use crate::{Client, ClientError, Page};
use lattice_api::audit::AuditView;

/// Which entries to read. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only what this principal did.
    pub by: Option<String>,
    /// Only what is about these nodes, as a hostlist.
    pub node: Option<String>,
    /// Only what is about this allocation.
    pub allocation: Option<u64>,
    /// Only this action, such as `force_released`.
    pub action: Option<String>,
    /// Only from this moment on: a time, a date, or how long ago.
    pub since: Option<String>,
}

impl AuditFilter {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        let mut add = |name, value: &Option<String>| {
            query.extend(value.clone().map(|value| (name, value)));
        };
        add("by", &self.by);
        add("node", &self.node);
        add("action", &self.action);
        add("since", &self.since);
        add("allocation", &self.allocation.map(|id| id.to_string()));
        query
    }
}

impl Client {
    /// One page of entries after a number, oldest first. [`Page::next_cursor`] is the number that
    /// the next page comes after. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn audit_page(
        &self,
        filter: &AuditFilter,
        after: u64,
        limit: Option<u32>,
    ) -> Result<Page<AuditView>, ClientError> {
        let mut query = filter.query();
        query.push(("after", after.to_string()));
        self.page(&["audit"], &query, limit, None).await
    }
}
