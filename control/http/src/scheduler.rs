//! Scheduler settings of a vCluster in the API: conversion and changes.

use lattice_api::{
    problem::FieldError,
    scheduler::{
        AllReservations, ReservationsView, SchedulerChange, SchedulerView, WeightsChange,
        WeightsView,
    },
};
use lattice_placement::Weights;
use lattice_quorum_types::scheduler::{
    PartsPerMillion, PlannedReservations, SchedulerPatch, SchedulerSettings, SettingPatch,
    WeightPatch, WorkloadKind,
};
use lattice_view::settings::scheduler::policy;

#[cfg(test)]
mod tests;

const GB: f64 = 1e9;

/// API view of the settings in force.
pub(crate) fn scheduler_view(settings: &SchedulerSettings) -> SchedulerView {
    let policy = policy(settings);
    let w = policy.weights.get();
    SchedulerView {
        profile: settings.kind.map(|kind| kind.name().to_owned()),
        weights: WeightsView {
            priority: w.priority,
            wait_time: w.wait_time,
            fair_share: w.fair_share,
            topology: w.topology,
            data_ready: w.data_ready,
            backlog: w.backlog,
            energy: w.energy,
            checkpoint: w.checkpoint,
            conformance: w.conformance,
        },
        // Rounded to nine decimal places: nine times 0.1 is shown as 0.9.
        weights_sum: (policy.weights.to_array().iter().sum::<f64>() * 1e9).round() / 1e9,
        reference_wait_s: policy.reference_wait_ms as f64 / 1000.0,
        reservations: match policy.reservations {
            PlannedReservations::First(count) => ReservationsView::First(count),
            PlannedReservations::All => ReservationsView::All(AllReservations::All),
        },
        checkpoint_gb_s: policy.checkpoint_bytes_s.map(|bytes| bytes as f64 / GB),
    }
}

/// Converts a request into a patch of the settings.
///
/// # Errors
/// Returns the first invalid field.
pub(crate) fn patch(change: &SchedulerChange) -> Result<SchedulerPatch, FieldError> {
    change.check()?;
    let mut patch = SchedulerPatch::default();
    if let Some(kind) = change.profile.as_deref().and_then(WorkloadKind::named) {
        patch.kind = SettingPatch::Set(kind);
        set_weights(&mut patch.weights, &weights_of(kind));
    }
    if let Some(weights) = &change.weights {
        set_weights(&mut patch.weights, weights);
    }
    if let Some(seconds) = change.reference_wait_s {
        patch.reference_wait_ms = SettingPatch::Set((seconds * 1000.0).round() as u64);
    }
    if let Some(reservations) = change.reservations {
        patch.reservations = SettingPatch::Set(match reservations {
            ReservationsView::All(AllReservations::All) => PlannedReservations::All,
            ReservationsView::First(count) => PlannedReservations::First(count),
        });
    }
    let bytes_s = |gb_s: Option<f64>| gb_s.map(|gb_s| (gb_s * GB).round() as u64);
    patch.checkpoint_bytes_s = change.checkpoint_gb_s.map(bytes_s).into();
    Ok(patch)
}

/// All weights of a workload kind.
fn weights_of(kind: WorkloadKind) -> WeightsChange {
    let weights = Weights::from(kind);
    let w = weights.get();
    WeightsChange {
        priority: Some(w.priority),
        wait_time: Some(w.wait_time),
        fair_share: Some(w.fair_share),
        topology: Some(w.topology),
        data_ready: Some(w.data_ready),
        backlog: Some(w.backlog),
        energy: Some(w.energy),
        checkpoint: Some(w.checkpoint),
        conformance: Some(w.conformance),
    }
}

fn set_weights(patch: &mut WeightPatch, change: &WeightsChange) {
    let set = |setting: &mut SettingPatch<PartsPerMillion>, weight: Option<f64>| {
        if let Some(parts) = weight.and_then(PartsPerMillion::rounded) {
            *setting = SettingPatch::Set(parts);
        }
    };
    set(&mut patch.priority, change.priority);
    set(&mut patch.wait_time, change.wait_time);
    set(&mut patch.fair_share, change.fair_share);
    set(&mut patch.topology, change.topology);
    set(&mut patch.data_ready, change.data_ready);
    set(&mut patch.backlog, change.backlog);
    set(&mut patch.energy, change.energy);
    set(&mut patch.checkpoint, change.checkpoint);
    set(&mut patch.conformance, change.conformance);
}
