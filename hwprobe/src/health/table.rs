//! The checks as data: the table we ship, and what a site changes in it.

use super::{Action, Condition, Pattern, Severity};
use crate::FindingCode;
use crate::gpu_events::EventCode;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The table this build ships.
const SHIPPED: &str = include_str!("checks.yaml");

/// Everything health is judged by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Of the shipped table; with `+` and the site's own where a site changed it.
    pub version: String,
    /// The checks by their stable code.
    pub checks: BTreeMap<String, Check>,
    /// The classes of XIDs by name.
    pub xids: BTreeMap<String, XidClass>,
    /// What other drivers tell, by the code of its reason.
    #[serde(default)]
    pub events: BTreeMap<String, EventClass>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What it is about, for a person.
    pub about: String,
    /// The live values it looks at. None for a check on a contradiction between sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Pattern>,
    /// The contradiction ([`crate::Finding::code`]) it looks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
    /// Contradictions that say the same as `key` does: this check decides what they mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<String>,
    /// When a value is bad. Not given with `finding`.
    #[serde(default)]
    pub when: Condition,
    /// Only after it was bad for this long, seconds.
    #[serde(default)]
    pub for_s: u64,
    /// How bad it is.
    pub severity: Severity,
    /// What helps.
    pub action: Action,
    /// Only watched.
    #[serde(default)]
    pub observe_only: bool,
    /// Where the threshold comes from.
    pub source: String,
}

/// XIDs that mean the same kind of thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XidClass {
    /// What they mean, for a person.
    pub about: String,
    /// Their numbers.
    pub codes: BTreeSet<u32>,
    /// How bad they are.
    pub severity: Severity,
    /// What helps.
    pub action: Action,
    /// How long one counts, seconds; without it until the node boots or somebody clears it.
    #[serde(default)]
    pub counts_for_s: Option<u64>,
    /// Only watched.
    #[serde(default)]
    pub observe_only: bool,
    /// Where the class comes from.
    pub source: String,
}

/// What one event of another driver means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventClass {
    /// What it means, for a person.
    pub about: String,
    /// How bad it is.
    pub severity: Severity,
    /// What helps.
    pub action: Action,
    /// How long one counts, seconds; without it until the node boots, another event ends it or
    /// somebody clears it.
    #[serde(default)]
    pub counts_for_s: Option<u64>,
    /// Only watched.
    #[serde(default)]
    pub observe_only: bool,
    /// The events that this one ends, of the same GPU.
    #[serde(default)]
    pub ends: Vec<String>,
    /// Where this comes from.
    pub source: String,
}

/// What a site changes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Site {
    version: String,
    #[serde(default)]
    checks: BTreeMap<String, CheckPatch>,
    /// Single XIDs, by number.
    #[serde(default)]
    xids: BTreeMap<u32, EventPatch>,
    /// Other drivers' events, by code.
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
    /// Off: nothing is looked at.
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

/// What is wrong with a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// It is no YAML of this shape.
    #[error("the health table cannot be read: {why}")]
    Unreadable {
        /// The parser's words, with line and column.
        why: String,
    },
    /// Lines that cannot be, all of them.
    #[error("{}", .0.join("; "))]
    Wrong(Vec<String>),
}

impl Table {
    /// The table we ship.
    ///
    /// # Errors
    /// None for the file of this build; a test reads it.
    pub fn shipped() -> Result<Self, TableError> {
        Self::parse(SHIPPED)
    }

    /// Reads a whole table.
    ///
    /// # Errors
    /// Text of another shape, and every line that cannot be.
    pub fn parse(yaml: &str) -> Result<Self, TableError> {
        let table: Self = serde_yaml_ng::from_str(yaml).map_err(|e| unreadable(&e))?;
        let wrong = table.mistakes();
        match wrong.is_empty() {
            true => Ok(table),
            false => Err(TableError::Wrong(wrong)),
        }
    }

    /// This table as a site changes it: its file names checks and XIDs by code and says only what
    /// is different; a check of its own gives everything.
    ///
    /// # Errors
    /// Text of another shape, and every line that cannot be.
    pub fn with_site(mut self, yaml: &str) -> Result<Self, TableError> {
        let site: Site = serde_yaml_ng::from_str(yaml).map_err(|e| unreadable(&e))?;
        let mut wrong = Vec::new();
        for (code, patch) in site.checks {
            let result = self.patch_check(&code, patch);
            wrong.extend(result.err().map(|why| format!("checks.{code}: {why}")));
        }
        for (code, patch) in site.xids {
            self.patch_xid(code, &patch);
        }
        for (code, patch) in site.events {
            let result = self.patch_event(&code, &patch);
            wrong.extend(result.err().map(|why| format!("events.{code}: {why}")));
        }
        wrong.extend(self.mistakes());
        self.version = format!("{}+{}", self.version, site.version);
        match wrong.is_empty() {
            true => Ok(self),
            false => Err(TableError::Wrong(wrong)),
        }
    }

    fn patch_check(&mut self, code: &str, patch: CheckPatch) -> Result<(), String> {
        if patch.off {
            let known = self.checks.remove(code).is_some();
            return known
                .then_some(())
                .ok_or_else(|| unlike(code, "check", &self.checks));
        }
        if let Some(check) = self.checks.get_mut(code) {
            if patch.key.is_some() || patch.finding.is_some() {
                return Err(
                    "what a shipped check looks at stays as it is; give it a code of \
                            your own"
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
                unlike(code, "check", &self.checks)
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

    /// A changed XID gets a class of its own.
    fn patch_xid(&mut self, code: u32, patch: &EventPatch) {
        let old = self.class_of(code).map(|(_, class)| class.clone());
        for class in self.xids.values_mut() {
            class.codes.remove(&code);
        }
        let mut class = old.unwrap_or_else(|| XidClass {
            about: "not in the shipped table".to_owned(),
            codes: BTreeSet::new(),
            severity: Severity::Inform,
            action: Action::None,
            counts_for_s: Some(86_400),
            observe_only: false,
            source: String::new(),
        });
        class.codes = BTreeSet::from([code]);
        class.severity = patch.severity.unwrap_or(class.severity);
        class.action = patch.action.unwrap_or(class.action);
        class.counts_for_s = patch.counts_for_s.or(class.counts_for_s);
        class.observe_only = patch.observe_only.unwrap_or(class.observe_only);
        class.source = "the site".to_owned();
        self.xids.insert(format!("site.{code}"), class);
    }

    fn patch_event(&mut self, code: &str, patch: &EventPatch) -> Result<(), String> {
        let Some(class) = self.events.get_mut(code) else {
            return Err(unlike(code, "event", &self.events));
        };
        class.severity = patch.severity.unwrap_or(class.severity);
        class.action = patch.action.unwrap_or(class.action);
        class.counts_for_s = patch.counts_for_s.or(class.counts_for_s);
        class.observe_only = patch.observe_only.unwrap_or(class.observe_only);
        class.source = "the site".to_owned();
        Ok(())
    }

    /// The class of an XID.
    #[must_use]
    pub fn class_of(&self, code: u32) -> Option<(&str, &XidClass)> {
        let mut classes = self.xids.iter();
        classes
            .find(|(_, class)| class.codes.contains(&code))
            .map(|(name, class)| (name.as_str(), class))
    }

    fn mistakes(&self) -> Vec<String> {
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
        let mut seen: BTreeMap<u32, &str> = BTreeMap::new();
        for (name, class) in &self.xids {
            for code in &class.codes {
                if let Some(other) = seen.insert(*code, name) {
                    wrong.push(format!("xids.{name}: {code} is in {other} too"));
                }
            }
        }
        for (code, class) in &self.events {
            let named = std::iter::once(code).chain(&class.ends);
            let strange = named.filter(|code| EventCode::of_reason(code).is_none());
            wrong.extend(strange.map(|other| format!("events.{code}: {other} is no event")));
        }
        wrong
    }
}

impl Check {
    /// The contradictions it decides about.
    pub fn findings(&self) -> impl Iterator<Item = &String> {
        self.finding.iter().chain(&self.covers)
    }

    fn mistake(&self) -> Option<String> {
        let mut named = self.findings();
        let strange = named.find(|name| FindingCode::named(name).is_none());
        if let (Some(strange), false) = (strange, self.key.is_some() && self.finding.is_some()) {
            let known = FindingCode::ALL.map(FindingCode::name).join(", ");
            return Some(format!("no probe finds \"{strange}\" (there are {known})"));
        }
        match (&self.key, &self.finding) {
            (Some(_), Some(_)) | (None, None) => Some("give either key or finding".to_owned()),
            (None, Some(_)) => {
                (self.when != Condition::default()).then(|| "a finding has no when".to_owned())
            }
            (Some(key), None) if self.when.is_one() => {
                let stars = self.when.other().map_or(0, Pattern::wildcards);
                (stars > key.wildcards())
                    .then(|| "when compares with a key that has more `*` than its own".to_owned())
            }
            (Some(_), None) => Some(
                "when needs exactly one of is, is_not, at_least, has_bits, reaches, at_most, below, no_longer, rises"
                    .to_owned(),
            ),
        }
    }
}

fn unreadable(error: &serde_yaml_ng::Error) -> TableError {
    TableError::Unreadable {
        why: error.to_string(),
    }
}

fn unlike<T>(code: &str, what: &str, known: &BTreeMap<String, T>) -> String {
    let family = code.split('.').next().unwrap_or(code);
    let like: Vec<&str> = known
        .keys()
        .map(String::as_str)
        .filter(|known| known.split('.').next() == Some(family))
        .take(8)
        .collect();
    match like.is_empty() {
        true => format!("no such {what}"),
        false => format!("no such {what} (there are {})", like.join(", ")),
    }
}
