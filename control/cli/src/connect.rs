//! Connection to a cluster, from a context file.

use crate::{
    context::{self, ContextFile},
    failure::Failure,
    output::{self, Format},
    waiting,
};
use lattice_api::text;
use lattice_client::{Client, ClientError};
use std::{path::Path, time::Duration};

/// Cluster connection, and the format of results.
pub struct Connection {
    /// SDK client.
    pub client: Client,
    /// Format of results.
    pub format: Format,
}

impl Connection {
    /// Finds the context and creates a client from it, without sending anything. From then on, standard error shows
    /// what a request waits for.
    pub fn open(explicit: Option<&Path>, format: Format) -> Result<Self, Failure> {
        let found = context::find(explicit)
            .map_err(ClientError::from)?
            .ok_or_else(|| {
                Failure::unreachable(format!(
                    "no context file found: give --context FILE, set {}, or start a cluster with `lattice \
                 demo`",
                    context::CONTEXT_VARIABLE
                ))
            })?;
        let client = client(&found)?;
        waiting::watch_requests(&client);
        Ok(Self { client, format })
    }
}

/// Age from which a view is reported as old: while the quorum answers, views are younger than a second.
const STALE_VIEW_AGE: Duration = Duration::from_secs(3);

impl Drop for Connection {
    /// Prints the age of the view on standard error if the view is old, for every format. A command cannot omit this
    /// line, also not when it fails: an object may be unknown only because the view is old.
    fn drop(&mut self) {
        if let Some(age) = self.client.view_age().filter(|age| *age >= STALE_VIEW_AGE) {
            let age = text::rounded_duration(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            output::message!("the quorum does not answer; the data is {age} old");
        }
    }
}

/// Creates the SDK client for a context.
pub fn client(context: &ContextFile) -> Result<Client, ClientError> {
    Client::new(context.clone().into())
}
