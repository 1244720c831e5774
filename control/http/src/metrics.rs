//! Metrics: request counts and durations, and the content of `/metrics`.

use super::{
    caller::Caller,
    ops::{inputs, status},
    state::Api,
};
use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use lattice_engine::{Core, exposition::Exposition};
use lattice_quorum_types::{AllocationState, UnixMillis};
use lattice_view::View;
use lattice_waldur::status::SyncStatus;
use std::{collections::BTreeMap, time::Instant};

/// Measures the time to the response head; the body of a stream may last for days.
pub(crate) async fn measure(State(api): State<Api>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>();
    // All unknown paths and methods share one series, so clients cannot create series.
    let route = route.map_or("unknown", MatchedPath::as_str).to_owned();
    let method = match request.method().as_str() {
        known @ ("GET" | "POST" | "PUT" | "DELETE" | "HEAD" | "OPTIONS") => known.to_owned(),
        _ => "other".to_owned(),
    };
    let response = next.run(request).await;
    let status = response.status();
    (api.meter()).note(&method, &route, status.as_str(), started.elapsed());
    response
}

/// Renders the metrics in the Prometheus exposition format.
///
/// While this control has no view, only the metrics of the control itself are rendered: a count of an empty view would
/// be taken for zero.
pub(crate) fn render(api: &Api, caller: &Caller) -> String {
    let core = api.core();
    // Read before the view: a view that is loaded after its age is never an empty one.
    let view_age_ms = core.view_age_ms();
    let view = core.view();
    let mut all = Exposition::default();
    control(&mut all, core, &view);
    port(&mut all, api);
    inputs::expose_sources(&view, core.now(), &mut all);
    // Metrics of services and preemptions cover all tenants at once.
    if caller.is_cluster_operator() {
        core.metrics.expose(&mut all);
    }
    all.gauge(
        "lattice_view_available",
        "1 once this control has a view of the cluster, 0 before; without a view, no series derives \
         from it.",
        f64::from(view_age_ms.is_some()),
    );
    if let Some(age_ms) = view_age_ms {
        of_view(&mut all, api, caller, &view, age_ms);
    }
    api.meter().expose(&mut all);
    all.text()
}

/// Metrics that derive from the view, which is this old.
fn of_view(all: &mut Exposition, api: &Api, caller: &Caller, view: &View, age_ms: u64) {
    all.gauge(
        "lattice_view_age_seconds",
        "Seconds since the last update from the quorum.",
        age_ms as f64 / 1_000.0,
    );
    all.gauge(
        "lattice_view_revision",
        "Revision of this control's view.",
        view.revision.0 as f64,
    );
    nodes(all, view);
    // The journal of the accounting system is opened at a usage record that the quorum reports.
    if let Some(connection) = &api.stores().accounting {
        accounting(all, &connection.status(), api.core().now());
    }
    power(all, api, view);
    inputs::expose(view, all);
    // Only operators and tenant administrators see project names, each within the visible tenants.
    if caller.sees_all() {
        projects(all, caller, view);
    }
    if caller.is_cluster_operator() {
        api.stores().checkpoints.expose(view, all);
    }
}

fn nodes(all: &mut Exposition, view: &View) {
    all.gauges(
        "lattice_nodes",
        "Nodes by liveness.",
        ["liveness"],
        words(status::by_liveness(view)),
    );
    all.gauge(
        "lattice_nodes_held",
        "Nodes held by an allocation.",
        status::nodes_held(view) as f64,
    );
    all.gauge(
        "lattice_nodes_drifted",
        "Nodes that differ from their baseline, or without a baseline from the majority of their \
         cohort; no series before the first comparison.",
        status::nodes_drifted(view).map(|nodes| nodes as f64),
    );
    all.gauge(
        "lattice_nodes_not_compared",
        "Nodes not yet compared with a baseline or cohort, or with an unknown result.",
        status::nodes_not_judged(view) as f64,
    );
    all.gauges(
        "lattice_allocations",
        "Allocations that have not ended, by state.",
        ["state"],
        words(live_by_state(view)),
    );
}

/// Metrics of this control itself. What it does is known without a view: it then does nothing.
fn control(all: &mut Exposition, core: &Core, view: &View) {
    if let Some(certificate) = core.certificate() {
        all.gauge(
            "lattice_control_certificate_left_seconds",
            "Seconds until this control's certificate expires.",
            certificate.expires_at.since(core.now()) as f64 / 1000.0,
        );
    }
    if let Some(https) = core.https_certificates.own() {
        let expires_at = UnixMillis(https.period.expires_at_ms);
        all.gauge(
            "lattice_https_certificate_left_seconds",
            "Seconds until the certificate of this control's HTTPS port expires; 0 after that.",
            expires_at.since(core.now()) as f64 / 1000.0,
        );
        all.gauge(
            "lattice_https_certificate_reload_failed",
            "1 while the HTTPS certificate files on disk cannot be used and the earlier certificate \
             stays in use.",
            f64::from(https.reload_error.is_some()),
        );
    }
    all.gauge(
        "lattice_control_active",
        "1 while this control dispatches, or schedules a vCluster.",
        f64::from(view.acting),
    );
    all.gauge(
        "lattice_control_dispatching",
        "1 while this control dispatches.",
        f64::from(view.dispatches),
    );
    let schedules = view.schedules.iter();
    all.gauges(
        "lattice_control_schedules",
        "Epoch of the lease under which this control schedules a vCluster; no series for other \
         vClusters.",
        ["vcluster"],
        schedules.map(|(vcluster, epoch)| ([vcluster.to_string()], *epoch as f64)),
    );
}

/// Metrics of the accounting system. A number that this control has not read yet has no series: it is unknown, not 0.
fn accounting(all: &mut Exposition, status: &SyncStatus, now: UnixMillis) {
    let is_collected = status.collected_at.is_some();
    let events = [("memory", status.in_memory), ("disk", status.on_disk)];
    all.gauges(
        "lattice_accounting_buffered_events",
        "Events not yet delivered to the accounting system; no series before this control has read \
         its buffer.",
        ["in"],
        events
            .into_iter()
            .filter(|_| is_collected)
            .map(|(place, n)| ([place.to_owned()], n as f64)),
    );
    all.gauge(
        "lattice_accounting_buffer_full",
        "1 while the accounting buffer on disk is full and the next event would be dropped; no \
         series before this control has read its buffer.",
        is_collected.then(|| f64::from(status.is_full)),
    );
    let rejected = status.rejected().count();
    let is_tried = status.pushed_at.is_some() || rejected > 0;
    all.gauge(
        "lattice_accounting_rejected_requests",
        "Accounting requests rejected by the accounting system, or waiting for a right there; no \
         series before this control has sent all requests once.",
        is_tried.then_some(rejected as f64),
    );
    let unacknowledged = status.last.saturating_sub(status.acknowledged);
    all.gauge(
        "lattice_accounting_unacknowledged_usage_records",
        "Usage records not yet acknowledged by the accounting system; no series before this control \
         has read them.",
        is_collected.then_some(unacknowledged as f64),
    );
    all.gauge(
        "lattice_accounting_sync_age_seconds",
        "Seconds since the accounting system last had all events and reports; no series before the \
         first time.",
        status
            .pushed_at
            .map(|pushed_at| now.since(pushed_at) as f64 / 1_000.0),
    );
    all.counter(
        "lattice_accounting_events_dropped_total",
        "Accounting events dropped because memory and disk buffers were full.",
        status.dropped,
    );
    all.counter(
        "lattice_accounting_events_sent_total",
        "Accounting events sent.",
        status.sent,
    );
    all.counter(
        "lattice_accounting_reports_total",
        "Usage reports sent.",
        status.reported,
    );
}

fn port(all: &mut Exposition, api: &Api) {
    all.gauge(
        "lattice_streams_open",
        "Open event streams and followed logs.",
        api.streams().count() as f64,
    );
    if let Some(issuer) = api.auth().issuer() {
        all.gauge(
            "lattice_oidc_keys_age_seconds",
            "Seconds since the token keys were read from their issuer; no series before the first \
             read.",
            issuer.keys_age().map(|age| age.as_secs_f64()),
        );
    }
    all.gauge(
        "lattice_connections_open",
        "Open connections to this port.",
        api.connections().open() as f64,
    );
}

fn power(all: &mut Exposition, api: &Api, view: &View) {
    let power = status::power(api, view);
    let sum = power.draws.iter().map(|(_, watts)| watts).sum();
    let sum: Option<f64> = (!power.draws.is_empty()).then_some(sum);
    all.gauges(
        "lattice_node_power_draw_watts",
        "Power draw of a node in watts, as its BMC reports it; no series while unknown.",
        ["node", "source"],
        power.draws,
    );
    all.gauges(
        "lattice_node_power_limit_watts",
        "Power limit of a node in watts, as its BMC reports it; no series while unset or unknown.",
        ["node", "source"],
        power.limits,
    );
    all.gauge(
        "lattice_power_draw_watts",
        "Sum of the known power draws of nodes in watts; no series while none is known.",
        sum,
    );
    all.gauges(
        "lattice_node_bmc_up",
        "1 if the BMC of the node answered the last reading; no series before the first reading.",
        ["node"],
        power.answers,
    );
}

fn projects(all: &mut Exposition, caller: &Caller, view: &View) {
    let seen = || view.projects.values().filter(|p| caller.sees(&p.path));
    all.gauges(
        "lattice_project_nodes_used",
        "Nodes held by a project and its children.",
        ["project"],
        seen().map(|p| ([p.path.to_string()], p.total().nodes as f64)),
    );
    all.gauges(
        "lattice_project_nodes_limit",
        "max_nodes limit of a project; no series without a limit.",
        ["project"],
        seen().filter_map(|p| Some(([p.path.to_string()], p.limits.max_nodes? as f64))),
    );
}

fn words(tally: BTreeMap<String, u64>) -> impl Iterator<Item = ([String; 1], f64)> {
    tally.into_iter().map(|(word, n)| ([word], n as f64))
}

fn live_by_state(view: &View) -> BTreeMap<String, u64> {
    let live = AllocationState::ALL.iter().filter(|s| !s.is_terminal());
    let mut tally: BTreeMap<String, u64> = live.map(|s| (s.to_string(), 0)).collect();
    tally.extend(status::tally(
        view.allocations.values().map(|a| a.state.as_str()),
    ));
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_waldur::{client::Right, status::Parked};

    fn samples(status: &SyncStatus) -> Vec<String> {
        let mut all = Exposition::default();
        accounting(&mut all, status, UnixMillis(70_000));
        let text = all.text();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples
            .filter_map(|line| line.strip_prefix("lattice_accounting_"))
            .map(str::to_owned)
            .collect()
    }

    /// Counters begin at 0 with the process; every other number is unknown until it was read.
    #[test]
    fn accounting_gauges_begin_with_the_first_read() {
        let counters = [
            "events_dropped_total 0",
            "events_sent_total 0",
            "reports_total 0",
        ];
        let mut status = SyncStatus::default();
        assert_eq!(samples(&status), counters);
        status.collected_at = Some(UnixMillis(10_000));
        let collected = [
            "buffered_events{in=\"memory\"} 0",
            "buffered_events{in=\"disk\"} 0",
            "buffer_full 0",
            "unacknowledged_usage_records 0",
        ];
        assert_eq!(samples(&status), [&collected[..], &counters].concat());
        status.pushed_at = Some(UnixMillis(10_000));
        let found = samples(&status);
        for line in ["rejected_requests 0", "sync_age_seconds 60"] {
            assert!(found.iter().any(|found| found == line), "{line}: {found:?}");
        }
    }

    #[test]
    fn request_rejected_before_the_end_of_the_first_round_counts() {
        let rejected = Parked {
            since: UnixMillis(1),
            tried_at: UnixMillis(1),
            reason: "no such offering".to_owned(),
        };
        let mut status = SyncStatus::default();
        status.parked.insert("event 7-1".to_owned(), rejected);
        for key in ["usage a@batch 2026-11", "usage b@batch 2026-11"] {
            let rights = &mut status.missing_rights;
            rights.add(Right::SetUsage, "vCluster batch", key, "no", UnixMillis(0));
        }
        let found = samples(&status);
        assert!(
            found.contains(&"rejected_requests 3".to_owned()),
            "{found:?}"
        );
    }
}
