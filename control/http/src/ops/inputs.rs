//! Metrics of the site's scheduling inputs.

use lattice_engine::exposition::Exposition;
use lattice_quorum_types::UnixMillis;
use lattice_view::View;

const BYTES_IN_MB: f64 = 1e6;

/// Exposes the values in force. An unknown value has no series.
pub(crate) fn expose(view: &View, to: &mut Exposition) {
    let price = view.inputs.energy;
    to.gauge(
        "lattice_energy_price",
        "Energy price in force, in the site's unit; no series while unknown.",
        price.map(|price| price.price),
    );
    to.gauge(
        "lattice_energy_price_normalized",
        "Energy price, 0 = lowest, 1 = highest known.",
        price.map(|price| price.normalized.get()),
    );
    let asks = view.inputs.asks_for_readiness();
    to.gauge(
        "lattice_data_readiness_known",
        "Pending allocations with known data readiness.",
        asks.then_some(view.inputs.data_ready.len() as f64),
    );
    to.gauge(
        "lattice_data_readiness_failing",
        "Pending allocations without a usable answer to the last data readiness query.",
        asks.then_some(view.inputs.data_ready_failing as f64),
    );
    storage(view, to);
}

/// Exposes the state of each source. The sources belong to the site, so their state is known without the quorum.
pub(crate) fn expose_sources(view: &View, now: UnixMillis, to: &mut Exposition) {
    let sources = || view.inputs.sources.iter();
    to.gauges(
        "lattice_scheduling_source_up",
        "1 if the last query of a source succeeded (data readiness: at least in part); no series \
         before the first query.",
        ["source"],
        sources()
            .filter(|(_, state)| state.failure.is_some() || state.answered_at.is_some())
            .map(|(source, state)| ([source.to_string()], f64::from(state.failure.is_none()))),
    );
    to.gauges(
        "lattice_scheduling_source_age_seconds",
        "Seconds since the last successful query of a source; no series before the first success.",
        ["source"],
        sources().filter_map(|(source, state)| {
            let age_ms = now.since(state.answered_at?);
            Some(([source.to_string()], age_ms as f64 / 1_000.0))
        }),
    );
}

fn storage(view: &View, to: &mut Exposition) {
    let left = lattice_view::remaining_bandwidth(view);
    let systems = || view.inputs.storage.iter();
    let bytes = |system: &str, mb_s: f64| ([system.to_owned()], mb_s * BYTES_IN_MB);
    to.gauges(
        "lattice_storage_budget_bytes_per_second",
        "Bandwidth of a storage system in bytes per second.",
        ["system"],
        systems().map(|(name, system)| bytes(name, system.budget_mb_s as f64)),
    );
    to.gauges(
        "lattice_storage_others_bytes_per_second",
        "Bandwidth of a storage system used by clients other than running allocations, in bytes \
         per second; no series while unknown.",
        ["system"],
        systems().filter_map(|(name, system)| Some(bytes(name, system.others_mb_s? as f64))),
    );
    to.gauges(
        "lattice_storage_reserved_bytes_per_second",
        "Bandwidth of a storage system reserved for running allocations, in bytes per second.",
        ["system"],
        systems().map(|(name, _)| {
            let promised = view.promised.get(name).copied().unwrap_or(0);
            bytes(name, promised as f64)
        }),
    );
    to.gauges(
        "lattice_storage_available_bytes_per_second",
        "Bandwidth of a storage system available to new allocations, in bytes per second.",
        ["system"],
        systems().filter_map(|(name, _)| Some(bytes(name, left.get(name)?.left_mb_s as f64))),
    );
}
