//! Scheduler settings in scenarios: rows of audit names and values.

use lattice_quorum_types::scheduler::{
    PartsPerMillion, SchedulerPatch, SettingPatch, WorkloadKind,
};
use std::{fmt::Debug, str::FromStr};

/// Change of settings for these rows. An empty value clears the setting.
pub fn patch(rows: &[(String, String)]) -> SchedulerPatch {
    let mut patch = SchedulerPatch::default();
    for (name, text) in rows {
        put(&mut patch, name, text);
    }
    patch
}

fn put(patch: &mut SchedulerPatch, name: &str, text: &str) {
    let SchedulerPatch {
        preemption,
        sharing,
        checkpoint,
        scaling,
        ..
    } = patch;
    match name {
        "profile" => patch.kind = of(text, |text| WorkloadKind::named(text).unwrap()),
        "preemption.enabled" => preemption.enabled = value(text),
        "preemption.near_completion_ms" => preemption.near_completion_ms = value(text),
        "preemption.only_borrowed" => preemption.only_borrowed = value(text),
        "preemption.patience_ms" => preemption.patience_ms = value(text),
        "preemption.thrash_count" => preemption.thrash_count = value(text),
        "preemption.thrash_interval_ms" => preemption.thrash_interval_ms = value(text),
        "sharing.allow_borrowing" => sharing.allow_borrowing = value(text),
        "sharing.allow_lending" => sharing.allow_lending = value(text),
        "sharing.borrowing_limit" => sharing.borrowing_limit = value(text),
        "sharing.lending_limit" => sharing.lending_limit = value(text),
        "sharing.return_grace_ms" => sharing.return_grace_ms = value(text),
        "checkpoint.max_deferrals" => checkpoint.max_deferrals = value(text),
        "checkpoint.max_interval_ms" => checkpoint.max_interval_ms = value(text),
        "checkpoint.min_interval_ms" => checkpoint.min_interval_ms = value(text),
        "checkpoint.timeout_ms" => checkpoint.timeout_ms = value(text),
        "scale.cooldown_ms" => scaling.cooldown_ms = value(text),
        "scale.down_window_ms" => scaling.down_window_ms = value(text),
        "scale.evaluate_ms" => scaling.evaluate_ms = value(text),
        "scale.threshold" => {
            let parts = |text: &str| PartsPerMillion::rounded(text.parse().unwrap()).unwrap();
            scaling.threshold = of(text, parts);
        }
        "scale.up_window_ms" => scaling.up_window_ms = value(text),
        other => panic!("{other} is not a setting of scenarios; add it here"),
    }
}

fn value<T: FromStr<Err: Debug>>(text: &str) -> SettingPatch<T> {
    of(text, |text| text.parse().unwrap())
}

fn of<T>(text: &str, read: impl Fn(&str) -> T) -> SettingPatch<T> {
    match text {
        "" => SettingPatch::Clear,
        text => SettingPatch::Set(read(text)),
    }
}
