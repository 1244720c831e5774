//! Mesh calls: a request type defines its method name, its permitted callers and its reply.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{fmt, str::FromStr};

/// Role of a process, as in its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Agent on a compute node.
    Agent,
    /// Quorum member: replicates the state.
    Quorum,
    /// Control service: schedules, dispatches and serves the API.
    Control,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 3] = [Role::Agent, Role::Quorum, Role::Control];
    /// Name of the role, as in the SPIFFE id `spiffe://<cluster>/<role>/<id>`.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Quorum => "quorum",
            Role::Control => "control",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|r| r.as_str() == s)
            .ok_or_else(|| format!("unknown role {s:?}; one of agent, quorum, control"))
    }
}

/// A request with one reply.
pub trait Rpc: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Method name on the wire, `service.method`. Never reused for another meaning.
    const METHOD: &'static str;
    /// Roles that may call the method. Other callers are refused before the body is decoded.
    const CALLERS: &'static [Role];
    /// Type of the reply.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
}

/// A request with a stream of replies.
pub trait StreamRpc: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Method name on the wire.
    const METHOD: &'static str;
    /// Roles that may call the method.
    const CALLERS: &'static [Role];
    /// Type of the stream's items.
    type Item: Serialize + DeserializeOwned + Send + 'static;
}
