//! Files that a configuration names.

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Checks {
    version: String,
    #[serde(default)]
    checks: BTreeMap<String, Limit>,
    #[serde(default)]
    codes: BTreeMap<u32, Limit>,
    #[serde(default)]
    offsets: BTreeMap<i64, u64>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Limit {
    at_most: Option<u64>,
    mode: Option<Mode>,
    window: Option<Window>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Window {
    from: u64,
    to: u64,
}

fn read(text: &str) -> Result<Checks, ConfigErrors> {
    load_named(Source::Text(text), |checks: &Checks, problems| {
        for (name, limit) in &checks.checks {
            if limit.mode.is_none() {
                problems.add(format!("checks.{name}"), "needs a mode");
            }
        }
    })
}

fn mistakes(text: &str) -> Vec<String> {
    let errors = read(text).expect_err("must be refused");
    errors.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn keys_of_a_map_are_texts_or_numbers() {
    let text = "version: 1a\nchecks: {7: {mode: act}}\ncodes: {63: {at_most: 1}, '64': {}}\n\
                offsets: {-3: 1}\n";
    let found = read(text).unwrap();
    assert_eq!(found.checks.keys().collect::<Vec<_>>(), ["7"]);
    assert_eq!(found.codes.keys().collect::<Vec<_>>(), [&63, &64]);
    assert_eq!(found.codes[&63].at_most, Some(1));
    assert_eq!(found.offsets[&-3], 1);
}

/// A type that refuses unknown keys hides no other mistake, and has the same report of unknown keys.
#[test]
fn one_report_has_all_mistakes() {
    let text = "versoin: a\nchecks:\n  gpu.a: {at_mots: 1, mode: acts}\n  gpu.b: {at_most: 1}\n  \
                gpu.c: {mode: act, xyzzy: 1}\ncodes: {63: {at_most: many, mode: 1}, all: {}}\n";
    assert_eq!(
        mistakes(text),
        [
            "checks.gpu.a.mode: must be one of observe, act, not \"acts\"; did you mean act?",
            "codes.63.at_most: must be a whole number, 0 or more, not the text \"many\"",
            "codes.63.mode: must be one of observe, act, not 1",
            "codes.all: must be a whole number from 0 to 4294967295, not the text \"all\"",
            "versoin: unknown key; did you mean version? That key is required and missing",
            "checks.gpu.a.at_mots: unknown key; did you mean checks.gpu.a.at_most?",
            "checks.gpu.c.xyzzy: unknown key; known here: at_most, mode, window",
            "checks.gpu.b: needs a mode",
        ]
    );
}

/// The removal of a wrong value must not cause a second mistake, also below a key with dots.
#[test]
fn wrong_value_below_a_dotted_key_is_one_mistake() {
    let text = "version: a\nchecks: {gpu.a: {window: soon}, gpu.b: {}}\n";
    let errors = load_named(Source::Text(text), |checks: &Checks, problems| {
        for (name, limit) in &checks.checks {
            if limit.window.is_none() {
                problems.add(format!("checks.{name}"), "needs a window");
            }
        }
    });
    let errors = errors.expect_err("must be refused");
    let found: Vec<String> = errors.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "checks.gpu.a.window: must be keys and values (from, to), not the text \"soon\"",
            "checks.gpu.b: needs a window",
        ]
    );
}

#[test]
fn the_report_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checks.yaml");
    let refused = || {
        let error = load_named(Source::File(&path), |_: &Checks, _| {}).unwrap_err();
        error.to_string()
    };
    let start = format!("the file {} has a mistake:\n  ", path.display());
    assert!(
        refused().starts_with(&format!("{start}cannot be read: ")),
        "{}",
        refused()
    );
    std::fs::write(&path, "version: [\n").unwrap();
    assert!(
        refused().starts_with(&format!("{start}malformed YAML: ")),
        "{}",
        refused()
    );
}

/// The parts are reported below the names that the caller gives them, all in one report.
#[test]
fn parts_are_reported_below_their_names() {
    let read = |root: Value, problems: &mut Problems| {
        let parts: BTreeMap<String, Value> = read_part(root, problems)?;
        let parts = parts.into_iter().map(|(name, part)| {
            let mut window = None;
            problems.check_part(format!("windows.{name}"), |problems| {
                window = read_part::<Window>(part, problems);
            });
            window
        });
        let parts: Vec<Option<Window>> = parts.collect();
        parts.into_iter().collect::<Option<Vec<_>>>()
    };
    let found = load_parts(Source::Text("a: {from: 1, to: 2}\n"), read).unwrap();
    assert_eq!(found, [Window { from: 1, to: 2 }]);
    let text = "a: {from: 1, to: 2}\nb: {from: x, too: 1}\nc: soon\n";
    let errors = load_parts(Source::Text(text), read).unwrap_err();
    let found: Vec<String> = errors.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "windows.b.from: must be a whole number, 0 or more, not the text \"x\"",
            "windows.b.too: unknown key; did you mean to? That key is required and missing",
            "windows.c: must be keys and values (from, to), not the text \"soon\"",
        ]
    );
    let errors = load_parts(Source::Text("[a, b]"), read).unwrap_err();
    let found = errors.to_string();
    assert!(found.starts_with("the file has a mistake:\n  "), "{found}");
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Metric {
    Gpu,
    Query(String),
    Sum { from: u64, to: u64 },
}

/// A word may have a value, as in JSON.
#[test]
fn word_with_its_value_is_read() {
    let read = |text: &str| {
        let read = load_named(
            Source::Text(text),
            |_: &BTreeMap<String, Metric>, _: &mut Problems| {},
        );
        read.map_err(|errors| {
            let problems = errors.problems().iter().map(ToString::to_string);
            problems.collect::<Vec<_>>()
        })
    };
    let text = "a: gpu\nb: {query: up}\nc: {sum: {from: 1, to: 2}}\nd: {gpu: }\n";
    let found: Vec<Metric> = read(text).unwrap().into_values().collect();
    assert_eq!(
        found,
        [
            Metric::Gpu,
            Metric::Query("up".to_owned()),
            Metric::Sum { from: 1, to: 2 },
            Metric::Gpu,
        ]
    );
    let text = "a: {gpu: 1}\nb: {query: 5}\nc: {sum: {from: x, to: 2}}\nd: query\ne: {qury: up}\n\
                f: {gpu: 1, query: up}\n";
    assert_eq!(
        read(text).unwrap_err(),
        [
            "a: must be one of gpu, query, sum, not keys and values",
            "b.query: must be a text, not 5",
            "c.sum.from: must be a whole number, 0 or more, not the text \"x\"",
            "d: must be a word with its value, as {word: value}, not a word",
            "e: must be one of gpu, query, sum, not \"qury\"; did you mean query?",
            "f: must be one of gpu, query, sum, not keys and values",
        ]
    );
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Connection {
    server: String,
    token: String,
    #[serde(default)]
    process: Option<u32>,
}

#[test]
fn json_mistakes_are_in_the_words_of_the_configuration() {
    let path = Path::new("/etc/connection.json");
    let read = |text: &str| load_json::<Connection>(path, text).map_err(|error| error.to_string());
    let good = Connection {
        server: "s".to_owned(),
        token: "a\n\"b\"".to_owned(),
        process: Some(7),
    };
    let text = "{\n\t\"server\": \"s\", \"token\": \"a\\n\\\"b\\\"\", \"process\": 7}";
    assert_eq!(read(text), Ok(good));
    let refused = |text: &str| {
        let refused = read(text).unwrap_err();
        let (title, mistakes) = refused.split_once('\n').unwrap();
        assert!(title.starts_with("the file /etc/connection.json has "));
        mistakes.to_owned()
    };
    assert_eq!(
        refused(r#"{"sever": "s", "token": 7, "process": -1}"#),
        "  token: must be a text, not 7\n  \
           process: must be a whole number from 0 to 4294967295, not -1\n  \
           sever: unknown key; did you mean server? That key is required and missing"
    );
    assert_eq!(
        refused(" "),
        "  the key `server` is missing\n  the key `token` is missing"
    );
    assert_eq!(
        refused("[1]"),
        "  keys and values are expected at the top, found a list"
    );
    for (text, what) in [
        (
            "{\"server\": \"s\",\n",
            "the text ends too early, at line 2 column 0",
        ),
        (
            "{\"server\" \"s\"}",
            "a character is missing or not allowed, at line 1 column 11",
        ),
        (
            r#"{"server": "s", "token": "t", "server": "s"}"#,
            "a key is repeated, at line 1 column 38",
        ),
    ] {
        assert_eq!(refused(text), format!("  malformed JSON: {what}"));
    }
}
