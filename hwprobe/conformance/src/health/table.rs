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

/// Changes of a site to the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Site {
    version: String,
    #[serde(default)]
    checks: BTreeMap<String, CheckPatch>,
    /// Single XIDs, by number.
    #[serde(default)]
    xids: BTreeMap<u32, EventPatch>,
    /// Single SXids, by number.
    #[serde(default)]
    sxids: BTreeMap<u32, EventPatch>,
    /// Events of other drivers, by reason code.
    #[serde(default)]
    events: BTreeMap<String, EventPatch>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckPatch {
    about: Option<String>,
    key: Option<Pattern>,
    finding: Option<String>,
    when: Option<Condition>,
    for_s: Option<u64>,
    severity: Option<Severity>,
    action: Option<Action>,
    observe_only: Option<bool>,
    /// Removes the check.
    #[serde(default)]
    off: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventPatch {
    severity: Option<Severity>,
    action: Option<Action>,
    counts_for_s: Option<u64>,
    observe_only: Option<bool>,
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
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
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
        let wrong = table.invalid_entries();
        match wrong.is_empty() {
            true => Ok(table),
            false => Err(TableError::Invalid(wrong)),
        }
    }

    /// Applies the changes of a site. The site's file names checks and events by code and gives only the changed
    /// fields; a new check gives all fields.
    ///
    /// # Errors
    /// The text does not have the expected form, or entries are invalid; every invalid entry is listed.
    pub fn with_site(mut self, yaml: &str) -> Result<Self, TableError> {
        let site: Site = serde_yaml_ng::from_str(yaml).map_err(|e| unreadable(&e))?;
        let mut wrong = Vec::new();
        for (code, patch) in site.checks {
            let result = self.patch_check(&code, patch);
            wrong.extend(result.err().map(|why| format!("checks.{code}: {why}")));
        }
        for (code, patch) in site.xids {
            let old = self.class_of(code).map(|(_, class)| class.clone());
            patch_number(&mut self.xids, old, code, &patch);
        }
        for (code, patch) in site.sxids {
            let old = self.sxid_class_of(code).map(|(_, class)| class.clone());
            patch_number(&mut self.sxids, old, code, &patch);
        }
        for (code, patch) in site.events {
            let result = self.patch_event(&code, &patch);
            wrong.extend(result.err().map(|why| format!("events.{code}: {why}")));
        }
        wrong.extend(self.invalid_entries());
        self.version = format!("{}+{}", self.version, site.version);
        match wrong.is_empty() {
            true => Ok(self),
            false => Err(TableError::Invalid(wrong)),
        }
    }

    fn patch_check(&mut self, code: &str, patch: CheckPatch) -> Result<(), String> {
        if patch.off {
            let known = self.checks.remove(code).is_some();
            return known
                .then_some(())
                .ok_or_else(|| no_such(code, "check", &self.checks));
        }
        if let Some(check) = self.checks.get_mut(code) {
            if patch.key.is_some() || patch.finding.is_some() {
                return Err(
                    "the key or finding of a shipped check cannot be changed; add a \
                     check with a code of your own"
                        .to_owned(),
                );
            }
            check.about = patch.about.unwrap_or_else(|| check.about.clone());
            check.when = patch.when.unwrap_or_else(|| check.when.clone());
            check.for_s = patch.for_s.unwrap_or(check.for_s);
            check.severity = patch.severity.unwrap_or(check.severity);
            check.action = patch.action.unwrap_or(check.action);
            check.observe_only = patch.observe_only.unwrap_or(check.observe_only);
            check.source = format!("{}; changed by the site", check.source);
            return Ok(());
        }
        let (Some(about), Some(severity), Some(action)) =
            (patch.about, patch.severity, patch.action)
        else {
            return Err(format!(
                "{}, and a check of your own needs about, key (or finding), when, severity, action",
                no_such(code, "check", &self.checks)
            ));
        };
        let check = Check {
            about,
            key: patch.key,
            finding: patch.finding,
            covers: Vec::new(),
            when: patch.when.unwrap_or_default(),
            for_s: patch.for_s.unwrap_or(0),
            severity,
            action,
            observe_only: patch.observe_only.unwrap_or(false),
            source: "the site".to_owned(),
        };
        self.checks.insert(code.to_owned(), check);
        Ok(())
    }

    fn patch_event(&mut self, code: &str, patch: &EventPatch) -> Result<(), String> {
        let Some(class) = self.events.get_mut(code) else {
            return Err(no_such(code, "event", &self.events));
        };
        class.severity = patch.severity.unwrap_or(class.severity);
        class.action = patch.action.unwrap_or(class.action);
        class.counts_for_s = patch.counts_for_s.or(class.counts_for_s);
        class.observe_only = patch.observe_only.unwrap_or(class.observe_only);
        class.source = "the site".to_owned();
        Ok(())
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

    fn invalid_entries(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (code, check) in &self.checks {
            wrong.extend(check.mistake().map(|why| format!("checks.{code}: {why}")));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if code.len() > 64 || !code.chars().all(is_plain) {
                wrong.push(format!(
                    "checks.{code}: a code has letters, digits, `.`, `_`, `-`, 64 at most"
                ));
            }
        }
        let is_strange = |code: &&String| EventCode::from_reason(code).is_none();
        for (section, classes) in [("xids", &self.xids), ("sxids", &self.sxids)] {
            let mut seen: BTreeMap<u32, &str> = BTreeMap::new();
            for (name, class) in classes {
                for code in &class.codes {
                    if let Some(other) = seen.insert(*code, name) {
                        wrong.push(format!("{section}.{name}: {code} is in {other} too"));
                    }
                }
                let strange = class.ends.iter().filter(is_strange);
                let strange = strange.map(|end| format!("{section}.{name}: {end} is not an event"));
                wrong.extend(strange);
            }
        }
        for (code, class) in &self.events {
            let named = std::iter::once(code).chain(&class.ends);
            let strange = named.filter(is_strange);
            wrong.extend(strange.map(|other| format!("events.{code}: {other} is not an event")));
        }
        wrong
    }
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

/// Moves a changed number out of its class `old` into a class of its own.
fn patch_number(
    classes: &mut BTreeMap<String, XidClass>,
    old: Option<XidClass>,
    code: u32,
    patch: &EventPatch,
) {
    for class in classes.values_mut() {
        class.codes.remove(&code);
    }
    let mut class = old.unwrap_or_else(|| XidClass {
        about: "not in the shipped table".to_owned(),
        codes: BTreeSet::new(),
        severity: Severity::Inform,
        action: Action::None,
        counts_for_s: Some(86_400),
        observe_only: false,
        ends: Vec::new(),
        source: String::new(),
    });
    class.codes = BTreeSet::from([code]);
    class.severity = patch.severity.unwrap_or(class.severity);
    class.action = patch.action.unwrap_or(class.action);
    class.counts_for_s = patch.counts_for_s.or(class.counts_for_s);
    class.observe_only = patch.observe_only.unwrap_or(class.observe_only);
    class.source = "the site".to_owned();
    classes.insert(format!("{SITE_CLASS}{code}"), class);
}

fn unreadable(error: &serde_yaml_ng::Error) -> TableError {
    TableError::Unreadable {
        why: error.to_string(),
    }
}

fn no_such<T>(code: &str, what: &str, known: &BTreeMap<String, T>) -> String {
    let family = code.split('.').next().unwrap_or(code);
    let like: Vec<&str> = known
        .keys()
        .map(String::as_str)
        .filter(|known| known.split('.').next() == Some(family))
        .take(8)
        .collect();
    match like.is_empty() {
        true => format!("unknown {what}"),
        false => format!("unknown {what} (similar: {})", like.join(", ")),
    }
}
