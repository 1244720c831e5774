//! Readiness of input data: requests for the pending allocations that do not state it themselves.

use super::{SourceError, TICK, put, web, without_query};
use crate::{
    core::Core,
    inputs::{
        self, Source, answer,
        readiness::{self, AskError, LogLimiter, ReadinessChange, ReadinessSchedule},
    },
    scheduling_config::{DataReadinessConfig, filled, seconds},
    web_client::WebClient,
};
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lattice_placement::Fraction;
use lattice_quorum_types::{Allocation, AllocationId, AllocationState};
use reqwest::{Client, Url};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Pause between single requests to a source that is down; see [`readiness::RequestPace`].
const PAUSE: Duration = Duration::from_secs(5);

/// Source of data readiness.
#[derive(Debug, Clone)]
pub struct Readiness {
    pub(crate) web: WebClient,
    pub(crate) template: String,
    pub(crate) pace: readiness::RequestPace,
    pub(crate) tick: Duration,
}

type ReadinessAnswer = (AllocationId, Result<Option<Fraction>, AskError>);

impl Readiness {
    pub(super) fn new(config: &DataReadinessConfig, client: &Client) -> Result<Self, SourceError> {
        let key = "data_readiness";
        let (token, deadline_s) = (config.token_file.as_ref(), config.deadline_s);
        Ok(Self {
            web: web(client, key, token, deadline_s, answer::MOST_BYTES)?,
            template: config.url.clone(),
            pace: readiness::RequestPace {
                refresh: seconds(config.refresh_s),
                max_age: seconds(config.max_age_s),
                at_a_time: config.at_a_time,
                pause: PAUSE,
            },
            tick: TICK,
        })
    }

    pub async fn follow(self, core: &Core) {
        let mut turns = ReadinessSchedule::new(self.pace);
        let mut asking: FuturesUnordered<BoxFuture<'static, ReadinessAnswer>> =
            FuturesUnordered::new();
        let mut tick = Instant::now();
        let mut lines = LogLimiter::new(tick);
        loop {
            let now = Instant::now();
            if now >= tick {
                tick = now + self.tick;
                self.publish(core, &mut turns);
                turns.follow(&waiting_allocations(core), now);
                if let Some(kept_back) = lines.over(now) {
                    tracing::warn!(kept_back, "data readiness log lines suppressed");
                }
            }
            while let Some(id) = turns.next(now) {
                match core.view().allocation(id) {
                    Some(allocation) => asking.push(self.ask(allocation)),
                    // The allocation has ended; the next tick drops it.
                    None => turns.finish_request(id, now),
                }
            }
            tokio::select! {
                Some((id, answer)) = asking.next() => {
                    let news = turns.record_result(id, answer, Instant::now());
                    if let Some(news) = news.filter(|_| lines.allow()) {
                        self.log_change(&news);
                    }
                }
                () = sleep_until(tick) => {}
            }
        }
    }

    fn log_change(&self, news: &ReadinessChange) {
        let source = Source::DataReadiness;
        match news {
            ReadinessChange::Fails(allocation, error) => {
                let failure = format!("{}: {error}", without_query(&self.template));
                tracing::warn!(%source, %allocation, %failure, "data readiness unavailable");
            }
            ReadinessChange::Recovered(allocation) => {
                tracing::info!(%source, %allocation, "data readiness available again");
            }
        }
    }

    fn publish(&self, core: &Core, turns: &mut ReadinessSchedule) {
        let (ready, now) = (turns.ready(Instant::now()), core.now());
        let failing = turns.failing();
        let failure = |error| format!("{}: {error}", without_query(&self.template));
        let came = turns.source().map(|came| came.map_err(failure));
        put(core, |inputs| {
            let is_news = came.is_some()
                || *inputs.data_ready != ready
                || inputs.data_ready_failing != failing;
            inputs.data_ready_failing = failing;
            if *inputs.data_ready != ready {
                inputs.data_ready = Arc::new(ready);
            }
            if let Some(came) = came {
                inputs::note(inputs, &Source::DataReadiness, now, came);
            }
            is_news
        });
    }

    fn ask(&self, of: &Allocation) -> BoxFuture<'static, ReadinessAnswer> {
        let url = self.url(of.id, of.spec.project.as_str(), &of.user);
        let (id, web) = (of.id, self.web.clone());
        Box::pin(async move {
            let answer = match url {
                Ok(url) => readiness::fraction_from(web.get(&url).await),
                Err(error) => Err(error),
            };
            (id, answer)
        })
    }

    /// URL for an allocation.
    ///
    /// # Errors
    /// The template with these values is not a valid URL.
    pub(super) fn url(&self, id: AllocationId, project: &str, user: &str) -> Result<Url, AskError> {
        let url = filled(&self.template, |name| match name {
            "id" => Some(id.to_string()),
            "project" => Some(project.to_owned()),
            "user" => Some(user.to_owned()),
            _ => None,
        });
        let url = url.and_then(|url| Url::parse(&url).map_err(|error| error.to_string()));
        url.map_err(|reason| AskError::Url { reason })
    }
}

/// Pending allocations that do not state the fraction of their ready data themselves.
fn waiting_allocations(core: &Core) -> BTreeSet<AllocationId> {
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
