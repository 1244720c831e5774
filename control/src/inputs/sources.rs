//! The sources that a configuration names, each with the task that asks it.

use super::{
    Inputs, Source, System, answer,
    energy::{self, Series},
    fetch::{self, ClientError, FetchError, OnDisk, Web},
    readiness::{self, AskError, Turns},
    storage::{self, UsedError},
};
use crate::{
    config::scheduling::{
        BandwidthUnit, Counts, DataReadinessConfig, EnergyPriceConfig, SchedulingConfig,
        UtilisationConfig, filled, seconds,
    },
    core::{Core, Wakes},
};
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lattice_placement::Fraction;
use lattice_quorum_types::{Allocation, AllocationId, AllocationState};
use reqwest::{Client, Url};
use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

/// How often it is looked which price is in force, and who waits.
const TICK: Duration = Duration::from_secs(1);
/// Between two questions about readiness to a source that is not there.
const PAUSE: Duration = Duration::from_secs(5);

/// A source cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The client cannot be set up.
    #[error("scheduling: {reason}")]
    Client {
        /// Why.
        reason: String,
    },
    /// What the configuration names for a source.
    #[error("scheduling.{key}: {reason}")]
    Key {
        /// Below `scheduling`.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

impl From<ClientError> for SourceError {
    fn from(error: ClientError) -> Self {
        Self::Client {
            reason: crate::bmc::with_causes(&error),
        }
    }
}

/// Every source of a configuration, ready to be asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    pub(crate) asked: Vec<Asked>,
    budgets: Vec<(String, u64)>,
}

/// One source.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Prices(Prices),
    Readiness(Readiness),
    Utilisation(Utilisation),
}

/// Where prices come from.
#[derive(Debug, Clone)]
pub(crate) struct Prices {
    pub(crate) origin: Origin,
    pub(crate) refresh: Duration,
    pub(crate) deadline: Duration,
    pub(crate) tick: Duration,
}

/// A file or a URL.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    File(PathBuf),
    Url(Web, Url),
}

/// Who says how much is ready.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    pub(crate) web: Web,
    pub(crate) template: String,
    pub(crate) pace: readiness::Pace,
    pub(crate) tick: Duration,
}

/// Who says what is used of a storage system.
#[derive(Debug, Clone)]
pub(crate) struct Utilisation {
    pub(crate) system: String,
    pub(crate) web: Web,
    pub(crate) url: Url,
    pub(crate) pointer: String,
    pub(crate) unit: BandwidthUnit,
    pub(crate) counts: Counts,
    pub(crate) refresh: Duration,
    pub(crate) max_age: Duration,
}

impl Sources {
    /// Of a section that was checked. Reads the tokens; asks nobody yet.
    ///
    /// # Errors
    /// A file of a token that cannot be used, or TLS.
    pub(crate) fn new(config: &SchedulingConfig) -> Result<Self, SourceError> {
        let is_named = config.urls().next().is_some();
        if !is_named && config.energy_price.is_none() && config.storage.is_empty() {
            return Ok(Self::default());
        }
        let has_tls = config.urls().any(|url| url.starts_with("https"));
        let client = fetch::client(has_tls)?;
        let mut asked = Vec::new();
        if let Some(energy) = &config.energy_price {
            asked.push(Asked::Prices(Prices::new(energy, &client)?));
        }
        if let Some(readiness) = &config.data_readiness {
            asked.push(Asked::Readiness(Readiness::new(readiness, &client)?));
        }
        let mut budgets = Vec::new();
        for (system, storage) in &config.storage {
            budgets.push((system.clone(), storage.budget_mb_s()));
            if let Some(used) = &storage.utilisation {
                let utilisation = Utilisation::new(system, used, &client)?;
                asked.push(Asked::Utilisation(utilisation));
            }
        }
        Ok(Self { asked, budgets })
    }

    /// Reads the files that are sources.
    ///
    /// # Errors
    /// One that cannot be read, or is not what it should be.
    pub(crate) fn check_files(&self) -> Result<(), SourceError> {
        for asked in &self.asked {
            if let Asked::Prices(Prices {
                origin: origin @ Origin::File(path),
                ..
            }) = asked
            {
                let failed = |why: String| wrong("energy_price", format!("{origin}: {why}"));
                let read = fetch::whole(path, energy::MOST_BYTES);
                let bytes = read.map_err(|error| failed(error.to_string()))?;
                Series::parse(&bytes).map_err(|faults| failed(faults.to_string()))?;
            }
        }
        Ok(())
    }

    /// Puts into the view what is known before anybody was asked: the budgets, and who will be.
    pub(crate) fn begin(&self, core: &Core) {
        put(core, |inputs| {
            self.fill(inputs);
            !self.asked.is_empty() || !self.budgets.is_empty()
        });
    }

    fn fill(&self, inputs: &mut Inputs) {
        let has_source = |name: &str| {
            let is_of = |asked: &Asked| matches!(asked, Asked::Utilisation(u) if u.system == name);
            self.asked.iter().any(is_of)
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
            .asked
            .iter()
            .map(|asked| (asked.source(), <_>::default()));
        inputs.sources = Arc::new(sources.collect());
    }
}

impl Asked {
    fn source(&self) -> Source {
        match self {
            Self::Prices(_) => Source::EnergyPrice,
            Self::Readiness(_) => Source::DataReadiness,
            Self::Utilisation(used) => Source::Storage(used.system.clone()),
        }
    }

    /// Asks it for ever. What it says is put into the view.
    pub(crate) async fn follow(self, core: Arc<Core>) {
        match self {
            Self::Prices(prices) => prices.follow(&core).await,
            Self::Readiness(readiness) => readiness.follow(&core).await,
            Self::Utilisation(used) => used.follow(&core).await,
        }
    }
}

/// Changes what the sources said last; `false` is no change. Nothing is woken: the next cycle reads it.
fn put(core: &Core, edit: impl FnOnce(&mut Inputs) -> bool) {
    core.publish(Wakes::Readers, |view| edit(&mut view.inputs).then(Vec::new));
}

fn note(core: &Core, source: &Source, came: Result<(), String>) {
    let now = core.now();
    put(core, |inputs| {
        inputs.note(source, now, came);
        true
    });
}

/// A URL without what may be secret in it or name people.
fn bare(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

fn web(
    client: &Client,
    key: &str,
    token_file: Option<&PathBuf>,
    deadline_s: u64,
    most: usize,
) -> Result<Web, SourceError> {
    let token_file = token_file.map(PathBuf::as_path);
    Web::new(client.clone(), token_file, seconds(deadline_s), most)
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

impl Prices {
    fn new(config: &EnergyPriceConfig, client: &Client) -> Result<Self, SourceError> {
        let key = "energy_price";
        let origin = match (&config.file, &config.url) {
            (Some(file), _) => Origin::File(file.clone()),
            (None, Some(url)) => {
                let (token, deadline_s) = (config.token_file.as_ref(), config.deadline_s);
                let web = web(client, key, token, deadline_s, energy::MOST_BYTES)?;
                Origin::Url(web, parsed(key, url)?)
            }
            (None, None) => return Err(wrong(key, "give one of `file` and `url`")),
        };
        Ok(Self {
            origin,
            refresh: seconds(config.refresh_s),
            deadline: seconds(config.deadline_s),
            tick: TICK,
        })
    }

    /// Two loops side by side: while a reading hangs, the series that was read last goes on.
    async fn follow(self, core: &Core) {
        let (read, series) = watch::channel(None);
        tokio::join!(self.read(core, &read), self.apply(core, series));
    }

    async fn read(&self, core: &Core, read: &watch::Sender<Option<Series>>) {
        let (most, deadline) = (energy::MOST_BYTES, self.deadline);
        let mut file = match &self.origin {
            Origin::File(path) => Some(OnDisk::new(path.clone(), deadline, most)),
            Origin::Url(..) => None,
        };
        loop {
            let came = match (&self.origin, &mut file) {
                (Origin::Url(web, url), _) => web.get(url).await,
                (Origin::File(_), Some(file)) => file.read().await,
                // There is a file whenever the origin is one.
                (Origin::File(_), None) => return,
            };
            let came = match came {
                Ok(bytes) => parse(bytes).await,
                Err(error) => Err(error.to_string()),
            };
            let came = came.and_then(|series| {
                let (ends_at, now) = (series.ends_at(), core.now());
                read.send_replace(Some(series));
                match now >= ends_at {
                    true => Err(format!(
                        "it ended at {}; no price is in force",
                        lattice_api::text::time(ends_at)
                    )),
                    false => Ok(()),
                }
            });
            let came = came.map_err(|why| format!("{}: {why}", self.origin));
            note(core, &Source::EnergyPrice, came);
            sleep(self.refresh).await;
        }
    }

    /// Puts the price in force into the view whenever it is another one.
    async fn apply(&self, core: &Core, mut series: watch::Receiver<Option<Series>>) {
        loop {
            let now = core.now();
            let price = series.borrow_and_update().as_ref().and_then(|s| s.at(now));
            put(core, |inputs| {
                let is_news = inputs.energy != price;
                inputs.energy = price;
                is_news
            });
            tokio::select! {
                changed = series.changed() => if changed.is_err() { return },
                () = sleep(self.tick) => {}
            }
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(_, url) => f.write_str(bare(url.as_str())),
        }
    }
}

/// Reads a series where it holds up nobody: it may have many lines.
async fn parse(bytes: Vec<u8>) -> Result<Series, String> {
    let parsed = tokio::task::spawn_blocking(move || Series::parse(&bytes)).await;
    let parsed = parsed.map_err(|_| "reading it broke down".to_owned())?;
    parsed.map_err(|faults| faults.to_string())
}

type Answered = (AllocationId, Result<Option<Fraction>, AskError>);

impl Readiness {
    fn new(config: &DataReadinessConfig, client: &Client) -> Result<Self, SourceError> {
        let key = "data_readiness";
        let (token, deadline_s) = (config.token_file.as_ref(), config.deadline_s);
        Ok(Self {
            web: web(client, key, token, deadline_s, answer::MOST_BYTES)?,
            template: config.url.clone(),
            pace: readiness::Pace {
                refresh: seconds(config.refresh_s),
                max_age: seconds(config.max_age_s),
                at_a_time: config.at_a_time,
                pause: PAUSE,
            },
            tick: TICK,
        })
    }

    async fn follow(self, core: &Core) {
        let mut turns = Turns::new(self.pace);
        let mut asking: FuturesUnordered<BoxFuture<'static, Answered>> = FuturesUnordered::new();
        let mut came = None;
        let mut tick = Instant::now();
        loop {
            let now = Instant::now();
            if now >= tick {
                tick = now + self.tick;
                self.publish(core, &turns, came.take());
                turns.follow(&who_waits(core), now);
            }
            while let Some(id) = turns.next(now) {
                match core.view().allocation(id) {
                    Some(allocation) => asking.push(self.ask(allocation)),
                    // It has ended; the next look forgets it.
                    None => turns.came(id, &Ok(None), now),
                }
            }
            tokio::select! {
                Some((id, answer)) = asking.next() => {
                    turns.came(id, &answer, Instant::now());
                    let failure = |error| format!("{}: {error}", bare(&self.template));
                    came = Some(answer.map(drop).map_err(failure));
                }
                () = sleep_until(tick) => {}
            }
        }
    }

    fn publish(&self, core: &Core, turns: &Turns, came: Option<Result<(), String>>) {
        let (ready, now) = (turns.ready(Instant::now()), core.now());
        put(core, |inputs| {
            let is_news = came.is_some() || *inputs.data_ready != ready;
            if *inputs.data_ready != ready {
                inputs.data_ready = Arc::new(ready);
            }
            if let Some(came) = came {
                inputs.note(&Source::DataReadiness, now, came);
            }
            is_news
        });
    }

    fn ask(&self, of: &Allocation) -> BoxFuture<'static, Answered> {
        let url = filled(&self.template, |name| match name {
            "id" => Some(of.id.to_string()),
            "project" => Some(of.spec.project.to_string()),
            "user" => Some(of.user.clone()),
            _ => None,
        });
        let url = url.and_then(|url| Url::parse(&url).map_err(|error| error.to_string()));
        let (id, web) = (of.id, self.web.clone());
        Box::pin(async move {
            let asked = async {
                let reason = |reason| FetchError::Unreached { reason };
                let body = web.get(&url.map_err(reason)?).await?;
                Ok(readiness::read(&body)?)
            };
            (id, asked.await)
        })
    }
}

/// Allocations that wait, and whose request does not say how much of their data is ready.
fn who_waits(core: &Core) -> BTreeSet<AllocationId> {
    let view = core.view();
    let waits = |a: &&Arc<Allocation>| {
        a.state == AllocationState::Pending && a.spec.demand.data_ready_ppm.is_none()
    };
    view.allocations
        .values()
        .filter(waits)
        .map(|a| a.id)
        .collect()
}

impl Utilisation {
    fn new(system: &str, config: &UtilisationConfig, client: &Client) -> Result<Self, SourceError> {
        let key = format!("storage.{system}.utilisation");
        let (token, deadline_s) = (config.token_file.as_ref(), config.deadline_s);
        Ok(Self {
            system: system.to_owned(),
            web: web(client, &key, token, deadline_s, answer::MOST_BYTES)?,
            url: parsed(&key, &config.url)?,
            pointer: config.key.clone(),
            unit: config.unit,
            counts: config.counts,
            refresh: seconds(config.refresh_s),
            max_age: seconds(config.max_age_s),
        })
    }

    async fn follow(self, core: &Core) {
        let source = Source::Storage(self.system.clone());
        let promised = || core.view().promised.get(&self.system).copied().unwrap_or(0);
        // Until when the last answer counts.
        let mut until: Option<Instant> = None;
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                let before = promised();
                let came = self.used().await;
                next = Instant::now() + self.refresh;
                let came = came.map(|used| {
                    // What came or went while it was measured is taken for others'.
                    let others = storage::others(used, self.counts, before.min(promised()));
                    until = Some(Instant::now() + self.max_age);
                    self.say(core, Some(others));
                });
                let origin = bare(self.url.as_str());
                note(
                    core,
                    &source,
                    came.map_err(|why| format!("{origin}: {why}")),
                );
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                until = None;
                self.say(core, None);
            }
            sleep_until(until.map_or(next, |until| until.min(next))).await;
        }
    }

    async fn used(&self) -> Result<u64, UsedError> {
        let body = self.web.get(&self.url).await?;
        storage::used(&body, &self.pointer, self.unit)
    }

    fn say(&self, core: &Core, others_mb_s: Option<u64>) {
        put(core, |inputs| {
            let system = Arc::make_mut(&mut inputs.storage).get_mut(&self.system);
            let Some(system) = system else { return false };
            let is_news = system.others_mb_s != others_mb_s;
            system.says(others_mb_s);
            is_news
        });
    }
}
