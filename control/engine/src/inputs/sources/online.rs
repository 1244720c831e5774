//! Checks of the scheduling sources for `--check-config --online`: one request to each.

use super::{
    Readiness, SourceRequest, Sources, Utilisation,
    prices::{self, Origin},
    without_query,
};
use crate::{
    inputs::{
        readiness::{AskError, fraction_from},
        storage::UsedError,
    },
    metrics_source::{Metrics, UnknownMetricReason},
    scheduling_config::SchedulingConfig,
    web_client::{FetchError, WebClient},
};
use futures::future::join_all;
use lattice_config::online::{OnCheck, OnlineCheck};
use lattice_host::error_text::with_causes;
use lattice_quorum_types::{AllocationId, UnixMillis};
use reqwest::Url;

/// Number of no allocation, for requests that need one.
const NO_ALLOCATION: AllocationId = AllocationId(0);
/// Project and user in a request for [`NO_ALLOCATION`].
const NO_NAME: &str = "none";
/// Query that every Prometheus can answer.
const METRICS_QUERY: &str = "vector(1)";

/// Sends one request to each source with a URL, as control does, and passes on each check as it ends. `now`: time at
/// which the prices must be current. A file of prices is among the files that [`super::check_source_files`] checks.
pub async fn check_sources(config: &SchedulingConfig, now: UnixMillis, on_check: OnCheck<'_>) {
    let sources = match Sources::new(config) {
        Ok(sources) => sources,
        Err(error) => {
            let next = "correct section `scheduling`";
            return on_check(OnlineCheck::failed("scheduling", with_causes(&error), next));
        }
    };
    let requests = sources.requests.iter().map(|request| async move {
        request.check(now).await.into_iter().for_each(on_check);
    });
    let metrics = async {
        if let Some(metrics) = &sources.metrics {
            on_check(check_metrics(metrics).await);
        }
    };
    tokio::join!(join_all(requests), metrics);
}

/// Unusable answer, with the next step.
#[derive(Debug)]
struct SourceFault {
    cause: String,
    next_step: &'static str,
}

impl SourceFault {
    fn of_answer(cause: impl ToString, next_step: &'static str) -> Self {
        let cause = cause.to_string();
        Self { cause, next_step }
    }
}

impl From<FetchError> for SourceFault {
    fn from(error: FetchError) -> Self {
        let next_step = match &error {
            FetchError::TimedOut { .. } | FetchError::Unreachable { .. } => {
                "correct `url`, or check the route to the source"
            }
            FetchError::Status { .. } => "correct `url`, or the token in `token_file`",
            FetchError::TooLong { .. } => "correct `url`",
            FetchError::File { .. } | FetchError::Token { .. } => "correct `token_file`",
        };
        Self::of_answer(error, next_step)
    }
}

impl SourceRequest {
    /// Requests the source once; `None` for a file.
    async fn check(&self, now: UnixMillis) -> Option<OnlineCheck> {
        let (key, url, found) = match self {
            Self::Prices(source) => {
                let Origin::Url(web, url) = &source.origin else {
                    return None;
                };
                let found = price_answer(web, url, now).await;
                ("energy_price".to_owned(), url.as_str(), found)
            }
            Self::Readiness(source) => {
                let found = readiness_answer(source).await;
                ("data_readiness".to_owned(), &*source.template, found)
            }
            Self::Utilisation(source) => {
                let key = format!("storage.{}.utilisation", source.system);
                (key, source.url.as_str(), bandwidth_answer(source).await)
            }
        };
        Some(check_of(&key, url, found))
    }
}

fn check_of(key: &str, url: &str, found: Result<String, SourceFault>) -> OnlineCheck {
    let subject = format!("scheduling.{key}.url {}", without_query(url));
    match found {
        Ok(answer) => OnlineCheck::passed(subject, answer),
        Err(fault) => OnlineCheck::failed(subject, fault.cause, fault.next_step),
    }
}

async fn price_answer(web: &WebClient, url: &Url, now: UnixMillis) -> Result<String, SourceFault> {
    let series = prices::parse(web.get(url).await?).await;
    let series = series.map_err(|cause| SourceFault::of_answer(cause, "correct `url`"))?;
    prices::check_current(&series, now)
        .map_err(|cause| SourceFault::of_answer(cause, "have the source provide current prices"))?;
    Ok(match series.at(now) {
        Some(price) => format!("current price {}", price.price),
        None => "it has prices, but none for the present time".to_owned(),
    })
}

/// Requests the fraction of an allocation that does not exist. Any answer of the service to such a request passes, also
/// a status by which it rejects the request.
async fn readiness_answer(source: &Readiness) -> Result<String, SourceFault> {
    let url = source.url(NO_ALLOCATION, NO_NAME, NO_NAME);
    let fetched = match url {
        Ok(url) => fraction_from(source.web.get(&url).await),
        Err(error) => Err(error),
    };
    match fetched {
        Ok(Some(fraction)) => Ok(format!(
            "fraction {} for allocation {NO_ALLOCATION}, which does not exist",
            fraction.get()
        )),
        Ok(None) => Ok(format!(
            "no data for allocation {NO_ALLOCATION}, which does not exist"
        )),
        Err(AskError::Fetch(error @ FetchError::Status { .. })) if !error.is_outage() => Ok(
            format!("{error} for allocation {NO_ALLOCATION}, which does not exist"),
        ),
        Err(AskError::Fetch(error)) => Err(error.into()),
        Err(error @ (AskError::Answer(_) | AskError::Url { .. })) => {
            Err(SourceFault::of_answer(error, "correct `url`"))
        }
    }
}

async fn bandwidth_answer(source: &Utilisation) -> Result<String, SourceFault> {
    match source.used().await {
        Ok(used_mb_s) => Ok(format!("{used_mb_s} MB/s in use")),
        Err(UsedError::Fetch(error)) => Err(error.into()),
        Err(error @ (UsedError::Answer(_) | UsedError::Unknown { .. })) => {
            Err(SourceFault::of_answer(error, "correct `url` or `key`"))
        }
    }
}

async fn check_metrics(metrics: &Metrics) -> OnlineCheck {
    let found = match metrics.query(METRICS_QUERY, NO_ALLOCATION).await {
        Ok(_) => Ok("answers queries".to_owned()),
        Err(UnknownMetricReason::Fetch(error)) => Err(error.into()),
        Err(error) => Err(SourceFault::of_answer(error, "correct `url`")),
    };
    check_of("prometheus", metrics.base().as_str(), found)
}
