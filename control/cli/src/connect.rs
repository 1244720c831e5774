//! From a context to a client.

use crate::{
    context::{self, ContextFile},
    failure::Failure,
    output::Format,
};
use lattice_client::{Client, ClientError, Endpoint};
use secrecy::SecretString;
use std::path::Path;

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
        let found = context::find(explicit)?.ok_or_else(|| {
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

/// The SDK for a context.
pub fn client(context: &ContextFile) -> Result<Client, ClientError> {
    Client::new(Endpoint {
        url: context.server.clone(),
        ca_pem: context.ca_pem.clone(),
        token: SecretString::from(context.token.clone()),
    })
}
