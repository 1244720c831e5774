//! Projects and limits.

use crate::{Client, ClientError, Page};
use lattice_api::{
    accounting::{AccountingStatus, ReconcileRequest, ReconcileView},
    project::{Changed, LimitsRequest, ProjectRequest, ProjectUpdate, ProjectView},
    tenant::{
        HeadroomView, LimitPolicyUpdate, SystemLimitsUpdate, SystemLimitsView, TenantRequest,
        TenantUpdate, TenantView,
    },
    usage::{TenantUsage, UserUsage},
};
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

/// What was used.
impl Client {
    /// What a tenant has used in so many days that end now, and how it stands to its budgets.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn tenant_usage(&self, id: &str, days: u64) -> Result<TenantUsage, ClientError> {
        let days = [("days", days.to_string())];
        let get = self
            .request(Method::GET, &["tenants", id, "usage"])
            .query(&days);
        self.answer(get).await
    }

    /// What a user has used in so many days that end now. Others' use is told to operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn user_usage(&self, user: &str, days: u64) -> Result<UserUsage, ClientError> {
        let asked = [("user", user.to_owned()), ("days", days.to_string())];
        let get = self.request(Method::GET, &["usage"]).query(&asked);
        self.answer(get).await
    }

    /// What whoever asks has used in so many days that end now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn own_usage(&self, days: u64) -> Result<UserUsage, ClientError> {
        let days = [("days", days.to_string())];
        self.answer(self.request(Method::GET, &["usage"]).query(&days))
            .await
    }
}

/// Accounting.
impl Client {
    /// How it stands.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn accounting_status(&self) -> Result<AccountingStatus, ClientError> {
        self.get(&["accounting", "status"]).await
    }

    /// Compares months with what was used, and sets them unless it is a dry run.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reconcile_accounting(
        &self,
        request: &ReconcileRequest,
    ) -> Result<ReconcileView, ClientError> {
        let post = self.request(Method::POST, &["accounting", "reconcile"]);
        self.answer(post.json(request)).await
    }
}

/// Tenants, and what holds for the whole cluster.
impl Client {
    /// All tenants.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn tenants(&self) -> Result<Vec<TenantView>, ClientError> {
        self.all(&["tenants"], &[]).await
    }

    /// One tenant.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn tenant(&self, id: &str) -> Result<TenantView, ClientError> {
        self.get(&["tenants", id]).await
    }

    /// A new tenant.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_tenant(&self, request: &TenantRequest) -> Result<TenantView, ClientError> {
        let post = self.request(Method::POST, &["tenants"]).json(request);
        self.answer(post).await
    }

    /// Changes a tenant's limits.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn update_tenant(
        &self,
        id: &str,
        update: &TenantUpdate,
    ) -> Result<TenantView, ClientError> {
        let put = self.request(Method::PUT, &["tenants", id]).json(update);
        self.answer(put).await
    }

    /// Deletes an empty tenant.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_tenant(&self, id: &str) -> Result<Changed, ClientError> {
        self.answer(self.request(Method::DELETE, &["tenants", id]))
            .await
    }

    /// How much more a project could be given now, as far as limits go.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn headroom(&self, path: &str) -> Result<HeadroomView, ClientError> {
        let mut segments = segments(path);
        segments.push("headroom");
        self.get(&segments).await
    }

    /// What is limited for the whole cluster.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn system_limits(&self) -> Result<SystemLimitsView, ClientError> {
        self.get(&["system", "limits"]).await
    }

    /// Changes it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_system_limits(
        &self,
        update: &SystemLimitsUpdate,
    ) -> Result<SystemLimitsView, ClientError> {
        let put = self.request(Method::PUT, &["system", "limits"]);
        self.answer(put.json(update)).await
    }

    /// What limits of projects mean from now on.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_limit_policy(&self, name: &str) -> Result<SystemLimitsView, ClientError> {
        let put = self.request(Method::PUT, &["system", "limit-policy"]);
        let limit_policy = name.to_owned();
        self.answer(put.json(&LimitPolicyUpdate { limit_policy }))
            .await
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
