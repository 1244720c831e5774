//! Files that a user gives to a command: YAML or JSON, read by the rules of the daemons' configuration files. One report
//! has all mistakes, each with its field.

use crate::failure::Failure;
use lattice_api::yaml;
use lattice_config::{ConfigErrors, Problems, Source, load_parts, read_part};
use serde::de::DeserializeOwned;
use serde_yaml_ng::Value;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Longest file, bytes: the longest request that a control reads.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the text of a file, or standard input for `-`.
///
/// # Errors
/// A file that is too long or cannot be read as text.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::usage(format!("{}: {error}", path.display()));
    let opened: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(failed)?),
    };
    let mut text = String::new();
    let mut bounded = opened.take(MAX_FILE_BYTES + 1);
    bounded.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let path = path.display();
        return Err(Failure::usage(format!(
            "{path}: larger than {MAX_FILE_BYTES} bytes"
        )));
    }
    Ok(text)
}

/// Reads the value in the text of the file `path`.
///
/// # Errors
/// All mistakes in the text.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Failure> {
    parse_parts(path, text, read_part)
}

/// Reads the text of the file `path` part by part, as [`load_parts`] does.
///
/// # Errors
/// All mistakes in the text.
pub fn parse_parts<T>(
    path: &Path,
    text: &str,
    read_parts: impl FnOnce(Value, &mut Problems) -> Option<T>,
) -> Result<T, Failure> {
    let read = |root: Value, problems: &mut Problems| {
        // Values without a JSON form would be sent as if they had been left out.
        if let Err(error) = yaml::all_finite(&root) {
            problems.add(error.field, error.reason);
        }
        read_parts(root, problems)
    };
    load_parts(Source::Text(text), read).map_err(|errors| failure(path, &errors))
}

fn failure(path: &Path, errors: &ConfigErrors) -> Failure {
    let path = path.display();
    match errors.problems() {
        [problem] => Failure::usage(format!("{path}: {problem}")),
        problems => {
            let lines = problems.iter().map(|problem| format!("\n  {problem}"));
            let lines: String = lines.collect();
            Failure::usage(format!("{path} has {} mistakes:{lines}", problems.len()))
        }
    }
}
