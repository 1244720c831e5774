//! Join tokens: what lets a new agent, quorum member or control enrol.

use crate::{duration, problem::FieldError};
use lattice_quorum_types::{NodeId, hostlist, rpc::Role};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Longest time a join token may be good for: a week. It is handed around as text, and a
/// forgotten one lets a stranger in.
pub const MAX_TTL_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// A request for a join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What it enrols: `agent`, `control` or `quorum`.
    #[schema(example = "agent")]
    pub role: String,
    /// How long it is good for, a week at most: `30m`, `1h`, `7d`.
    #[schema(example = "1h")]
    pub ttl: String,
    /// How many enrolments it is good for; 1 when left out.
    #[serde(default = "once")]
    #[schema(minimum = 1, default = 1)]
    pub uses: u32,
    /// Only these names may enrol with it, as a hostlist; left out: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "gpu[001-064]")]
    pub nodes: Option<String>,
}

fn once() -> u32 {
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
}

impl TokenRequest {
    /// Reads every text.
    ///
    /// # Errors
    /// The first field that cannot be read, or is outside its range.
    pub fn into_terms(self) -> Result<TokenTerms, FieldError> {
        let fail = |field: &str, reason: String| FieldError {
            field: field.to_owned(),
            reason,
        };
        let role = self.role.parse().map_err(|_| {
            let reason = format!("{:?} is not one of agent, control, quorum", self.role);
            fail("role", reason)
        })?;
        let ttl_ms = duration::parse(&self.ttl).map_err(|e| fail("ttl", e.to_string()))?;
        if ttl_ms > MAX_TTL_MS {
            let longest = duration::format(MAX_TTL_MS);
            let reason = format!("{} is longer than {longest}", self.ttl);
            return Err(fail("ttl", reason));
        }
        if self.uses == 0 {
            return Err(fail(
                "uses",
                "a token is good for at least 1 use".to_owned(),
            ));
        }
        let names = match self.nodes.as_deref() {
            None => None,
            // An empty list must never come to mean "any name".
            Some(text) if text.trim().is_empty() => {
                let reason = "name at least one, or leave it out for any".to_owned();
                return Err(fail("nodes", reason));
            }
            Some(text) => Some(hostlist::expand(text).map_err(|e| fail("nodes", e.to_string()))?),
        };
        Ok(TokenTerms {
            role,
            ttl_ms,
            uses: self.uses,
            names,
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
        };
        assert_eq!(least, wanted);
        let all = read(r#"{"role":"quorum","ttl":"7d","uses":3,"nodes":"q[1-3]"}"#);
        let all = all.into_terms().unwrap();
        assert_eq!((all.role, all.uses), (Role::Quorum, 3));
        assert_eq!(all.names.unwrap().len(), 3);
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
        };
        assert!(!format!("{made:?}").contains("secret"));
    }
}
