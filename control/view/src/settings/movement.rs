//! Movement settings of a vCluster in the form that the solver uses: preemption, lending, checkpoints and scaling.
//!
//! A setting that is not set has its default. The quorum checks each value by itself. Values that contradict each
//! other, or that are not permitted for their vCluster, are reported as a [`SettingMisfit`], and defaults apply
//! instead.

use super::scheduler;
use crate::state::BaseView;
use lattice_placement::{
    UNBOUNDED_WALLTIME_MS,
    movement::{checkpoint, lend, preempt, scale::Damping},
};
use lattice_quorum_types::{
    VclusterName,
    checkpoint::MAX_TIMEOUT_MS,
    scheduler::{PartsPerMillion, SchedulerSettings},
};
use std::fmt;

#[cfg(test)]
mod tests;

/// Shortest wait of a job before others are preempted for it, milliseconds. Within this time, the job gets nodes that
/// become free or can be borrowed.
const PATIENCE_MS: u64 = 60_000;

/// API name of the setting that allows lending.
pub const ALLOW_LENDING: &str = "sharing.allow_lending";
/// API name of the limit of lending.
pub const LENDING_LIMIT: &str = "sharing.lending_limit";
/// Group in which a misfit affects only its own setting. In any other group, a misfit puts all settings of the group
/// out of force.
const SHARING: &str = "sharing";

/// Settings for moving the allocations of one vCluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// Preemption.
    pub preemption: PreemptionRules,
    /// Lending and borrowing of nodes.
    pub lend: lend::Policy,
    /// Checkpoint intervals, timeouts and cost model.
    pub checkpoint: checkpoint::Policy,
}

/// Preemption for the jobs of a vCluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreemptionRules {
    /// Rules for the choice of victims.
    pub policy: preempt::Policy,
    /// A job is considered once it has waited for this time and would wait at least as long again, milliseconds.
    pub patience_ms: u64,
    /// Timeout of a victim's checkpoint, milliseconds.
    pub timeout_ms: u64,
}

/// Requested GPU time, in GPU-milliseconds. A node without a requested number of GPUs counts as one GPU.
pub fn requested_gpu_ms(nodes: u32, gpus_per_node: Option<u32>, walltime_ms: Option<u64>) -> u128 {
    let gpus = u128::from(gpus_per_node.unwrap_or(1).max(1));
    let walltime = u128::from(walltime_ms.unwrap_or(UNBOUNDED_WALLTIME_MS));
    u128::from(nodes) * gpus * walltime
}

/// A setting that contradicts others, or is not permitted for its vCluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingMisfit {
    /// Name of the setting in the API, below `movement`.
    pub setting: String,
    /// Reason, with the value and the permitted values.
    pub reason: String,
}

impl fmt::Display for SettingMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "movement.{}: {}", self.setting, self.reason)
    }
}

fn misfit(setting: &str, reason: impl Into<String>) -> SettingMisfit {
    SettingMisfit {
        setting: setting.to_owned(),
        reason: reason.into(),
    }
}

/// Movement settings that result from stored settings and defaults.
pub fn movement_of(settings: &SchedulerSettings) -> Movement {
    let checkpoint = checkpoint_of(settings).unwrap_or_default();
    Movement {
        preemption: preemption_of(settings, &checkpoint),
        lend: lending_of(settings),
        checkpoint,
    }
}

/// Damping of service scaling that results from stored settings and defaults.
pub fn damping_of(settings: &SchedulerSettings) -> Damping {
    scaling_of(settings).unwrap_or_default()
}

/// Settings that contradict others or are not permitted for their vCluster, and for which defaults apply.
pub fn misfits(settings: &SchedulerSettings) -> Vec<SettingMisfit> {
    let lending = check_lending(settings).err();
    let all = [
        checkpoint_of(settings).err(),
        scaling_of(settings).err(),
        lending,
    ];
    all.into_iter().flatten().collect()
}

/// API names, below `movement`, of the settings that are set and in force.
pub fn in_force(settings: &SchedulerSettings) -> Vec<String> {
    let group = |name: &str| name.split('.').next().map(str::to_owned);
    let misfits = misfits(settings);
    let is_unfit = |name: &str| {
        misfits.iter().any(|misfit| {
            let is_of_group = group(name) == group(&misfit.setting);
            is_of_group && (group(name).as_deref() != Some(SHARING) || name == misfit.setting)
        })
    };
    let names = settings.names();
    let names = names.filter_map(|name| name.strip_prefix("movement."));
    names
        .filter(|name| !is_unfit(name))
        .map(str::to_owned)
        .collect()
}

impl<N> BaseView<N> {
    /// Movement settings of a vCluster.
    pub fn movement_of(&self, vcluster: &VclusterName) -> Movement {
        movement_of(&self.settings_of(vcluster))
    }

    /// Damping of service scaling of a vCluster.
    pub fn damping_of(&self, vcluster: &VclusterName) -> Damping {
        damping_of(&self.settings_of(vcluster))
    }
}

fn preemption_of(settings: &SchedulerSettings, checkpoint: &checkpoint::Policy) -> PreemptionRules {
    let set = &settings.preemption;
    let default = preempt::Policy::default();
    // Unless set otherwise, a vCluster for services preempts on borrowed nodes only.
    let for_services = scheduler::is_for_services(settings);
    PreemptionRules {
        policy: preempt::Policy {
            enabled: set.enabled.unwrap_or(default.enabled),
            max_victims: set.max_victims.unwrap_or(default.max_victims),
            near_completion_ms: set.near_completion_ms.unwrap_or(default.near_completion_ms),
            thrash_interval_ms: set.thrash_interval_ms.unwrap_or(default.thrash_interval_ms),
            thrash_count: set.thrash_count.unwrap_or(default.thrash_count),
            only_borrowed: set.only_borrowed.unwrap_or(for_services),
        },
        patience_ms: set.patience_ms.unwrap_or(PATIENCE_MS),
        timeout_ms: checkpoint.ordinary.timeout_ms,
    }
}

/// Checks that lending is not explicitly allowed for a vCluster for sensitive work.
///
/// # Errors
/// Lending is set to allowed, and the vCluster is for sensitive work.
pub fn check_lending(settings: &SchedulerSettings) -> Result<(), SettingMisfit> {
    let is_set = settings.sharing.allow_lending == Some(true);
    if !is_set || !scheduler::is_for_sensitive(settings) {
        return Ok(());
    }
    let reason = "it cannot be true for a vCluster for sensitive work (scheduler.profile); set it to false, clear it, \
                  or change the profile";
    Err(misfit(ALLOW_LENDING, reason))
}

/// Lending policy. A vCluster for sensitive work lends no nodes, whatever the setting.
fn lending_of(settings: &SchedulerSettings) -> lend::Policy {
    let set = &settings.sharing;
    let default = lend::Policy::default();
    let allow_lending = set.allow_lending.unwrap_or(default.allow_lending);
    lend::Policy {
        allow_lending: allow_lending && !scheduler::is_for_sensitive(settings),
        lending_limit: set.lending_limit.or(default.lending_limit),
        allow_borrowing: set.allow_borrowing.unwrap_or(default.allow_borrowing),
        borrowing_limit: set.borrowing_limit.or(default.borrowing_limit),
        return_grace_ms: set.return_grace_ms.unwrap_or(default.return_grace_ms),
    }
}

/// # Errors
/// The first setting that contradicts the others.
fn scaling_of(settings: &SchedulerSettings) -> Result<Damping, SettingMisfit> {
    let set = &settings.scaling;
    let default = Damping::default();
    let damping = Damping {
        threshold: set
            .threshold
            .map_or(default.threshold, PartsPerMillion::get),
        evaluation_ms: set.evaluate_ms.unwrap_or(default.evaluation_ms),
        up_window_ms: set.up_window_ms.unwrap_or(default.up_window_ms),
        down_window_ms: set.down_window_ms.unwrap_or(default.down_window_ms),
        cooldown_ms: set.cooldown_ms.unwrap_or(default.cooldown_ms),
        missing_alert: set.missing_alert.unwrap_or(default.missing_alert),
        retries: set.retries.unwrap_or(default.retries),
        backoff_cooldowns: set.backoff_cooldowns.unwrap_or(default.backoff_cooldowns),
        oscillation_alert: set.oscillation_alert.unwrap_or(default.oscillation_alert),
        calm_ms: set.calm_ms.unwrap_or(default.calm_ms),
    };
    match damping.check() {
        Ok(()) => Ok(damping),
        Err(error) => Err(policy_misfit(
            "scaling",
            error.field,
            &error.found,
            &error.must,
        )),
    }
}

/// # Errors
/// The first setting that contradicts the others.
fn checkpoint_of(settings: &SchedulerSettings) -> Result<checkpoint::Policy, SettingMisfit> {
    let set = &settings.checkpoint;
    let default = checkpoint::Policy::default();
    let (ordinary, sensitive) = (default.ordinary, default.sensitive);
    let policy = checkpoint::Policy {
        ordinary: checkpoint::Bounds {
            min_interval_ms: set.min_interval_ms.unwrap_or(ordinary.min_interval_ms),
            max_interval_ms: set.max_interval_ms.unwrap_or(ordinary.max_interval_ms),
            timeout_ms: set.timeout_ms.unwrap_or(ordinary.timeout_ms),
        },
        sensitive: checkpoint::Bounds {
            min_interval_ms: set
                .sensitive_min_interval_ms
                .unwrap_or(sensitive.min_interval_ms),
            max_interval_ms: set
                .sensitive_max_interval_ms
                .unwrap_or(sensitive.max_interval_ms),
            timeout_ms: set.sensitive_timeout_ms.unwrap_or(sensitive.timeout_ms),
        },
        max_deferral_ms: set.max_deferral_ms.unwrap_or(default.max_deferral_ms),
        max_deferrals: set.max_deferrals.unwrap_or(default.max_deferrals),
        ..default
    };
    if let Err(error) = policy.check() {
        let value = error.value.to_string();
        return Err(policy_misfit(
            "checkpoint",
            error.field,
            &value,
            &error.must,
        ));
    }
    match check_extension(&policy) {
        Some(misfit) => Err(misfit),
        None => Ok(policy),
    }
}

/// Checks the longest extension of a checkpoint against the quorum's limit of a day. A slow job gets half of its
/// timeout as an extension, and a job that deferred the checkpoint also the time of the deferral.
fn check_extension(policy: &checkpoint::Policy) -> Option<SettingMisfit> {
    let extension_ms = |sensitive| {
        let deadlines = policy.deadlines(sensitive);
        deadlines.longest_ms().saturating_sub(deadlines.timeout_ms)
    };
    let extension_ms = extension_ms(false).max(extension_ms(true));
    let must = format!(
        "such that half of the timeout plus max_deferral_ms is at most one day ({MAX_TIMEOUT_MS} ms)"
    );
    let deferral = policy.max_deferral_ms.to_string();
    let is_too_long = extension_ms > MAX_TIMEOUT_MS;
    is_too_long.then(|| policy_misfit("checkpoint", "max_deferral_ms", &deferral, &must))
}

/// Misfit of a setting, given by its field name in a policy. The API name has seconds instead of milliseconds.
fn policy_misfit(group: &str, field: &str, found: &str, must: &str) -> SettingMisfit {
    let named = |text: &str| {
        let text = text
            .replace("ordinary.", "")
            .replace("sensitive.", "sensitive_");
        text.replace("_ms", "_s")
    };
    let must = named(must);
    let reason = match field.ends_with("_ms") {
        true => format!("it is {found} ms; it must be {must}"),
        false => format!("it is {found}; it must be {must}"),
    };
    misfit(&format!("{group}.{}", named(field)), reason)
}
