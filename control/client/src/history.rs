//! Node histories, health, and changes over the fleet.

use crate::{Client, ClientError, Page};
use lattice_api::{
    conformance::DiffView,
    health::{ClearRequest, NodeHealthView},
    history::{ChangesView, HistoryEntryView},
    node::ReprobeResult,
};
use reqwest::Method;
use serde::Serialize;

/// Filter for lines of a node's history.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HistoryQuery {
    /// Start of the range: a time, a date, `yesterday`, or an age (`2d`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Conformance class; only changes of this class are returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Kinds, comma-separated: `xid,drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Number of a history line, or a time; only events around it are returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub around: Option<String>,
    /// Duration before and after `around`; `10m` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Lines on a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl Client {
    /// Returns a page of a node's history, newest first: changes and other events.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn history(
        &self,
        node: &str,
        query: &HistoryQuery,
    ) -> Result<Page<HistoryEntryView>, ClientError> {
        let request = self.request(Method::GET, &["nodes", node, "history"]);
        self.answer(request.query(query)).await
    }

    /// Compares a node's past state with its present one, key by key.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn diff_since(&self, node: &str, since: &str) -> Result<DiffView, ClientError> {
        let request = self.request(Method::GET, &["nodes", node, "diff"]);
        self.answer(request.query(&[("since", since)])).await
    }

    /// Probes a node again, and returns the differences from its published state.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reprobe(&self, node: &str) -> Result<ReprobeResult, ClientError> {
        let request = self.request(Method::POST, &["nodes", node, "reprobe"]);
        self.answer(request).await
    }

    /// Returns the results of a node's health checks; `fresh` runs them now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn health(&self, node: &str, fresh: bool) -> Result<NodeHealthView, ClientError> {
        let request = self.request(Method::GET, &["nodes", node, "health"]);
        self.answer(request.query(&[("fresh", fresh)])).await
    }

    /// Clears health reasons of a node after a repair.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn clear_health(
        &self,
        node: &str,
        clear: &ClearRequest,
    ) -> Result<NodeHealthView, ClientError> {
        let request = self.request(Method::POST, &["nodes", node, "health", "clear"]);
        self.answer(request.json(clear)).await
    }

    /// Returns the changes of all nodes since a time; without one, of the last day.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn changes(&self, since: Option<&str>) -> Result<ChangesView, ClientError> {
        let mut request = self.request(Method::GET, &["conformance", "changes"]);
        if let Some(since) = since {
            request = request.query(&[("since", since)]);
        }
        self.answer(request).await
    }
}
