//! Join tokens, which let a new agent, quorum member or control enrol.

use crate::{
    notation::{duration, text},
    problem::FieldError,
};
use lattice_quorum_types::{
    NodeId, UnixMillis, cidr::Cidr, command::TokenGrant, hostlist, rpc::Role, view,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Longest lifetime of a join token, milliseconds: a week. A token is passed on as text, and a forgotten one could
/// admit an intruder.
pub const MAX_TTL_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// Most enrolments of one token: more than the largest cluster has members.
pub const MAX_USES: u32 = 100_000;

/// Most networks in one token.
pub const MAX_CIDRS: usize = 64;

/// Request for a join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Role to enrol: `agent`, `control` or `quorum`.
    #[schema(example = "agent", pattern = "^(agent|control|quorum)$")]
    pub role: String,
    /// Lifetime, a week at most: `30m`, `1h`, `7d`.
    #[schema(example = "1h")]
    pub ttl: String,
    /// Number of enrolments, 100000 at most; 1 when left out.
    #[serde(default = "default_uses")]
    #[schema(minimum = 1, maximum = 100_000, default = 1)]
    pub uses: u32,
    /// Names that may enrol with the token, as a hostlist; left out: any name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "gpu[001-064]")]
    pub nodes: Option<String>,
    /// Networks from which the token may be used, by the client address of the connection to the quorum member; left
    /// out: any network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["10.1.0.0/16"]))]
    pub cidrs: Vec<String>,
    /// Whether the token may take over a name that is already enrolled, if the enrolling machine requests that too.
    /// Earlier certificates of the name then become invalid.
    #[serde(default)]
    pub replace: bool,
}

pub(crate) fn default_uses() -> u32 {
    1
}

/// Parsed and checked [`TokenRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenTerms {
    /// Role to enrol.
    pub role: Role,
    /// Lifetime, milliseconds.
    pub ttl_ms: u64,
    /// Number of enrolments, at least 1.
    pub uses: u32,
    /// Names that may enrol with the token; `None` for any.
    pub names: Option<Vec<NodeId>>,
    /// Networks from which the token may be used; empty for any.
    pub cidrs: Vec<Cidr>,
    /// Whether the token may take over an existing name.
    pub replace: bool,
}

impl TokenTerms {
    /// Returns the stored form, for a secret with this hash.
    pub fn into_grant(self, hash: String, now: UnixMillis) -> TokenGrant {
        TokenGrant {
            hash,
            role: self.role,
            names: self.names,
            cidrs: self.cidrs,
            uses: self.uses,
            replace: self.replace,
            expires_at: now.after(self.ttl_ms),
        }
    }
}

fn fail(field: &str, reason: impl Into<String>) -> FieldError {
    FieldError {
        field: field.to_owned(),
        reason: reason.into(),
    }
}

fn networks(texts: &[String]) -> Result<Vec<Cidr>, FieldError> {
    if texts.len() > MAX_CIDRS {
        let reason = format!(
            "{} networks are too many; name {MAX_CIDRS} at most",
            texts.len()
        );
        return Err(fail("cidrs", reason));
    }
    let read = |(n, text): (usize, &String)| {
        let cidr = text.trim().parse::<Cidr>();
        cidr.map_err(|e| fail(&format!("cidrs[{n}]"), e.to_string()))
    };
    texts.iter().enumerate().map(read).collect()
}

impl TokenRequest {
    /// Parses and checks every field.
    ///
    /// # Errors
    /// The first field that cannot be read, or is outside its range.
    pub fn into_terms(self) -> Result<TokenTerms, FieldError> {
        let role = self.role.parse().map_err(|_| {
            let reason = format!("{:?} is not one of agent, control, quorum", self.role);
            fail("role", reason)
        })?;
        let ttl_ms = duration::parse(&self.ttl).map_err(|e| fail("ttl", e.to_string()))?;
        if ttl_ms > MAX_TTL_MS {
            let longest = duration::format(MAX_TTL_MS);
            let reason = format!(
                "{} is longer than {longest}; create a new token when this one \
                expires",
                self.ttl
            );
            return Err(fail("ttl", reason));
        }
        if self.uses == 0 {
            return Err(fail(
                "uses",
                "0 is not a valid number of uses; it must be at least 1",
            ));
        }
        if self.uses > MAX_USES {
            let reason = format!("{} is more than {MAX_USES}", self.uses);
            return Err(fail("uses", reason));
        }
        let names = match self.nodes.as_deref() {
            None => None,
            // An empty list must never mean "any name".
            Some(text) if text.trim().is_empty() => {
                return Err(fail("nodes", "name at least one, or leave it out for any"));
            }
            Some(text) => Some(hostlist::expand(text).map_err(|e| fail("nodes", e.to_string()))?),
        };
        Ok(TokenTerms {
            role,
            ttl_ms,
            uses: self.uses,
            names,
            cidrs: networks(&self.cidrs)?,
            replace: self.replace,
        })
    }
}

/// New join token, with its text. The cluster keeps only a hash of the text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// Complete token, including the secret.
    pub token: String,
    /// Expiry time.
    pub expires_at: String,
    /// Number of enrolments.
    pub uses: u32,
    /// Token id, for lists and for revocation: the prefix of the token's hash.
    #[serde(default)]
    pub id: String,
}

/// Join token as shown in lists, without anything that permits an enrolment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Token id: the prefix of the token's hash.
    pub id: String,
    /// Role to enrol.
    pub role: String,
    /// Names that may enrol with the token, as a hostlist; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Networks from which the token may be used; empty for any.
    pub cidrs: Vec<String>,
    /// Number of enrolments left.
    pub uses_left: u32,
    /// Whether the token may take over a name that is already enrolled.
    pub replace: bool,
    /// Expiry time.
    pub expires_at: String,
    /// Principal that created the token.
    pub by: String,
}

impl From<&view::TokenView> for TokenView {
    fn from(token: &view::TokenView) -> Self {
        let grant = &token.grant;
        Self {
            id: short_hash(&grant.hash),
            role: grant.role.to_string(),
            nodes: grant.names.as_ref().map(hostlist::fold),
            cidrs: grant.cidrs.iter().map(Cidr::to_string).collect(),
            uses_left: grant.uses,
            replace: grant.replace,
            expires_at: text::time(grant.expires_at),
            by: token.by.clone(),
        }
    }
}

/// Returns the id of a token: the first 12 characters of its hash.
pub fn short_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

/// Leaves out the token, which must not reach a log.
impl fmt::Debug for TokenCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCreated")
            .field("expires_at", &self.expires_at)
            .field("uses", &self.uses)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(json: &str) -> TokenRequest {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn token_request_defaults_to_one_use() {
        let least = read(r#"{"role":"agent","ttl":"1h"}"#).into_terms().unwrap();
        let wanted = TokenTerms {
            role: Role::Agent,
            ttl_ms: 3_600_000,
            uses: 1,
            names: None,
            cidrs: vec![],
            replace: false,
        };
        assert_eq!(least, wanted);
        let all = read(
            r#"{"role":"quorum","ttl":"7d","uses":3,"nodes":"q[1-3]","cidrs":["10.1.0.0/16",
            "fd00::/8"],"replace":true}"#,
        );
        let all = all.into_terms().unwrap();
        assert_eq!((all.role, all.uses), (Role::Quorum, 3));
        assert_eq!(all.names.as_ref().unwrap().len(), 3);
        let grant = all.into_grant("ab".repeat(32), UnixMillis(5));
        assert_eq!(grant.expires_at, UnixMillis(5 + 7 * 24 * 3_600_000));
        assert!(grant.replace);
        let shown = TokenView::from(&view::TokenView {
            grant,
            by: "root".to_owned(),
        });
        assert_eq!(shown.id, "abababababab");
        assert_eq!(shown.nodes.as_deref(), Some("q[1-3]"));
        assert_eq!(shown.cidrs, ["10.1.0.0/16", "fd00::/8"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_its_field() {
        for (json, field) in [
            (r#"{"role":"root","ttl":"1h"}"#, "role"),
            (r#"{"role":"agent","ttl":"8d"}"#, "ttl"),
            (r#"{"role":"agent","ttl":"soon"}"#, "ttl"),
            (r#"{"role":"agent","ttl":"1h","uses":0}"#, "uses"),
            (r#"{"role":"agent","ttl":"1h","nodes":" "}"#, "nodes"),
            (r#"{"role":"agent","ttl":"1h","nodes":"gpu[1-"}"#, "nodes"),
            (r#"{"role":"agent","ttl":"1h","uses":100001}"#, "uses"),
            (
                r#"{"role":"agent","ttl":"1h","cidrs":["10.0.0.0/8","10.1.2.3/16"]}"#,
                "cidrs[1]",
            ),
            (
                r#"{"role":"agent","ttl":"1h","cidrs":["here"]}"#,
                "cidrs[0]",
            ),
        ] {
            let error = read(json).into_terms().unwrap_err();
            assert_eq!(error.field, field, "{json}: {error}");
        }
        let unknown = r#"{"role":"agent","ttl":"1h","admin":true}"#;
        assert!(serde_json::from_str::<TokenRequest>(unknown).is_err());
    }

    #[test]
    fn the_token_is_not_shown() {
        let made = TokenCreated {
            token: "lattice-join-1.secret".to_owned(),
            expires_at: String::new(),
            uses: 1,
            id: "0123".to_owned(),
        };
        assert!(!format!("{made:?}").contains("secret"));
    }
}
