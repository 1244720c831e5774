//! From a context to a client.

use crate::{context, failure::Failure, output::Format};
use lattice_client::{Client, Endpoint};
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
        let client = Client::new(Endpoint {
            url: found.server,
            ca_pem: found.ca_pem,
            token: SecretString::from(found.token),
        })?;
        Ok(Self { client, format })
    }
}
