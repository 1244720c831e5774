//! Projects and limits.

use crate::{Client, ClientError, Page};
use lattice_api::project::{Changed, LimitsRequest, ProjectRequest, ProjectUpdate, ProjectView};
use reqwest::Method;

impl Client {
    /// The whole tree, parents before children; or, with `below`, one project and what is below.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn projects(&self, below: Option<&str>) -> Result<Vec<ProjectView>, ClientError> {
        self.all(&["projects"], &below_query(below)).await
    }

    /// One page of the tree.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn projects_page(
        &self,
        below: Option<&str>,
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Result<Page<ProjectView>, ClientError> {
        self.page(&["projects"], &below_query(below), limit, cursor)
            .await
    }

    /// One project, or tenant.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn project(&self, path: &str) -> Result<ProjectView, ClientError> {
        self.get(&segments(path)).await
    }

    /// A new project below its parent, or a tenant. A repeat with the same `key` is answered with
    /// the first outcome.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_project(
        &self,
        request: &ProjectRequest,
        key: Option<&str>,
    ) -> Result<ProjectView, ClientError> {
        let post = self.request(Method::POST, &["projects"]).json(request);
        self.answer(with_key(post, key)).await
    }

    /// Changes one project's limits.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn update_project(
        &self,
        path: &str,
        update: &ProjectUpdate,
    ) -> Result<ProjectView, ClientError> {
        let put = self.request(Method::PUT, &segments(path)).json(update);
        self.answer(put).await
    }

    /// Deletes an empty project.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_project(&self, path: &str) -> Result<Changed, ClientError> {
        self.answer(self.request(Method::DELETE, &segments(path)))
            .await
    }

    /// Changes several limits, all or none, judged on the resulting tree.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_limits(
        &self,
        request: &LimitsRequest,
        key: Option<&str>,
    ) -> Result<Changed, ClientError> {
        let put = self.request(Method::PUT, &["limits"]).json(request);
        self.answer(with_key(put, key)).await
    }
}

/// A project's path takes as many segments in the URL as it has itself.
fn segments(path: &str) -> Vec<&str> {
    std::iter::once("projects").chain(path.split('/')).collect()
}

fn below_query(below: Option<&str>) -> Vec<(&'static str, String)> {
    below.map(|b| ("below", b.to_owned())).into_iter().collect()
}

/// The header that makes repeats safe.
pub(crate) fn with_key(
    request: reqwest::RequestBuilder,
    key: Option<&str>,
) -> reqwest::RequestBuilder {
    match key {
        Some(key) => request.header("idempotency-key", key),
        None => request,
    }
}
