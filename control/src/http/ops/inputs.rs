//! What the site's sources of scheduling said last, in numbers.

use crate::{View, inputs};
use lattice_quorum_types::UnixMillis;

/// A number, and what it counts, by labels.
pub(crate) struct Gauge {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) series: Vec<(String, f64)>,
}

const BYTES_IN_MB: f64 = 1e6;

/// How things stand with each source, and what is in force. What is not known has no series.
pub(crate) fn gauges(view: &View, now: UnixMillis) -> Vec<Gauge> {
    let gauge = |name, help, series| Gauge { name, help, series };
    let mut all = sources(view, now);
    let price = view.inputs.energy;
    let one = |value: Option<f64>| value.map(|value| (String::new(), value)).into_iter();
    all.push(gauge(
        "lattice_energy_price",
        "The price of energy in force, in the site's unit; no series while none is known.",
        one(price.map(|price| price.price)).collect(),
    ));
    all.push(gauge(
        "lattice_energy_price_normalized",
        "Its place between the lowest (0) and the highest (1) of the series.",
        one(price.map(|price| price.normalized.get())).collect(),
    ));
    all.push(gauge(
        "lattice_data_readiness_known",
        "Pending allocations of which the source says how much of their data is ready.",
        match view.inputs.asks_for_readiness() {
            true => one(Some(view.inputs.data_ready.len() as f64)).collect(),
            false => Vec::new(),
        },
    ));
    all.push(gauge(
        "lattice_data_readiness_failing",
        "Pending allocations about which the source gave no answer that can be used when it was last asked.",
        match view.inputs.asks_for_readiness() {
            true => one(Some(view.inputs.data_ready_failing as f64)).collect(),
            false => Vec::new(),
        },
    ));
    all.extend(storage(view));
    all
}

fn sources(view: &View, now: UnixMillis) -> Vec<Gauge> {
    let (mut up, mut age) = (Vec::new(), Vec::new());
    for (source, state) in view.inputs.sources.iter() {
        // A name of a storage system holds no character that would need escaping.
        let labels = format!("{{source=\"{source}\"}}");
        if state.failure.is_some() || state.answered_at.is_some() {
            up.push((labels.clone(), f64::from(state.failure.is_none())));
        }
        if let Some(at) = state.answered_at {
            age.push((labels, now.since(at) as f64 / 1_000.0));
        }
    }
    vec![
        Gauge {
            name: "lattice_scheduling_source_up",
            help: "1 where a source last answered as it should (about data readiness: at all); no series before \
                   it was asked.",
            series: up,
        },
        Gauge {
            name: "lattice_scheduling_source_age_seconds",
            help: "Since a source was last up; no series before the first time.",
            series: age,
        },
    ]
}

fn storage(view: &View) -> Vec<Gauge> {
    let left = inputs::left(view);
    let (mut budgets, mut others) = (Vec::new(), Vec::new());
    let (mut promises, mut lefts) = (Vec::new(), Vec::new());
    for (name, system) in view.inputs.storage.iter() {
        let labels = || format!("{{system=\"{name}\"}}");
        let bytes = |mb_s: u64| (labels(), mb_s as f64 * BYTES_IN_MB);
        budgets.push(bytes(system.budget_mb_s));
        others.extend(system.others_mb_s.map(bytes));
        let promised = view.promised.get(name).copied().unwrap_or(0);
        promises.push((labels(), promised as f64 * BYTES_IN_MB));
        let left = left.get(name).map(|left| left.left_mb_s as f64);
        lefts.extend(left.map(|mb_s| (labels(), mb_s * BYTES_IN_MB)));
    }
    let gauge = |name, help, series| Gauge { name, help, series };
    vec![
        gauge(
            "lattice_storage_budget_bytes_per_second",
            "What a storage system can do.",
            budgets,
        ),
        gauge(
            "lattice_storage_others_bytes_per_second",
            "What others than running work use of it; no series while it is not known.",
            others,
        ),
        gauge(
            "lattice_storage_promised_bytes_per_second",
            "What running work was promised of it.",
            promises,
        ),
        gauge(
            "lattice_storage_left_bytes_per_second",
            "What new work may still be promised.",
            lefts,
        ),
    ]
}
