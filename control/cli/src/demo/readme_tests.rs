//! Commands of the project's README: each is accepted by the command line, and names only what the demo has.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::{fixtures::Fixtures, scenario};
use crate::Cli;
use clap::Parser as _;
use lattice_quorum_types::{NodeId, hostlist};
use std::{collections::BTreeSet, fs, path::Path};

/// Sections with commands for other clusters.
const OTHER_CLUSTERS: [&str; 1] = ["## Cluster setup"];

/// Names that commands of the README create before they use them.
const CREATED: [&str; 1] = ["ml"];

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    fs::read_to_string(path).unwrap()
}

/// Splits a command line at spaces. Single quotes keep a word together; `#` begins a comment, and `>` and `&` end the
/// arguments.
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
            '#' | '>' | '&' if !is_quoted && word.is_empty() => return words,
            _ => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Commands of the code blocks, with the section of each.
fn commands(text: &str) -> Vec<(String, Vec<String>)> {
    let (mut section, mut is_code, mut begun) = (String::new(), false, String::new());
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && line.starts_with("## ") {
            section = line.to_owned();
        }
        let line = line.strip_prefix("$ ").unwrap_or(line);
        if !is_code || (begun.is_empty() && !line.starts_with("lattice ")) {
            continue;
        }
        match line.strip_suffix('\\') {
            Some(part) => begun.push_str(part),
            None => {
                begun.push_str(line);
                commands.push((section.clone(), words(&begun)));
                begun.clear();
            }
        }
    }
    commands
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
        if let Err(error) = Cli::try_parse_from(&command) {
            panic!("{section}: {}: {error}", command.join(" "));
        }
    }
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
