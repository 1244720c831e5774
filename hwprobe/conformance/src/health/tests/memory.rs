//! Engine state kept between passes and agents.

use super::*;
use crate::NicIdentity;

#[test]
fn what_an_agent_before_wrote_down_is_read() {
    let written = r#"{"boot":"b1","reasons":{},"bad_since":{},"counters":{}}"#;
    let memory: EngineState = serde_json::from_str(written).unwrap();
    let mut engine = Engine::new(Table::shipped().unwrap(), memory);
    engine.set_boot_id("b1");
    engine.observe(0, &Inventory::default());
    assert_eq!(codes(&engine), Vec::<String>::new());
}

#[test]
fn a_check_that_a_site_takes_away_leaves_nothing_behind() {
    let port = |state: &str| {
        let state = Reading::Present(Value::from(state));
        seen(&[("nic.1.port.1.state", state)])
    };
    let mut engine = engine();
    engine.observe(0, &port("ACTIVE"));
    let off = "version: x\nchecks: { nic.port_lost: { off: true } }";
    let table = Table::shipped().unwrap().with_site(off).unwrap();
    let memory = Engine::new(table, engine.memory().clone()).memory().clone();
    let mut engine = Engine::new(Table::shipped().unwrap(), memory);
    for hour in 1..4 {
        engine.observe(hour * HOUR, &port("DOWN"));
    }
    let named = codes(&engine);
    assert!(named.iter().all(|code| !code.starts_with("nic.port_lost")));
}

#[test]
fn a_rise_over_any_time_is_weighed_without_a_panic() {
    let key = "nic.1.port.1.symbol_error";
    let by = |by: i64| {
        let site = format!(
            "version: x\nchecks: {{ nic.symbol_errors: {{ when: {{ rises: {{ by: {by}, within_s: 1 }} }} }} }}"
        );
        let table = Table::shipped().unwrap().with_site(&site).unwrap();
        let mut engine = Engine::new(table, EngineState::default());
        for (at, value) in [(0, 0), (u64::MAX / 2, i64::MAX / 2), (u64::MAX, i64::MAX)] {
            engine.observe(at, &seen(&[(key, number(value))]));
        }
        codes(&engine).len()
    };
    assert_eq!(by(i64::MAX), 0);
    assert_eq!(by(1), 1);
}

/// A NIC with its live values.
type Nic = (NicIdentity, [(String, Reading<Value>); 3]);

#[test]
fn a_nic_that_moves_up_when_another_falls_off_is_not_taken_for_that_one() {
    let nic = |slot: u32, address: &str, state: &str, flaps: i64| {
        let identity = NicIdentity {
            slot,
            address: Reading::Present(address.to_owned()),
            ..NicIdentity::default()
        };
        let port = format!("nic.{slot}.port.1");
        let link = if state == "ACTIVE" { "up" } else { "down" };
        let link = Reading::Present(Value::from(link));
        let state = Reading::Present(Value::from(state));
        let values = [
            (format!("{port}.state"), state),
            (format!("{port}.link_downed"), number(flaps)),
            // A key of the NIC itself, which is also the entity of the check.
            (format!("nic.{slot}.cxi.link_state"), link),
        ];
        (identity, values)
    };
    let see = |nics: Vec<Nic>| {
        let mut seen = Inventory::default();
        for (identity, values) in nics {
            seen.identity.nics.push(identity);
            for (key, value) in values {
                seen.vitals.put(key, value);
            }
        }
        seen
    };
    let mut engine = engine();
    // The second NIC has no cable, and was replugged often before the agent started.
    engine.observe(
        0,
        &see(vec![nic(0, "a", "ACTIVE", 0), nic(1, "b", "DOWN", 9)]),
    );
    for at in 1..10 {
        engine.observe(at * 100 * SECOND, &see(vec![nic(0, "b", "DOWN", 9)]));
    }
    let counted = engine.report().reasons.into_iter();
    let counted: Vec<Reason> = counted.filter(|reason| !reason.observe_only).collect();
    assert_eq!(counted, []);
    // Its own later changes are detected.
    engine.observe(HOUR, &see(vec![nic(0, "b", "ACTIVE", 9)]));
    engine.observe(HOUR + SECOND, &see(vec![nic(0, "b", "DOWN", 10)]));
    engine.observe(HOUR + 241 * SECOND, &see(vec![nic(0, "b", "DOWN", 10)]));
    let named = codes(&engine);
    assert!(
        named.contains(&"nic.port_lost nic.0.port.1".to_owned()),
        "{named:?}"
    );
    assert!(
        named.contains(&"nic.link_downed nic.0.port.1".to_owned()),
        "{named:?}"
    );
}
