//! Section `https.oidc`: an issuer of tokens that are accepted in addition to the tokens file.

use crate::Role;
use lattice_config::Problems;
use reqwest::Url;
use serde::Deserialize;
use std::{collections::BTreeMap, path::PathBuf};

/// OpenID Connect issuer of tokens, and the mapping of its claims.
#[derive(Debug, Clone, Deserialize)]
pub struct OidcConfig {
    /// Issuer URL, exactly as in the tokens (`iss`). The discovery document of the issuer is read below this URL.
    pub issuer: String,
    /// Audience of tokens for this cluster (`aud`).
    pub audience: String,
    /// File with the CAs that sign the issuer's certificate, PEM; the system's CAs when left out.
    pub ca_file: Option<PathBuf>,
    /// Claim with the principal's name; `preferred_username`, or else `sub`, when left out.
    pub name_claim: Option<String>,
    /// Claim with the principal's roles: a name, or a path with dots such as `realm_access.roles`, in which a name may
    /// itself have dots; `lattice_roles` when left out. Its value is a list, or one text with spaces between the roles.
    #[serde(default = "lattice_roles")]
    pub roles_claim: String,
    /// Mapping from values of the roles claim to roles of Lattice.
    pub roles: BTreeMap<String, Role>,
    /// Claim with the tenants that the principal may see, `*` for all. When left out, every principal sees all tenants.
    pub tenants_claim: Option<String>,
    /// Allowed difference between the issuer's clock and the local clock, in seconds.
    #[serde(default = "one_minute")]
    pub leeway_s: u64,
    /// Interval between two reads of the issuer's keys, in seconds.
    #[serde(default = "one_hour")]
    pub refresh_s: u64,
}

fn lattice_roles() -> String {
    "lattice_roles".to_owned()
}
const fn one_minute() -> u64 {
    60
}
const fn one_hour() -> u64 {
    3_600
}

/// Maximum allowed clock difference, in seconds.
const MAX_LEEWAY_S: u64 = 600;
/// Allowed refresh intervals, in seconds: a shorter one burdens the issuer, a longer one keeps revoked keys in force.
const REFRESH_S: std::ops::RangeInclusive<u64> = 60..=86_400;

impl OidcConfig {
    /// Adds each invalid value of the section to `problems`.
    pub fn check(&self, problems: &mut Problems) {
        if let Err(why) = check_issuer(&self.issuer) {
            problems.add("issuer", why);
        }
        if self.audience.trim().is_empty() {
            problems.add(
                "audience",
                "give the audience of the issuer's tokens for this cluster",
            );
        }
        for (key, claim) in [
            ("name_claim", self.name_claim.as_ref()),
            ("roles_claim", Some(&self.roles_claim)),
            ("tenants_claim", self.tenants_claim.as_ref()),
        ] {
            if claim.is_some_and(|claim| claim.trim().is_empty()) {
                problems.add(key, "must be the name of a claim, or a path with dots");
            }
        }
        if self.roles.is_empty() {
            let text =
                "map at least one value of the claim to a role; without one no caller has access";
            problems.add("roles", text);
        }
        let deans = self.roles.iter().filter(|(_, r)| **r == Role::TenantAdmin);
        for (value, role) in deans.filter(|_| self.tenants_claim.is_none()) {
            let text = format!("the role {role} is limited to named tenants: give `tenants_claim`");
            problems.add(format!("roles.{value}"), text);
        }
        if self.leeway_s > MAX_LEEWAY_S {
            let given = self.leeway_s;
            let text = format!("give 0 to {MAX_LEEWAY_S} seconds, not {given}");
            problems.add("leeway_s", text);
        }
        if !REFRESH_S.contains(&self.refresh_s) {
            let (least, most) = (REFRESH_S.start(), REFRESH_S.end());
            let given = self.refresh_s;
            let text = format!("give {least} to {most} seconds, not {given}");
            problems.add("refresh_s", text);
        }
    }
}

fn check_issuer(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("is not a valid URL: {error}"))?;
    if url.scheme() != "https" {
        return Err(
            "must be an https URL: over http an attacker could replace the issuer's keys".into(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must have no query and no fragment".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name".into());
    }
    Ok(())
}
