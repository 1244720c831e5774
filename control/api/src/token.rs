//! Join tokens: what lets a new agent, quorum member or control enrol.

use crate::{duration, problem::FieldError, text};
use lattice_quorum_types::{
    NodeId, UnixMillis, cidr::Cidr, command::TokenGrant, hostlist, rpc::Role, view,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Longest time a join token may be good for: a week. It is handed around as text, and a
/// forgotten one lets a stranger in.
pub const MAX_TTL_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// Most enrolments one token may be good for: more than the largest cluster has members.
pub const MAX_USES: u32 = 100_000;

/// Most networks one token may name.
pub const MAX_CIDRS: usize = 64;

/// A request for a join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What it enrols: `agent`, `control` or `quorum`.
    #[schema(example = "agent", pattern = "^(agent|control|quorum)$")]
    pub role: String,
    /// How long it is good for, a week at most: `30m`, `1h`, `7d`.
    #[schema(example = "1h")]
    pub ttl: String,
    /// How many enrolments it is good for, 100000 at most; 1 when left out.
    #[serde(default = "once")]
    #[schema(minimum = 1, maximum = 100_000, default = 1)]
    pub uses: u32,
    /// Only these names may enrol with it, as a hostlist; left out: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "gpu[001-064]")]
    pub nodes: Option<String>,
    /// Only from these networks, as a quorum member sees the address; left out: from any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["10.1.0.0/16"]))]
    pub cidrs: Vec<String>,
    /// Whether it may take a name that is enrolled already, when who enrols asks for that too.
    /// Earlier certificates of the name hold no more from then on.
    #[serde(default)]
    pub replace: bool,
}

pub(crate) fn once() -> u32 {
    1
}

/// A [`TokenRequest`] whose texts were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenTerms {
    /// What it enrols.
    pub role: Role,
    /// How long it is good for, milliseconds.
    pub ttl_ms: u64,
    /// How many enrolments it is good for, at least 1.
    pub uses: u32,
    /// The only names that may enrol with it; `None` for any.
    pub names: Option<Vec<NodeId>>,
    /// The only networks it may be used from; empty for any.
    pub cidrs: Vec<Cidr>,
    /// Whether it may take an existing name.
    pub replace: bool,
}

impl TokenTerms {
    /// As it is stored, for a secret with this hash.
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
    /// Reads every text.
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
            let reason = format!("{} is longer than {longest}; make a new one then", self.ttl);
            return Err(fail("ttl", reason));
        }
        if self.uses == 0 {
            return Err(fail("uses", "a token is good for at least 1 use"));
        }
        if self.uses > MAX_USES {
            let reason = format!("{} is more than {MAX_USES}", self.uses);
            return Err(fail("uses", reason));
        }
        let names = match self.nodes.as_deref() {
            None => None,
            // An empty list must never come to mean "any name".
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

/// A join token, told this once: only its hash is kept.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// The whole text, secret included.
    pub token: String,
    /// Until when it is good.
    pub expires_at: String,
    /// How many enrolments it is good for.
    pub uses: u32,
    /// What lists call it, and what withdraws it: the beginning of its hash.
    #[serde(default)]
    pub id: String,
}

/// A join token as lists show it: nothing of it lets anybody enrol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// The beginning of its hash.
    pub id: String,
    /// What it enrols.
    pub role: String,
    /// The only names that may enrol with it, as a hostlist; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// The only networks it may be used from; empty for any.
    pub cidrs: Vec<String>,
    /// How many enrolments are left.
    pub uses_left: u32,
    /// Whether it may take a name that is enrolled already.
    pub replace: bool,
    /// Until when it is good.
    pub expires_at: String,
    /// Who made it.
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

/// What a token is called: the first 12 characters of its hash.
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
    fn a_request_is_read_with_one_use_and_any_name_unless_it_says_otherwise() {
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
