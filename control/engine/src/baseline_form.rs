//! Baseline requests: parsing and validation. All mistakes are reported at once, each with its field.

#![expect(
    clippy::result_large_err,
    reason = "one error per response; its size is negligible next to the socket I/O"
)]

use lattice_api::{
    baseline::{BaselineRequest, ClassExpectationBody},
    problem::{FieldError, Problem},
};
use lattice_conformance::{Class, baseline::Pattern};
use lattice_quorum_types::{
    baseline::{Constraint, DriftPolicy, Scalar, SensitivePolicy},
    hostlist,
    text::with_ellipsis,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Expected content of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedClass {
    /// Copy the class from the request's model.
    Model,
    /// Constraints on these keys.
    Keys(Vec<Constraint>),
}

/// One class of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedClass {
    /// Policy applied on drift.
    pub policy: DriftPolicy,
    /// Effect of drift on sensitive allocations.
    pub sensitive: SensitivePolicy,
    /// Expected values.
    pub expected: ExpectedClass,
}

/// Source that the baseline is copied from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Model {
    /// A node, by name.
    Node(String),
    /// A conformance group, by 8 or more hex digits of its digest.
    Group(String),
}

/// A valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedBaseline {
    /// Source that the expected values are copied from.
    pub model: Option<Model>,
    /// Rules by class.
    pub classes: BTreeMap<Class, RequestedClass>,
    /// Policy of classes that the request does not list.
    pub policy: DriftPolicy,
    /// Effect of drift on sensitive allocations, for classes that the request does not list.
    pub sensitive: SensitivePolicy,
}

/// Maximum number of mistakes reported; a request may have any number.
const MAX_FAULTS: usize = 32;
/// Longest field name and longest reason in bytes, since both may quote the request.
const MAX_SHOWN_BYTES: usize = 512;

#[derive(Default)]
struct Faults(Vec<FieldError>);

impl Faults {
    fn add(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.0.push(FieldError {
            field: with_ellipsis(&field.into(), MAX_SHOWN_BYTES),
            reason: with_ellipsis(&reason.into(), MAX_SHOWN_BYTES),
        });
    }

    /// Returns the value; on an error records the fault and returns the default.
    fn take<T: Default>(&mut self, field: &str, read: Result<T, String>) -> T {
        read.unwrap_or_else(|reason| {
            self.add(field, reason);
            T::default()
        })
    }
}

/// Combines the faults into one problem with the field of the first fault.
fn problem(faults: &[FieldError]) -> Problem {
    let texts = faults.iter().take(MAX_FAULTS);
    let mut texts: Vec<String> = texts.map(ToString::to_string).collect();
    if let Some(more) = faults
        .len()
        .checked_sub(MAX_FAULTS)
        .filter(|more| *more > 0)
    {
        texts.push(format!("and {more} more errors"));
    }
    let mut problem = Problem::field("", "");
    problem.field = faults.first().map(|fault| fault.field.clone());
    problem.detail = texts.join("\n");
    problem
}

/// Parses a request for the baseline with this name.
///
/// # Errors
/// Returns one problem that lists every invalid field.
pub fn parse_request(name: &str, request: &BaselineRequest) -> Result<CheckedBaseline, Problem> {
    let mut faults = Faults::default();
    if let Some(inside) = request.name.as_deref().filter(|inside| *inside != name) {
        faults.add(
            "name",
            format!("{inside:?} differs from the requested baseline name {name:?}"),
        );
    }
    if let Some(nodes) = &request.nodes
        && let Err(error) = hostlist::expand(nodes)
    {
        faults.add("nodes", error.to_string());
    }
    if request.nodes.is_none() && request.cohort.is_none() {
        faults.add(
            "nodes",
            "give the nodes it applies to: a hostlist, or a cohort",
        );
    }
    let model = match (&request.from_node, &request.from_group) {
        (Some(_), Some(_)) => {
            faults.add("from_group", "give either from_node or from_group");
            None
        }
        (Some(node), None) => Some(Model::Node(node.clone())),
        (None, Some(group)) => {
            let group = group.trim().to_ascii_lowercase();
            let is_hex = group.bytes().all(|b| b.is_ascii_hexdigit());
            if !is_hex || !(8..=64).contains(&group.len()) {
                faults.add(
                    "from_group",
                    "give 8 to 64 hex digits, as `lattice conformance groups` shows them",
                );
            }
            Some(Model::Group(group))
        }
        (None, None) => None,
    };
    let policy = parse_word(&mut faults, "policy", request.policy.as_deref());
    let sensitive = parse_word(&mut faults, "sensitive", request.sensitive.as_deref());
    let mut classes = BTreeMap::new();
    for (name, form) in &request.classes {
        let field = format!("classes.{name}");
        let Ok(class) = name.parse::<Class>() else {
            let known: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
            faults.add(
                field,
                format!("not a valid class; there are {}", known.join(", ")),
            );
            continue;
        };
        let want = class_want(&mut faults, &field, class, form, (policy, sensitive));
        if want.expected == ExpectedClass::Model && model.is_none() {
            faults.add(
                format!("{field}.keys"),
                "give keys, or from_node or from_group to copy from",
            );
        }
        classes.insert(class, want);
    }
    if classes.is_empty() && request.classes.is_empty() && model.is_none() {
        faults.add(
            "classes",
            "give a class with keys, or from_node or from_group",
        );
    }
    if !faults.0.is_empty() {
        return Err(problem(&faults.0));
    }
    Ok(CheckedBaseline {
        model,
        classes,
        policy,
        sensitive,
    })
}

fn parse_word<T>(faults: &mut Faults, field: &str, text: Option<&str>) -> T
where
    T: Default + std::str::FromStr<Err = String>,
{
    faults.take(field, text.map_or(Ok(T::default()), str::parse))
}

fn class_want(
    faults: &mut Faults,
    field: &str,
    class: Class,
    form: &ClassExpectationBody,
    (policy, sensitive): (DriftPolicy, SensitivePolicy),
) -> RequestedClass {
    let policy = match &form.policy {
        None => policy,
        Some(text) => parse_word(faults, &format!("{field}.policy"), Some(text)),
    };
    let sensitive = match &form.sensitive {
        None => sensitive,
        Some(text) => parse_word(faults, &format!("{field}.sensitive"), Some(text)),
    };
    let want = match &form.keys {
        None => ExpectedClass::Model,
        Some(keys) if keys.is_empty() => {
            faults.add(format!("{field}.keys"), "give one key at least");
            ExpectedClass::Model
        }
        Some(keys) => {
            let mut constraints = Vec::with_capacity(keys.len());
            for (key, value) in keys {
                let field = format!("{field}.keys.{key}");
                match key.parse::<Pattern>() {
                    Ok(pattern) if pattern.class() == Some(class) => {}
                    Ok(_) => faults.add(&field, format!("a key of {class} begins with {class}.")),
                    Err(error) => faults.add(&field, error.reason),
                }
                match constraint(key, value) {
                    Ok(constraint) => constraints.push(constraint),
                    Err(reason) => faults.add(&field, reason),
                }
            }
            ExpectedClass::Keys(constraints)
        }
    };
    RequestedClass {
        policy,
        sensitive,
        expected: want,
    }
}

/// Parses a value, or an object with accepted values (`any_of`, `value`) and whether the key may be absent
/// (`or_absent`, `absent`).
fn constraint(key: &str, value: &Value) -> Result<Constraint, String> {
    let mut any_of = Vec::new();
    let mut or_absent = false;
    match value {
        Value::Object(parts) => {
            let flag = |value: &Value| {
                value
                    .as_bool()
                    .ok_or_else(|| "write true or false".to_owned())
            };
            for (part, value) in parts {
                match (part.as_str(), value) {
                    ("any_of", Value::Array(values)) => {
                        any_of = values.iter().map(scalar).collect::<Result<_, _>>()?;
                    }
                    ("any_of", _) => return Err("any_of is a list of values".to_owned()),
                    ("value", value) => any_of = vec![scalar(value)?],
                    ("absent" | "or_absent", value) => or_absent = flag(value)?,
                    (other, _) => {
                        return Err(format!(
                            "{other:?} is not valid here; write a value, or any_of, value, \
                             or_absent, absent"
                        ));
                    }
                }
            }
        }
        value => any_of = vec![scalar(value)?],
    }
    if any_of.is_empty() && !or_absent {
        return Err("give a value, or absent: true".to_owned());
    }
    Ok(Constraint {
        key: key.to_owned(),
        any_of,
        or_absent,
    })
}

fn scalar(value: &Value) -> Result<Scalar, String> {
    match value {
        Value::Bool(flag) => Ok(Scalar::Flag(*flag)),
        Value::String(text) if text.trim().is_empty() => {
            Err("value is empty; use `absent: true` to require absence".to_owned())
        }
        Value::String(text) => Ok(Scalar::Text(text.clone())),
        Value::Number(number) => number.as_i64().map(Scalar::Number).ok_or_else(|| {
            format!("{number} is not an integer; write a version as a string: \"{number}\"")
        }),
        Value::Array(items) => {
            let text = |item: &Value| {
                let text = item.as_str().map(str::to_owned);
                text.ok_or_else(|| "list items must be strings".to_owned())
            };
            Ok(Scalar::List(
                items.iter().map(text).collect::<Result<_, _>>()?,
            ))
        }
        Value::Null => Err("value is empty; use `absent: true` to require absence".to_owned()),
        Value::Object(_) => {
            Err("value must be a string, an integer, true or false, or a list".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    fn request(value: Value) -> BaselineRequest {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_file_that_is_good_is_read() {
        let wanted = parse_request(
            "h100",
            &request(json!({
                "nodes": "gpu[001-012]", "from_node": "gpu001", "policy": "drain",
                "classes": {
                    "bios": {},
                    "nic": {"policy": "warn", "keys": {
                        "nic.*.firmware": "28.41.1000",
                        "nic.*.driver": {"any_of": ["mlx5_core", "mlx5"], "or_absent": true},
                        "nic.count": 9,
                        "nic.0.expansion_rom": {"absent": true}}}}
            })),
        );
        let wanted = wanted.unwrap();
        assert_eq!(wanted.model, Some(Model::Node("gpu001".to_owned())));
        let bios = &wanted.classes[&Class::Bios];
        assert_eq!(
            (bios.policy, &bios.expected),
            (DriftPolicy::Drain, &ExpectedClass::Model)
        );
        let nic = &wanted.classes[&Class::Nic];
        let ExpectedClass::Keys(keys) = &nic.expected else {
            panic!("{nic:?}")
        };
        assert_eq!(nic.policy, DriftPolicy::Warn);
        let found: Vec<_> = keys
            .iter()
            .map(|k| (k.key.as_str(), k.any_of.len(), k.or_absent))
            .collect();
        assert_eq!(
            found,
            [
                ("nic.*.driver", 2, true),
                ("nic.*.firmware", 1, false),
                ("nic.0.expansion_rom", 0, true),
                ("nic.count", 1, false)
            ]
        );
    }

    #[test]
    fn reports_every_error_by_field() {
        let problem = parse_request(
            "h100",
            &request(json!({
                "name": "a100", "nodes": "gpu[", "policy": "drian",
                "classes": {
                    "nik": {},
                    "bios": {},
                    "nic": {"sensitive": "very", "keys": {
                        "firmware": "1", "bios.version": "2",
                        "nic.0.firmware": 28.41, "nic.1.firmware": {"any": []},
                        "nic.2.firmware": "", "nic.3.firmware": {}}}}
            })),
        );
        let problem = problem.unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("name"));
        let fields: Vec<&str> = problem
            .detail
            .lines()
            .map(|line| line.split(": ").next().unwrap())
            .collect();
        assert_eq!(
            fields,
            [
                "name",
                "nodes",
                "policy",
                "classes.bios.keys",
                "classes.nic.sensitive",
                "classes.nic.keys.bios.version",
                "classes.nic.keys.firmware",
                "classes.nic.keys.nic.0.firmware",
                "classes.nic.keys.nic.1.firmware",
                "classes.nic.keys.nic.2.firmware",
                "classes.nic.keys.nic.3.firmware",
                "classes.nik",
            ]
        );
        assert!(
            problem
                .detail
                .contains("write a version as a string: \"28.41\""),
            "{problem}"
        );
    }

    #[test]
    fn reports_extreme_sizes_briefly() {
        let long = "x".repeat(300_000);
        let field_and_lines = |value| {
            let problem = parse_request("h100", &request(value)).unwrap_err();
            assert!(problem.detail.len() < 40_000, "{}", problem.detail.len());
            let field = problem.field.unwrap();
            (
                field[..field.len().min(20)].to_owned(),
                problem.detail.lines().count(),
            )
        };
        let nodes = |list: &str| json!({"nodes": list, "from_node": "gpu001"});
        assert_eq!(
            field_and_lines(nodes(&format!("gpu[{long}"))),
            ("nodes".to_owned(), 1)
        );
        assert_eq!(
            field_and_lines(nodes("gpu[1-999999999]")),
            ("nodes".to_owned(), 1)
        );
        let class = json!({"nodes": "a", "classes": {(long.clone()): {}}});
        assert_eq!(
            field_and_lines(class),
            (format!("classes.{}", "x".repeat(12)), 1)
        );
        let key = json!({"nodes": "a", "classes": {"nic": {"keys": {(long.clone()): 1}}}});
        assert_eq!(field_and_lines(key).0, "classes.nic.keys.xxx");
        let keys: serde_json::Map<String, Value> = (0..5_000)
            .map(|n| (format!("nic.{n}.firmware"), json!({})))
            .collect();
        let many = json!({"nodes": "a", "classes": {"nic": {"keys": keys}}});
        assert_eq!(field_and_lines(many).1, MAX_FAULTS + 1);
        let word = json!({"nodes": "a", "from_node": "a", "policy": long});
        assert_eq!(field_and_lines(word), ("policy".to_owned(), 1));
    }

    #[test]
    fn requires_subject_and_action() {
        let fields = |value| {
            let problem = parse_request("x", &request(value)).unwrap_err();
            let lines = problem.detail.lines();
            lines
                .map(|l| l.split(": ").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(fields(json!({})), ["nodes", "classes"]);
        assert_eq!(
            fields(json!({"nodes": "a", "from_node": "a", "from_group": "abcdefab"})),
            ["from_group", "classes"]
        );
        assert_eq!(
            fields(json!({"nodes": "a", "from_group": "xyz"})),
            ["from_group"]
        );
    }
}
