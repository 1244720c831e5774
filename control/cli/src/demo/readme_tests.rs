//! Commands of the project's README: each is accepted by the command line, names only what the demo has, and uses only
//! numbers and files of earlier commands.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::{fixtures::Fixtures, scenario};
use crate::Cli;
use clap::{Parser as _, ValueHint, parser::ValueSource};
use lattice_client::JobRef;
use lattice_quorum_types::{NodeId, hostlist};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Sections with commands for other clusters. The blocks of such a section are one sequence of commands.
const OTHER_CLUSTERS: [&str; 1] = ["## Cluster setup"];

/// Names that commands of the README create before they use them.
const CREATED: [&str; 1] = ["ml"];

/// Commands with the number of an allocation.
const OF_ALLOCATIONS: [&str; 11] = [
    "cancel",
    "checkpoint",
    "extend",
    "hold",
    "logs",
    "release",
    "requeue",
    "resume",
    "status",
    "suspend",
    "why",
];
/// Commands below `dag` with the number of a DAG.
const OF_DAGS: [&str; 3] = ["cancel", "graph", "status"];

/// Arguments with files that a command writes, by the name of the command; empty: of every command.
const OUTPUTS: [(&str, &str); 7] = [
    ("", "html"),
    ("", "out"),
    ("", "output"),
    ("", "save"),
    ("", "schedule"),
    ("audit export", "file"),
    ("admin quorum backup", "file"),
];

/// Code block with its section.
struct Block {
    section: String,
    steps: Vec<Step>,
}

/// Effect of a line of a code block.
enum Step {
    /// Runs `lattice`. A shell variable may take the output.
    Command {
        words: Vec<String>,
        variable: Option<String>,
    },
    /// Writes a file.
    File(String),
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

/// Splits a command line at spaces. Single quotes keep a word together; `#` begins a comment, and `>`, `&` and `|` end
/// the arguments.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            '#' | '>' | '&' | '|' if !is_quoted && word.is_empty() => return words,
            _ => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Splits `NAME=$(COMMAND)` into both; any other line has no variable.
fn command_substitution(line: &str) -> (Option<String>, &str) {
    let split = line
        .split_once("=$(")
        .and_then(|(name, rest)| Some((name, rest.rsplit_once(')')?.0)));
    match split.filter(|(name, _)| !name.contains(' ')) {
        Some((name, command)) => (Some(name.to_owned()), command),
        None => (None, line),
    }
}

/// Reads the lines of a code block. A configuration file begins with its name, as a comment.
fn steps(language: &str, body: &[&str]) -> Vec<Step> {
    if language == "yaml" {
        let name = body.first().and_then(|line| line.strip_prefix("# "));
        let name = name.and_then(|line| line.split([' ', ';', ',']).next());
        let name = name.filter(|name| name.ends_with(".yaml"));
        return name
            .map(|name| Step::File(name.to_owned()))
            .into_iter()
            .collect();
    }
    let (mut steps, mut lines) = (Vec::new(), body.iter().copied());
    while let Some(line) = lines.next() {
        let mut line = line.strip_prefix("$ ").unwrap_or(line).to_owned();
        while let Some(begun) = line.strip_suffix('\\') {
            line = format!("{begun}{}", lines.next().unwrap_or_default());
        }
        if line.ends_with("<<END") {
            lines
                .by_ref()
                .take_while(|line| *line != "END")
                .for_each(drop);
        }
        let (variable, command) = command_substitution(&line);
        if command.starts_with("lattice ") {
            steps.push(Step::Command {
                words: words(command),
                variable,
            });
        }
        if let Some((_, file)) = line.split_once(" > ") {
            let file = file.split_whitespace().next().unwrap_or_default();
            steps.push(Step::File(file.to_owned()));
        }
    }
    steps
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut section, mut blocks, mut lines) = (String::new(), Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body: Vec<&str> = lines
                .by_ref()
                .take_while(|line| !line.starts_with("```"))
                .collect();
            blocks.push(Block {
                section: section.clone(),
                steps: steps(language, &body),
            });
        } else if line.starts_with("## ") {
            section = line.to_owned();
        }
    }
    blocks
}

/// Commands of the code blocks, with the section of each.
fn commands(text: &str) -> Vec<(String, Vec<String>)> {
    let mut commands = Vec::new();
    for block in blocks(text) {
        for step in block.steps {
            if let Step::Command { words, .. } = step {
                commands.push((block.section.clone(), words));
            }
        }
    }
    commands
}

/// Returns the arguments with a number in place of each variable.
fn with_numbers(command: &[String]) -> Vec<String> {
    let number = |word: &String| match word.starts_with('$') {
        true => "7".to_owned(),
        false => word.clone(),
    };
    command.iter().map(number).collect()
}

/// Returns the number of an allocation or a DAG in a command. The demo may not have it.
fn fixed_number(command: &[String]) -> Option<&str> {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let arguments = match command.as_slice() {
        ["lattice", "dag", verb, arguments @ ..] if OF_DAGS.contains(verb) => arguments,
        ["lattice", verb, arguments @ ..] if OF_ALLOCATIONS.contains(verb) => arguments,
        _ => return None,
    };
    let mut ids = arguments.iter().take_while(|word| !word.starts_with('-'));
    ids.find(|word| word.parse::<JobRef>().is_ok()).copied()
}

/// Returns the files that a command reads, and those that it writes.
fn files(command: &[String]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut definition = crate::command();
    let matches = definition
        .clone()
        .try_get_matches_from(with_numbers(command));
    let matches = matches.unwrap();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    let (mut level, mut name) = (&matches, String::new());
    loop {
        let is_path = |arg: &&clap::Arg| arg.get_value_hint() == ValueHint::AnyPath;
        for arg in definition.get_arguments().filter(is_path) {
            let id = arg.get_id().as_str();
            if level.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let is_output = OUTPUTS
                .iter()
                .any(|(of, output)| *output == id && (of.is_empty() || *of == name));
            let values = level.get_raw(id).into_iter().flatten().map(PathBuf::from);
            match is_output {
                true => outputs.extend(values),
                false => inputs.extend(values),
            }
        }
        let Some((verb, below)) = level.subcommand() else {
            break;
        };
        let next = definition.find_subcommand(verb).cloned().unwrap();
        (definition, level) = (next, below);
        name = format!("{name} {verb}").trim_start().to_owned();
    }
    // A renewal replaces the files of a folder.
    if command.iter().any(|word| word == "--renew") {
        inputs.extend(outputs.iter().cloned());
    }
    (inputs, outputs)
}

/// Value of an option, in the form `--option VALUE`.
fn option<'a>(command: &'a [String], name: &str) -> Option<&'a str> {
    let at = command.iter().position(|word| word == name)?;
    command.get(at + 1).map(String::as_str)
}

#[test]
fn every_command_is_accepted_by_the_command_line() {
    let commands = commands(&readme());
    assert!(commands.len() > 50, "{} commands", commands.len());
    for (section, command) in commands {
        if let Err(error) = Cli::try_parse_from(with_numbers(&command)) {
            panic!("{section}: {}: {error}", command.join(" "));
        }
    }
}

#[test]
fn numbers_are_those_that_earlier_commands_printed() {
    let fixed = |line: &str| fixed_number(&words(line)).map(str::to_owned);
    assert_eq!(fixed("lattice logs 2 --rank 1").as_deref(), Some("2"));
    assert_eq!(fixed("lattice dag graph 12 --dot").as_deref(), Some("12"));
    assert_eq!(fixed("lattice cancel $id 13_2").as_deref(), Some("13_2"));
    assert_eq!(fixed("lattice extend $id +30m"), None);
    let mut used = 0;
    for block in blocks(&readme()) {
        let mut known: BTreeSet<String> = BTreeSet::new();
        for step in block.steps {
            let Step::Command { words, variable } = step else {
                continue;
            };
            let shown = words.join(" ");
            for name in words.iter().filter_map(|word| word.strip_prefix('$')) {
                assert!(known.contains(name), "${name} has no value: {shown}");
                used += 1;
            }
            assert_eq!(fixed_number(&words), None, "{shown}");
            known.extend(variable);
        }
    }
    assert!(used >= 6, "{used} variables");
}

#[test]
fn files_exist_or_are_made_by_earlier_commands() {
    let (mut section, mut made) = (String::new(), BTreeSet::new());
    let (mut read, mut written) = (0, 0);
    for block in blocks(&readme()) {
        if block.section != section || !OTHER_CLUSTERS.contains(&section.as_str()) {
            made.clear();
        }
        section = block.section;
        for step in block.steps {
            let words = match step {
                Step::Command { words, .. } => words,
                Step::File(name) => {
                    made.insert(PathBuf::from(name));
                    continue;
                }
            };
            let (inputs, outputs) = files(&words);
            for input in &inputs {
                let is_made = made.iter().any(|made| input.starts_with(made));
                let (shown, input) = (words.join(" "), input.display());
                assert!(
                    is_made || root().join(input.to_string()).exists(),
                    "no command of the block makes {input}: {shown}"
                );
            }
            read += inputs.len();
            written += outputs.len();
            made.extend(outputs);
        }
    }
    assert!(
        read >= 14 && written >= 10,
        "{read} read, {written} written"
    );
}

#[test]
fn commands_name_projects_tenants_and_vclusters_of_the_demo() {
    let known: BTreeSet<&str> = scenario::tree(24).map(|(path, _)| path).into();
    let (mut checked, text) = (0, readme());
    let commands = commands(&text);
    let of_demo =
        |(section, _): &&(String, Vec<String>)| !OTHER_CLUSTERS.contains(&section.as_str());
    for (_, command) in commands.iter().filter(of_demo) {
        let shown = command.join(" ");
        let mut names: Vec<&str> = ["--project", "-p", "--tenant"]
            .iter()
            .filter_map(|name| option(command, name))
            .collect();
        names.extend(
            option(command, "--tenants")
                .into_iter()
                .flat_map(|t| t.split(',')),
        );
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        if let ["lattice", "project", "set" | "headroom", path, ..]
        | ["lattice", "admin", "tenant", "update", path, ..] = words.as_slice()
        {
            names.push(*path);
        }
        checked += names.len();
        for name in names {
            assert!(known.contains(name), "{name}: {shown}");
        }
        if let Some(vcluster) = option(command, "--vcluster") {
            assert!(CREATED.contains(&vcluster), "{vcluster}: {shown}");
        }
    }
    assert!(checked >= 8, "{checked} names");
    // Projects in the members of a DAG.
    let members = text.lines().filter(|line| line.starts_with("- {name: "));
    for part in members.filter_map(|line| line.split("project: ").nth(1)) {
        let name = part.split(',').next().unwrap();
        assert!(known.contains(name), "{name}");
    }
}

#[test]
fn commands_name_nodes_of_the_demo() {
    let here = NodeId::new("here").unwrap();
    let nodes = Fixtures::of_checkout().nodes(24, here).unwrap();
    let known: BTreeSet<String> = nodes.iter().map(|node| node.name.to_string()).collect();
    let mut checked = 0;
    for (section, command) in commands(&readme()) {
        // A token may name nodes that do not exist yet.
        let is_token = command.get(2).is_some_and(|word| word == "token");
        if OTHER_CLUSTERS.contains(&section.as_str()) || is_token {
            continue;
        }
        let lists = command.iter().filter_map(|word| {
            let word = word.strip_prefix("agent/").unwrap_or(word);
            word.starts_with("gpu").then_some(word)
        });
        for list in lists.filter(|list| list.contains(|c: char| c.is_ascii_digit())) {
            for node in hostlist::expand(list).unwrap() {
                assert!(
                    known.contains(&node.to_string()),
                    "{node}: {}",
                    command.join(" ")
                );
                checked += 1;
            }
        }
    }
    assert!(checked >= 12, "{checked} nodes");
}
