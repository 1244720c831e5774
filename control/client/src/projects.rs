//! Projects, tenants, limits, usage and accounting.

use crate::{Client, ClientError, Page};
use lattice_api::{
    accounting::{AccountingStatus, ReconcileRequest, ReconcileView},
    project::{ChangeResult, LimitsRequest, ProjectRequest, ProjectUpdate, ProjectView},
    tenant::{
        HeadroomView, LimitPolicyUpdate, SystemLimitsUpdate, SystemLimitsView, TenantRequest,
        TenantUpdate, TenantView,
    },
    usage::{TenantUsage, UserUsage},
};
use reqwest::Method;

impl Client {
    /// Returns the whole project tree, parents before children; with `below`, one project and everything below it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn projects(&self, below: Option<&str>) -> Result<Vec<ProjectView>, ClientError> {
        self.all(&["projects"], &below_query(below)).await
    }

    /// Returns one page of the project tree.
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

    /// Returns one project or tenant.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn project(&self, path: &str) -> Result<ProjectView, ClientError> {
        self.get(&segments(path)).await
    }

    /// Creates a project below its parent, or a tenant. A repeated call with the same `key` returns the first outcome.
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

    /// Changes the limits of one project.
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

    /// Deletes a project that has no children, no unfinished allocations and no claimed nodes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_project(&self, path: &str) -> Result<ChangeResult, ClientError> {
        self.answer(self.request(Method::DELETE, &segments(path)))
            .await
    }

    /// Changes several limits, all or none, checked on the resulting tree.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_limits(
        &self,
        request: &LimitsRequest,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let put = self.request(Method::PUT, &["limits"]).json(request);
        self.answer(with_key(put, key)).await
    }
}

/// Usage.
impl Client {
    /// Returns the usage of a tenant over a number of days that ends now, with its budgets.
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

    /// Returns the usage of a user over a number of days that ends now. The usage of other users is restricted to
    /// operators, tenant administrators and accounting systems.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn user_usage(&self, user: &str, days: u64) -> Result<UserUsage, ClientError> {
        let asked = [("user", user.to_owned()), ("days", days.to_string())];
        let get = self.request(Method::GET, &["usage"]).query(&asked);
        self.answer(get).await
    }

    /// Returns the usage of the caller over a number of days that ends now.
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
    /// Returns the status of accounting.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn accounting_status(&self) -> Result<AccountingStatus, ClientError> {
        self.get(&["accounting", "status"]).await
    }

    /// Compares months in the accounting system with the recorded usage, and corrects the months that differ unless
    /// `request` is a dry run.
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

/// Tenants, and cluster-wide limits.
impl Client {
    /// Returns all tenants.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn tenants(&self) -> Result<Vec<TenantView>, ClientError> {
        self.all(&["tenants"], &[]).await
    }

    /// Returns one tenant.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn tenant(&self, id: &str) -> Result<TenantView, ClientError> {
        self.get(&["tenants", id]).await
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_tenant(&self, request: &TenantRequest) -> Result<TenantView, ClientError> {
        let post = self.request(Method::POST, &["tenants"]).json(request);
        self.answer(post).await
    }

    /// Changes the limits of a tenant.
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

    /// Deletes a tenant that has no projects, no unfinished allocations and no claimed nodes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_tenant(&self, id: &str) -> Result<ChangeResult, ClientError> {
        self.answer(self.request(Method::DELETE, &["tenants", id]))
            .await
    }

    /// Returns the headroom of a project: how much more it could get now, by its limits.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn headroom(&self, path: &str) -> Result<HeadroomView, ClientError> {
        let mut segments = segments(path);
        segments.push("headroom");
        self.get(&segments).await
    }

    /// Returns the cluster-wide limits.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn system_limits(&self) -> Result<SystemLimitsView, ClientError> {
        self.get(&["system", "limits"]).await
    }

    /// Changes the cluster-wide limits.
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

    /// Sets the limit policy of projects.
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

/// Returns the URL segments of a project; each segment of the path is one in the URL.
fn segments(path: &str) -> Vec<&str> {
    std::iter::once("projects").chain(path.split('/')).collect()
}

fn below_query(below: Option<&str>) -> Vec<(&'static str, String)> {
    below.map(|b| ("below", b.to_owned())).into_iter().collect()
}

/// Adds the idempotency key, which makes a repeated request safe.
pub(crate) fn with_key(
    request: reqwest::RequestBuilder,
    key: Option<&str>,
) -> reqwest::RequestBuilder {
    match key {
        Some(key) => request.header("idempotency-key", key),
        None => request,
    }
}
