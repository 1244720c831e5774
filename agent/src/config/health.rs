//! Section `health` of the configuration file.

use super::ConfigError;
use crate::health::{HEALTH_INTERVAL, HealthSettings, site_table};
use lattice_config::{Check, Problems};
use lattice_conformance::health::Table;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Section `health`.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct HealthConfig {
    /// Mean seconds between two passes: each node spreads its own interval by a tenth.
    pub interval_s: u64,
    /// File with the site's changes to the shipped table of checks.
    pub table: Option<PathBuf>,
    /// Whether the agent listens to driver events: NVIDIA XIDs, and events of AMD's GPU driver and of NIC drivers.
    /// Default: true where `probe.root` is `/`.
    pub xids: Option<bool>,
    /// Whether all health checks are off.
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
    /// Reads the site's file and merges it into the shipped table. Returns `None` if no site file is configured.
    pub(super) fn table(&self) -> Result<Option<Table>, ConfigError> {
        let Some(path) = &self.table else {
            return Ok(None);
        };
        let table = site_table::read(path, Table::shipped()?).map_err(|source| {
            let path = path.clone();
            ConfigError::HealthTable { path, source }
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
