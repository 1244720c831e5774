//! `health` of the configuration file.

use super::ConfigError;
use crate::health::{HEALTH_INTERVAL, HealthSettings};
use lattice_config::{Check, Problems};
use lattice_hwprobe::health::Table;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// `health`.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct HealthConfig {
    /// Seconds between two passes, about: each node spreads its own by a tenth.
    pub interval_s: u64,
    /// A file with what the site changes in the shipped table of checks.
    pub table: Option<PathBuf>,
    /// Whether events of GPUs (XIDs, and what AMD's driver tells) are listened to; where `probe.root`
    /// is `/` unless it is said.
    pub xids: Option<bool>,
    /// Look at nothing.
    pub disabled: bool,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            interval_s: HEALTH_INTERVAL.as_secs(),
            table: None,
            xids: None,
            disabled: false,
        }
    }
}

impl Check for HealthConfig {
    fn check(&self, problems: &mut Problems) {
        if !(1..=86_400).contains(&self.interval_s) {
            problems.add("interval_s", "must be 1 to 86400");
        }
    }
}

impl HealthConfig {
    /// Reads the site's file. `None`: the shipped table.
    pub(super) fn table(&self) -> Result<Option<Table>, ConfigError> {
        let Some(path) = &self.table else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path).map_err(|source| {
            let path = path.clone();
            ConfigError::HealthTable { path, source }
        })?;
        let table = Table::shipped().and_then(|shipped| shipped.with_site(&text));
        let table = table.map_err(|source| {
            let path = path.clone();
            ConfigError::HealthChecks { path, source }
        })?;
        Ok(Some(table))
    }

    pub(super) fn apply(self, settings: &mut HealthSettings) -> Result<(), ConfigError> {
        settings.table = self.table()?.map(Arc::new);
        settings.enabled = !self.disabled;
        settings.interval = Duration::from_secs(self.interval_s);
        if let Some(xids) = self.xids {
            settings.gpu_events = xids;
        }
        Ok(())
    }
}
