//! Nodes: list, inventory, comparison, drain and claims.

use crate::{Client, ClientError, Page};
use lattice_api::{
    claim::{ClaimRequest, ClaimResult, ReleaseRequest, ReleaseResult},
    conformance::DiffView,
    node::{DrainRequest, DrainResult, NodeView, UndrainResult},
};
use reqwest::Method;

impl Client {
    /// Returns every node, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.all(&["nodes"], &[]).await
    }

    /// Returns one page of the nodes.
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

    /// Returns one node.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node(&self, name: &str) -> Result<NodeView, ClientError> {
        self.get(&["nodes", name]).await
    }

    /// Returns the inventory of a node, as its agent reports it; `fresh` probes again.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Unavailable`] if the node does not answer.
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

    /// Compares two nodes or conformance groups key by key, or a node with the `majority` of its cohort. A group is
    /// given by its digest.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn diff(&self, left: &str, right: &str) -> Result<DiffView, ClientError> {
        let request = self
            .request(Method::GET, &["nodes", left, "diff"])
            .query(&[("with", right)]);
        self.answer(request).await
    }

    /// Drains a node: it gets no new allocation, and running ones continue.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn drain(&self, name: &str, reason: &str) -> Result<DrainResult, ClientError> {
        self.drain_with(name, reason, false).await
    }

    /// Releases a node by force, although it is unconfirmed that the holder's processes have ended. The node stays
    /// drained by the caller, and the audit keeps the reason. The caller takes responsibility.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn force_release(
        &self,
        name: &str,
        reason: &str,
    ) -> Result<DrainResult, ClientError> {
        self.drain_with(name, reason, true).await
    }

    async fn drain_with(
        &self,
        name: &str,
        reason: &str,
        force_release: bool,
    ) -> Result<DrainResult, ClientError> {
        let reason = reason.to_owned();
        let body = DrainRequest {
            reason,
            force_release,
        };
        self.post(&["nodes", name, "drain"], &body).await
    }

    /// Claims the nodes of a hostlist for sensitive allocations of the caller, all of them or none.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] names the owner of each node that is not available.
    pub async fn claim_nodes(
        &self,
        nodes: &str,
        request: &ClaimRequest,
    ) -> Result<ClaimResult, ClientError> {
        self.post(&["nodes", nodes, "claim"], request).await
    }

    /// Releases the claimed nodes of a hostlist, all of them or none. Each is free once its wipe is confirmed.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn release_nodes(
        &self,
        nodes: &str,
        request: &ReleaseRequest,
    ) -> Result<ReleaseResult, ClientError> {
        self.post(&["nodes", nodes, "release"], request).await
    }

    /// Clears the caller's own drain reason and that of a failed hook; those of other owners stay. If none is left, the
    /// node must first pass its health gate.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] if the node does not pass the gate.
    pub async fn undrain(&self, name: &str) -> Result<UndrainResult, ClientError> {
        self.undrain_with(name, false).await
    }

    /// Clears the caller's own drain reason and that of a failed hook, without the health gate. For administrators;
    /// kept in the audit.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn undrain_without_gate(&self, name: &str) -> Result<UndrainResult, ClientError> {
        self.undrain_with(name, true).await
    }

    async fn undrain_with(
        &self,
        name: &str,
        skip_gate: bool,
    ) -> Result<UndrainResult, ClientError> {
        let post = self.request(Method::POST, &["nodes", name, "undrain"]);
        self.answer(post.query(&[("skip_gate", skip_gate)])).await
    }
}
