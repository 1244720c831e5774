//! From a context to a client.

use crate::{
    context::{self, ContextFile},
    failure::Failure,
    output::Format,
};
use lattice_api::text;
use lattice_client::{Client, ClientError};
use std::{path::Path, time::Duration};

/// A cluster to talk to, and how to print what it says.
pub struct Connection {
    /// The SDK.
    pub client: Client,
    /// Form of results.
    pub format: Format,
}

impl Connection {
    /// Finds the context and makes a client of it. Nothing is sent yet.
    pub fn open(explicit: Option<&Path>, format: Format) -> Result<Self, Failure> {
        let found = context::find(explicit)
            .map_err(ClientError::from)?
            .ok_or_else(|| {
                Failure::unreachable(format!(
                    "no cluster is known: give --context FILE, set {}, or start one with `lattice \
                 demo`",
                    context::VARIABLE
                ))
            })?;
        let client = client(&found)?;
        Ok(Self { client, format })
    }
}

/// An answer this old is worth a word: while the quorum answers, views are younger than a second.
const OLD: Duration = Duration::from_secs(3);

impl Connection {
    /// Says on standard error that what was shown is not of the present, where that is so.
    pub fn tell_age(&self) {
        if let Some(age) = self.client.view_age().filter(|age| *age >= OLD) {
            let age = text::roughly(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            eprintln!("this is how it was {age} ago: the quorum does not answer");
        }
    }
}

/// The SDK for a context.
pub fn client(context: &ContextFile) -> Result<Client, ClientError> {
    Client::new(context.clone().into())
}
