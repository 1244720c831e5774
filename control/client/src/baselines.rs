//! Baselines, and the brake on automatic draining.

use crate::{Client, ClientError, Page, projects::with_key};
use lattice_api::{
    baseline::{BaselineRequest, BaselineSet, BaselineView, BrakeState, ReleaseRequest},
    conformance::DiffView,
    project::Changed,
};
use reqwest::Method;

impl Client {
    /// The baselines in force.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn baselines(&self) -> Result<Vec<BaselineView>, ClientError> {
        let page: Page<BaselineView> = self.get(&["conformance", "baselines"]).await?;
        Ok(page.items)
    }

    /// One baseline whole; `name@3` for a version that was.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn baseline(&self, name: &str) -> Result<BaselineView, ClientError> {
        self.get(&["conformance", "baselines", name]).await
    }

    /// Makes a new version of a baseline, the first one too. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_baseline(
        &self,
        name: &str,
        request: &BaselineRequest,
        key: Option<&str>,
    ) -> Result<BaselineSet, ClientError> {
        let put = self.request(Method::PUT, &["conformance", "baselines", name]);
        self.answer(with_key(put.json(request), key)).await
    }

    /// What [`Client::set_baseline`] would make, and for whom; nothing is set.
    ///
    /// # Errors
    /// See [`ClientError`]: those that setting it would have.
    pub async fn try_baseline(
        &self,
        name: &str,
        request: &BaselineRequest,
    ) -> Result<BaselineSet, ClientError> {
        let put = self.request(Method::PUT, &["conformance", "baselines", name]);
        self.answer(put.query(&[("dry_run", true)]).json(request))
            .await
    }

    /// Deletes a baseline; with a version, only while that one is in force. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_baseline(
        &self,
        name: &str,
        expected_version: Option<u32>,
        key: Option<&str>,
    ) -> Result<Changed, ClientError> {
        let mut delete = self.request(Method::DELETE, &["conformance", "baselines", name]);
        if let Some(version) = expected_version {
            delete = delete.query(&[("expected_version", version)]);
        }
        self.answer(with_key(delete, key)).await
    }

    /// A baseline beside a node, or another baseline.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn baseline_diff(&self, name: &str, with: &str) -> Result<DiffView, ClientError> {
        let segments = ["conformance", "baselines", name, "diff"];
        let request = self.request(Method::GET, &segments);
        self.answer(request.query(&[("with", with)])).await
    }

    /// Whether automatic draining stands still, and why.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn brake(&self) -> Result<BrakeState, ClientError> {
        self.get(&["conformance", "brake"]).await
    }

    /// Lets automatic draining go on. For operators who have looked.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn release_brake(&self, reason: &str) -> Result<Changed, ClientError> {
        let reason = reason.to_owned();
        let body = ReleaseRequest { reason };
        self.post(&["conformance", "brake", "release"], &body).await
    }
}
