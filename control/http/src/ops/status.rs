//! Cluster status in numbers, and readiness of this control.

use super::{read, unexpected};
use crate::{caller::Caller, state::Api};
use lattice_api::{
    problem::{Kind, Problem},
    status::StatusView,
};
use lattice_conformance::{Milliwatts, Reading};
use lattice_engine::{Core, bmc::SILENT};
use lattice_quorum_types::{
    node::Lifecycle,
    view::{Answer, Query},
};
use lattice_view::View;
use std::{collections::BTreeMap, time::Duration};

/// Age of the view, milliseconds, above which the view is stale. With a stale view, the quorum is queried with a short
/// timeout.
const STALE_MS: u64 = 3_000;
/// Timeouts for counting allocations in the quorum, normally and with a stale view.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);
const STALE_COUNT_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum age of the view for readiness, milliseconds. The watch delivers a message every few seconds.
const READY_AGE_MS: u64 = 15_000;

pub(crate) async fn status(core: &Core, caller: &Caller) -> Result<StatusView, Problem> {
    let counts = counts(core).await?;
    let view = core.view();
    Ok(StatusView {
        cluster: core.cluster().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: view.revision,
        view_age_ms: core.view_age_ms().unwrap_or(u64::MAX),
        active: view.acting,
        nodes: count(view.nodes.values().filter(|n| n.record.is_some())),
        nodes_held: nodes_held(&view),
        nodes_by_liveness: by_liveness(&view),
        nodes_by_lifecycle: tally(view.nodes.values().map(|node| {
            let record = node.record.as_ref();
            record.map_or("unregistered", |r| r.lifecycle.as_str())
        })),
        cells: BTreeMap::clone(&view.cells),
        allocations_by_state: counts
            .unwrap_or_else(|| tally(view.allocations.values().map(|a| a.state.as_str()))),
        nodes_drifted: nodes_drifted(&view),
        nodes_not_compared: nodes_not_judged(&view),
        principal: caller.name.to_string(),
        roles: vec![caller.role.to_string()],
    })
}

/// Allocations by state, including ended ones, which only the quorum has. `None` if the quorum does not answer and a
/// view is available.
async fn counts(core: &Core) -> Result<Option<BTreeMap<String, u64>>, Problem> {
    let asked = read(core, Query::Counts);
    let patience = match core.view_age_ms() {
        None => Duration::MAX,
        Some(age) if age > STALE_MS => STALE_COUNT_TIMEOUT,
        Some(_) => COUNT_TIMEOUT,
    };
    match (
        tokio::time::timeout(patience, asked).await,
        core.view_age_ms(),
    ) {
        (Ok(Ok(Answer::Counts(counts))), _) => {
            let words = counts.into_iter().map(|(state, n)| (state.to_string(), n));
            Ok(Some(words.collect()))
        }
        (Ok(Ok(_)), _) => Err(unexpected()),
        (Ok(Err(problem)), None) => Err(problem),
        (Ok(Err(_)) | Err(_), _) => Ok(None),
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    items.count() as u64
}

/// Number of occurrences of each word.
pub(crate) fn tally<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for word in words {
        *tally.entry(word.to_owned()).or_insert(0) += 1;
    }
    tally
}

pub(crate) fn by_liveness(view: &View) -> BTreeMap<String, u64> {
    tally(view.nodes.values().map(|node| node.liveness.as_str()))
}

pub(crate) fn nodes_held(view: &View) -> u64 {
    let held = |n: &&std::sync::Arc<lattice_view::NodeEntry>| {
        n.record.as_ref().is_some_and(|r| r.holder.is_some())
    };
    count(view.nodes.values().filter(held))
}

/// Number of nodes with drift; `None` before any node was compared.
pub(crate) fn nodes_drifted(view: &View) -> Option<u64> {
    let keys = view.nodes.keys().filter_map(|id| view.drifted_keys(id));
    let (judged, drifted) = keys.fold((false, 0), |(_, n), keys| (true, n + u64::from(keys > 0)));
    judged.then_some(drifted)
}

/// Number of nodes for which drift is unknown. Retired nodes that are gone are not counted.
pub(crate) fn nodes_not_judged(view: &View) -> u64 {
    let is_there = |node: &&std::sync::Arc<lattice_view::NodeEntry>| {
        let record = node.record.as_ref();
        node.gossip.is_some() || record.is_none_or(|r| r.lifecycle != Lifecycle::Retired)
    };
    let nodes = view.nodes.values().filter(is_there);
    count(nodes.filter(|node| view.drifted_keys(&node.id).is_none()))
}

/// Power metrics of the nodes with BMCs read by this control; one series of each kind per node.
#[derive(Debug, Default)]
pub(crate) struct PowerSeries {
    /// Power draw by node and source, watts.
    pub(crate) draws: Vec<([String; 2], f64)>,
    /// Power limit by node and source, watts.
    pub(crate) limits: Vec<([String; 2], f64)>,
    /// Whether the BMC answers, by node.
    pub(crate) answers: Vec<([String; 1], f64)>,
}

/// Last BMC power readings of the nodes in the view. An unknown reading has no series.
pub(crate) fn power(api: &Api, view: &View) -> PowerSeries {
    let mut series = PowerSeries::default();
    for node in view.nodes.keys() {
        let source = [node.to_string(), "bmc".to_owned()];
        if let Some(seen) = api.stores().readings.power(node) {
            let of = |reading: &Reading<Milliwatts>| {
                let watts = reading.present().map(|power| power.watts());
                watts.map(|watts| (source.clone(), watts))
            };
            series.draws.extend(of(&seen.power.draw));
            series.limits.extend(of(&seen.power.limit));
        }
        let parts = api
            .stores()
            .readings
            .parts(node)
            .filter(|parts| parts.was_asked);
        let is_up = parts.map(|parts| parts.reasons.iter().all(|reason| reason.code != SILENT));
        let up = is_up.map(|is_up| ([node.to_string()], f64::from(is_up)));
        series.answers.extend(up);
    }
    series
}

/// Whether this control is ready: its view is current, its trust bundle agrees with the quorum, and its certificate is
/// accepted.
pub(crate) fn ready(core: &Core) -> Result<(), Problem> {
    let detail = match core.view_age_ms() {
        None => "no update from the quorum yet".to_owned(),
        Some(age) if age > READY_AGE_MS => {
            format!("the last update from the quorum was {age} ms ago")
        }
        Some(_) if core.trust_contradicts() => {
            "the quorum requires an older or different trust bundle than the one in force here \
             (trust.contradicts): the cluster was recreated or restored; the log gives the next \
             steps"
                .to_owned()
        }
        Some(_) => match core.certificate_problem() {
            // The certificate is still valid and renewal continues; log and metrics report the state.
            None | Some("certificate.expiring") => return Ok(()),
            Some(problem) => {
                format!("no quorum member accepts this control ({problem}); enrol it again")
            }
        },
    };
    Err(Problem::new(Kind::Unavailable, "not_ready", detail))
}
