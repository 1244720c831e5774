//! Allocations and their output.

use crate::{AllocationRequest, AllocationView, Client, ClientError, Page, Submitted};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use lattice_api::{
    allocation::{CheckpointRequest, ExtendRequest},
    dependency::JobRef,
    explanation::ExplanationView,
};
use lattice_quorum_types::AllocationState;
use reqwest::Method;

/// How to submit.
#[derive(Debug, Clone, Default)]
pub struct SubmitOptions {
    /// A repeat with the same key is answered with the first outcome, for 24 hours. Without one
    /// every submit makes a new allocation.
    pub key: Option<String>,
    /// Judge only, change nothing.
    pub dry_run: bool,
}

/// Which allocations to list. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct AllocationFilter {
    /// Only in these states; empty means any.
    pub states: Vec<AllocationState>,
    /// Only of this project and what is below it.
    pub project: Option<String>,
    /// Only of this user.
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

/// Which of a rank's outputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogOutput {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// What of an allocation's output to read. The default is the first rank's standard output so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogOptions {
    /// The rank, from 0.
    pub rank: u32,
    /// Which output.
    pub output: LogOutput,
    /// First byte wanted.
    pub offset: u64,
    /// Wait for more until the rank ends.
    pub follow: bool,
}

impl Client {
    /// Asks for nodes. [`Submitted::id`] is absent for a dry run.
    ///
    /// # Errors
    /// See [`ClientError`]; a limit that would be exceeded is [`ClientError::Refused`] with every
    /// violated level.
    pub async fn submit(
        &self,
        request: &AllocationRequest,
        options: SubmitOptions,
    ) -> Result<Submitted, ClientError> {
        let mut post = self.request(Method::POST, &["allocations"]).json(request);
        if options.dry_run {
            post = post.query(&[("dry_run", true)]);
        }
        let key = options.key.as_deref();
        self.answer(crate::projects::with_key(post, key)).await
    }

    /// Every allocation the filter lets through, ended ones included, by id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn allocations(
        &self,
        filter: &AllocationFilter,
    ) -> Result<Vec<AllocationView>, ClientError> {
        self.all(&["allocations"], &filter.query()).await
    }

    /// One page of them.
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

    /// One allocation, ended ones included. As everywhere here it is named by its number, or as an element of
    /// an array by that one's number and the index.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn allocation(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.get(&["allocations", &id.into().to_string()]).await
    }

    /// Ends it: at once if it holds nothing, else what runs is stopped first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        let id = id.into().to_string();
        self.answer(self.request(Method::DELETE, &["allocations", &id]))
            .await
    }

    /// Keeps a pending one from starting.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn hold(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "hold").await
    }

    /// Takes it off hold.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn release(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "release").await
    }

    /// Ends the processes of one that holds nodes; it waits for nodes again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn requeue(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "requeue").await
    }

    /// Ends the processes of one that holds nodes; it holds nothing and waits until it is resumed.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn suspend(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "suspend").await
    }

    /// The same after a checkpoint: the one that it writes already, or a new one. Where that comes to nothing it is
    /// suspended without.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] where it has no checkpoint mode, or does not run.
    pub async fn suspend_after_checkpoint(
        &self,
        id: impl Into<JobRef>,
    ) -> Result<AllocationView, ClientError> {
        let id = id.into().to_string();
        let post = self.request(Method::POST, &["allocations", &id, "suspend"]);
        self.answer(post.query(&[("checkpoint", true)])).await
    }

    /// A suspended one waits for nodes again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resume(&self, id: impl Into<JobRef>) -> Result<AllocationView, ClientError> {
        self.act(id, "resume").await
    }

    /// Gives it another walltime; a longer one is for operators.
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

    /// Has a running one write a checkpoint and go on. For its user and for operators.
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

    /// Why it is where it is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn explanation(&self, id: impl Into<JobRef>) -> Result<ExplanationView, ClientError> {
        let id = id.into().to_string();
        self.get(&["allocations", &id, "explanation"]).await
    }

    /// A rank's captured output as it comes; with `follow`, until the rank ends.
    ///
    /// # Errors
    /// See [`ClientError`]; the stream's own error is a connection that broke.
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
