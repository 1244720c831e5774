//! Nodes.

use crate::{Client, ClientError, Page};
use lattice_api::{
    conformance::DiffView,
    node::{DrainRequest, NodeView},
    project::Changed,
};
use reqwest::Method;

impl Client {
    /// Every node, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.all(&["nodes"], &[]).await
    }

    /// One page of the nodes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn nodes_page(
        &self,
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Result<Page<NodeView>, ClientError> {
        self.page(&["nodes"], &[], limit, cursor).await
    }

    /// One node.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node(&self, name: &str) -> Result<NodeView, ClientError> {
        self.get(&["nodes", name]).await
    }

    /// Everything a node's probes read, as the node tells it; `fresh` probes again.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Unavailable`] when the node does not answer.
    pub async fn inventory(
        &self,
        name: &str,
        fresh: bool,
    ) -> Result<serde_json::Value, ClientError> {
        let request = self
            .request(Method::GET, &["nodes", name, "inventory"])
            .query(&[("fresh", fresh)]);
        self.answer(request).await
    }

    /// Two nodes key by key.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn diff(&self, left: &str, right: &str) -> Result<DiffView, ClientError> {
        let request = self
            .request(Method::GET, &["nodes", left, "diff"])
            .query(&[("with", right)]);
        self.answer(request).await
    }

    /// Takes a node out of use once what runs on it has ended.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn drain(&self, name: &str, reason: &str) -> Result<Changed, ClientError> {
        let reason = reason.to_owned();
        self.post(&["nodes", name, "drain"], &DrainRequest { reason })
            .await
    }

    /// Clears the caller's own drain reason; those of others stay.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn undrain(&self, name: &str) -> Result<Changed, ClientError> {
        self.answer(self.request(Method::POST, &["nodes", name, "undrain"]))
            .await
    }
}
