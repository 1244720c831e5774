//! Allocations and their output.

use crate::{AllocationRequest, AllocationView, Client, ClientError, Page, SubmitResult};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use lattice_api::{
    allocation::{CheckpointRequest, ExtendRequest},
    dependency::JobRef,
    explanation::ExplanationView,
};
use lattice_quorum_types::AllocationState;
use reqwest::Method;

/// Options of a submit.
#[derive(Debug, Clone, Default)]
pub struct SubmitOptions {
    /// Idempotency key. A repeated submit with the same key returns the first outcome, for 24 hours. Without a key
    /// every submit creates a new allocation.
    pub key: Option<String>,
    /// Check the request only, and change nothing.
    pub dry_run: bool,
}

/// Filter for lists of allocations. The default matches all of them.
#[derive(Debug, Clone, Default)]
pub struct AllocationFilter {
    /// States to include; empty means any.
    pub states: Vec<AllocationState>,
    /// Project to include, with everything below it.
    pub project: Option<String>,
    /// User to include.
    pub user: Option<String>,
}

impl AllocationFilter {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if !self.states.is_empty() {
            let states: Vec<_> = self.states.iter().map(|s| s.as_str()).collect();
            query.push(("state", states.join(",")));
        }
        query.extend(self.project.clone().map(|p| ("project", p)));
        query.extend(self.user.clone().map(|u| ("user", u)));
        query
    }
}

/// Output stream of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogOutput {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Selection of an allocation's output. The default is the first rank's standard output so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogOptions {
    /// Rank, from 0.
    pub rank: u32,
    /// Output stream.
    pub output: LogOutput,
    /// Offset of the first byte to read.
    pub offset: u64,
    /// Wait for more output until the rank ends.
    pub follow: bool,
}

impl Client {
    /// Submits a request for nodes. [`SubmitResult::id`] is absent for a dry run.
    ///
    /// # Errors
    /// See [`ClientError`]; a limit that would be exceeded is [`ClientError::Refused`] with every violated level.
    pub async fn submit(
        &self,
        request: &AllocationRequest,
        options: SubmitOptions,
    ) -> Result<SubmitResult, ClientError> {
        let mut post = self.request(Method::POST, &["allocations"]).json(request);
        if options.dry_run {
            post = post.query(&[("dry_run", true)]);
        }
        let key = options.key.as_deref();
        self.answer(crate::projects::with_key(post, key)).await
    }

    /// Returns all allocations that match the filter, including ended ones, sorted by id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn allocations(
        &self,
        filter: &AllocationFilter,
    ) -> Result<Vec<AllocationView>, ClientError> {
        self.all(&["allocations"], &filter.query()).await
    }

    /// Returns one page of the allocations that match the filter.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn allocations_page(
        &self,
        filter: &AllocationFilter,
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Result<Page<AllocationView>, ClientError> {
        self.page(&["allocations"], &filter.query(), limit, cursor)
            .await
    }

    /// Returns one allocation, also if it has ended. Here and in the calls below, `id` is the number of an allocation,
    /// or the number of an array with the index of an element.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn allocation(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.get(&["allocations", &id.into().to_string()]).await
    }

    /// Cancels an allocation. An allocation without nodes ends at once; otherwise its processes are stopped first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        let id = id.into().to_string();
        self.answer(self.request(Method::DELETE, &["allocations", &id]))
            .await
    }

    /// Holds a pending or blocked allocation, so that it does not start.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn hold(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "hold").await
    }

    /// Releases a held allocation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn release(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "release").await
    }

    /// Requeues an allocation that holds nodes: its processes are ended, and it waits for nodes again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn requeue(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "requeue").await
    }

    /// Suspends an allocation that holds nodes: its processes are ended, its nodes are released, and it waits to be
    /// resumed.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn suspend(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "suspend").await
    }

    /// Suspends an allocation after a job checkpoint: the one in progress, or a new one. If the checkpoint fails, the
    /// allocation is suspended without it.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Invalid`] if the allocation has no checkpoint mode, [`ClientError::Refused`]
    /// if it does not run.
    pub async fn suspend_after_checkpoint(
        &self,
        id: impl Into<JobRef>,
    ) -> Result<AllocationView, ClientError> {
        let id = id.into().to_string();
        let post = self.request(Method::POST, &["allocations", &id, "suspend"]);
        self.answer(post.query(&[("checkpoint", true)])).await
    }

    /// Resumes a suspended allocation: it waits for nodes again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resume(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "resume").await
    }

    /// Changes the walltime of an allocation. Only operators may make the walltime longer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn extend(
        &self,
        id: impl Into<JobRef>,
        request: &ExtendRequest,
    ) -> Result<AllocationView, ClientError> {
        let id = id.into().to_string();
        self.post(&["allocations", &id, "extend"], request).await
    }

    /// Requests a job checkpoint of a running allocation, which keeps running. For the user of the allocation and for
    /// operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn checkpoint(
        &self,
        id: impl Into<JobRef>,
        request: &CheckpointRequest,
    ) -> Result<AllocationView, ClientError> {
        let id = id.into().to_string();
        self.post(&["allocations", &id, "checkpoint"], request)
            .await
    }

    async fn act(&self, id: impl Into<JobRef>, what: &str) -> Result<AllocationView, ClientError> {
        let id = id.into().to_string();
        self.answer(self.request(Method::POST, &["allocations", &id, what]))
            .await
    }

    /// Explains the state of an allocation: why it waits, or where it runs.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn explanation(&self, id: impl Into<JobRef>) -> Result<ExplanationView, ClientError> {
        let id = id.into().to_string();
        self.get(&["allocations", &id, "explanation"]).await
    }

    /// Streams the captured output of a rank; with `follow`, until the rank ends.
    ///
    /// # Errors
    /// See [`ClientError`]; an error within the stream is a broken connection.
    pub async fn logs<Id: Into<JobRef>>(
        &self,
        id: Id,
        options: LogOptions,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + Unpin + use<Id>, ClientError>
    {
        let output = match options.output {
            LogOutput::Stdout => "stdout",
            LogOutput::Stderr => "stderr",
        };
        let request = self
            .request(
                Method::GET,
                &["allocations", &id.into().to_string(), "logs"],
            )
            .query(&[
                ("rank", u64::from(options.rank)),
                ("offset", options.offset),
            ])
            .query(&[("stream", output)])
            .query(&[("follow", options.follow)]);
        let response = self.send(request).await?;
        let client = self.clone();
        Ok(response
            .bytes_stream()
            .map_err(move |e| client.unreachable(e)))
    }
}
