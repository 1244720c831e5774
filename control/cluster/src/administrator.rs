//! Administrator: proposals to the quorum with an administrator's power, without a control between.

use lattice_mesh::{Clock as _, Mesh, SystemClock};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Applied, Command, Envelope, Refusal,
    command::{Principal, Privilege, SCHEMA},
};
use std::{net::SocketAddr, time::Duration};

/// Longest wait for open connections when the endpoint is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// An administrator with a mesh endpoint of its own.
pub struct Administrator {
    name: String,
    mesh: Mesh,
    client: QuorumClient,
}

impl Administrator {
    pub(crate) fn new(name: &str, mesh: Mesh, members: Vec<SocketAddr>) -> Self {
        Self {
            name: name.to_owned(),
            client: QuorumClient::new(mesh.clone(), members),
            mesh,
        }
    }

    /// Client of the quorum, for reads and for envelopes that a caller edits.
    pub fn client(&self) -> &QuorumClient {
        &self.client
    }

    /// Envelope of a command from this administrator, as of now.
    pub fn envelope(&self, key: Option<String>, command: Command) -> Envelope {
        Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: self.name.clone(),
                power: Privilege::Admin,
            },
            key,
            at: SystemClock.now(),
            fence: None,
            command,
        }
    }

    /// Proposes a command; a `key` makes it safe to repeat.
    ///
    /// # Errors
    /// When no member answers in time. Then the command may still be applied.
    pub async fn propose(
        &self,
        key: Option<String>,
        command: Command,
    ) -> Result<Result<Applied, Refusal>, ClientError> {
        self.client.propose(self.envelope(key, command)).await
    }

    /// Closes the endpoint.
    pub async fn close(self) {
        self.mesh.shutdown(CLOSE_TIMEOUT).await;
    }
}
