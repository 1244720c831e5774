//! Job scripts: flags in a script's own lines, before its first command.
//!
//! `#LATTICE` lines contain flags of `lattice submit`. `#SBATCH` lines contain those of Slurm: each is translated, or
//! rejected by name. None is ignored, so that no job waits with conditions that were not requested. For each flag, the
//! command line takes precedence over `#LATTICE`, and `#LATTICE` over `#SBATCH`.
//!
//! The functions here do no I/O; begin with [`read`].

mod gpus;
mod header;
mod pattern;
mod shell_split;
mod slurm;
mod values;

use super::flags::{CommandLineFlags, Flags, GivenFlag};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use header::Line;
use lattice_quorum_types::spec::{InvalidScript, check_script};
use std::fmt;
use values::Job;

/// Kind of a line with flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectiveKind {
    /// Line with flags of `lattice submit`.
    Lattice,
    /// Line with flags of Slurm.
    Slurm,
}

impl DirectiveKind {
    /// Returns the marker at the start of such a line.
    pub fn marker(self) -> &'static str {
        match self {
            Self::Lattice => "#LATTICE",
            Self::Slurm => "#SBATCH",
        }
    }
}

/// Flag of `lattice submit` that a script gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// Line number, from 1.
    pub line: usize,
    /// Kind of the line.
    pub kind: DirectiveKind,
    /// Option in that line: `--mem`.
    pub option: String,
    /// Flag of `lattice submit`.
    pub given: GivenFlag,
    /// Flag that this one accompanies: if that flag is overridden, so is this one.
    pub with: Option<&'static str>,
}

impl Directive {
    /// Returns the place in the script, without the file name.
    pub fn place(&self) -> String {
        format!("{}: {} {}", self.line, self.kind.marker(), self.option)
    }

    fn yields_to_flag(&self, flag: &str) -> bool {
        self.given.flag == flag || self.with == Some(flag)
    }
}

/// Input of [`read`] besides the text of the script.
pub struct ScriptContext<'a> {
    /// Default name of the allocation, if neither the command line nor the script gives one.
    pub name: Option<&'a str>,
    /// Flags of the command line.
    pub command_line: &'a CommandLineFlags,
}

/// Mistake in a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line number, from 1.
    pub line: usize,
    /// Faulty part of the line.
    pub at: String,
    /// What is wrong, and what to do instead.
    pub reason: String,
}

/// Flags of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// Flags of `lattice submit`, by line. If both kinds of lines give a flag, only that of `#LATTICE` is kept. Flags
    /// that the command line overrides are still included.
    pub directives: Vec<Directive>,
    /// Mistakes, by line. Faulty flags are not included in `directives`.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.line, self.at, self.reason)
    }
}

/// Checks that a text is a script that nodes can run. `name`: the script in the error text.
///
/// # Errors
/// The first fault, with its line and the remedy.
pub fn check_text(text: &str, name: &str) -> Result<(), String> {
    check_script(text).map_err(|fault| {
        let place = fault.line().map(|line| format!(":{line}"));
        let place = place.unwrap_or_default();
        let hint = match fault {
            InvalidScript::NoInterpreter => {
                "; a command is written after --, as lattice submit -- hostname"
            }
            _ => "",
        };
        format!("script {name}{place}: {fault}{hint}")
    })
}

/// Reads the lines of a script that contain flags.
pub fn read(text: &str, outside: &ScriptContext<'_>) -> Header {
    let header = header::read(text);
    let mut faults = header.faults;
    let mut ours: Vec<Directive> = Vec::new();
    let mut theirs: Vec<slurm::SlurmDirective<'_>> = Vec::new();
    for line in &header.lines {
        let read = match line.kind {
            DirectiveKind::Lattice => lattice_line(line, &mut ours),
            DirectiveKind::Slurm => slurm::line(line, &mut theirs),
        };
        faults.extend(read.err());
    }
    if !theirs
        .iter()
        .any(|said| said.option.long == slurm::IGNORE_PBS)
    {
        faults.extend(header.other_systems);
    }
    let job = Job::of(|long| slurm::value(&theirs, long), &ours, outside);
    let mut all: Vec<Directive> = Vec::new();
    for said in &theirs {
        match slurm_option(said, &job, &all) {
            Ok(more) => all.extend(more),
            Err(fault) => faults.push(fault),
        }
    }
    faults.sort_by_key(|fault| fault.line);
    all.retain(|theirs| {
        !ours
            .iter()
            .any(|ours| theirs.yields_to_flag(&ours.given.flag))
    });
    all.extend(ours);
    all.sort_by_key(|directive| directive.line);
    Header {
        directives: all,
        faults,
    }
}

/// Returns the arguments of the script's flags, then those of the command line. A script flag that the command line
/// also gives is dropped.
pub fn merge_flags(script: &[Directive], command_line: &CommandLineFlags) -> Vec<String> {
    let is_left = |directive: &&Directive| {
        !command_line
            .0
            .iter()
            .any(|given| directive.yields_to_flag(&given.flag))
    };
    let script = script
        .iter()
        .filter(is_left)
        .map(|directive| &directive.given);
    script
        .chain(&command_line.0)
        .flat_map(|given| given.words.clone())
        .collect()
}

fn fault(line: &Line<'_>, option: &str, reason: impl Into<String>) -> Fault {
    let marker = line.kind.marker();
    Fault {
        line: line.number,
        at: format!("{marker} {option}").trim_end().to_owned(),
        reason: reason.into(),
    }
}

/// Formats an error of clap on one line.
pub fn one_line_error(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    if let (ErrorKind::UnknownArgument, Some(word)) =
        (error.kind(), context(ContextKind::InvalidArg))
    {
        return match context(ContextKind::SuggestedArg) {
            Some(known) => format!("unknown option {word:?}; did you mean {known}?"),
            None => format!("unknown option {word:?}"),
        };
    }
    let text = error.to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

/// Reads the flags of a `#LATTICE` line. Only a flag that takes several values may occur on more than one line.
fn lattice_line(line: &Line<'_>, all: &mut Vec<Directive>) -> Result<(), Fault> {
    let words = shell_split::split(line.text).map_err(|reason| fault(line, "", reason))?;
    let command = Flags::command();
    let matches = command.clone().try_get_matches_from(words);
    let matches = matches.map_err(|error| fault(line, "", lattice_reason(&error)))?;
    for given in GivenFlag::all(&matches) {
        let option = format!("--{}", given.flag);
        let argument = command
            .get_arguments()
            .find(|a| a.get_long() == Some(&given.flag));
        let may_repeat =
            argument.is_some_and(|a| matches!(a.get_action(), clap::ArgAction::Append));
        let before = all
            .iter()
            .find(|directive| directive.given.flag == given.flag);
        if let Some(before) = before.filter(|before| !may_repeat && before.line != line.number) {
            let reason = format!("option already set on line {}; set it once", before.line);
            return Err(fault(line, &option, reason));
        }
        all.push(Directive {
            line: line.number,
            kind: DirectiveKind::Lattice,
            option,
            given,
            with: None,
        });
    }
    Ok(())
}

/// Describes a parse error of a `#LATTICE` line. A flag that is valid only on the command line gets its own text.
fn lattice_reason(error: &clap::Error) -> String {
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return one_line_error(error),
    };
    let outside = [
        "--script",
        "--dry-run",
        "--idempotency-key",
        "--context",
        "--format",
        "--help",
    ];
    match outside.contains(&word.as_str()) {
        true => format!("{word} belongs on the command line"),
        false => one_line_error(error),
    }
}

/// Translates one option of Slurm. `before` holds the flags of earlier options: a flag that agrees with one of them is
/// dropped, a contradiction is an error.
fn slurm_option(
    said: &slurm::SlurmDirective<'_>,
    job: &Job<'_>,
    before: &[Directive],
) -> Result<Vec<Directive>, Fault> {
    let line = said.line;
    let option = format!("--{}", said.option.long);
    let fail = |reason: String| fault(line, &option, reason);
    let mut all: Vec<Directive> = Vec::new();
    for word in said.option.read(&said.value, job).map_err(fail)? {
        let text = match &word.value {
            Some(value) => format!("--{}={value}", word.flag),
            None => format!("--{}", word.flag),
        };
        match all
            .iter_mut()
            .find(|directive| directive.given.flag == word.flag)
        {
            Some(directive) => directive.given.words.push(text),
            None => all.push(Directive {
                line: line.number,
                kind: DirectiveKind::Slurm,
                option: option.clone(),
                given: GivenFlag {
                    flag: word.flag.to_owned(),
                    words: vec![text],
                },
                with: word.with,
            }),
        }
    }
    for directive in &all {
        check_flag(&directive.given).map_err(fail)?;
    }
    let mut kept = Vec::new();
    for directive in all {
        let flag = &directive.given.flag;
        match before.iter().find(|before| before.given.flag == *flag) {
            None => kept.push(directive),
            Some(before) if before.given.words == directive.given.words => {}
            Some(before) => {
                let (place, flag) = (before.line, flag);
                let other = &before.option;
                return Err(fail(format!(
                    "conflicts with {other} on line {place} (both set --{flag}); remove one of them"
                )));
            }
        }
    }
    Ok(kept)
}

/// Checks that the flag exists, and that its value is valid.
fn check_flag(given: &GivenFlag) -> Result<(), String> {
    let command = Flags::command();
    let is_flag = command
        .get_arguments()
        .any(|a| a.get_long() == Some(given.flag.as_str()));
    if !is_flag {
        return Err("it is not supported yet; leave it out".to_owned());
    }
    let read = command.try_get_matches_from(&given.words);
    read.map(drop).map_err(|error| one_line_error(&error))
}

#[cfg(test)]
mod tests;
