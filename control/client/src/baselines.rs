//! Baselines, and the brake on automatic draining.

use crate::{Client, ClientError, Page, projects::with_key};
use lattice_api::{
    baseline::{BaselineRequest, BaselineResult, BaselineView, BrakeState, ReleaseRequest},
    conformance::DiffView,
    project::ChangeResult,
};
use reqwest::Method;

impl Client {
    /// Returns the baselines in force.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn baselines(&self) -> Result<Vec<BaselineView>, ClientError> {
        let page: Page<BaselineView> = self.get(&["conformance", "baselines"]).await?;
        Ok(page.items)
    }

    /// Returns one complete baseline; `name@3` selects an earlier version.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn baseline(&self, name: &str) -> Result<BaselineView, ClientError> {
        self.get(&["conformance", "baselines", name]).await
    }

    /// Creates a baseline, or a new version of it. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_baseline(
        &self,
        name: &str,
        request: &BaselineRequest,
        key: Option<&str>,
    ) -> Result<BaselineResult, ClientError> {
        let put = self.request(Method::PUT, &["conformance", "baselines", name]);
        self.answer(with_key(put.json(request), key)).await
    }

    /// Dry run of [`Client::set_baseline`]: returns the version that it would create and the affected nodes, and
    /// changes nothing.
    ///
    /// # Errors
    /// See [`ClientError`]: the errors of setting the baseline.
    pub async fn dry_run_baseline(
        &self,
        name: &str,
        request: &BaselineRequest,
    ) -> Result<BaselineResult, ClientError> {
        let put = self.request(Method::PUT, &["conformance", "baselines", name]);
        self.answer(put.query(&[("dry_run", true)]).json(request))
            .await
    }

    /// Deletes a baseline; with a version, only if that version is in force. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_baseline(
        &self,
        name: &str,
        expected_version: Option<u32>,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let mut delete = self.request(Method::DELETE, &["conformance", "baselines", name]);
        if let Some(version) = expected_version {
            delete = delete.query(&[("expected_version", version)]);
        }
        self.answer(with_key(delete, key)).await
    }

    /// Compares a baseline with a node, or with another baseline.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn baseline_diff(&self, name: &str, with: &str) -> Result<DiffView, ClientError> {
        let segments = ["conformance", "baselines", name, "diff"];
        let request = self.request(Method::GET, &segments);
        self.answer(request.query(&[("with", with)])).await
    }

    /// Returns whether automatic draining is stopped, and why.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn brake(&self) -> Result<BrakeState, ClientError> {
        self.get(&["conformance", "brake"]).await
    }

    /// Resumes automatic draining. For operators, after a check of the nodes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn release_brake(&self, reason: &str) -> Result<ChangeResult, ClientError> {
        let reason = reason.to_owned();
        let body = ReleaseRequest { reason };
        self.post(&["conformance", "brake", "release"], &body).await
    }
}
