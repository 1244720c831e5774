//! vClusters.

use crate::{Client, ClientError, projects::with_key};
use lattice_api::{
    project::ChangeResult,
    vcluster::{VclusterNodes, VclusterNodesRequest, VclusterRequest, VclusterView},
};
use reqwest::Method;

impl Client {
    /// Returns all vClusters, including those without a definition.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn vclusters(&self) -> Result<Vec<VclusterView>, ClientError> {
        self.all(&["vclusters"], &[]).await
    }

    /// Returns one vCluster.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn vcluster(&self, name: &str) -> Result<VclusterView, ClientError> {
        self.get(&["vclusters", name]).await
    }

    /// Defines a vCluster, or changes its definition. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_vcluster(
        &self,
        name: &str,
        request: &VclusterRequest,
        key: Option<&str>,
    ) -> Result<VclusterView, ClientError> {
        let put = self.request(Method::PUT, &["vclusters", name]);
        self.answer(with_key(put.json(request), key)).await
    }

    /// Deletes the definition of a vCluster; with a version, only if that version is in force. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] while the vCluster has nodes.
    pub async fn delete_vcluster(
        &self,
        name: &str,
        expected_version: Option<u32>,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let mut delete = self.request(Method::DELETE, &["vclusters", name]);
        if let Some(version) = expected_version {
            delete = delete.query(&[("expected_version", version)]);
        }
        self.answer(with_key(delete, key)).await
    }

    /// Assigns nodes to a vCluster, all of them or none. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] names each node that is not available.
    pub async fn assign_vcluster(
        &self,
        name: &str,
        request: &VclusterNodesRequest,
        key: Option<&str>,
    ) -> Result<VclusterNodes, ClientError> {
        let post = self.request(Method::POST, &["vclusters", name, "nodes"]);
        self.answer(with_key(post.json(request), key)).await
    }
}
