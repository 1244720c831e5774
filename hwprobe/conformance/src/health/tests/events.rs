//! Driver events of GPUs: duration, and the events that end them.

use super::*;

#[test]
fn xid_lasts_until_boot_or_clearing() {
    let mut engine = engine();
    engine.set_boot_id("b1");
    engine.event(
        0,
        "gpu.3",
        &EventCode::Xid(79),
        "GPU has fallen off the bus.",
    );
    engine.event(0, "gpu.4", &EventCode::Xid(31), "MMU Fault");
    let report = engine.report();
    assert_eq!(report.worst, Some(Severity::Faulty));
    assert!(report.reasons[0].drains());
    assert!(!report.reasons[1].drains());
    // Weeks later, with a restart of the agent in between.
    let memory: EngineState =
        serde_json::from_str(&serde_json::to_string(engine.memory()).unwrap()).unwrap();
    let mut engine = Engine::new(Table::shipped().unwrap(), memory);
    engine.set_boot_id("b1");
    engine.observe(400 * HOUR, &Inventory::default());
    assert_eq!(codes(&engine), ["gpu.xid.79 gpu.3"]);
    let mut cleared = engine.clone();
    assert_eq!(cleared.clear("gpu.xid.79", Some("gpu.1")), 0);
    assert_eq!(cleared.clear("gpu.xid.79", None), 1);
    assert!(codes(&cleared).is_empty());
    engine.set_boot_id("b2");
    assert!(codes(&engine).is_empty());
}

#[test]
fn driver_names_action() {
    let mut engine = engine();
    let said = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)";
    engine.event(0, "gpu.0", &EventCode::Xid(154), said);
    assert_eq!(engine.report().reasons[0].action, Action::Reboot);
    let said = "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)";
    engine.event(SECOND, "gpu.0", &EventCode::Xid(154), said);
    assert_eq!(engine.report().worst, Some(Severity::Inform));
}

#[test]
fn a_reset_that_succeeds_ends_what_it_began_and_nothing_of_another_gpu() {
    let mut engine = engine();
    let amd = EventCode::Amd;
    engine.event(0, "gpu.amd.1", &amd(AmdEvent::Poison), "poison is consumed");
    engine.event(
        0,
        "gpu.amd.1",
        &amd(AmdEvent::ResetBegun),
        "GPU reset begin!",
    );
    engine.event(
        0,
        "gpu.amd.2",
        &amd(AmdEvent::ResetBegun),
        "GPU reset begin!",
    );
    assert!(engine.report().reasons[0].drains());
    engine.event(SECOND, "gpu.amd.1", &amd(AmdEvent::ResetDone), "");
    assert_eq!(
        codes(&engine),
        [
            "gpu.amd.reset_begun gpu.amd.2",
            "gpu.amd.poison gpu.amd.1",
            "gpu.amd.reset_done gpu.amd.1"
        ]
    );
    engine.event(SECOND, "gpu.amd.2", &amd(AmdEvent::ResetFailed), "");
    assert_eq!(codes(&engine)[0], "gpu.amd.reset_failed gpu.amd.2");
    assert_eq!(engine.report().reasons[0].action, Action::Reboot);
    // A day later, only reasons that no event ended remain.
    engine.observe(25 * HOUR, &Inventory::default());
    assert_eq!(codes(&engine), ["gpu.amd.reset_failed gpu.amd.2"]);
}

#[test]
fn every_event_of_another_driver_has_a_class_and_a_site_names_only_those() {
    let table = Table::shipped().unwrap();
    let of_amd = AmdEvent::ALL.map(EventCode::Amd);
    let of_mlx5 = Mlx5Event::ALL.map(EventCode::Mlx5);
    for code in of_amd.into_iter().chain(of_mlx5) {
        assert!(table.events.contains_key(&code.reason()), "{code}");
        assert_eq!(EventCode::from_reason(&code.reason()), Some(code));
    }
    assert_eq!(table.events.len(), of_amd.len() + of_mlx5.len());
    let site = "version: x\nevents: { gpu.amd.ring_timout: { observe_only: true } }";
    let error = table.with_site(site).unwrap_err().to_string();
    assert!(
        error.contains("events.gpu.amd.ring_timout: unknown event (similar: gpu."),
        "{error}"
    );
}

#[test]
fn a_nic_that_failed_is_faulty_until_its_driver_has_it_again() {
    let mut engine = engine();
    let mlx5 = EventCode::Mlx5;
    let tell = |engine: &mut Engine, entity: &str, event| {
        engine.event(SECOND, entity, &mlx5(event), "");
    };
    for event in [
        Mlx5Event::CommandTimeout,
        Mlx5Event::HealthCompromised,
        Mlx5Event::Fatal,
        Mlx5Event::RecoveryFailed,
        Mlx5Event::Unrecoverable,
    ] {
        tell(&mut engine, "nic.1", event);
    }
    tell(&mut engine, "nic.2", Mlx5Event::Fatal);
    assert!(engine.report().reasons.iter().all(Reason::drains));
    tell(&mut engine, "nic.1", Mlx5Event::Recovered);
    // A hardware fault stays.
    assert_eq!(
        codes(&engine),
        [
            "nic.mlx5.fatal nic.2",
            "nic.mlx5.unrecoverable nic.1",
            "nic.mlx5.recovered nic.1"
        ]
    );
}
