//! vClusters: views of nodes, each with a policy of its own.

use crate::{ProjectPath, Revision, VclusterName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Longest description, and longest profile, bytes.
pub const MAX_TEXT_BYTES: usize = 16 << 10;
/// Tenants that one vCluster names. A page has the default of 200 vClusters, and with ordinary names
/// stays below the 4 MiB of a gRPC message.
pub const MAX_TENANTS: usize = 500;
/// Where work goes that names none. It is there although nobody has defined it.
pub const DEFAULT_VCLUSTER: &str = "default";

/// What a vCluster is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VclusterDefinition {
    /// Text for people.
    pub description: String,
    /// The tenants that may use it; `None`: all.
    pub tenants: Option<BTreeSet<ProjectPath>>,
    /// Settings of its scheduler, which alone knows what they mean: a line `name=value` each, by name.
    pub profile: String,
}

/// What is wrong with a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    /// The name.
    #[error(
        "{name:?} is no name of a setting; it has a-z, 0-9, _ and ., and 64 characters at most"
    )]
    Name {
        /// As given.
        name: String,
    },
    /// The value.
    #[error("the value of {name} must be one line of 256 bytes at most")]
    Value {
        /// Whose.
        name: String,
    },
}

/// Names of the nine weights of a scheduler's score, w1 to w9: of the fields in the API, of the stored settings (after
/// `weights.`), and with `-` for `_` of the CLI's flags.
pub const WEIGHTS: [&str; 9] = [
    "priority",
    "wait_time",
    "fair_share",
    "topology",
    "data_ready",
    "backlog",
    "energy",
    "checkpoint",
    "conformance",
];

/// The settings in a profile's text. Lines that are none are passed over.
pub fn settings(profile: &str) -> BTreeMap<&str, &str> {
    profile
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect()
}

/// The text with some settings changed; an empty value takes one back.
///
/// # Errors
/// The first name or value that cannot be written so that it is read as it was.
pub fn with_settings(
    profile: &str,
    changes: &BTreeMap<String, String>,
) -> Result<String, InvalidSetting> {
    let mut all = settings(profile);
    for (name, value) in changes {
        let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'.';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(known) {
            return Err(InvalidSetting::Name { name: name.clone() });
        }
        if value.len() > 256 || value.contains(['\n', '\r']) {
            return Err(InvalidSetting::Value { name: name.clone() });
        }
        match value.is_empty() {
            true => all.remove(name.as_str()),
            false => all.insert(name, value),
        };
    }
    Ok(all
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect())
}

impl VclusterDefinition {
    /// Whether a project may use it.
    pub fn is_for(&self, project: &ProjectPath) -> bool {
        let tenants = self.tenants.as_ref();
        tenants.is_none_or(|tenants| tenants.contains(&project.tenant()))
    }
}

/// A change to what a vCluster is. What is not named stays; where nobody has said anything yet, that is
/// the empty definition, open to all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VclusterPatch {
    /// Text for people.
    pub description: Option<String>,
    /// The tenants that may use it.
    pub tenants: TenantsPatch,
    /// See [`VclusterDefinition::profile`].
    pub profile: Option<String>,
}

/// A change to the tenants that may use a vCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantsPatch {
    /// Leave them as they are.
    #[default]
    Unchanged,
    /// All, also those that come later.
    All,
    /// These and no others; none closes it.
    Only(BTreeSet<ProjectPath>),
}

impl VclusterPatch {
    /// What the vCluster is with this change.
    pub fn applied_to(&self, present: Option<&VclusterDefinition>) -> VclusterDefinition {
        let mut next = present.cloned().unwrap_or_default();
        let Self {
            description,
            tenants,
            profile,
        } = self;
        if let Some(description) = description {
            next.description.clone_from(description);
        }
        if let Some(profile) = profile {
            next.profile.clone_from(profile);
        }
        match tenants {
            TenantsPatch::Unchanged => {}
            TenantsPatch::All => next.tenants = None,
            TenantsPatch::Only(names) => next.tenants = Some(names.clone()),
        }
        next
    }
}

/// A vCluster as it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcluster {
    /// Its name.
    pub name: VclusterName,
    /// What it is.
    pub definition: VclusterDefinition,
    /// Counts its definitions, from 1; from above those that were deleted, where there were any, so
    /// that no number comes twice under one name. 0: its scheduler has settings, and nobody has defined it.
    pub version: u32,
    /// Last change.
    pub revision: Revision,
}

impl Vcluster {
    /// Whether somebody has said what it is. Settings of its scheduler alone do not.
    pub fn is_defined(&self) -> bool {
        self.version > 0
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn set(profile: &str, changes: &[(&str, &str)]) -> Result<String, InvalidSetting> {
        let changes = changes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        with_settings(profile, &changes.collect())
    }

    #[test]
    fn settings_are_merged_and_taken_back() {
        let first = set("", &[("weights.topology", "0.25"), ("reservations", "all")]).unwrap();
        assert_eq!(first, "reservations=all\nweights.topology=0.25\n");
        let second = set(&first, &[("weights.topology", ""), ("reservations", "64")]).unwrap();
        assert_eq!(second, "reservations=64\n");
        assert_eq!(settings(&second), BTreeMap::from([("reservations", "64")]));
        assert_eq!(set("", &[("gone", "")]).unwrap(), "");
    }

    #[test]
    fn what_would_be_read_otherwise_is_refused_by_name() {
        for name in ["", "Weights", "a=b", "a b", "a\nb", &"a".repeat(65)] {
            let error = set("", &[(name, "1")]).unwrap_err();
            assert_eq!(
                error,
                InvalidSetting::Name {
                    name: name.to_owned()
                }
            );
        }
        for value in ["1\n2", "1\r", &"1".repeat(257)] {
            let error = set("", &[("a", value)]).unwrap_err();
            assert_eq!(
                error,
                InvalidSetting::Value {
                    name: "a".to_owned()
                }
            );
        }
        assert_eq!(set("", &[("a", "b=c")]).unwrap(), "a=b=c\n");
        assert_eq!(settings("a=b=c\n")["a"], "b=c");
    }
}
