#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod named_file;

use super::*;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize, PartialEq)]
struct Daemon {
    name: String,
    #[serde(default)]
    data_dir: Option<String>,
    #[serde(default)]
    listen: Listen,
    #[serde(default)]
    members: Vec<Member>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    mode: Mode,
}
#[derive(Debug, Deserialize, PartialEq)]
#[serde(default)]
struct Listen {
    port: u16,
    backlog: u32,
}
impl Default for Listen {
    fn default() -> Self {
        Self {
            port: 1,
            backlog: 2,
        }
    }
}
#[derive(Debug, Deserialize, PartialEq)]
struct Member {
    id: u64,
    addr: String,
}
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Observe,
    Act,
}
impl Check for Daemon {
    fn check(&self, problems: &mut Problems) {
        if self.name.is_empty() {
            problems.add("name", "must not be empty");
        }
        problems.check_part("listen", |problems| {
            if self.listen.port == 0 {
                problems.add("port", "must not be 0");
            }
        });
    }
}

fn try_load(text: &str, env: &[(&str, &str)]) -> Result<Daemon, Vec<String>> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    load(Source::Text(text), env, PREFIX)
        .map_err(|e| e.problems().iter().map(ToString::to_string).collect())
}
fn mistakes(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    try_load(text, env).expect_err("must be refused")
}

#[test]
fn a_good_file_is_read_with_defaults() {
    let daemon = try_load("name: q1\nmembers: [{id: 1, addr: a}]\nmode: act\n", &[]).unwrap();
    assert_eq!(daemon.listen, Listen::default());
    assert_eq!(
        daemon.members,
        [Member {
            id: 1,
            addr: "a".to_owned()
        }]
    );
    assert_eq!(daemon.mode, Mode::Act);
}

#[test]
fn an_empty_section_is_its_defaults() {
    assert_eq!(
        try_load("name: q\nlisten:\n", &[]).unwrap().listen,
        Listen::default()
    );
}

#[test]
fn unknown_keys_are_named_by_path_with_the_nearest() {
    assert_eq!(
        mistakes(
            "name: q\nlisten: {prt: 3}\ndatadir: x\nzebra: 1\nmembers: [{id: 1, addr: a, wat: 1}]",
            &[]
        ),
        [
            "listen.prt: unknown key; did you mean listen.port?",
            "datadir: unknown key; did you mean data_dir?",
            "zebra: unknown key; known here: name, data_dir, listen, members, labels, mode",
            "members.0.wat: unknown key; known here: id, addr",
        ]
    );
}

#[test]
fn malformed_yaml_has_line_and_column() {
    let found = mistakes("name: q\nlisten: {port: 3\nmode: act\n", &[]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("malformed YAML: "), "{found:?}");
    assert!(found[0].contains("line 3 column"), "{found:?}");
}

#[test]
fn a_key_given_twice_is_refused() {
    let found = mistakes("name: q\nname: r\n", &[]);
    assert!(
        found[0].contains("duplicate") && found[0].contains("name"),
        "{found:?}"
    );
}

#[test]
fn all_mistakes_come_at_once() {
    let found = mistakes(
        "name: [1]\nlisten: {port: 70000, backlog: many}\nmembers: [{id: x, addr: a}, {addr: b}]\nextra: 1",
        &[],
    );
    let keys: Vec<&str> = found.iter().map(|m| m.split(':').next().unwrap()).collect();
    assert!(keys.contains(&"name"), "{found:?}");
    assert!(keys.contains(&"listen.port"), "{found:?}");
    assert!(keys.contains(&"listen.backlog"), "{found:?}");
}

#[test]
fn unknown_keys_and_checks_come_in_one_report() {
    assert_eq!(
        mistakes("name: ''\nlisten: {port: 0, prt: 1}", &[]),
        [
            "listen.prt: unknown key; did you mean listen.port?",
            "name: must not be empty",
            "listen.port: must not be 0",
        ]
    );
}

#[test]
fn checks_run_beside_wrong_types_and_missing_keys() {
    let checked = ["name: must not be empty", "listen.port: must not be 0"];
    let found = mistakes("name: ''\nlisten: {port: 0, backlog: many}", &[]);
    assert_eq!(
        found[0],
        "listen.backlog: must be a whole number from 0 to 4294967295, not the text \"many\""
    );
    assert_eq!(found[1..], checked);

    // A list item keeps its position, so the items after it are read as well.
    let members = "members: [5, {id: 1, addr: a}, {id: y, addr: b}]";
    let found = mistakes(&format!("name: ''\nlisten: {{port: 0}}\n{members}"), &[]);
    assert_eq!(
        found[0],
        "members.0: must be keys and values (id, addr), not 5"
    );
    assert_eq!(
        found[1],
        "members.2.id: must be a whole number, 0 or more, not the text \"y\""
    );
    assert_eq!(found[2..], checked);

    let found = mistakes("listen: {port: 0}", &[]);
    assert_eq!(
        found,
        ["the key `name` is missing", "listen.port: must not be 0"]
    );
}

/// Configuration with a rule about two keys.
#[derive(Debug, Deserialize)]
struct Voter {
    id: u64,
    mode: Mode,
    members: Vec<u64>,
    log: String,
}
impl Check for Voter {
    fn check(&self, problems: &mut Problems) {
        if !self.members.contains(&self.id) {
            problems.add("members", format!("must list this member, {}", self.id));
        }
        if self.mode == Mode::Act && self.log.is_empty() {
            problems.add("log", "must not be empty");
        }
    }
}

#[test]
fn a_rule_about_a_wrong_value_reports_nothing() {
    let mistakes = |text: &str| -> Vec<String> {
        let errors = load::<Voter>(Source::Text(text), [], PREFIX).unwrap_err();
        errors.problems().iter().map(ToString::to_string).collect()
    };
    for members in ["[1, 2]", "[7, 8]"] {
        let found = mistakes(&format!("id: x\nmode: act\nmembers: {members}\nlog: ''"));
        assert_eq!(
            found,
            [
                "id: must be a whole number, 0 or more, not the text \"x\"",
                "log: must not be empty"
            ]
        );
    }
    let found = mistakes("id: 3\nmode: fast\nmembers: [1]\nlog: ''");
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0], "mode: must be one of observe, act, not \"fast\"");
    assert_eq!(found[1], "members: must list this member, 3");
    // The only mistake is that of the key itself.
    let found = mistakes("id: 3\nmode: observe\nmembers: 3\nlog: x");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0], "members: must be a list, not 3");
}

#[test]
fn a_missing_key_is_named() {
    assert_eq!(mistakes("mode: act", &[]), ["the key `name` is missing"]);
}

#[test]
fn the_environment_overrides_every_kind_of_key() {
    let daemon = try_load(
        "name: file\nlisten: {port: 5}\nmembers: [{id: 1, addr: a}]",
        &[
            ("LATTICE_NAME", "1234"),
            ("LATTICE_LISTEN__PORT", "6"),
            ("LATTICE_MEMBERS__0__ADDR", "b"),
            ("LATTICE_MEMBERS__1", "{id: 2, addr: c}"),
            ("LATTICE_LABELS__RACK", "7"),
            ("LATTICE_DATA_DIR", ""),
            ("LATTICE_MODE", "act"),
            ("OTHER_NAME", "x"),
        ],
    )
    .unwrap();
    assert_eq!(daemon.name, "1234");
    assert_eq!(daemon.listen.port, 6);
    let addrs: Vec<_> = daemon
        .members
        .iter()
        .map(|m| (m.id, m.addr.as_str()))
        .collect();
    assert_eq!(addrs, [(1, "b"), (2, "c")]);
    assert_eq!(daemon.labels["rack"], "7");
    assert_eq!(daemon.data_dir.as_deref(), Some(""));
    assert_eq!(daemon.mode, Mode::Act);
}

#[test]
fn wrong_variables_are_named() {
    let env = [
        ("LATTICE_LISTEN__PRT", "1"),
        ("LATTICE_LISTEN__PORT", "many"),
        ("LATTICE_DATADIR", "x"),
        ("LATTICE_MEMBERS__4__ID", "1"),
        ("LATTICE_NAME__X", "1"),
        ("LATTICE_A____B", "1"),
    ];
    let found = mistakes("name: q\nmembers: []", &env).join("\n");
    for part in [
        "listen.prt: unknown key (from LATTICE_LISTEN__PRT); did you mean listen.port?",
        "listen.port: must be a whole number from 0 to 65535, not the text \"many\" (from \
         LATTICE_LISTEN__PORT)",
        "datadir: unknown key (from LATTICE_DATADIR); did you mean data_dir?",
        "members.4.id: LATTICE_MEMBERS__4__ID: index 4 is beyond the end of the list (0 items); use \
         at most 0",
        "name.x: LATTICE_NAME__X: the parent key holds a single value in the file, not keys",
        "LATTICE_A____B: empty key next to \"__\"; write A__B for a.b",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

#[test]
fn variables_of_others_are_left_alone() {
    assert!(
        try_load(
            "name: q",
            &[("LATTICE_CONTEXT", "/tmp/x"), ("LATTICE_", "1")]
        )
        .is_ok()
    );
    let found = mistakes("name: q", &[("LATTICE_CONTEXT__URL", "x")]);
    assert!(
        found[0].starts_with("context: unknown key (from LATTICE_CONTEXT__URL)"),
        "{found:?}"
    );
}

#[test]
fn a_file_is_named_in_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.yaml");
    let missing = load::<Daemon>(Source::File(&path), [], PREFIX)
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("q.yaml has a mistake:\n  cannot be read: "),
        "{missing}"
    );
    std::fs::write(&path, "name: q\nlisten: {port: 0}\nx: 1\n").unwrap();
    let report = load::<Daemon>(Source::File(&path), [], PREFIX)
        .unwrap_err()
        .to_string();
    assert!(
        report.contains("q.yaml has 2 mistakes:\n  x: unknown key"),
        "{report}"
    );
    std::fs::write(&path, "- a\n").unwrap();
    let report = load::<Daemon>(Source::File(&path), [], PREFIX)
        .unwrap_err()
        .to_string();
    assert!(
        report.contains("keys and values are expected at the top, found a list"),
        "{report}"
    );
}

#[test]
fn without_a_file_the_environment_is_enough() {
    let env = [("LATTICE_NAME".to_owned(), "q".to_owned())];
    assert_eq!(
        load::<Daemon>(Source::Nothing, env, PREFIX).unwrap().name,
        "q"
    );
}

/// Configuration that names files, with a section that may be absent.
#[derive(Debug, Deserialize)]
struct Server {
    listen: std::net::SocketAddr,
    certificate: std::path::PathBuf,
    key: std::path::PathBuf,
    #[serde(default)]
    oidc: Option<Oidc>,
    #[serde(default)]
    run_as: Option<Ids>,
    #[serde(default)]
    cluster: String,
}
#[derive(Debug, Deserialize)]
struct Oidc {
    audience: String,
    #[serde(default)]
    roles: BTreeMap<String, Mode>,
}
#[derive(Debug, Deserialize)]
struct Ids {
    uid: u32,
    gid: u32,
}
impl Check for Server {
    fn check(&self, problems: &mut Problems) {
        if self.cluster.is_empty() {
            problems.add("cluster", "must not be empty");
        }
        if let Some(Oidc { audience, roles }) = &self.oidc {
            problems.check_part("oidc", |problems| {
                if audience.is_empty() && roles.is_empty() {
                    problems.add("audience", "must not be empty");
                }
            });
        }
        if self
            .run_as
            .as_ref()
            .is_some_and(|ids| ids.uid == 0 || ids.gid == 0)
        {
            problems.add("run_as", "must not be root");
        }
    }

    fn check_files(&self, problems: &mut Problems) {
        for (key, path) in [("certificate", &self.certificate), ("key", &self.key)] {
            if let Err(error) = std::fs::metadata(path) {
                problems.add(key, format!("{}: {error}", path.display()));
            }
        }
    }
}

fn all_mistakes(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let found = check_all::<Server>(Source::Text(text), env, PREFIX);
    let found = found.expect_err("must be refused");
    found.problems().iter().map(ToString::to_string).collect()
}

/// Mistakes of types, of values and in files, without one of them hiding another.
#[test]
fn one_report_has_types_values_and_files() {
    let found = all_mistakes(
        "listen: nowhere\ncertificate: /nonexistent/a.pem\nkey: /nonexistent/a.key\n\
         run_as: root\nclustr: x\n",
        &[],
    );
    assert_eq!(
        found,
        [
            "listen: must be an address with a port, like 10.0.0.1:7101 or [fd00::1]:7101",
            "run_as: must be keys and values (uid, gid), not the text \"root\"",
            "clustr: unknown key; did you mean cluster?",
            "cluster: must not be empty",
            "certificate: /nonexistent/a.pem: No such file or directory (os error 2)",
            "key: /nonexistent/a.key: No such file or directory (os error 2)",
        ]
    );
    // A file is not checked if its path is missing or of the wrong type.
    let found = all_mistakes("listen: 127.0.0.1:1\ncertificate: [1]\ncluster: c\n", &[]);
    assert_eq!(
        found,
        [
            "certificate: must be a path, not a list",
            "the key `key` is missing"
        ]
    );
}

#[test]
fn load_reads_no_files() {
    let text = "listen: 127.0.0.1:1\ncertificate: /nonexistent/a\nkey: /nonexistent/b\ncluster: c";
    let read = load::<Server>(Source::Text(text), [], PREFIX).unwrap();
    assert_eq!(read.key, std::path::Path::new("/nonexistent/b"));
    assert!(read.run_as.is_none() && read.listen.port() == 1);
}

#[test]
fn misspelt_required_key_is_one_mistake() {
    let good = "listen: 127.0.0.1:1\ncertificate: /\nkey: /\ncluster: c\n";
    let found = all_mistakes(&format!("{good}oidc: {{audiences: lattice}}"), &[]);
    assert_eq!(
        found,
        [
            "oidc.audiences: unknown key; did you mean oidc.audience? That key is required and missing"
        ]
    );
    let found = all_mistakes(&format!("{good}oidc: {{scope: lattice}}"), &[]);
    assert_eq!(
        found,
        [
            "oidc: the key `audience` is missing",
            "oidc.scope: unknown key; known here: audience, roles"
        ]
    );
    let variable = [("LATTICE_OIDC__AUDIENCES", "lattice")];
    let found = all_mistakes(good, &variable);
    assert_eq!(
        found,
        [
            "oidc.audiences: unknown key (from LATTICE_OIDC__AUDIENCES); did you mean \
             oidc.audience? That key is required and missing"
        ]
    );
    let found = all_mistakes(
        &format!("{good}oidc: {{audience: a, roles: {{x: acts}}}}"),
        &[],
    );
    assert_eq!(
        found,
        ["oidc.roles.x: must be one of observe, act, not \"acts\"; did you mean act?"]
    );
}

#[test]
fn variables_that_name_no_key_are_reported() {
    let good = "listen: 127.0.0.1:1\ncertificate: /\nkey: /\ncluster: c\noidc: {audience: a}";
    let env = [
        ("LATTICE_CONTEXT", "x"),
        ("LATTICE_FOO", "1"),
        ("LATTICE_OIDC_AUDIENCE", "b"),
        ("LATTICE_OIDC_AUDIENSE", "b"),
        ("LATTICE_RUN_AS_UID", "7"),
        ("OTHER", "1"),
    ];
    let nearly = |name: &str, near: &str| {
        format!(
            "{name}: no key has this name; did you mean {near}? Two underscores separate the levels \
             of a key"
        )
    };
    let same_name = nearly("LATTICE_OIDC_AUDIENCE", "LATTICE_OIDC__AUDIENCE");
    let ignored = [
        "LATTICE_FOO: no key has this name; remove the variable".to_owned(),
        nearly("LATTICE_OIDC_AUDIENSE", "LATTICE_OIDC__AUDIENCE"),
        nearly("LATTICE_RUN_AS_UID", "LATTICE_RUN_AS__UID"),
    ];
    let mut found = all_mistakes(good, &env);
    found.sort();
    let mut expected = ignored.to_vec();
    expected.push(same_name.clone());
    expected.sort();
    assert_eq!(found, expected);

    // A start is refused only where the name of a key is certain.
    let pairs = || env.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let refused = load::<Server>(Source::Text(good), pairs(), PREFIX).unwrap_err();
    let refused: Vec<String> = refused.problems().iter().map(ToString::to_string).collect();
    assert_eq!(refused, [same_name]);
    let found = ignored_variables::<Server>(Source::Text(good), pairs(), PREFIX);
    let mut found: Vec<String> = found.iter().map(ToString::to_string).collect();
    found.sort();
    assert_eq!(found, ignored);
}

/// Configuration that may refer to an environment variable.
#[derive(Debug, Deserialize)]
struct Referring {
    name: String,
    token: String,
}
impl Check for Referring {
    fn check(&self, _: &mut Problems) {}

    fn used_variables(&self) -> Vec<String> {
        let used = self.token.strip_prefix("env://");
        used.map(str::to_owned).into_iter().collect()
    }
}

/// A variable with a misspelt prefix sets nothing, and must not stay unnoticed.
#[test]
fn misspelt_prefix_is_reported() {
    let good = "name: n\ntoken: env://LATTICEE_SECRET";
    let env = [
        ("LATTCE_NAME", "m"),
        ("LATICE_TOKEN__URL", "1"),
        ("LATTIEC_LOG", "info"),
        ("lattice_name", "m"),
        // Used by the configuration, of other programs, or without a name.
        ("LATTICEE_SECRET", "s"),
        ("LATEX_HOME", "/"),
        ("PLASTIC_NAME", "m"),
        ("LATTCE", "1"),
        ("LATTCE_", "1"),
    ];
    let pairs = || env.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let found = load::<Referring>(Source::Text(good), pairs(), PREFIX).unwrap();
    assert_eq!(found.name, "n");
    let found = ignored_variables::<Referring>(Source::Text(good), pairs(), PREFIX);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let nearly = |name: &str, near: &str| {
        format!("{name}: no program of Lattice reads this variable; did you mean {near}?")
    };
    let expected = [
        nearly("LATICE_TOKEN__URL", "LATTICE_TOKEN__URL"),
        nearly("LATTCE_NAME", "LATTICE_NAME"),
        nearly("LATTIEC_LOG", "LATTICE_LOG"),
        nearly("lattice_name", "LATTICE_NAME"),
    ];
    assert_eq!(found, expected);
    let errors = check_referring(good, &env).unwrap_err();
    let found: Vec<String> = errors.problems().iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

fn check_referring(text: &str, env: &[(&str, &str)]) -> Result<Referring, ConfigErrors> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    check_all(Source::Text(text), env, PREFIX)
}

#[test]
fn variables_that_the_configuration_refers_to_are_left_alone() {
    for name in [
        "LATTICE_WALDUR_SECRET",
        "LATTICE_TOKENS",
        "LATTICE_WALDUR__TOKEN",
        "LATTICE_A____B",
    ] {
        let variable = [(name, "secret")];
        let text = format!("name: n\ntoken: env://{name}");
        let read = check_referring(&text, &variable).unwrap();
        assert_eq!(read.token, format!("env://{name}"));
        let pairs = || variable.map(|(k, v)| (k.to_owned(), v.to_owned()));
        load::<Referring>(Source::Text(&text), pairs(), PREFIX).unwrap();
        assert!(ignored_variables::<Referring>(Source::Text(&text), pairs(), PREFIX).is_empty());
        check_referring("name: n\ntoken: other", &variable).unwrap_err();
    }
    // A variable that names a key sets it, also when the configuration refers to the variable.
    let read = check_referring(
        "name: n\ntoken: env://LATTICE_NAME",
        &[("LATTICE_NAME", "m")],
    );
    assert_eq!(read.unwrap().name, "m");
}

#[test]
fn variables_of_jobs_and_hooks_are_left_alone() {
    let env = [
        ("LATTICE_ALLOCATION_ID", "12"),
        ("LATTICE_ARRAY_INDEX", "3"),
        ("LATTICE_CHECKPOINT_DIR", "/scratch/12"),
        ("LATTICE_HOOK", "prolog"),
        ("LATTICE_JOB_EXIT", "0"),
        ("LATTICE_NODE", "n1"),
        ("LATTICE_NODE_RANK", "0"),
        ("LATTICE_USER", "alice"),
    ];
    check_referring("name: n\ntoken: t", &env).unwrap();
    // None of them is taken for the missing key.
    let refused = check_referring("token: t", &env).unwrap_err();
    let found: Vec<String> = refused.problems().iter().map(ToString::to_string).collect();
    assert_eq!(found, ["the key `name` is missing"]);
}
