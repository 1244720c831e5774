//! Output formats of every command: JSON for success and refusal, and column names.

use crate::common::{
    CommandResult, Sandbox,
    api::{Answers, serve},
};
use serde_json::Value;
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Result of a command while every request to the API succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It succeeds.
    Done,
    /// It fails before a request, or without any.
    Failed,
    /// It succeeds or fails, since it checks more of the answer than its form.
    Either,
    /// It does not run here: another test covers it.
    Covered,
}
use Outcome::{Covered, Done, Either, Failed};

/// Command with arguments for it. `{dir}` is a folder, `{hosts}` that of captured hosts, `{traces}` that of traces, and
/// `{run}` differs between runs. A new command needs a line here.
const COMMANDS: &[(&str, &str, Outcome)] = &[
    // `demo.rs`.
    ("demo", "", Covered),
    ("submit", "--project atlas -- true", Done),
    ("status", "", Done),
    ("cancel", "12", Done),
    ("hold", "12", Done),
    ("release", "12", Done),
    ("requeue", "12", Done),
    ("suspend", "12", Done),
    ("resume", "12", Done),
    ("extend", "12 +30m", Done),
    ("checkpoint", "12", Done),
    ("logs", "12", Done),
    ("why", "12", Done),
    ("usage", "", Done),
    ("dag submit", "{dir}/dag.yaml", Done),
    ("dag status", "7", Done),
    ("dag list", "--all", Done),
    ("dag cancel", "7", Done),
    ("dag graph", "7", Done),
    (
        "reservation create",
        "firmware --nodes gpu001 --reason BIOS",
        Done,
    ),
    ("reservation list", "", Done),
    ("reservation show", "firmware", Done),
    ("reservation delete", "firmware", Done),
    ("node list", "", Done),
    ("node show", "gpu001", Done),
    ("node diff", "gpu001 gpu002", Done),
    // The sample has an error of the agent, and its state is printed with it.
    ("node health", "gpu001", Either),
    ("node history", "gpu001", Done),
    ("node reprobe", "gpu001", Done),
    ("node drain", "gpu001 --reason fan", Done),
    ("node undrain", "gpu001", Done),
    ("node claim", "gpu001 --project atlas", Done),
    ("node release", "gpu001", Done),
    ("conformance groups", "", Done),
    ("conformance drift", "", Done),
    ("conformance changes", "", Done),
    (
        "conformance baseline set",
        "h100 --from-node gpu001 --nodes gpu001",
        Done,
    ),
    ("conformance baseline list", "", Done),
    ("conformance baseline show", "h100", Done),
    ("conformance baseline diff", "h100 gpu001", Done),
    ("conformance baseline delete", "h100", Done),
    ("conformance brake show", "", Done),
    ("conformance brake release", "--reason checked", Done),
    ("project tree", "", Done),
    ("project show", "atlas", Done),
    ("project headroom", "atlas", Done),
    ("project create", "atlas", Done),
    ("project set", "atlas --max-nodes 4", Done),
    ("project delete", "atlas", Done),
    ("host diff", "{hosts}/gpu001 {hosts}/gpu005", Done),
    (
        "host groups",
        "{hosts}/gpu001 {hosts}/gpu005 --class nic",
        Done,
    ),
    (
        "host drift",
        "{hosts}/gpu001 {hosts}/gpu002 {hosts}/gpu003 {hosts}/gpu005",
        Done,
    ),
    (
        "admin ca create",
        "--cluster site --out {dir}/ca-{run}",
        Done,
    ),
    (
        "admin ca issue",
        "--ca {dir}/ca --cluster site --role quorum --id 1 --out {dir}/member-{run}",
        Done,
    ),
    ("admin ca list", "", Done),
    ("admin ca add", "{dir}/ca", Done),
    ("admin ca promote", "7d115cb47f57", Done),
    ("admin ca retire", "7d115cb47f57", Done),
    ("admin certificate list", "", Done),
    (
        "admin certificate revoke",
        "agent/gpu001 --reason sold",
        Done,
    ),
    ("admin certificate show", "{dir}/ca/ca.pem", Done),
    ("admin quorum status", "", Done),
    // The sample of a step is never the last one.
    ("admin quorum add", "4 127.0.0.1:1 --timeout 0", Either),
    ("admin quorum remove", "3 --timeout 0", Either),
    (
        "admin quorum replace",
        "3 4 127.0.0.1:1 --timeout 0",
        Either,
    ),
    ("admin quorum step-down", "", Done),
    // The sample is not a backup.
    ("admin quorum backup", "{dir}/backup-{run}", Either),
    ("admin quorum restore", "{dir}/nothing", Failed),
    ("admin token create", "--role agent", Done),
    ("admin token list", "", Done),
    ("admin token revoke", "7d115cb47f57", Done),
    ("admin tenant list", "", Done),
    ("admin tenant show", "atlas", Done),
    ("admin tenant create", "atlas", Done),
    ("admin tenant update", "atlas --max-nodes 4", Done),
    ("admin tenant delete", "atlas", Done),
    ("admin accounting status", "", Done),
    (
        "admin accounting reconcile",
        "--since 2026-03-01 --until 2026-04-01",
        Done,
    ),
    ("admin vcluster list", "", Done),
    ("admin vcluster show", "ml", Done),
    ("admin vcluster set", "ml --description training", Done),
    ("admin vcluster set-weights", "ml --energy 0.1", Done),
    ("admin vcluster assign", "ml gpu001", Done),
    ("admin vcluster delete", "ml", Done),
    ("admin system show", "", Done),
    ("admin system set", "--limit-policy flat", Done),
    (
        "admin https",
        "--host localhost --out {dir}/https-{run}",
        Done,
    ),
    (
        "admin context",
        "--server https://127.0.0.1:1 --ca {dir}/https/https-ca.pem --token-file {dir}/token --out {dir}/c-{run}.json",
        Done,
    ),
    ("audit query", "", Either),
    // The hashes of the sample do not match.
    ("audit verify", "", Either),
    ("audit export", "{dir}/export-{run}", Either),
    (
        "replay run",
        "--trace {traces}/KTH-SP2-1996-2.first200.swf --policy easy",
        Done,
    ),
    (
        "replay compare",
        "easy fcfs --trace {traces}/KTH-SP2-1996-2.first200.swf --seeds 1",
        Done,
    ),
    (
        "replay sweep",
        "--trace {dir}/nothing --over {dir}/nothing --objective mean_wait_s",
        Failed,
    ),
    ("replay verify", "{dir}/nothing", Failed),
    ("replay record", "--output {dir}/record-{run}", Done),
    ("completions", "bash", Done),
];

/// Columns for the keys and values of maps: an entry of the map is a row.
const MAP_COLUMNS: &[(&str, &[&str])] = &[
    ("conformance baseline show", &["class", "key", "expected"]),
    ("replay compare", &["measure", "easy", "fcfs"]),
];

/// Folder with the files that the commands read.
fn prepared() -> Sandbox {
    let sandbox = Sandbox::new();
    let write = |name: &str, text: &str| fs::write(sandbox.path(name), text).unwrap();
    write("token", "secret\n");
    let owner_only = fs::Permissions::from_mode(0o600);
    fs::set_permissions(sandbox.path("token"), owner_only).unwrap();
    write(
        "dag.yaml",
        "members: [{name: a, project: atlas, nodes: 1, argv: [true_]}]\n",
    );
    let folder = sandbox.path("ca");
    let out = folder.to_str().unwrap();
    let made = sandbox.lattice(&["admin", "ca", "create", "--cluster", "site", "--out", out]);
    assert_eq!(made.code, Some(0), "{made:?}");
    sandbox
}

/// Runs a command with the arguments of its line in [`COMMANDS`].
fn run(
    sandbox: &Sandbox,
    context: &str,
    format: &str,
    (name, args): (&str, &str),
) -> CommandResult {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let args = args
        .replace("{dir}", sandbox.dir.path().to_str().unwrap())
        .replace("{hosts}", fixtures.join("hosts").to_str().unwrap())
        .replace("{traces}", fixtures.join("traces").to_str().unwrap())
        .replace("{run}", format);
    let first = ["-o", format, "--context", context];
    let words = first.into_iter().chain(name.split(' '));
    let words = words.chain(args.split_whitespace());
    sandbox.lattice(&words.collect::<Vec<_>>())
}

/// Collects the names of all commands without subcommands.
fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
        match sub.has_subcommands() {
            true => leaves(sub, &path, found),
            false => {
                found.insert(path);
            }
        }
    }
}

#[test]
fn every_command_is_listed_here() {
    let mut found = BTreeSet::new();
    leaves(&lattice_cli::command(), "", &mut found);
    let listed = COMMANDS.iter().map(|(name, ..)| (*name).to_owned());
    assert_eq!(found, listed.collect::<BTreeSet<_>>());
}

/// Returns what is wrong with a problem document.
fn problem_fault(problem: &Value, code: Option<i32>) -> Option<String> {
    for field in ["type", "title", "detail", "code"] {
        if !problem[field].is_string() {
            return Some(format!("no text in {field}"));
        }
    }
    let exit_code = problem["exit_code"].as_i64();
    (exit_code != code.map(i64::from)).then(|| format!("exit code {exit_code:?} in the document"))
}

#[test]
fn json_is_one_document_for_success_and_refusal() {
    let sandbox = prepared();
    let contexts = [Answers::Samples, Answers::Refusals].map(|answers| serve(&sandbox, answers));
    let mut wrong: Vec<String> = Vec::new();
    for &(name, args, outcome) in COMMANDS {
        if outcome == Covered {
            continue;
        }
        let done = run(&sandbox, &contexts[0], "json", (name, args));
        let mut check_json = |what: &str, done: &CommandResult| {
            wrong.push(format!("{name}: {what}: {done:?}"));
        };
        let Ok(document) = serde_json::from_str::<Value>(&done.stdout) else {
            check_json("not one JSON document", &done);
            continue;
        };
        match (outcome, done.code) {
            (Done, Some(0)) => {}
            (Done, _) => check_json("must succeed", &done),
            (Failed, Some(0)) => check_json("must fail", &done),
            (Failed, code) => {
                if let Some(fault) = problem_fault(&document, code) {
                    check_json(&fault, &done);
                }
            }
            (Either | Covered, _) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Commands that send no request are not refused, so they are skipped.
    let is_offline = |name: &str| {
        let offline = [
            "host ",
            "replay run",
            "replay compare",
            "replay sweep",
            "replay verify",
            "completions",
            "admin https",
            "admin context",
            "admin ca create",
            "admin ca issue",
            "admin certificate show",
            "admin quorum restore",
        ];
        offline.iter().any(|begin| name.starts_with(begin))
    };
    for &(name, args, outcome) in COMMANDS {
        if outcome == Covered || is_offline(name) {
            continue;
        }
        let args = args.replace("{run}", "refused");
        let done = run(&sandbox, &contexts[1], "json", (name, args.as_str()));
        let document = serde_json::from_str::<Value>(&done.stdout).unwrap_or_default();
        let fault = problem_fault(&document, Some(1));
        let is_refused = done.code == Some(1)
            && document["code"] == "limit_exceeded"
            && document["status"] == 409
            && document["violations"][0]["path"] == "atlas"
            && done.stderr.contains("the limit of atlas is 4 nodes");
        if !is_refused || fault.is_some() {
            wrong.push(format!(
                "{name}: not refused as a problem ({fault:?}): {done:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Collects the field names of a document, and the paths of nested fields joined by `_`.
fn field_names(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}_{name}").trim_start_matches('_').to_owned();
                found.extend([name.clone(), path.clone()]);
                field_names(value, &path, found);
                // The path within this field, and within the field that has it.
                field_names(value, name, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| {
            field_names(item, path, found);
            field_names(item, "", found);
        }),
        _ => {}
    }
}

fn is_snake_case(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('_')
        && !name.contains("__")
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[test]
fn csv_columns_are_unique_json_names() {
    let sandbox = prepared();
    let context = serve(&sandbox, Answers::Samples);
    let mut wrong: Vec<String> = Vec::new();
    for &(name, args, outcome) in COMMANDS {
        if matches!(outcome, Covered | Failed) {
            continue;
        }
        let done = run(&sandbox, &context, "csv", (name, args));
        if outcome == Either && done.stdout.is_empty() {
            continue;
        }
        let mut reader = csv::Reader::from_reader(done.stdout.as_bytes());
        let header: Vec<String> = reader
            .headers()
            .unwrap()
            .iter()
            .map(str::to_owned)
            .collect();
        let args = args.replace("{run}", "compared");
        let json = run(&sandbox, &context, "json", (name, args.as_str()));
        let document: Value = serde_json::from_str(&json.stdout).unwrap_or_default();
        let mut names = BTreeSet::new();
        field_names(&document, "", &mut names);
        let of_command = MAP_COLUMNS.iter().find(|(of, _)| *of == name);
        let of_map = of_command.map_or(&[][..], |(_, columns)| *columns);
        let foreign: Vec<&String> = header
            .iter()
            .filter(|column| !names.contains(*column) && !of_map.contains(&column.as_str()))
            .collect();
        let unique: BTreeSet<&String> = header.iter().collect();
        if header.is_empty() || !header.iter().all(|column| is_snake_case(column)) {
            wrong.push(format!("{name}: not snake case: {header:?}: {done:?}"));
        }
        if unique.len() != header.len() {
            wrong.push(format!("{name}: not unique: {header:?}"));
        }
        if !foreign.is_empty() {
            wrong.push(format!(
                "{name}: not in the JSON document: {foreign:?}: {names:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In 80 columns every list has one line per row, and the header is upper case.
#[test]
fn lists_fit_80_columns() {
    let sandbox = prepared();
    let context = serve(&sandbox, Answers::Samples);
    for name in [
        "status",
        "node list",
        "conformance drift",
        "admin vcluster list",
    ] {
        let mut words = vec!["--context", &context];
        words.extend(name.split(' '));
        let run = |columns: Option<&str>| {
            let mut command = sandbox.command(&words);
            command.env_remove("COLUMNS");
            command.envs(columns.map(|columns| ("COLUMNS", columns)));
            CommandResult::from(command.output().unwrap())
        };
        let (narrow, whole) = (run(Some("80")), run(None));
        assert_eq!(narrow.code, Some(0), "{narrow:?}");
        let lines: Vec<&str> = narrow.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{name}: {narrow:?}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{narrow:?}"
        );
        assert_eq!(lines[0].to_uppercase(), lines[0], "{name}");
        // Without a terminal, and without COLUMNS, rows are complete.
        assert_eq!(whole.stdout.lines().count(), 2, "{name}: {whole:?}");
        assert!(whole.stdout.len() >= narrow.stdout.len(), "{name}");
    }
}

#[test]
fn several_objects_have_one_list() {
    let sandbox = prepared();
    let samples = serve(&sandbox, Answers::Samples);
    let done = run(&sandbox, &samples, "json", ("cancel", "12 13_2"));
    assert_eq!(done.json().as_array().map(Vec::len), Some(2), "{done:?}");
    let one = run(&sandbox, &samples, "json", ("cancel", "12")).json();
    assert!(one.is_object() && one["id"].is_u64(), "{one}");
    let refusals = serve(&sandbox, Answers::Refusals);
    let done = run(&sandbox, &refusals, "json", ("cancel", "12 13_2"));
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let targets: Vec<&Value> = document
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["target"])
        .collect();
    assert_eq!(targets, ["12", "13_2"]);
    assert_eq!(done.code, Some(1));
    let yaml = run(&sandbox, &refusals, "yaml", ("cancel", "12"));
    let yaml: Value = serde_yaml_ng::from_str(&yaml.stdout).unwrap();
    assert_eq!(yaml["code"], "limit_exceeded");
    let csv = run(&sandbox, &refusals, "csv", ("cancel", "12"));
    assert_eq!((csv.code, csv.stdout.as_str()), (Some(1), ""));
}

#[test]
fn failure_without_answer_is_a_problem() {
    let sandbox = Sandbox::new();
    for (args, code, exit_code) in [
        (&["-o", "json", "cancel"][..], "usage", 2),
        (&["node", "lst", "--format=json"], "usage", 2),
        (&["-o", "json", "node", "list"], "unreachable", 3),
        (
            &["audit", "verify", "nothing", "--chain-only", "-ojson"],
            "failed",
            1,
        ),
    ] {
        let done = sandbox.lattice(args);
        assert_eq!(done.code, Some(exit_code), "{args:?}: {done:?}");
        let document: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(document["code"], code, "{args:?}");
        assert_eq!(problem_fault(&document, done.code), None, "{args:?}");
        assert!(!done.stderr.is_empty(), "{args:?}");
    }
    // Help is not a failure.
    let help = sandbox.lattice(&["-o", "json", "cancel", "--help"]);
    assert_eq!(help.code, Some(0), "{help:?}");
    assert!(help.stdout.contains("Usage: lattice cancel"), "{help:?}");
}

/// An element is looked up by its name before the audit is read; here both are refused.
#[test]
fn audit_of_an_array_element_is_found_by_its_name() {
    let sandbox = prepared();
    let refusals = serve(&sandbox, Answers::Refusals);
    for (allocation, code) in [("12", 1), ("12_7", 1), ("12_x", 2), ("0", 2)] {
        let args = format!("--allocation {allocation}");
        let done = run(&sandbox, &refusals, "json", ("audit query", &args));
        assert_eq!(done.code, Some(code), "{allocation}: {done:?}");
    }
}
