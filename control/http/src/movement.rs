//! Movement settings of a vCluster in the API: conversion, changes, and validation before they are stored.

#[cfg(test)]
mod tests;

use lattice_api::{
    movement::{
        CheckpointSettingsView, MovementChange, MovementView, PreemptionView, ScalingView,
        SharingView, setting_error,
    },
    problem::FieldError,
};
use lattice_quorum_types::scheduler::{
    CheckpointPatch, InvalidSetting, PartsPerMillion, PreemptionPatch, ScalingPatch,
    SchedulerPatch, SchedulerSettings, SettingPatch, SharingPatch,
};
use lattice_view::{
    Movement,
    settings::movement::{
        LENDING_LIMIT, SettingMisfit, check_lending, damping_of, in_force, misfits, movement_of,
    },
};

/// API view of the settings in force.
pub(crate) fn movement_view(settings: &SchedulerSettings) -> MovementView {
    let Movement {
        preemption: room,
        lend,
        checkpoint,
    } = movement_of(settings);
    let scale = damping_of(settings);
    let (ordinary, sensitive) = (checkpoint.ordinary, checkpoint.sensitive);
    MovementView {
        preemption: PreemptionView {
            enabled: room.policy.enabled,
            max_victims: room.policy.max_victims,
            patience_s: seconds(room.patience_ms),
            near_completion_threshold_s: seconds(room.policy.near_completion_ms),
            thrash_interval_s: seconds(room.policy.thrash_interval_ms),
            thrash_count: room.policy.thrash_count,
            only_borrowed: room.policy.only_borrowed,
        },
        sharing: SharingView {
            allow_lending: lend.allow_lending,
            lending_limit: lend.lending_limit,
            allow_borrowing: lend.allow_borrowing,
            borrowing_limit: lend.borrowing_limit,
            return_grace_s: seconds(lend.return_grace_ms),
        },
        checkpoint: CheckpointSettingsView {
            timeout_s: seconds(ordinary.timeout_ms),
            min_interval_s: seconds(ordinary.min_interval_ms),
            max_interval_s: seconds(ordinary.max_interval_ms),
            sensitive_timeout_s: seconds(sensitive.timeout_ms),
            sensitive_min_interval_s: seconds(sensitive.min_interval_ms),
            sensitive_max_interval_s: seconds(sensitive.max_interval_ms),
            max_deferral_s: seconds(checkpoint.max_deferral_ms),
            max_deferral_count: checkpoint.max_deferrals,
        },
        scaling: ScalingView {
            threshold: scale.threshold,
            evaluation_s: seconds(scale.evaluation_ms),
            up_window_s: seconds(scale.up_window_ms),
            down_window_s: seconds(scale.down_window_ms),
            cooldown_s: seconds(scale.cooldown_ms),
            missing_alert: scale.missing_alert,
            retries: scale.retries,
            backoff_cooldowns: scale.backoff_cooldowns,
            oscillation_alert: scale.oscillation_alert,
            calm_s: seconds(scale.calm_ms),
        },
        set: in_force(settings),
        unread: misfits(settings)
            .iter()
            .map(SettingMisfit::to_string)
            .collect(),
    }
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

/// Adds the movement settings that a request changes.
///
/// # Errors
/// Returns the first invalid field.
pub(crate) fn patch(change: &MovementChange, patch: &mut SchedulerPatch) -> Result<(), FieldError> {
    change.check()?;
    let MovementChange {
        preemption,
        sharing,
        checkpoint,
        scaling,
    } = *change;
    if let Some(change) = preemption {
        patch.preemption = PreemptionPatch {
            enabled: change.enabled.into(),
            max_victims: change.max_victims.into(),
            patience_ms: millis(change.patience_s),
            near_completion_ms: millis(change.near_completion_threshold_s),
            thrash_interval_ms: millis(change.thrash_interval_s),
            thrash_count: change.thrash_count.into(),
            only_borrowed: change.only_borrowed.into(),
        };
    }
    if let Some(change) = sharing {
        patch.sharing = SharingPatch {
            allow_lending: change.allow_lending.into(),
            lending_limit: change.lending_limit.into(),
            allow_borrowing: change.allow_borrowing.into(),
            borrowing_limit: change.borrowing_limit.into(),
            return_grace_ms: millis(change.return_grace_s),
        };
    }
    if let Some(change) = checkpoint {
        patch.checkpoint = CheckpointPatch {
            timeout_ms: millis(change.timeout_s),
            min_interval_ms: millis(change.min_interval_s),
            max_interval_ms: millis(change.max_interval_s),
            sensitive_timeout_ms: millis(change.sensitive_timeout_s),
            sensitive_min_interval_ms: millis(change.sensitive_min_interval_s),
            sensitive_max_interval_ms: millis(change.sensitive_max_interval_s),
            max_deferral_ms: millis(change.max_deferral_s),
            max_deferrals: change.max_deferral_count.into(),
        };
    }
    if let Some(change) = scaling {
        patch.scaling = ScalingPatch {
            threshold: threshold(change.threshold)?,
            evaluate_ms: millis(change.evaluation_s),
            up_window_ms: millis(change.up_window_s),
            down_window_ms: millis(change.down_window_s),
            cooldown_ms: millis(change.cooldown_s),
            missing_alert: change.missing_alert.into(),
            retries: change.retries.into(),
            backoff_cooldowns: change.backoff_cooldowns.into(),
            oscillation_alert: change.oscillation_alert.into(),
            calm_ms: millis(change.calm_s),
        };
    }
    Ok(())
}

/// Converts seconds, already checked for range, to milliseconds.
fn millis(seconds: Option<Option<f64>>) -> SettingPatch<u64> {
    let millis = |seconds: f64| (seconds * 1000.0).round() as u64;
    seconds.map(|seconds| seconds.map(millis)).into()
}

/// Converts the scaling threshold to parts per million.
///
/// # Errors
/// Returns an error when the threshold is negative or not a number; [`MovementChange::check`] checks the range.
fn threshold(part: Option<Option<f64>>) -> Result<SettingPatch<PartsPerMillion>, FieldError> {
    let Some(Some(part)) = part else {
        return Ok(part.map(|_| None).into());
    };
    let parts = PartsPerMillion::rounded(part).ok_or_else(|| {
        let reason = format!("it is {part}; it must be above 0 and below 1");
        setting_error("scaling.threshold", reason)
    })?;
    Ok(SettingPatch::Set(parts))
}

/// Checks the settings of a vCluster with `owned` nodes of its own: each value, and whether the values fit together.
///
/// # Errors
/// Returns the first invalid field.
pub(crate) fn check(settings: &SchedulerSettings, owned: u32) -> Result<(), FieldError> {
    settings.check().map_err(invalid)?;
    if let Some(found) = misfits(settings).first() {
        return Err(misfit(found));
    }
    let lent = movement_of(settings).lend.check(owned);
    lent.map_err(|error| setting_error(LENDING_LIMIT, error.to_string()))
}

/// Checks whether a vCluster that is set to lend its nodes may lend them.
///
/// # Errors
/// Returns an error when the vCluster is set to lend and is for sensitive allocations.
pub(crate) fn check_may_lend(settings: &SchedulerSettings) -> Result<(), FieldError> {
    check_lending(settings).map_err(|found| misfit(&found))
}

fn invalid(error: InvalidSetting) -> FieldError {
    FieldError {
        field: error.setting.to_owned(),
        reason: error.reason,
    }
}

fn misfit(misfit: &SettingMisfit) -> FieldError {
    setting_error(&misfit.setting, misfit.reason.clone())
}
