//! Checks of the files that the configuration names, for `--check-config`.

use super::{Config, ConfigError, Join, NvmlMode};
use crate::data_dir::DataDir;
use crate::with_causes;
use lattice_config::Problems;
use lattice_mesh::Credentials;
use std::fs::File;
use std::path::Path;

impl Config {
    /// Adds every mistake in the data directory, the join token, the health table, the user map, the hooks and the
    /// files of the probes. The join token is not read once the node is enrolled.
    pub(super) fn add_file_mistakes(&self, problems: &mut Problems) {
        problems.check_folder("data_dir", &self.data_dir);
        if DataDir::is_enrolled(&self.data_dir) {
            let folder = self.data_dir.join("identity");
            if let Err(error) = Credentials::load(&folder) {
                problems.add("data_dir", with_causes(&error));
            }
        } else if let Some(join) = &self.join {
            problems.check_part("join", |problems| join.add_token_mistake(problems));
        }
        match self.health.table() {
            Ok(_) => {}
            Err(ConfigError::HealthTable { path, source }) => {
                for problem in source.problems() {
                    problems.add("health.table", format!("{}: {problem}", path.display()));
                }
            }
            Err(error) => problems.add("health.table", with_causes(&error)),
        }
        problems.check_part("executor", |problems| {
            self.executor.add_file_mistakes(problems);
        });
        problems.check_part("probe", |problems| self.add_probe_mistakes(problems));
    }

    fn add_probe_mistakes(&self, problems: &mut Problems) {
        let root = &self.probe.root;
        if !root.is_dir() {
            problems.add("root", format!("{}: no such folder", root.display()));
        }
        let nvml = &self.probe.nvml;
        if nvml.source == NvmlMode::Recorded {
            check_readable(problems, "nvml.file", nvml.file.as_deref());
        }
        if nvml.source == NvmlMode::Driver {
            check_readable(problems, "nvml.library", nvml.library.as_deref());
        }
    }
}

/// Adds a mistake if the file cannot be opened for reading.
fn check_readable(problems: &mut Problems, key: &str, path: Option<&Path>) {
    if let Some(path) = path
        && let Err(error) = File::open(path)
    {
        problems.add(key, format!("{}: {error}", path.display()));
    }
}

impl Join {
    fn add_token_mistake(&self, problems: &mut Problems) {
        match (self.read_token(), &self.token_file) {
            (Ok(_), _) => {}
            (Err(ConfigError::TokenFile { path, source }), _) => {
                let path = path.display();
                let advice = format!("`lattice admin token create --out {path}` writes a token");
                problems.add("token_file", format!("{path}: {source}; {advice}"));
            }
            (Err(ConfigError::TokenExposed(exposed)), _) => {
                let text = format!("{exposed}; any user that can read it can enrol a node");
                problems.add("token_file", text);
            }
            (Err(ConfigError::Token { source, .. }), Some(path)) if self.token.is_none() => {
                problems.add("token_file", format!("{}: {source}", path.display()));
            }
            (Err(ConfigError::Token { source, .. }), _) => problems.add("token", source),
            // A missing token has a mistake of its own.
            (Err(_), _) => {}
        }
    }
}
