//! Process identity: `spiffe://<cluster>/<role>/<id>`, the only URI in a certificate.

use lattice_quorum_types::rpc::Role;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, sync::Arc};

/// Longest cluster name or id, bytes: the longest host name.
const MAX_PART_BYTES: usize = 253;

/// Error for a text that is not an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a mesh identity: {reason}")]
pub struct InvalidIdentity {
    /// The rejected text.
    pub text: String,
    /// Reason in words.
    pub reason: &'static str,
}

/// Identity that a certificate states. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Identity {
    cluster: Arc<str>,
    role: Role,
    id: Arc<str>,
}

impl Identity {
    /// Checks `cluster` and `id` and creates the identity.
    pub fn new(
        cluster: impl Into<String>,
        role: Role,
        id: impl Into<String>,
    ) -> Result<Self, InvalidIdentity> {
        let (cluster, id): (Arc<str>, Arc<str>) = (cluster.into().into(), id.into().into());
        check_part(&cluster)?;
        check_part(&id)?;
        Ok(Self { cluster, role, id })
    }
    /// Trust domain: the name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }
    /// Role of the process.
    pub fn role(&self) -> Role {
        self.role
    }
    /// Name of the process within its role: the name of the node, the number of the quorum member, or the name of the
    /// control.
    pub fn id(&self) -> &str {
        &self.id
    }
    /// Identity URI as in the certificate.
    pub fn uri(&self) -> String {
        format!(
            "spiffe://{}/{}/{}",
            self.cluster,
            self.role.as_str(),
            self.id
        )
    }
}

/// Checks `[A-Za-z0-9][A-Za-z0-9._-]*`, which is safe in URIs, file names and logs.
fn check_part(text: &str) -> Result<(), InvalidIdentity> {
    let fail = |reason| {
        Err(InvalidIdentity {
            text: text.to_owned(),
            reason,
        })
    };
    if text.is_empty() || text.len() > MAX_PART_BYTES {
        return fail("cluster and id are 1 to 253 bytes long");
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return fail("cluster and id start with a letter or a digit");
    }
    if !text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    {
        return fail("cluster and id consist of letters, digits, '.', '_' and '-'");
    }
    Ok(())
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.uri())
    }
}

impl FromStr for Identity {
    type Err = InvalidIdentity;
    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let fail = |reason| InvalidIdentity {
            text: text.to_owned(),
            reason,
        };
        let rest = text
            .strip_prefix("spiffe://")
            .ok_or_else(|| fail("it does not start with spiffe://"))?;
        let parts: Vec<&str> = rest.split('/').collect();
        let [cluster, role, id] = parts.as_slice() else {
            return Err(fail("the form is spiffe://<cluster>/<role>/<id>"));
        };
        let role = role
            .parse()
            .map_err(|_| fail("the role is agent, quorum or control"))?;
        Self::new(*cluster, role, *id)
    }
}

impl TryFrom<String> for Identity {
    type Error = InvalidIdentity;
    fn try_from(text: String) -> Result<Self, InvalidIdentity> {
        text.parse()
    }
}

impl From<Identity> for String {
    fn from(identity: Identity) -> String {
        identity.uri()
    }
}

/// Identity that a dialling process expects at an address. The cluster is always that of the dialling process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExpectedIdentity {
    /// Role that the peer must have.
    pub role: Role,
    /// Id that the peer must have; `None` accepts any peer of the role.
    pub id: Option<String>,
}

impl ExpectedIdentity {
    /// Expects any peer of `role`.
    pub fn role(role: Role) -> Self {
        Self { role, id: None }
    }
    /// Expects the peer of `role` with this id.
    pub fn exactly(role: Role, id: impl Into<String>) -> Self {
        Self {
            role,
            id: Some(id.into()),
        }
    }
    /// Checks that `identity` has the expected role and id.
    pub fn matches(&self, identity: &Identity) -> bool {
        self.role == identity.role && self.id.as_deref().is_none_or(|id| *id == *identity.id)
    }
}

impl fmt::Display for ExpectedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.role, self.id.as_deref().unwrap_or("*"))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_identity_survives_its_uri() {
        let identity = Identity::new("demo", Role::Agent, "gpu-001").unwrap();
        assert_eq!(identity.uri(), "spiffe://demo/agent/gpu-001");
        assert_eq!(identity.uri().parse::<Identity>().unwrap(), identity);
    }

    #[test]
    fn texts_that_are_no_identity_are_refused() {
        for text in [
            "",
            "https://demo/agent/a",
            "spiffe://demo/agent",
            "spiffe://demo/agent/a/b",
            "spiffe://demo/voter/a",
            "spiffe:///agent/a",
            "spiffe://demo/agent/../a",
            "spiffe://demo/agent/.a",
            "spiffe://demo/agent/a b",
            "spiffe://demo/Agent/a",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }

    #[test]
    fn expect_matches_role_and_id() {
        let a = Identity::new("demo", Role::Agent, "a").unwrap();
        assert!(ExpectedIdentity::role(Role::Agent).matches(&a));
        assert!(ExpectedIdentity::exactly(Role::Agent, "a").matches(&a));
        assert!(!ExpectedIdentity::exactly(Role::Agent, "b").matches(&a));
        assert!(!ExpectedIdentity::role(Role::Control).matches(&a));
    }
}
