//! Short options of `lattice submit` with their value in the same word: `-N4`, as Slurm's users write it.
//!
//! SCRIPT accepts words that begin with a dash, because the options after it belong to the script. clap therefore reads
//! `-N4` as SCRIPT: `4` is not the letter of an option.

use clap::{Arg, Command};
use std::{
    ffi::{OsStr, OsString},
    iter::Peekable,
    vec::IntoIter,
};

/// Splits `-N4` into `-N` and `4` wherever it is an option of `submit`: not in the words of another subcommand, nor in
/// those after the script or `--`. `command` is the whole command line, and `words` begins with the program.
pub fn separate(command: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let mut words = words.into_iter().peekable();
    let mut kept: Vec<OsString> = words.next().into_iter().collect();
    let mut known: Vec<&Arg> = command.get_arguments().collect();
    copy_options(&known, &mut words, &mut kept);
    if words.peek().is_some_and(|word| word == "submit") {
        kept.extend(words.next());
        let submit = command.find_subcommand("submit");
        known.extend(submit.into_iter().flat_map(|submit| submit.get_arguments()));
        copy_options(&known, &mut words, &mut kept);
    }
    kept.extend(words);
    kept
}

/// Moves options with their values, up to the first word that is neither.
fn copy_options(
    known: &[&Arg],
    words: &mut Peekable<IntoIter<OsString>>,
    kept: &mut Vec<OsString>,
) {
    while let Some(word) = words.next_if(|word| is_option(word)) {
        let text = word.to_str().unwrap_or_default();
        let is_value_next = match text.strip_prefix("--") {
            Some(long) => {
                let option = known.iter().find(|arg| arg.get_long() == Some(long));
                option.is_some_and(|arg| needs_value(arg))
            }
            None => {
                let mut letters = text.strip_prefix('-').unwrap_or_default().chars();
                let short = letters.next();
                let mut shorts = known.iter();
                let option = shorts.find(|arg| short.is_some() && arg.get_short() == short);
                let value = letters.as_str();
                let takes_value = option.is_some_and(|arg| needs_value(arg));
                if takes_value && !value.is_empty() {
                    let option = text.strip_suffix(value).unwrap_or_default();
                    kept.push(option.into());
                    kept.push(value.strip_prefix('=').unwrap_or(value).into());
                    continue;
                }
                takes_value
            }
        };
        kept.push(word);
        if is_value_next {
            kept.extend(words.next());
        }
    }
}

/// Whether the word is an option, and not `--` or `-`.
fn is_option(word: &OsStr) -> bool {
    let text = word.to_str().unwrap_or_default();
    text.len() > 1 && text.starts_with('-') && text != "--"
}

fn needs_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn only_options_before_the_script_are_split() {
        for (line, expected) in [
            ("-N4 -t=1h -pa j.sh -N9", "-N 4 -t 1h -p a j.sh -N9"),
            ("-N 4 -w -N1 -- run -t1h", "-N 4 -w -N1 -- run -t1h"),
            (
                "--nodes 4 --walltime=1h -xn1 -",
                "--nodes 4 --walltime=1h -x n1 -",
            ),
            (
                "--wait-for-limit -N1 --dry-run j.sh",
                "--wait-for-limit -N 1 --dry-run j.sh",
            ),
            ("-ojson -h -Z9 -N1 j.sh", "-o json -h -Z9 -N 1 j.sh"),
            ("-N", "-N"),
        ] {
            let split = |before: &str| {
                let words = format!("{before} {line}");
                let words = words.split(' ').map(OsString::from).collect();
                let words = separate(&crate::Cli::command(), words);
                let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
                words.join(" ")
            };
            assert_eq!(
                split("lattice submit"),
                format!("lattice submit {expected}")
            );
            let other = "lattice --context c status";
            assert_eq!(split(other), format!("{other} {line}"));
            let shared = "lattice -oyaml --context submit submit";
            assert_eq!(
                split(shared),
                format!("lattice -o yaml --context submit submit {expected}")
            );
        }
    }
}
