//! Overrides of configuration keys by environment variables.

use crate::Problems;
use serde_yaml_ng::{Mapping, Value};
use std::collections::BTreeMap;

/// Prefix of every variable that sets a key.
pub const PREFIX: &str = "LATTICE_";

/// Variables with the prefix that programs other than the daemons read: the command line tool, `lattice-agent probe`,
/// jobs and hooks. A daemon that a job or a hook starts inherits the latter.
const OTHER_PROGRAMS: &[&str] = &[
    "LATTICE_CONTEXT",
    "LATTICE_BMC_PASSWORD",
    // Jobs and hooks.
    "LATTICE_ALLOCATION_ID",
    "LATTICE_ATTEMPT",
    "LATTICE_ATTEMPT_MARK",
    "LATTICE_NODE",
    "LATTICE_NODELIST",
    "LATTICE_NODE_RANK",
    "LATTICE_NNODES",
    "LATTICE_PROJECT",
    "LATTICE_USER",
    // Jobs.
    "LATTICE_ARRAY_COUNT",
    "LATTICE_ARRAY_ID",
    "LATTICE_ARRAY_INDEX",
    "LATTICE_ARRAY_MAX",
    "LATTICE_ARRAY_MIN",
    "LATTICE_CHECKPOINT_DIR",
    "LATTICE_CHECKPOINT_MODE",
    "LATTICE_CHECKPOINT_REQUEST",
    "LATTICE_CHECKPOINT_SHM",
    "LATTICE_CHECKPOINT_SOCKET",
    "LATTICE_DAG_ID",
    "LATTICE_DAG_MEMBER",
    "LATTICE_RESTART_COUNT",
    "LATTICE_RESTORE_DIR",
    "LATTICE_RESTORE_NUMBER",
    // Hooks.
    "LATTICE_BOOT_ID",
    "LATTICE_HOOK",
    "LATTICE_JOB_END",
    "LATTICE_JOB_EXIT",
    "LATTICE_LOCAL_GID",
    "LATTICE_LOCAL_UID",
    "LATTICE_LOCAL_USER",
    "LATTICE_SENSITIVE",
    "LATTICE_WIPE",
];

/// Whether a program other than the daemons reads the variable.
pub(crate) fn is_of_other_program(name: &str) -> bool {
    OTHER_PROGRAMS.contains(&name)
}

/// Largest number of edits in a misspelt prefix.
const MAX_PREFIX_EDITS: usize = 2;

/// Returns the name that was probably meant by `name`, if its part before the first `_` resembles `prefix`. Lower case
/// counts as misspelt.
pub(crate) fn with_repaired_prefix(name: &str, prefix: &str) -> Option<String> {
    let (begin, rest) = name.split_once('_')?;
    if name.starts_with(prefix) || rest.is_empty() {
        return None;
    }
    let edits = strsim::levenshtein(&begin.to_ascii_uppercase(), prefix.trim_end_matches('_'));
    (edits <= MAX_PREFIX_EDITS).then(|| format!("{prefix}{}", rest.to_ascii_uppercase()))
}

/// Name of the variable that sets the key at `path`.
pub(crate) fn variable_name(prefix: &str, path: &[String]) -> String {
    format!("{prefix}{}", path.join("__").to_uppercase())
}

/// Environment variables of the process. A variable that is not Unicode cannot set a key and is left out.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Overrides by path: name and text of each variable.
#[derive(Debug, Default)]
pub(crate) struct Overrides(BTreeMap<Vec<String>, (String, String)>);

impl Overrides {
    /// Name of the variable that set `path`, or a key above or below it.
    pub(crate) fn variable(&self, path: &[String]) -> Option<&str> {
        self.0
            .iter()
            .find(|(set, _)| set.starts_with(path) || path.starts_with(set))
            .map(|(_, (name, _))| name.as_str())
    }
    /// Whether the variable set a key that is neither one of `unknown` nor below one.
    pub(crate) fn sets_known_key(&self, variable: &str, unknown: &[Vec<String>]) -> bool {
        self.0.iter().any(|(path, (name, _))| {
            name == variable && !unknown.iter().any(|above| path.starts_with(above))
        })
    }
    /// Text of the variable that set exactly `path`.
    pub(crate) fn text(&self, path: &[String]) -> Option<&str> {
        self.0.get(path).map(|(_, text)| text.as_str())
    }
}

/// Writes every variable with `prefix` into `root`, in name order.
pub(crate) fn apply(
    root: &mut Value,
    env: impl IntoIterator<Item = (String, String)>,
    prefix: &str,
    problems: &mut Problems,
) -> Overrides {
    let mut overrides = Overrides::default();
    let variables: BTreeMap<String, String> = env.into_iter().collect();
    for (name, text) in variables {
        let Some(rest) = name.strip_prefix(prefix).filter(|rest| !rest.is_empty()) else {
            continue;
        };
        let path: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
        if path.iter().any(String::is_empty) {
            problems.add(
                "",
                format!("{name}: empty key next to \"__\"; write A__B for a.b"),
            );
            continue;
        }
        let value = if text.is_empty() {
            Value::String(String::new())
        } else {
            // A value that is not valid YAML is a text, e.g. `*.example`.
            serde_yaml_ng::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()))
        };
        match set(root, &path, value) {
            Ok(()) => {
                overrides.0.insert(path, (name, text));
            }
            Err(reason) => problems.add(path.join("."), format!("{name}: {reason}")),
        }
    }
    overrides
}

fn set(at: &mut Value, path: &[String], value: Value) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        *at = value;
        return Ok(());
    };
    if let Value::Sequence(items) = at {
        let index: usize = first
            .parse()
            .map_err(|_| format!("{first} is not a position in the list, which starts at 0"))?;
        if index > items.len() {
            return Err(format!(
                "index {index} is beyond the end of the list ({} items); use at most {}",
                items.len(),
                items.len()
            ));
        }
        if index == items.len() {
            items.push(Value::Null);
        }
        return set(&mut items[index], rest, value);
    }
    if at.is_null() {
        *at = Value::Mapping(Mapping::new());
    }
    match at {
        Value::Mapping(map) => set(
            map.entry(Value::String(first.clone()))
                .or_insert(Value::Null),
            rest,
            value,
        ),
        _ => Err("the parent key holds a single value in the file, not keys".to_owned()),
    }
}
