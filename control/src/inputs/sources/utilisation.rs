//! Utilisation of a storage system: asked again and again, and forgotten when it is too old.

use super::{SourceError, bare, note, parsed, put, web};
use crate::{
    config::scheduling::{BandwidthUnit, Counts, UtilisationConfig, seconds},
    core::Core,
    inputs::{
        Source, answer,
        fetch::Web,
        storage::{self, UsedError},
    },
};
use lattice_quorum_types::Revision;
use reqwest::{Client, Url};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

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

/// Resolves then; never without a time.
async fn passes(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

impl Utilisation {
    pub(super) fn new(
        system: &str,
        config: &UtilisationConfig,
        client: &Client,
    ) -> Result<Self, SourceError> {
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

    pub(super) async fn follow(self, core: &Core) {
        let source = Source::Storage(self.system.clone());
        let promised = || core.view().promised.get(&self.system).copied().unwrap_or(0);
        // Before the state is read nothing seems promised: our own traffic would be taken for others',
        // and then be counted as a promise as well. (The quorum is heard before that: `view_age_ms`
        // does not tell.) No state is older than the first revision.
        core.reached(Revision(1)).await;
        // Until when the last answer counts.
        let mut until: Option<Instant> = None;
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                let before = promised();
                let came = {
                    let mut asking = pin!(self.used());
                    loop {
                        tokio::select! {
                            came = &mut asking => break came,
                            // A question that hangs keeps nothing in force.
                            () = passes(until) => {
                                until = None;
                                self.say(core, None);
                            }
                        }
                    }
                };
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
            system.report(others_mb_s);
            is_news
        });
    }
}
