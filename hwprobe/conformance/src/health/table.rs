//! Health table: the shipped checks as data, and the changes of a site.

use super::{Action, Condition, Pattern, Severity};
use crate::FindingCode;
use crate::driver_events::EventCode;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The table this build ships.
const SHIPPED: &str = include_str!("checks.yaml");

/// Prefix of the name of a class that a site made for a single number; the number follows.
pub(super) const SITE_CLASS: &str = "site.";

/// Name of the class of all SXids that no other class lists.
const OTHER_SXIDS: &str = "fatal";

/// All checks and event classes that determine health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Version of the shipped table; with `+` and the site's version if a site changed it.
    pub version: String,
    /// Checks by stable code.
    pub checks: BTreeMap<String, Check>,
    /// Classes of XIDs by name.
    pub xids: BTreeMap<String, XidClass>,
    /// Classes of fatal errors of NVSwitches (SXids) by name. The class `fatal` applies to every number that no class
    /// lists.
    #[serde(default)]
    pub sxids: BTreeMap<String, XidClass>,
    /// Events of other drivers, by reason code.
    #[serde(default)]
    pub events: BTreeMap<String, EventClass>,
}

/// One health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Description for operators.
    pub about: String,
    /// Live values that the check covers. None for a check of a finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Pattern>,
    /// The finding ([`crate::Finding::code`]) that the check covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
    /// Findings that report the same fault as `key`, and so need no check of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<String>,
    /// Condition under which a value is bad; not given with `finding`.
    #[serde(default)]
    pub when: Condition,
    /// Minimum duration of a bad value, in seconds.
    #[serde(default)]
    pub for_s: u64,
    /// Severity of the reason.
    pub severity: Severity,
    /// Remedy for the reason.
    pub action: Action,
    /// Observe-only: the reason counts in no verdict and drains no node.
    #[serde(default)]
    pub observe_only: bool,
    /// Source of the threshold.
    pub source: String,
}

/// A class of XIDs, or of SXids, with the same meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XidClass {
    /// Description for operators.
    pub about: String,
    /// Numbers of the class.
    pub codes: BTreeSet<u32>,
    /// Severity of the reason.
    pub severity: Severity,
    /// Remedy for the reason.
    pub action: Action,
    /// Duration for which an event counts, in seconds; without it until the node reboots or an operator clears it.
    #[serde(default)]
    pub counts_for_s: Option<u64>,
    /// Observe-only: the reason counts in no verdict and drains no node.
    #[serde(default)]
    pub observe_only: bool,
    /// Codes of the events that an event of this class ends, for the same device.
    #[serde(default)]
    pub ends: Vec<String>,
    /// Source of the classification.
    pub source: String,
}

/// The meaning of one event of another driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventClass {
    /// Description for operators.
    pub about: String,
    /// Severity of the reason.
    pub severity: Severity,
    /// Remedy for the reason.
    pub action: Action,
    /// Duration for which the event counts, in seconds; without it until the node reboots, another event ends it or an
    /// operator clears it.
    #[serde(default)]
    pub counts_for_s: Option<u64>,
    /// Observe-only: the reason counts in no verdict and drains no node.
    #[serde(default)]
    pub observe_only: bool,
    /// Codes of the events that this event ends, for the same device.
    #[serde(default)]
    pub ends: Vec<String>,
    /// Source of the classification.
    pub source: String,
}

/// Errors of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The text is not YAML of the expected form.
    #[error("the health table cannot be read: {why}")]
    Unreadable {
        /// Error message of the parser, with line and column.
        why: String,
    },
    /// All invalid entries.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<TableMistake>),
}

/// Invalid entry of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct TableMistake {
    /// Path of the entry, such as `checks.gpu.pcie.width`.
    pub key: String,
    /// Reason why the entry is invalid.
    pub reason: String,
}

impl TableMistake {
    pub(super) const fn new(key: String, reason: String) -> Self {
        Self { key, reason }
    }
}

impl Table {
    /// The table shipped with this build.
    ///
    /// # Errors
    /// Does not occur with the file of this build; a test parses it.
    pub fn shipped() -> Result<Self, TableError> {
        Self::parse(SHIPPED)
    }

    /// Parses a complete table.
    ///
    /// # Errors
    /// The text does not have the expected form, or entries are invalid; every invalid entry is listed.
    pub fn parse(yaml: &str) -> Result<Self, TableError> {
        let table: Self = serde_yaml_ng::from_str(yaml).map_err(|e| unreadable(&e))?;
        let mistakes = table.mistakes();
        match mistakes.is_empty() {
            true => Ok(table),
            false => Err(TableError::Invalid(mistakes)),
        }
    }

    /// The class of an XID, with its name.
    #[must_use]
    pub fn class_of(&self, code: u32) -> Option<(&str, &XidClass)> {
        class_in(&self.xids, code)
    }

    /// The class of a fatal SXid, with its name.
    #[must_use]
    pub fn sxid_class_of(&self, code: u32) -> Option<(&str, &XidClass)> {
        let other = || {
            self.sxids
                .get(OTHER_SXIDS)
                .map(|class| (OTHER_SXIDS, class))
        };
        class_in(&self.sxids, code).or_else(other)
    }

    pub(super) fn mistakes(&self) -> Vec<TableMistake> {
        let mut found = Vec::new();
        for (code, check) in &self.checks {
            let mut add = |reason: String| {
                found.push(TableMistake::new(format!("checks.{code}"), reason));
            };
            if let Some(mistake) = check.mistake() {
                add(mistake);
            }
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if code.len() > 64 || !code.chars().all(is_plain) {
                add("a code has letters, digits, `.`, `_`, `-`, 64 at most".to_owned());
            }
        }
        for (section, classes) in [("xids", &self.xids), ("sxids", &self.sxids)] {
            let mut seen: BTreeMap<u32, &str> = BTreeMap::new();
            for (name, class) in classes {
                let mut add = |reason: String| {
                    found.push(TableMistake::new(format!("{section}.{name}"), reason));
                };
                for code in &class.codes {
                    if let Some(other) = seen.insert(*code, name) {
                        add(format!("{code} is in {other} too"));
                    }
                }
                unknown_events(&class.ends).for_each(|end| add(not_an_event(end)));
            }
        }
        for (code, class) in &self.events {
            let named = std::iter::once(code).chain(&class.ends);
            let mistake =
                |end: &String| TableMistake::new(format!("events.{code}"), not_an_event(end));
            found.extend(unknown_events(named).map(mistake));
        }
        found
    }
}

fn unknown_events<'a>(
    codes: impl IntoIterator<Item = &'a String>,
) -> impl Iterator<Item = &'a String> {
    let is_unknown = |code: &&String| EventCode::from_reason(code).is_none();
    codes.into_iter().filter(is_unknown)
}

fn not_an_event(code: &str) -> String {
    format!("{code} is not an event")
}

impl Check {
    /// The findings that the check covers.
    pub fn findings(&self) -> impl Iterator<Item = &String> {
        self.finding.iter().chain(&self.covers)
    }

    fn mistake(&self) -> Option<String> {
        let mut named = self.findings();
        let strange = named.find(|name| FindingCode::from_name(name).is_none());
        if let (Some(strange), false) = (strange, self.key.is_some() && self.finding.is_some()) {
            let known = FindingCode::ALL.map(FindingCode::name).join(", ");
            return Some(format!("unknown finding \"{strange}\" (known: {known})"));
        }
        match (&self.key, &self.finding) {
            (Some(_), Some(_)) | (None, None) => Some("give either key or finding".to_owned()),
            (None, Some(_)) => {
                (self.when != Condition::default())
                    .then(|| "a check of a finding must not have `when`".to_owned())
            }
            (Some(key), None) if self.when.has_one_condition() => {
                if let Some(mistake) = self.when.mistake() {
                    return Some(mistake.to_owned());
                }
                let stars = self.when.other_key().map_or(0, Pattern::wildcards);
                (stars > key.wildcards())
                    .then(|| "when compares with a key that has more `*` than that of the check".to_owned())
            }
            (Some(_), None) => Some(
                "when needs exactly one of is, is_not, at_least, has_bits, reaches, at_most, below, no_longer, rises"
                    .to_owned(),
            ),
        }
    }
}

fn class_in(classes: &BTreeMap<String, XidClass>, code: u32) -> Option<(&str, &XidClass)> {
    let mut classes = classes.iter();
    let found = classes.find(|(_, class)| class.codes.contains(&code));
    found.map(|(name, class)| (name.as_str(), class))
}

pub(super) fn unreadable(error: &serde_yaml_ng::Error) -> TableError {
    TableError::Unreadable {
        why: error.to_string(),
    }
}
