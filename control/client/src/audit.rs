//! Audit: queries and signing.

use crate::{Client, ClientError, Page};
use lattice_api::audit::{AuditHeadView, AuditView};
use reqwest::Method;

/// Filter for audit entries. The default matches all of them, oldest first.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Principal that acted.
    pub by: Option<String>,
    /// User that acted, or that the entry is about.
    pub user: Option<String>,
    /// Nodes that the entry is about, as a hostlist.
    pub node: Option<String>,
    /// Allocation that the entry is about.
    pub allocation: Option<u64>,
    /// Project that the entry is about, with everything below it.
    pub project: Option<String>,
    /// Actions, such as `force_released`.
    pub actions: Vec<String>,
    /// Start of the range: a time, a date, or an age.
    pub since: Option<String>,
    /// End of the range, exclusive.
    pub until: Option<String>,
    /// Return the newest entry first.
    pub newest_first: bool,
}

impl AuditFilter {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        let mut add = |name, value: &Option<String>| {
            query.extend(value.clone().map(|value| (name, value)));
        };
        add("by", &self.by);
        add("user", &self.user);
        add("node", &self.node);
        add("project", &self.project);
        add("since", &self.since);
        add("until", &self.until);
        add("allocation", &self.allocation.map(|id| id.to_string()));
        let actions = (!self.actions.is_empty()).then(|| self.actions.join(","));
        add("action", &actions);
        add(
            "newest_first",
            &self.newest_first.then(|| "true".to_owned()),
        );
        query
    }
}

impl Client {
    /// Returns one page of entries after an entry number; 0 starts at the beginning. [`Page::next_cursor`] is the
    /// `after` of the next page. A page may be short although there is a next one.
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

    /// Signs the audit up to its last entry, and returns its end. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn sign_audit(&self) -> Result<AuditHeadView, ClientError> {
        let post = self.request(Method::POST, &["audit", "checkpoint"]);
        self.answer(post).await
    }
}
