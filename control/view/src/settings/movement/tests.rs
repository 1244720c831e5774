use super::*;
use lattice_quorum_types::scheduler::WorkloadKind;

/// The defaults with these settings changed.
fn settings(edit: impl FnOnce(&mut SchedulerSettings)) -> SchedulerSettings {
    let mut settings = SchedulerSettings::default();
    edit(&mut settings);
    settings
}

#[test]
fn unset_settings_have_defaults() {
    let usual = movement_of(&SchedulerSettings::default());
    assert_eq!(usual.preemption.policy, preempt::Policy::default());
    assert_eq!(
        (usual.preemption.timeout_ms, usual.preemption.patience_ms),
        (600_000, 60_000)
    );
    assert_eq!(usual.lend, lend::Policy::default());
    assert_eq!(usual.checkpoint, checkpoint::Policy::default());
    let damping = damping_of(&SchedulerSettings::default());
    assert_eq!(damping, Damping::default());
    assert_eq!(misfits(&SchedulerSettings::default()), []);
}

#[test]
fn set_values_are_in_force() {
    let set = settings(|s| {
        s.checkpoint.timeout_ms = Some(2000);
        s.preemption.enabled = Some(false);
        s.preemption.patience_ms = Some(0);
        s.sharing.lending_limit = Some(50);
        s.sharing.return_grace_ms = Some(1000);
        s.scaling.evaluate_ms = Some(500);
        s.scaling.up_window_ms = Some(1000);
        s.scaling.threshold = Some(PartsPerMillion(800_000));
    });
    let movement = movement_of(&set);
    assert!(!movement.preemption.policy.enabled);
    assert_eq!(
        (
            movement.preemption.patience_ms,
            movement.preemption.timeout_ms
        ),
        (0, 2000)
    );
    assert_eq!(movement.lend.lending_limit, Some(50));
    assert_eq!(movement.lend.return_grace_ms, 1000);
    let quick = damping_of(&set);
    assert_eq!((quick.evaluation_ms, quick.up_window_ms), (500, 1000));
    assert_eq!(quick.threshold, 0.8);
    assert_eq!(quick.cooldown_ms, Damping::default().cooldown_ms);
    assert_eq!(in_force(&set).len(), 8);
}

/// Two concurrent changes may store a combination that neither change has.
#[test]
fn defaults_replace_a_group_that_does_not_fit() {
    let unfit = settings(|s| {
        s.checkpoint.max_interval_ms = Some(1);
        s.checkpoint.timeout_ms = Some(2000);
        s.scaling.down_window_ms = Some(864_000_000);
        s.sharing.return_grace_ms = Some(500);
    });
    let (movement, usual) = (
        movement_of(&unfit),
        movement_of(&SchedulerSettings::default()),
    );
    assert_eq!(movement.preemption, usual.preemption);
    assert_eq!(movement.checkpoint, usual.checkpoint);
    assert_eq!(movement.lend.return_grace_ms, 500);
    assert_eq!(damping_of(&unfit), Damping::default());
    assert_eq!(in_force(&unfit), ["sharing.return_grace_s"]);
    let reported: Vec<String> = misfits(&unfit)
        .iter()
        .map(SettingMisfit::to_string)
        .collect();
    assert_eq!(
        reported,
        [
            "movement.checkpoint.min_interval_s: it is 300000 ms; it must be at most \
             max_interval_s (1)",
            "movement.scaling.down_window_s: it is 864000000 ms; it must be at most 1440 \
             times evaluation_s (86400000)",
        ]
    );
}

/// The quorum limits each extension of a checkpoint to a day.
#[test]
fn deferral_and_extension_take_a_day_at_most() {
    let deferral = |timeout_ms, max_deferral_ms| {
        misfits(&settings(|s| {
            s.checkpoint.timeout_ms = Some(timeout_ms);
            s.checkpoint.max_deferral_ms = Some(max_deferral_ms);
        }))
    };
    assert_eq!(deferral(57_600_000, 57_600_000), []);
    let found = deferral(600_000, 86_400_000);
    assert_eq!(found[0].setting, "checkpoint.max_deferral_s");
    assert!(found[0].reason.contains("half of the timeout"), "{found:?}");
}

#[test]
fn nodes_for_sensitive_work_are_not_lent() {
    let of_kind = |kind, allow_lending| {
        settings(|s| {
            s.kind = Some(kind);
            s.weights.energy = Some(PartsPerMillion(500_000));
            s.sharing.allow_lending = allow_lending;
            s.sharing.lending_limit = Some(2);
        })
    };
    let sensitive = of_kind(WorkloadKind::Sensitive, None);
    assert!(!movement_of(&sensitive).lend.allow_lending);
    assert_eq!(check_lending(&sensitive), Ok(()));
    let service = of_kind(WorkloadKind::Service, Some(true));
    assert!(movement_of(&service).lend.allow_lending);
    assert_eq!(check_lending(&service), Ok(()));
    let set = of_kind(WorkloadKind::Sensitive, Some(true));
    let lend = movement_of(&set).lend;
    assert_eq!((lend.allow_lending, lend.lending_limit), (false, Some(2)));
    assert_eq!(in_force(&set), ["sharing.lending_limit"]);
    assert!(check_lending(&set).is_err());
    assert_eq!(misfits(&set).len(), 1);
}

#[test]
fn services_make_room_on_borrowed_nodes_only() {
    let of = |kind, only_borrowed| {
        let set = settings(|s| {
            s.kind = Some(kind);
            s.preemption.only_borrowed = only_borrowed;
        });
        movement_of(&set).preemption.policy.only_borrowed
    };
    assert!(of(WorkloadKind::Service, None));
    assert!(!of(WorkloadKind::Service, Some(false)));
    assert!(!of(WorkloadKind::Balanced, None));
}
