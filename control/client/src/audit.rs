//! The audit.

use crate::{Client, ClientError, Page};
use lattice_api::audit::{AuditHeadView, AuditView};
use reqwest::Method;

/// Which entries to read. The default is all of them, oldest first.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only what this principal did.
    pub by: Option<String>,
    /// Only what this person did, or what is about them.
    pub user: Option<String>,
    /// Only what is about these nodes, as a hostlist.
    pub node: Option<String>,
    /// Only what is about this allocation.
    pub allocation: Option<u64>,
    /// Only what is about this project or one below it.
    pub project: Option<String>,
    /// Only these actions, such as `force_released`.
    pub actions: Vec<String>,
    /// Only from this moment on: a time, a date, or how long ago.
    pub since: Option<String>,
    /// Only before this moment.
    pub until: Option<String>,
    /// The last one first.
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
    /// One page of entries behind a number; 0 from the beginning. [`Page::next_cursor`] is the number
    /// that the next page comes behind. A page may come out short and still have a next.
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

    /// Has the audit signed as far as it reaches; where it ends then. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn sign_audit(&self) -> Result<AuditHeadView, ClientError> {
        let post = self.request(Method::POST, &["audit", "checkpoint"]);
        self.answer(post).await
    }
}
