//! Administrator: proposals with the admin privilege, sent to the quorum directly and not through a control.

use lattice_mesh::{Clock as _, Mesh, SystemClock};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Applied, Command, Envelope, Refusal,
    command::{Principal, Privilege, SCHEMA},
};
use std::{net::SocketAddr, time::Duration};

/// Longest wait for open connections when the endpoint is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Administrator with its own mesh endpoint.
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

    /// Returns the client of the quorum, for reads and for envelopes that a caller edits.
    pub fn client(&self) -> &QuorumClient {
        &self.client
    }

    /// Creates the envelope of a command from this administrator, stamped with the present time.
    pub fn envelope(&self, key: Option<String>, command: Command) -> Envelope {
        Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: self.name.clone(),
                privilege: Privilege::Admin,
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
    /// Returns an error if no member answers in time, if a member rejects the request, or if the outcome is unknown. In
    /// the last case, the command may still be applied.
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
