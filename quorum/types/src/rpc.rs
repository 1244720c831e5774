//! The shape of a mesh call: a request type names its method, who may call it, and its reply.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{fmt, str::FromStr};

/// What a process is, as its certificate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// On a compute node.
    Agent,
    /// Replicates the state.
    Quorum,
    /// Places, dispatches, serves people.
    Control,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 3] = [Role::Agent, Role::Quorum, Role::Control];
    /// As in the SPIFFE id: `spiffe://<cluster>/<role>/<id>`.
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
    /// Its name on the wire, `service.verb`; never reused for another meaning.
    const METHOD: &'static str;
    /// Roles that may call it. Everyone else is refused before the body is decoded.
    const CALLERS: &'static [Role];
    /// What comes back.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
}

/// A request answered by a stream of items.
pub trait StreamRpc: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name on the wire.
    const METHOD: &'static str;
    /// Roles that may call it.
    const CALLERS: &'static [Role];
    /// What comes back, any number of times.
    type Item: Serialize + DeserializeOwned + Send + 'static;
}
