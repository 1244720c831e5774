//! Movement settings of a vCluster in the API: shown, changed, and checked before they are stored.

#[cfg(test)]
mod tests;

pub(crate) use lattice_view::{Home, Movement, is_least_of_service};

use lattice_api::{
    movement::{
        CheckpointSettingsView, MovementChange, MovementView, PreemptionView, ScalingView,
        SharingView, Value, wrong,
    },
    problem::FieldError,
};
use lattice_placement::{UNBOUNDED_WALLTIME_MS, movement::preempt::MOST_VICTIMS};
use lattice_view::movement::{LENDING_LIMIT, Misfit, MovementReader, key_of};
use std::collections::BTreeMap;

/// What is asked for, in milliseconds of one GPU. A node whose number of GPUs is not given counts as one.
pub(crate) fn asked_gpu_ms(
    nodes: u32,
    gpus_per_node: Option<u32>,
    walltime_ms: Option<u64>,
) -> u128 {
    let gpus = u128::from(gpus_per_node.unwrap_or(1).max(1));
    let walltime = u128::from(walltime_ms.unwrap_or(UNBOUNDED_WALLTIME_MS));
    u128::from(nodes) * gpus * walltime
}

/// What is stored, as people see it.
pub(crate) fn shown(profile: &str) -> MovementView {
    let mut said = MovementReader::new(profile);
    let Movement {
        room,
        lend,
        checkpoint,
    } = said.movement();
    let scale = said.scale();
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
        set: said.set(),
        unread: said.unread(),
    }
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

/// The settings that a change asks for.
///
/// # Errors
/// The first field that is not as it must be.
pub(crate) fn asked(change: &MovementChange) -> Result<BTreeMap<String, String>, FieldError> {
    change.check()?;
    let given = change.given().into_iter().map(|(name, value)| {
        let text = match value {
            // Without a value it is taken back.
            None | Some(Value::Limit(None)) => String::new(),
            Some(Value::Flag(yes)) => yes.to_string(),
            Some(Value::Count(count) | Value::Limit(Some(count))) => count.to_string(),
            Some(Value::Seconds(seconds)) => ((seconds * 1000.0).round() as u64).to_string(),
            Some(Value::Part(part)) => format!("{part:?}"),
        };
        (key_of(name).to_owned(), text)
    });
    Ok(given.collect())
}

/// Checks what a vCluster with so many nodes of its own would have: whether it fits together.
///
/// # Errors
/// The first field that does not, and what would do.
pub(crate) fn check(profile: &str, owned: u32) -> Result<(), FieldError> {
    let mut said = MovementReader::new(profile);
    let movement = said.movement();
    said.scale();
    fits(&said)?;
    let victims = movement.room.policy.max_victims;
    if !(1..=MOST_VICTIMS).contains(&victims) {
        let reason = format!(
            "it is {victims}; it must be from 1 to {MOST_VICTIMS} (preemption.enabled=false: nobody makes room)"
        );
        return Err(wrong("preemption.max_victims", reason));
    }
    let lent = movement.lend.check(owned);
    lent.map_err(|error| wrong(LENDING_LIMIT, error.to_string()))
}

/// Checks whether a vCluster may lend its nodes, where it is set to.
///
/// # Errors
/// It is for sensitive work.
pub(crate) fn check_kind(profile: &str) -> Result<(), FieldError> {
    let mut said = MovementReader::new(profile);
    said.lend();
    fits(&said)
}

/// # Errors
/// The first setting that does not fit the others or the vCluster.
fn fits(read: &MovementReader<'_>) -> Result<(), FieldError> {
    let field = |misfit: &Misfit| wrong(&misfit.setting, misfit.reason.clone());
    read.misfit().map(field).map_or(Ok(()), Err)
}
