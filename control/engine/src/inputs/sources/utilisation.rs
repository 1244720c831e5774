//! Utilisation of a storage system: periodic requests, with an age limit for replies.

use super::{SourceError, note, parsed, put, web, without_query};
use crate::{
    core::Core,
    inputs::{
        Source, answer,
        storage::{self, UsedError},
    },
    scheduling_config::{BandwidthUnit, Counts, UtilisationConfig, seconds},
    web_client::WebClient,
};
use lattice_quorum_types::Revision;
use reqwest::{Client, Url};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Source of the bandwidth in use of a storage system.
#[derive(Debug, Clone)]
pub struct Utilisation {
    pub(crate) system: String,
    pub(crate) web: WebClient,
    pub(crate) url: Url,
    pub(crate) pointer: String,
    pub(crate) unit: BandwidthUnit,
    pub(crate) counts: Counts,
    pub(crate) refresh: Duration,
    pub(crate) max_age: Duration,
}

/// Resolves at `until`; never if it is `None`.
async fn sleep_until_some(until: Option<Instant>) {
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

    pub async fn follow(self, core: &Core) {
        let source = Source::Storage(self.system.clone());
        let promised = || core.view().promised.get(&self.system).copied().unwrap_or(0);
        // Before the state is read, no bandwidth seems to be granted. Traffic of this cluster's jobs would then count
        // as traffic of others, and later again as granted bandwidth. No state is older than the first revision.
        core.reached(Revision(1)).await;
        // Time until which the last reply is in use.
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
                            // A pending request does not extend the use of the last reply.
                            () = sleep_until_some(until) => {
                                until = None;
                                self.publish(core, None);
                            }
                        }
                    }
                };
                next = Instant::now() + self.refresh;
                let came = came.map(|used| {
                    // Bandwidth of jobs that started or ended during the measurement counts as used by others.
                    let others = storage::others(used, self.counts, before.min(promised()));
                    until = Some(Instant::now() + self.max_age);
                    self.publish(core, Some(others));
                });
                let origin = without_query(self.url.as_str());
                note(
                    core,
                    &source,
                    came.map_err(|why| format!("{origin}: {why}")),
                );
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                until = None;
                self.publish(core, None);
            }
            sleep_until(until.map_or(next, |until| until.min(next))).await;
        }
    }

    pub(super) async fn used(&self) -> Result<u64, UsedError> {
        let body = self.web.get(&self.url).await?;
        storage::used(&body, &self.pointer, self.unit)
    }

    fn publish(&self, core: &Core, others_mb_s: Option<u64>) {
        put(core, |inputs| {
            let system = Arc::make_mut(&mut inputs.storage).get_mut(&self.system);
            let Some(system) = system else { return false };
            let is_news = system.others_mb_s != others_mb_s;
            system.report(others_mb_s);
            is_news
        });
    }
}
