//! Changes of a site to the shipped health table.

use super::table::{SITE_CLASS, unreadable};
use super::{
    Action, Check, Condition, Pattern, Severity, Table, TableError, TableMistake, XidClass,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Changes of a site to the table: its file. Entries are named by code and have only the changed fields; a new check has
/// all fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteTable {
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

#[derive(Clone, Debug, Default, Deserialize)]
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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventPatch {
    severity: Option<Severity>,
    action: Option<Action>,
    counts_for_s: Option<u64>,
    observe_only: Option<bool>,
}

impl Table {
    /// Applies the changes of a site, given as YAML.
    ///
    /// # Errors
    /// The text does not have the expected form, or entries are invalid; every invalid entry is listed.
    pub fn with_site(self, yaml: &str) -> Result<Self, TableError> {
        let site: SiteTable = serde_yaml_ng::from_str(yaml).map_err(|e| unreadable(&e))?;
        let (table, mistakes) = self.with_changes(site);
        match mistakes.is_empty() {
            true => Ok(table),
            false => Err(TableError::Invalid(mistakes)),
        }
    }

    /// Applies the changes of a site. Also returns every invalid entry; the table must not be used if one exists.
    #[must_use]
    pub fn with_changes(mut self, site: SiteTable) -> (Self, Vec<TableMistake>) {
        let mut found = Vec::new();
        for (code, patch) in site.checks {
            if let Err(reason) = self.patch_check(&code, patch) {
                found.push(TableMistake::new(format!("checks.{code}"), reason));
            }
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
            if let Err(reason) = self.patch_event(&code, &patch) {
                found.push(TableMistake::new(format!("events.{code}"), reason));
            }
        }
        found.extend(self.mistakes());
        self.version = format!("{}+{}", self.version, site.version);
        (self, found)
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
