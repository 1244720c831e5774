//! Conformance groups and drift.

use crate::{Client, ClientError};
use lattice_api::conformance::{DriftReportView, GroupsView};
use reqwest::Method;

impl Client {
    /// Returns groups of nodes that share the digest of one class (`nic`), of several classes (`nic,bios`), or, with
    /// `None` or `all`, their fingerprint.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn conformance_groups(&self, class: Option<&str>) -> Result<GroupsView, ClientError> {
        let mut request = self.request(Method::GET, &["conformance", "groups"]);
        if let Some(class) = class {
            request = request.query(&[("class", class)]);
        }
        self.answer(request).await
    }

    /// Returns the drift report: nodes that differ from their baseline or, without one, from the majority of their
    /// cohort.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn drift(&self) -> Result<DriftReportView, ClientError> {
        self.get(&["conformance", "drift"]).await
    }
}
