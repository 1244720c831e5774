//! Requests counted and timed, and the numbers of `/metrics`.

use super::{
    caller::Caller,
    ops::{inputs, status},
    state::Api,
};
use crate::{View, histogram::Histogram};
use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use lattice_quorum_types::AllocationState;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Upper bounds of the answer times, seconds.
const BOUNDS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// By method, route and status; routes are few and known.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<BTreeMap<(String, String, u16), Histogram<{ BOUNDS.len() }>>>);

impl Meter {
    fn note(&self, key: (String, String, u16), took: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry(key).or_default();
        of.note(&BOUNDS, took.as_secs_f64());
    }
}

/// Measures until the answer's head; a stream's body may last for days.
pub(crate) async fn measure(State(api): State<Api>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>();
    // An unknown path or method is one series, whatever people try.
    let route = route.map_or("unknown", MatchedPath::as_str).to_owned();
    let method = match request.method().as_str() {
        known @ ("GET" | "POST" | "PUT" | "DELETE" | "HEAD" | "OPTIONS") => known.to_owned(),
        _ => "other".to_owned(),
    };
    let response = next.run(request).await;
    let key = (method, route, response.status().as_u16());
    api.meter().note(key, started.elapsed());
    response
}

/// Text in the exposition format of Prometheus.
pub(crate) fn render(api: &Api, caller: &Caller) -> String {
    let core = api.core();
    let view = core.view();
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, series: &[(String, f64)]| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in series {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    };
    let one = |value: f64| vec![(String::new(), value)];
    let labelled = |label: &str, tally: BTreeMap<String, u64>| -> Vec<_> {
        let label = |(word, n): (String, u64)| (format!("{{{label}=\"{word}\"}}"), n as f64);
        tally.into_iter().map(label).collect()
    };
    gauge(
        "lattice_nodes",
        "Nodes by liveness.",
        &labelled("liveness", status::by_liveness(&view)),
    );
    gauge(
        "lattice_nodes_held",
        "Nodes held by an allocation.",
        &one(status::nodes_held(&view) as f64),
    );
    gauge(
        "lattice_nodes_drifted",
        "Nodes that differ from their baseline, or else from the majority of their cohort, of those \
         that were judged; no series before any was.",
        &status::nodes_drifted(&view).map_or_else(Vec::new, |nodes| one(nodes as f64)),
    );
    gauge(
        "lattice_nodes_not_judged",
        "Nodes of which it is not known, or not yet, whether they differ.",
        &one(status::nodes_not_judged(&view) as f64),
    );
    gauge(
        "lattice_allocations",
        "Allocations that have not ended, by state.",
        &labelled("state", live_by_state(&view)),
    );
    gauge(
        "lattice_view_revision",
        "Revision of this control's view.",
        &one(view.revision.0 as f64),
    );
    if let Some(age) = core.view_age_ms() {
        gauge(
            "lattice_view_age_seconds",
            "Time since the quorum was last heard.",
            &one(age as f64 / 1_000.0),
        );
    }
    if let Some(certificate) = api.core().certificate() {
        let left_ms = certificate.expires_at.since(api.core().now());
        gauge(
            "lattice_control_certificate_left_seconds",
            "Until this control's certificate ends.",
            &one(left_ms as f64 / 1000.0),
        );
    }
    if let Some(desk) = core.accounting() {
        let status = desk.status();
        gauge(
            "lattice_accounting_buffered_events",
            "Events that the accounting system does not have yet.",
            &[
                ("{in=\"memory\"}".to_owned(), status.in_memory as f64),
                ("{in=\"disk\"}".to_owned(), status.on_disk as f64),
            ],
        );
        gauge(
            "lattice_accounting_buffer_full",
            "Whether as many events are on the disk as may be: the next one is dropped.",
            &one(f64::from(u8::from(status.is_full))),
        );
        gauge(
            "lattice_accounting_parked",
            "Things that the accounting system refuses.",
            &one(status.parked.len() as f64),
        );
        gauge(
            "lattice_accounting_unacknowledged_facts",
            "Facts that the accounting system does not have yet.",
            &one(status.last.saturating_sub(status.acknowledged) as f64),
        );
        if let Some(pushed_at) = status.pushed_at {
            gauge(
                "lattice_accounting_pushed_age_seconds",
                "Time since the accounting system last had everything there was.",
                &one(core.now().since(pushed_at) as f64 / 1_000.0),
            );
        }
    }
    gauge(
        "lattice_control_acting",
        "1 while this control dispatches, or schedules a vCluster.",
        &one(f64::from(view.acting)),
    );
    gauge(
        "lattice_control_dispatching",
        "1 while this control dispatches.",
        &one(f64::from(view.dispatches)),
    );
    // A name of a vCluster holds no character that would need escaping.
    let scheduled = view.schedules.iter().map(|(vcluster, epoch)| {
        let labels = format!("{{vcluster=\"{vcluster}\"}}");
        (labels, *epoch as f64)
    });
    gauge(
        "lattice_control_schedules",
        "Epoch of the lease under which this control schedules a vCluster; no series of others.",
        &scheduled.collect::<Vec<_>>(),
    );
    gauge(
        "lattice_streams_open",
        "Event streams and followed logs.",
        &one(api.streams().count() as f64),
    );
    if let Some(issuer) = api.auth().issuer() {
        gauge(
            "lattice_oidc_keys_age_seconds",
            "Time since the keys of tokens were read from their issuer; no series before the first time.",
            &issuer
                .keys_age()
                .map_or_else(Vec::new, |age| one(age.as_secs_f64())),
        );
    }
    gauge(
        "lattice_connections_open",
        "Connections to this port.",
        &one(api.connections().open() as f64),
    );
    let power = status::power(core, &view);
    gauge(
        "lattice_node_power_draw_watts",
        "What a node draws, by its BMC; no series while it is not known.",
        &power.draws,
    );
    gauge(
        "lattice_node_power_limit_watts",
        "The limit that is set, by its BMC; no series while there is none, or it is not known.",
        &power.limits,
    );
    gauge(
        "lattice_power_draw_watts",
        "Sum of the draws that are known; no series where none is.",
        &match power.draws.is_empty() {
            true => Vec::new(),
            false => one(power.draws.iter().map(|(_, watts)| watts).sum()),
        },
    );
    gauge(
        "lattice_node_bmc_up",
        "1 where the last look at a node's BMC was answered; no series before the first.",
        &power.answers,
    );
    for input in inputs::gauges(&view, core.now()) {
        gauge(input.name, input.help, &input.series);
    }
    // Names of tenants are for operators.
    if caller.sees_all() {
        let seen = || view.projects.values().filter(|p| caller.sees(&p.path));
        let used = seen().map(|p| (project(p.path.as_str()), p.total().nodes as f64));
        gauge(
            "lattice_project_nodes_used",
            "Nodes held by a project and below.",
            &used.collect::<Vec<_>>(),
        );
        let limits =
            seen().filter_map(|p| Some((project(p.path.as_str()), p.limits.max_nodes? as f64)));
        gauge(
            "lattice_project_nodes_limit",
            "Its max_nodes, where it has one.",
            &limits.collect::<Vec<_>>(),
        );
    }
    // Which services follow what, and whose work made room, is said of all tenants at once.
    if caller.operates_whole() {
        out.push_str(&core.scaling.exposition());
        out.push_str(&core.moved.exposition());
        out.push_str(&core.cycles.exposition());
        out.push_str(&core.storage_exposition(&view));
    }
    if let Some(desk) = core.accounting() {
        let status = desk.status();
        for (name, help, value) in [
            (
                "lattice_accounting_events_dropped_total",
                "Events that were dropped because memory and disk were full.",
                status.dropped,
            ),
            (
                "lattice_accounting_events_sent_total",
                "Events that were sent.",
                status.sent,
            ),
            (
                "lattice_accounting_reports_total",
                "Reports of usage that were sent.",
                status.reported,
            ),
        ] {
            let _ = writeln!(
                out,
                "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}"
            );
        }
    }
    requests(api.meter(), &mut out);
    out
}

/// A path holds no character that would need escaping.
fn project(path: &str) -> String {
    format!("{{project=\"{path}\"}}")
}

fn live_by_state(view: &View) -> BTreeMap<String, u64> {
    let live = AllocationState::ALL.iter().filter(|s| !s.is_terminal());
    let mut tally: BTreeMap<String, u64> = live.map(|s| (s.to_string(), 0)).collect();
    tally.extend(status::tally(
        view.allocations.values().map(|a| a.state.as_str()),
    ));
    tally
}

fn requests(meter: &Meter, out: &mut String) {
    let name = "lattice_http_request_duration_seconds";
    let _ = writeln!(
        out,
        "# HELP {name} Time to the head of an answer.\n# TYPE {name} histogram"
    );
    let all = meter.0.lock().unwrap_or_else(PoisonError::into_inner);
    for ((method, route, status), series) in all.iter() {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        series.write(out, name, &labels, &BOUNDS);
    }
}
