//! Sources of scheduling inputs named in section `scheduling` of the configuration, with the tasks that poll them.

mod online;
mod prices;
mod readiness;
mod utilisation;

pub use online::check_sources;
#[cfg(test)]
pub(crate) use prices::Origin;
pub(crate) use prices::Prices;
pub(crate) use readiness::Readiness;
pub(crate) use utilisation::Utilisation;

use super::{
    Inputs, Source, System,
    energy::{self, Series},
};
use crate::{
    core::{Core, Wakes},
    metrics_source::{self, Metrics},
    scheduling_config::{SchedulingConfig, seconds},
    web_client::{self, ClientError, Trust, WebClient},
};
use lattice_config::Problems;
use reqwest::{Client, Url};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Interval for checking the price in force and the pending allocations.
const TICK: Duration = Duration::from_secs(1);

/// Failure to set up a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The HTTP client cannot be created.
    #[error("scheduling: {reason}")]
    Client {
        /// Why the client cannot be created.
        reason: String,
    },
    /// A value of the configuration cannot be used.
    #[error("scheduling.{key}: {reason}")]
    Key {
        /// Configuration key below `scheduling`.
        key: String,
        /// Why the value cannot be used.
        reason: String,
    },
}

impl From<ClientError> for SourceError {
    fn from(error: ClientError) -> Self {
        Self::Client {
            reason: lattice_host::error_text::with_causes(&error),
        }
    }
}

/// All configured sources, ready for requests.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Sources that are requested at intervals.
    pub requests: Vec<SourceRequest>,
    /// Prometheus client for the metrics by which services scale.
    pub metrics: Option<Metrics>,
    budgets: Vec<(String, u64)>,
}

/// One configured source.
#[derive(Debug, Clone)]
pub enum SourceRequest {
    Prices(Prices),
    Readiness(Readiness),
    Utilisation(Utilisation),
}

impl Sources {
    /// Sets up the sources of a validated `scheduling` section and reads their tokens, without sending a request.
    ///
    /// # Errors
    /// Returns an error when a token file cannot be used, or TLS cannot be set up.
    pub fn new(config: &SchedulingConfig) -> Result<Self, SourceError> {
        let is_named = config.urls().next().is_some();
        if !is_named && config.energy_price.is_none() && config.storage.is_empty() {
            return Ok(Self::default());
        }
        let has_tls = config.urls().any(|url| url.starts_with("https"));
        let client = web_client::client(match has_tls {
            true => Trust::System,
            false => Trust::NoTls,
        })?;
        let mut asked = Vec::new();
        if let Some(energy) = &config.energy_price {
            asked.push(SourceRequest::Prices(Prices::new(energy, &client)?));
        }
        if let Some(readiness) = &config.data_readiness {
            asked.push(SourceRequest::Readiness(Readiness::new(
                readiness, &client,
            )?));
        }
        let mut budgets = Vec::new();
        for (system, storage) in &config.storage {
            budgets.push((system.clone(), storage.budget_mb_s()));
            if let Some(used) = &storage.utilisation {
                let utilisation = Utilisation::new(system, used, &client)?;
                asked.push(SourceRequest::Utilisation(utilisation));
            }
        }
        let metrics = config.prometheus.as_ref().map(|prometheus| {
            let (key, token) = ("prometheus", prometheus.token_file.as_ref());
            let most = metrics_source::MOST_BYTES;
            let web = web(&client, key, token, prometheus.deadline_s, most)?;
            let base = parsed(key, &prometheus.url)?;
            Ok::<_, SourceError>(Metrics::new(web, base))
        });
        Ok(Self {
            requests: asked,
            metrics: metrics.transpose()?,
            budgets,
        })
    }

    /// Stores in the view what is known before the first request: the total bandwidth of each storage system and the
    /// list of sources.
    pub fn begin(&self, core: &Core) {
        put(core, |inputs| {
            self.fill(inputs);
            !self.requests.is_empty() || !self.budgets.is_empty()
        });
    }

    fn fill(&self, inputs: &mut Inputs) {
        let has_source = |name: &str| {
            let is_of = |asked: &SourceRequest| matches!(asked, SourceRequest::Utilisation(u) if u.system == name);
            self.requests.iter().any(is_of)
        };
        let system = |(name, budget_mb_s): &(String, u64)| {
            let system = System {
                budget_mb_s: *budget_mb_s,
                has_source: has_source(name),
                ..System::default()
            };
            (name.clone(), system)
        };
        inputs.storage = Arc::new(self.budgets.iter().map(system).collect());
        let sources = self
            .requests
            .iter()
            .map(|asked| (asked.source(), <_>::default()));
        inputs.sources = Arc::new(sources.collect());
    }
}

/// Adds every mistake in the files that a `scheduling` section names: the prices, and the token of each source.
pub fn check_source_files(config: &SchedulingConfig, problems: &mut Problems) {
    let mut token = |key: &str, file: &Option<PathBuf>| {
        if let Some(path) = file
            && let Err(why) = web_client::check_token(path)
        {
            problems.add(format!("{key}.token_file"), why);
        }
    };
    if let Some(energy) = &config.energy_price {
        token("energy_price", &energy.token_file);
    }
    if let Some(readiness) = &config.data_readiness {
        token("data_readiness", &readiness.token_file);
    }
    if let Some(prometheus) = &config.prometheus {
        token("prometheus", &prometheus.token_file);
    }
    for (system, storage) in &config.storage {
        if let Some(used) = &storage.utilisation {
            token(&format!("storage.{system}.utilisation"), &used.token_file);
        }
    }
    if let Some(path) = config
        .energy_price
        .as_ref()
        .and_then(|energy| energy.file.as_ref())
        && let Err(why) = check_prices(path)
    {
        problems.add("energy_price.file", format!("{}: {why}", path.display()));
    }
}

/// Reads and parses a file of prices.
fn check_prices(path: &Path) -> Result<(), String> {
    let read = web_client::read_regular_file(path, energy::MOST_BYTES);
    let bytes = read.map_err(|error| error.to_string())?;
    Series::parse(&bytes).map_err(|faults| faults.to_string())?;
    Ok(())
}

impl SourceRequest {
    fn source(&self) -> Source {
        match self {
            Self::Prices(_) => Source::EnergyPrice,
            Self::Readiness(_) => Source::DataReadiness,
            Self::Utilisation(used) => Source::Storage(used.system.clone()),
        }
    }

    /// Reads the source for ever and stores its values in the view.
    pub async fn follow(self, core: Arc<Core>) {
        match self {
            Self::Prices(prices) => prices.follow(&core).await,
            Self::Readiness(readiness) => readiness.follow(&core).await,
            Self::Utilisation(used) => used.follow(&core).await,
        }
    }
}

/// Changes the inputs in the view; `edit` returns whether they changed. No reconciler is woken: the next scheduling
/// cycle reads the inputs.
fn put(core: &Core, edit: impl FnOnce(&mut Inputs) -> bool) {
    core.publish(Wakes::Readers, |view| edit(&mut view.inputs).then(Vec::new));
}

fn note(core: &Core, source: &Source, came: Result<(), String>) {
    let now = core.now();
    put(core, |inputs| {
        super::note(inputs, source, now, came);
        true
    });
}

/// A URL without query and fragment, which may contain secrets or names of users.
fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

fn web(
    client: &Client,
    key: &str,
    token_file: Option<&PathBuf>,
    deadline_s: u64,
    most: usize,
) -> Result<WebClient, SourceError> {
    let token_file = token_file.map(PathBuf::as_path);
    WebClient::new(client.clone(), token_file, seconds(deadline_s), most)
        .map_err(|error| wrong(key, error))
}

fn parsed(key: &str, url: &str) -> Result<Url, SourceError> {
    Url::parse(url).map_err(|error| wrong(key, format!("url: {error}")))
}

fn wrong(key: &str, reason: impl ToString) -> SourceError {
    SourceError::Key {
        key: key.to_owned(),
        reason: reason.to_string(),
    }
}
