//! Energy prices: periodic reading of a file or URL, and publication of the price in force.

use super::{SourceError, TICK, note, parsed, put, web, without_query, wrong};
use crate::{
    core::Core,
    inputs::{
        Source,
        energy::{self, Series},
    },
    scheduling_config::{EnergyPriceConfig, seconds},
    web_client::{DiskFile, WebClient},
};
use lattice_quorum_types::UnixMillis;
use reqwest::{Client, Url};
use std::{path::PathBuf, time::Duration};
use tokio::{sync::watch, time::sleep};

/// Source of energy prices.
#[derive(Debug, Clone)]
pub struct Prices {
    pub(crate) origin: Origin,
    pub(crate) refresh: Duration,
    pub(crate) deadline: Duration,
    pub(crate) tick: Duration,
}

/// Origin of the prices: a file or a URL.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    File(PathBuf),
    Url(WebClient, Url),
}

impl Prices {
    pub(super) fn new(config: &EnergyPriceConfig, client: &Client) -> Result<Self, SourceError> {
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

    /// Runs two loops concurrently: while a read hangs, the last series stays in use.
    pub async fn follow(self, core: &Core) {
        let (read, series) = watch::channel(None);
        tokio::join!(self.read(core, &read), self.apply(core, series));
    }

    async fn read(&self, core: &Core, read: &watch::Sender<Option<Series>>) {
        let (most, deadline) = (energy::MOST_BYTES, self.deadline);
        let mut file = match &self.origin {
            Origin::File(path) => Some(DiskFile::new(path.clone(), deadline, most)),
            Origin::Url(..) => None,
        };
        loop {
            let came = match (&self.origin, &mut file) {
                (Origin::Url(web, url), _) => web.get(url).await,
                (Origin::File(_), Some(file)) => file.read().await,
                // A file origin always has its file set.
                (Origin::File(_), None) => return,
            };
            let came = match came {
                Ok(bytes) => parse(bytes).await,
                Err(error) => Err(error.to_string()),
            };
            let came = came.and_then(|series| {
                let current = check_current(&series, core.now());
                read.send_replace(Some(series));
                current
            });
            let came = came.map_err(|why| format!("{}: {why}", self.origin));
            note(core, &Source::EnergyPrice, came);
            sleep(self.refresh).await;
        }
    }

    /// Stores the price in force in the view whenever it changes.
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
            Self::Url(_, url) => f.write_str(without_query(url.as_str())),
        }
    }
}

/// Rejects a series that has ended.
pub(super) fn check_current(series: &Series, now: UnixMillis) -> Result<(), String> {
    let ends_at = series.ends_at();
    match now >= ends_at {
        true => Err(format!(
            "the price series ended at {}; no current price",
            lattice_api::text::time(ends_at)
        )),
        false => Ok(()),
    }
}

/// Parses a series on a blocking thread, since it may have many lines.
pub(super) async fn parse(bytes: Vec<u8>) -> Result<Series, String> {
    let parsed = tokio::task::spawn_blocking(move || Series::parse(&bytes)).await;
    let parsed = parsed.map_err(|_| "price reading task panicked".to_owned())?;
    parsed.map_err(|faults| faults.to_string())
}
