//! DAGs of allocations.

use crate::{Client, ClientError, projects::with_key};
use lattice_api::dag::{DagDryRunResult, DagRequest, DagSubmitResult, DagView, GraphView};
use reqwest::Method;

impl Client {
    /// Submits a DAG: all its members, or none.
    ///
    /// # Errors
    /// See [`ClientError`]; a problem of a member names its field as `members.NAME.field`.
    pub async fn submit_dag(
        &self,
        request: &DagRequest,
        key: Option<&str>,
    ) -> Result<DagSubmitResult, ClientError> {
        let post = self.request(Method::POST, &["dags"]).json(request);
        self.answer(with_key(post, key)).await
    }

    /// Dry run of a submit: checks the DAG, and changes nothing.
    ///
    /// # Errors
    /// As [`Client::submit_dag`].
    pub async fn dry_run_dag(&self, request: &DagRequest) -> Result<DagDryRunResult, ClientError> {
        let post = self.request(Method::POST, &["dags"]);
        self.answer(post.query(&[("dry_run", true)]).json(request))
            .await
    }

    /// Returns the running DAGs and the last ones that ended, without their members; of one tenant or of all.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dags(&self, tenant: Option<&str>) -> Result<Vec<DagView>, ClientError> {
        let tenant = tenant.map(|tenant| ("tenant", tenant.to_owned()));
        let query: Vec<_> = tenant.into_iter().collect();
        self.all(&["dags"], &query).await
    }

    /// Returns one DAG with its members, including ended ones.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dag(&self, id: u64) -> Result<DagView, ClientError> {
        self.get(&["dags", &id.to_string()]).await
    }

    /// Cancels every member of a DAG that has not ended.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] if all members have ended.
    pub async fn cancel_dag(&self, id: u64) -> Result<DagView, ClientError> {
        let delete = self.request(Method::DELETE, &["dags", &id.to_string()]);
        self.answer(delete).await
    }

    /// Returns the members of a DAG as nodes and edges; [`GraphView::to_dot`] formats them for Graphviz.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dag_graph(&self, id: u64) -> Result<GraphView, ClientError> {
        self.get(&["dags", &id.to_string(), "graph"]).await
    }
}
