//! Scheduler settings of a vCluster in the form that the planner uses: stored values, and defaults for the others.

use crate::state::BaseView;
use lattice_placement::{Policy, Profile, RawWeights, Weights};
use lattice_quorum_types::{
    VclusterName,
    scheduler::{PartsPerMillion, SchedulerSettings, WeightSettings, WorkloadKind},
};

#[cfg(test)]
mod tests;

/// Whether a vCluster is for sensitive work: its last weight profile is that of sensitive work. Without a profile, its
/// weights must be exactly those of sensitive work.
pub fn is_for_sensitive(settings: &SchedulerSettings) -> bool {
    match settings.kind {
        Some(kind) => kind == WorkloadKind::Sensitive,
        None => weights(&settings.weights) == Profile::Sensitive.weights(),
    }
}

/// Whether a vCluster is for services: its last weight profile is that of services.
pub fn is_for_services(settings: &SchedulerSettings) -> bool {
    settings.kind == Some(WorkloadKind::Service)
}

/// Solver policy that results from these settings.
pub fn policy(settings: &SchedulerSettings) -> Policy {
    let default = Policy::default();
    Policy {
        weights: weights(&settings.weights),
        reference_wait_ms: settings
            .reference_wait_ms
            .unwrap_or(default.reference_wait_ms),
        reservations: settings.reservations.unwrap_or(default.reservations),
        checkpoint_bytes_s: settings.checkpoint_bytes_s,
    }
}

fn weights(settings: &WeightSettings) -> Weights {
    let default = Weights::default();
    let d = default.get();
    let or = |set: Option<PartsPerMillion>, default| set.map_or(default, PartsPerMillion::get);
    let raw = RawWeights {
        priority: or(settings.priority, d.priority),
        wait_time: or(settings.wait_time, d.wait_time),
        fair_share: or(settings.fair_share, d.fair_share),
        topology: or(settings.topology, d.topology),
        data_ready: or(settings.data_ready, d.data_ready),
        backlog: or(settings.backlog, d.backlog),
        energy: or(settings.energy, d.energy),
        checkpoint: or(settings.checkpoint, d.checkpoint),
        conformance: or(settings.conformance, d.conformance),
    };
    // Parts per million are finite and at least 0.
    Weights::new(raw).unwrap_or(default)
}

impl<N> BaseView<N> {
    /// Scheduler settings of a vCluster; the defaults for an unknown vCluster.
    pub fn settings_of(&self, vcluster: &VclusterName) -> SchedulerSettings {
        let known = self.vclusters.get(vcluster);
        known.map_or_else(SchedulerSettings::default, |known| {
            known.definition.scheduler
        })
    }

    /// Solver policy of a vCluster's scheduler.
    pub fn policy_of(&self, vcluster: &VclusterName) -> Policy {
        policy(&self.settings_of(vcluster))
    }
}
