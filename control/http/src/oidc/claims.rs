//! Token claims: conditions for accepting a token, and the identity it gives.

use crate::{
    caller::{MAX_NAME, Role, is_name},
    oidc_config::OidcConfig,
};
use lattice_quorum_types::{ProjectPath, UnixMillis};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Default claims with the user name, for a site that configures none: the login name, else the issuer's subject
/// identifier.
const USUAL_NAMES: [&str; 2] = ["preferred_username", "sub"];
/// Value of the tenants claim that means all tenants.
const ALL_TENANTS: &str = "*";

/// Validation rules of this site for one issuer.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) issuer: String,
    pub(super) audience: String,
    /// Claim with the user name; `None` for the usual ones.
    pub(super) name_claim: Option<String>,
    pub(super) roles_claim: String,
    pub(super) roles: BTreeMap<String, Role>,
    pub(super) tenants_claim: Option<String>,
    /// Allowed difference between the issuer's clock and the local one, milliseconds.
    pub(super) leeway_ms: u64,
}

impl From<&OidcConfig> for Rules {
    fn from(config: &OidcConfig) -> Self {
        Self {
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            name_claim: config.name_claim.clone(),
            roles_claim: config.roles_claim.clone(),
            roles: config.roles.clone(),
            tenants_claim: config.tenants_claim.clone(),
            leeway_ms: config.leeway_s.saturating_mul(1_000),
        }
    }
}

/// Identity given by a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenIdentity {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) tenants: Option<BTreeSet<ProjectPath>>,
    /// Time at which the token stops being valid: its expiry plus the leeway.
    pub(super) valid_until: UnixMillis,
}

/// Reason why a correctly signed token is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ClaimsError {
    /// The token is malformed, not meant for this service or not valid now: the caller is unauthenticated.
    #[error("{0}")]
    NotValid(String),
    /// The token is valid, but gives its principal no permissions on this cluster.
    #[error("{0}")]
    NotAllowed(String),
}

fn not_valid<T>(text: impl Into<String>) -> Result<T, ClaimsError> {
    Err(ClaimsError::NotValid(text.into()))
}

fn not_allowed<T>(text: String) -> Result<T, ClaimsError> {
    Err(ClaimsError::NotAllowed(text))
}

type Claims = Map<String, Value>;

/// Claim with this name, or at the end of this path (`realm_access.roles`). Each name in the path may contain dots, as
/// the ids of clients do (`resource_access.my.client.roles`). The complete name is tried first, then the shortest first
/// name.
fn claim_at_path<'a>(claims: &'a Claims, path: &str) -> Option<&'a Value> {
    let below = |at: usize| {
        let inner = claims.get(&path[..at])?.as_object()?;
        claim_at_path(inner, &path[at + 1..])
    };
    let mut dots = path.match_indices('.').map(|(at, _)| at);
    claims.get(path).or_else(|| dots.find_map(below))
}

/// Words of a claim: a list of texts, or one text separated by spaces.
fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.split_whitespace().collect(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Value of a claim without the slash before the path of a top-level group, as Keycloak writes it: `/physics` is the
/// group `physics`. A group below another one, such as `/physics/simulation`, keeps its path.
fn group_name(word: &str) -> &str {
    match word.strip_prefix('/') {
        Some(name) if !name.contains('/') => name,
        _ => word,
    }
}

/// Time claim: seconds, possibly with a fraction.
fn time_claim(claims: &Claims, name: &str) -> Result<Option<UnixMillis>, ClaimsError> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = value.as_u64().map(|whole| whole.saturating_mul(1_000));
    let parts = || {
        let seconds = value.as_f64().filter(|s| *s >= 0.0)?;
        // Larger values saturate at the latest representable time.
        Some((seconds * 1_000.0) as u64)
    };
    match seconds.or_else(parts) {
        Some(ms) => Ok(Some(UnixMillis(ms))),
        None => not_valid(format!("`{name}` of the token is not a valid time")),
    }
}

impl Rules {
    /// Identity given by the claims of a token at the time `now`.
    pub(super) fn identity(
        &self,
        payload: &[u8],
        now: UnixMillis,
    ) -> Result<TokenIdentity, ClaimsError> {
        let Ok(claims) = serde_json::from_slice::<Claims>(payload) else {
            return not_valid("the token's payload is not a JSON object");
        };
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return not_valid(format!("the token was not issued by {}", self.issuer));
        }
        let is_for_us = match claims.get("aud") {
            Some(Value::String(one)) => *one == self.audience,
            Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(&self.audience)),
            _ => false,
        };
        if !is_for_us {
            return not_valid(format!(
                "the token is for another audience than {:?}",
                self.audience
            ));
        }
        let until = self.check_times(&claims, now)?;
        let name = self.name(&claims)?;
        let role = self.role(&claims, &name)?;
        let tenants = self.tenants(&claims, &name)?;
        if role == Role::TenantAdmin && tenants.is_none() {
            return not_allowed(format!(
                "{name} has the role {role}, which requires named tenants, but the token grants access to \
                 all tenants"
            ));
        }
        Ok(TokenIdentity {
            name,
            role,
            tenants,
            valid_until: until,
        })
    }

    fn check_times(&self, claims: &Claims, now: UnixMillis) -> Result<UnixMillis, ClaimsError> {
        let leeway = self.leeway_ms;
        let Some(ends) = time_claim(claims, "exp")? else {
            return not_valid("the token has no expiry time (`exp`)");
        };
        let until = UnixMillis(ends.0.saturating_add(leeway));
        if now >= until {
            return not_valid(format!(
                "the token expired {} s ago; request a new one",
                now.since(ends) / 1_000
            ));
        }
        for (claim, what) in [("nbf", "becomes valid"), ("iat", "was issued")] {
            let Some(at) = time_claim(claims, claim)? else {
                continue;
            };
            if at.0 > now.0.saturating_add(leeway) {
                return not_valid(format!(
                    "the token {what} {} s in the future (`{claim}`); check the clocks of the issuer and of this host",
                    at.since(now).div_ceil(1_000)
                ));
            }
        }
        Ok(until)
    }

    fn name(&self, claims: &Claims) -> Result<String, ClaimsError> {
        let named = match &self.name_claim {
            Some(claim) => std::slice::from_ref(claim)
                .iter()
                .map(String::as_str)
                .collect(),
            None => Vec::from(USUAL_NAMES),
        };
        let mut found = named
            .iter()
            .filter_map(|claim| claim_at_path(claims, claim));
        let Some(name) = found.find_map(Value::as_str).filter(|n| !n.is_empty()) else {
            let claims = named.join("` or `");
            return not_allowed(format!(
                "the token contains no user name: claim `{claims}` is missing"
            ));
        };
        match is_name(name) {
            true => Ok(name.to_owned()),
            false => not_allowed(format!(
                "the user name in the token is not valid here: it must be 1 to {MAX_NAME} letters, \
                 digits, '.', '_', '-' and '@'"
            )),
        }
    }

    fn role(&self, claims: &Claims, name: &str) -> Result<Role, ClaimsError> {
        let claim = &self.roles_claim;
        let Some(value) = claim_at_path(claims, claim) else {
            return not_allowed(format!(
                "{name} has no role on this cluster: the token has no claim `{claim}`"
            ));
        };
        let role_of = |word: &str| {
            self.roles
                .get(word)
                .or_else(|| self.roles.get(group_name(word)))
        };
        let mapped: Vec<Role> = words(value)
            .into_iter()
            .filter_map(role_of)
            .copied()
            .collect();
        let strongest = Role::ALL.into_iter().rev().find(|r| mapped.contains(r));
        match strongest {
            Some(role) => Ok(role),
            None => not_allowed(format!(
                "{name} has no role on this cluster: no value of the token's claim `{claim}` is mapped to a \
                 role"
            )),
        }
    }

    /// Tenants of the token; `None` for all. If the site configures a tenants claim, a token without the claim is
    /// rejected and never counts as one for all tenants.
    fn tenants(
        &self,
        claims: &Claims,
        name: &str,
    ) -> Result<Option<BTreeSet<ProjectPath>>, ClaimsError> {
        let Some(claim) = &self.tenants_claim else {
            return Ok(None);
        };
        let Some(value) = claim_at_path(claims, claim) else {
            return not_allowed(format!(
                "{name} has no tenant on this cluster: the token has no claim `{claim}`"
            ));
        };
        let words = words(value);
        if words.contains(&ALL_TENANTS) {
            return Ok(None);
        }
        let paths = words.into_iter().map(group_name);
        let paths = paths.filter_map(|path| ProjectPath::new(path).ok());
        let tenants: BTreeSet<ProjectPath> = paths.filter(ProjectPath::is_tenant).collect();
        match tenants.is_empty() {
            false => Ok(Some(tenants)),
            true => not_allowed(format!(
                "{name} has no tenant on this cluster: no value of the token's claim `{claim}` is the name \
                 of a tenant"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

    fn rules() -> Rules {
        Rules {
            issuer: "https://id.example.org".to_owned(),
            audience: "lattice".to_owned(),
            name_claim: None,
            roles_claim: "realm_access.roles".to_owned(),
            roles: BTreeMap::from([
                ("hpc-user".to_owned(), Role::User),
                ("hpc-admin".to_owned(), Role::Admin),
                ("hpc-dean".to_owned(), Role::TenantAdmin),
                ("waldur".to_owned(), Role::Service),
            ]),
            tenants_claim: None,
            leeway_ms: 60_000,
        }
    }

    /// Valid claims with changes; a null removes a claim.
    fn with(changes: Value) -> Vec<u8> {
        let mut claims = json!({
            "iss": "https://id.example.org", "aud": ["account", "lattice"], "sub": "f3a1",
            "exp": NOW.0 / 1_000 + 300, "nbf": NOW.0 / 1_000, "iat": NOW.0 / 1_000,
            "preferred_username": "ada", "realm_access": {"roles": ["other", "hpc-user"]},
        });
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => claims.as_object_mut().unwrap().remove(name),
                value => claims
                    .as_object_mut()
                    .unwrap()
                    .insert(name.clone(), value.clone()),
            };
        }
        serde_json::to_vec(&claims).unwrap()
    }

    fn says(rules: &Rules, changes: Value) -> String {
        match rules.identity(&with(changes), NOW) {
            Ok(holder) => format!("{} {}", holder.name, holder.role),
            Err(ClaimsError::NotValid(text)) => format!("401 {text}"),
            Err(ClaimsError::NotAllowed(text)) => format!("403 {text}"),
        }
    }

    #[test]
    fn a_token_is_for_here_and_for_now() {
        let rules = rules();
        let s = NOW.0 / 1_000;
        for (changes, wanted) in [
            (json!({}), "ada user"),
            (json!({"aud": "lattice"}), "ada user"),
            (json!({"aud": "lattice2"}), "401 the token is for another"),
            (json!({"aud": ["a"]}), "401 the token is for another"),
            (json!({"aud": null}), "401 the token is for another"),
            (
                json!({"iss": "https://id.example.org/"}),
                "401 the token was not issued by",
            ),
            (json!({"iss": null}), "401 the token was not issued by"),
            (json!({"exp": s - 59}), "ada user"),
            (json!({"exp": s - 60}), "401 the token expired 60 s ago"),
            (json!({"exp": (s as f64) - 59.5}), "ada user"),
            (json!({"exp": 1e300}), "ada user"),
            (json!({"exp": null}), "401 the token has no expiry time"),
            (
                json!({"exp": "soon"}),
                "401 `exp` of the token is not a valid time",
            ),
            (
                json!({"exp": -5}),
                "401 `exp` of the token is not a valid time",
            ),
            (json!({"nbf": s + 60}), "ada user"),
            (
                json!({"nbf": s + 61}),
                "401 the token becomes valid 61 s in the future",
            ),
            (
                json!({"iat": s + 61}),
                "401 the token was issued 61 s in the future",
            ),
            (json!({"nbf": null, "iat": null}), "ada user"),
        ] {
            let said = says(&rules, changes.clone());
            assert!(said.starts_with(wanted), "{changes}: {said}");
        }
    }

    #[test]
    fn name_comes_from_configured_claim_only() {
        let mut rules = rules();
        let no_name = json!({"preferred_username": null});
        assert_eq!(says(&rules, no_name.clone()), "f3a1 user");
        for odd in ["service:control", "a b", "", "\u{e4}da"] {
            let said = says(&rules, json!({"preferred_username": odd}));
            assert!(said.starts_with("403 "), "{odd:?}: {said}");
        }
        rules.name_claim = Some("email".to_owned());
        let said = says(&rules, json!({}));
        assert_eq!(
            said,
            "403 the token contains no user name: claim `email` is missing"
        );
        assert_eq!(says(&rules, json!({"email": "ada@x"})), "ada@x user");
    }

    #[test]
    fn a_role_is_one_that_the_site_maps_and_the_strongest_of_them() {
        let rules = rules();
        let roles = |roles: Value| says(&rules, json!({"realm_access": {"roles": roles}}));
        assert_eq!(roles(json!(["hpc-user", "hpc-admin"])), "ada admin");
        assert_eq!(roles(json!("waldur hpc-user")), "ada user");
        assert_eq!(roles(json!(["waldur"])), "ada service");
        let of_client = Rules {
            roles_claim: "resource_access.my.client.roles".to_owned(),
            ..rules.clone()
        };
        let client = json!({"my.client": {"roles": ["hpc-admin"]}});
        assert_eq!(
            says(&of_client, json!({"resource_access": client})),
            "ada admin"
        );
        // A role name of Lattice has no meaning in a token unless the site maps it.
        let none = roles(json!(["admin"]));
        assert!(none.contains("no value of the token's claim `realm_access.roles`"));
        let none = says(&rules, json!({"realm_access": null}));
        assert!(none.contains("has no claim `realm_access.roles`"), "{none}");
        // A tenant administrator requires named tenants.
        assert!(roles(json!(["hpc-dean"])).starts_with("403 "));
    }

    #[test]
    fn tenants_are_those_that_are_named_and_never_all_by_silence() {
        let rules = Rules {
            tenants_claim: Some("groups".to_owned()),
            ..rules()
        };
        let tenants = |groups: Value| rules.identity(&with(json!({"groups": groups})), NOW);
        let named = tenants(json!(["ocean", "ocean/deep", "/staff"])).unwrap();
        assert_eq!(
            named.tenants,
            Some(BTreeSet::from(
                ["ocean", "staff"].map(|name| ProjectPath::new(name).unwrap())
            ))
        );
        assert_eq!(tenants(json!(["*"])).unwrap().tenants, None);
        let refused = ["a/b", "/a/b", "//a", "/", "/a/", "/*", "/ocean "];
        let refused = refused.map(|group| json!([group]));
        for none in [json!(null), json!([]), json!(7)]
            .into_iter()
            .chain(refused)
        {
            let refused = tenants(none.clone());
            assert!(matches!(refused, Err(ClaimsError::NotAllowed(_))), "{none}");
        }
    }

    /// Section `https.oidc` of the example in the README.
    fn readme_example() -> OidcConfig {
        let readme = include_str!("../../../../README.md");
        let blocks = readme.split("```yaml\n").skip(1);
        let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
        let block = blocks.find(|block| block.contains("oidc:")).unwrap();
        let block: serde_yaml_ng::Value = serde_yaml_ng::from_str(block).unwrap();
        serde_yaml_ng::from_value(block["https"]["oidc"].clone()).unwrap()
    }

    /// Claims of an access token as Keycloak writes them, with the mappers "Audience" and "Group Membership". The latter
    /// writes full paths of groups by default.
    fn keycloak_claims(realm_roles: &[&str], groups: &[&str]) -> Vec<u8> {
        let claims = json!({
            "exp": NOW.0 / 1_000 + 300, "iat": NOW.0 / 1_000, "auth_time": NOW.0 / 1_000 - 1,
            "jti": "onrtac:7b7f5a0e-6f5f-4a3c-9d41-1a2b3c4d5e6f",
            "iss": "https://id.example.org/realms/hpc", "aud": ["lattice", "account"],
            "sub": "f:2d1c:8a7e4a5c", "typ": "Bearer", "azp": "lattice-cli",
            "sid": "0b6d7f0e-35a2-4a63-9a44-b0f9b2f4e6c1", "acr": "1",
            "allowed-origins": ["https://lattice.example.org"],
            "realm_access": {"roles": realm_roles},
            "resource_access": {"account": {"roles": ["manage-account", "view-profile"]}},
            "scope": "openid email profile", "email_verified": true, "name": "Lin Example",
            "groups": groups, "preferred_username": "lin", "given_name": "Lin",
            "family_name": "Example", "email": "lin@example.org",
        });
        serde_json::to_vec(&claims).unwrap()
    }

    #[test]
    fn readme_example_accepts_keycloak_token() {
        let config = readme_example();
        let mut problems = lattice_config::Problems::default();
        config.check(&mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        let rules = Rules::from(&config);
        let roles = ["default-roles-hpc", "offline_access", "uma_authorization"];
        let identity = |role: &str, groups: &[&str]| {
            let roles = [&roles[..], &[role]].concat();
            rules.identity(&keycloak_claims(&roles, groups), NOW)
        };
        let physics = BTreeSet::from([ProjectPath::new("physics").unwrap()]);
        for groups in [
            &["/physics"][..],
            &["physics"],
            &["/physics", "/physics/simulation"],
        ] {
            let lin = identity("hpc-users", groups).unwrap();
            assert_eq!((lin.name.as_str(), lin.role), ("lin", Role::User));
            assert_eq!(lin.tenants.as_ref(), Some(&physics), "{groups:?}");
        }
        let lead = identity("pi", &["/physics"]).unwrap();
        assert_eq!(lead.role, Role::TenantAdmin);
        let refused = identity("hpc-users", &["/physics/simulation"]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "lin has no tenant on this cluster: no value of the token's claim `groups` is the name of a tenant"
        );
    }

    #[test]
    fn group_with_slash_is_a_role_of_its_name() {
        let rules = Rules {
            roles_claim: "groups".to_owned(),
            ..rules()
        };
        let groups = |groups: Value| says(&rules, json!({"groups": groups}));
        assert_eq!(groups(json!(["/hpc-user"])), "ada user");
        assert_eq!(groups(json!("/other /hpc-admin hpc-user")), "ada admin");
        for none in ["/staff/hpc-admin", "//hpc-admin", "/hpc-admin/", "/"] {
            let said = groups(json!([none]));
            assert!(said.starts_with("403 ada has no role"), "{none}: {said}");
        }
    }

    #[test]
    fn finds_claim_with_dots_in_name() {
        let Value::Object(claims) = json!({"https://x.org/roles": ["a"], "b": {"c.d": 1}}) else {
            unreachable!()
        };
        assert_eq!(
            claim_at_path(&claims, "https://x.org/roles"),
            Some(&json!(["a"]))
        );
        assert_eq!(claim_at_path(&claims, "b.c.d"), Some(&json!(1)));
        assert_eq!(claim_at_path(&claims, "b.c"), None);
        let Value::Object(claims) = json!({
            "resource_access": {"my": {"roles": 1}, "my.client": {"roles": ["x"]}, "other": 7},
            "a.b": {"c.d": {"e.f": 2}, "c": {"d": 3}}, "a": {"b": {"c": {"d": 4}}},
        }) else {
            unreachable!()
        };
        for (path, found) in [
            ("resource_access.my.client.roles", Some(json!(["x"]))),
            ("resource_access.my.roles", Some(json!(1))),
            ("a.b.c.d.e.f", Some(json!(2))),
            ("a.b.c.d", Some(json!(4))),
            ("resource_access.my.client.role", None),
            ("resource_access.other.roles", None),
            (".", None),
        ] {
            assert_eq!(claim_at_path(&claims, path), found.as_ref(), "{path}");
        }
    }
}
