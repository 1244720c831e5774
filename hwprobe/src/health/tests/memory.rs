//! What is remembered between passes and agents.

use super::*;

#[test]
fn what_an_agent_before_wrote_down_is_read() {
    let written = r#"{"boot":"b1","reasons":{},"bad_since":{},"counters":{}}"#;
    let memory: Memory = serde_json::from_str(written).unwrap();
    let mut engine = Engine::new(Table::shipped().unwrap(), memory);
    engine.booted("b1");
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
        let mut engine = Engine::new(table, Memory::default());
        for (at, value) in [(0, 0), (u64::MAX / 2, i64::MAX / 2), (u64::MAX, i64::MAX)] {
            engine.observe(at, &seen(&[(key, number(value))]));
        }
        codes(&engine).len()
    };
    assert_eq!(by(i64::MAX), 0);
    assert_eq!(by(1), 1);
    assert_eq!(by(0), 1, "whatever it does");
}
