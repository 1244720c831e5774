//! vClusters.

use crate::{Client, ClientError, projects::with_key};
use lattice_api::{
    project::Changed,
    vcluster::{VclusterNodes, VclusterNodesRequest, VclusterRequest, VclusterView},
};
use reqwest::Method;

impl Client {
    /// All vClusters, those of which nobody has said anything too.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn vclusters(&self) -> Result<Vec<VclusterView>, ClientError> {
        self.all(&["vclusters"], &[]).await
    }

    /// One vCluster.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn vcluster(&self, name: &str) -> Result<VclusterView, ClientError> {
        self.get(&["vclusters", name]).await
    }

    /// Says what a vCluster is, the first time too. For administrators.
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

    /// What was said of a vCluster holds no more; with a version, only while that one does. For
    /// administrators.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] while it has nodes.
    pub async fn delete_vcluster(
        &self,
        name: &str,
        expected_version: Option<u32>,
        key: Option<&str>,
    ) -> Result<Changed, ClientError> {
        let mut delete = self.request(Method::DELETE, &["vclusters", name]);
        if let Some(version) = expected_version {
            delete = delete.query(&[("expected_version", version)]);
        }
        self.answer(with_key(delete, key)).await
    }

    /// Nodes belong to a vCluster from now on, all of them or none. For administrators.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] names each node that cannot be had.
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
