//! Every check of the shipped table just below its limit and at it. The limits are repeated here, so that a mistake in
//! the table is found; a check without a row fails.

mod rows;

use super::*;
use Case::{Above, Finds, Left, Rises, Word};
use rows::ROWS;
use std::collections::BTreeSet;

/// Test case for one check of the shipped table.
enum Case {
    /// The finding of this name is reported.
    Finds(&'static str),
    /// The first word or flag is good; the second is bad after this duration, in seconds.
    Word(&'static str, &'static str, &'static str, u64),
    /// The first number is good and the second is bad after this duration; the option is a second key with its value.
    Above(&'static str, i64, i64, u64, Option<(&'static str, i64)>),
    /// The counter may rise by less than this amount in this many seconds.
    Rises(&'static str, i64, u64),
    /// The value was the first word in this boot, and has been the second for this duration, in seconds.
    Left(&'static str, &'static str, &'static str, u64),
}

#[test]
fn every_check_has_a_row_and_every_row_a_check() {
    let table = Table::shipped().unwrap();
    let checks: BTreeSet<&str> = table.checks.keys().map(String::as_str).collect();
    let rows: BTreeSet<&str> = ROWS.iter().map(|(code, _)| *code).collect();
    assert_eq!(rows.len(), ROWS.len(), "a row is there twice");
    assert_eq!(checks, rows);
}

#[test]
fn every_check_speaks_at_its_limit_and_not_before() {
    for (code, case) in ROWS {
        match case {
            Finds(finding) => at_a_finding(code, finding),
            Word(key, good, bad, for_s) => {
                at_a_value(code, key, (word(good), word(bad)), *for_s, None);
            }
            Above(key, good, bad, for_s, beside) => {
                at_a_value(code, key, (number(*good), number(*bad)), *for_s, *beside);
            }
            Rises(key, by, within_s) => at_a_rate(code, key, *by, *within_s),
            Left(key, was, now, for_s) => at_a_loss(code, key, (word(was), word(now)), *for_s),
        }
    }
}

/// Whether the report contains a reason of this check.
fn speaks(engine: &Engine, code: &str) -> bool {
    let mut reasons = engine.report().reasons.into_iter();
    reasons.any(|reason| reason.code == code)
}

fn word(word: &str) -> Reading<Value> {
    Reading::Present(match word {
        "true" => Value::Flag(true),
        "false" => Value::Flag(false),
        word => Value::from(word),
    })
}

fn at_a_finding(code: &str, finding: &str) {
    let finding = crate::FindingCode::from_name(finding).unwrap();
    let mut fine = Inventory::default();
    let record = crate::ClassRecord::new(finding.class());
    fine.records.insert(finding.class(), record);
    let mut wrong = fine.clone();
    wrong.findings.push(Finding::new(finding, "seen"));
    let mut engine = engine();
    engine.observe(0, &fine);
    assert!(!speaks(&engine, code), "{code} before");
    engine.observe(SECOND, &wrong);
    assert!(speaks(&engine, code), "{code}");
    engine.observe(2 * SECOND, &fine);
    assert!(!speaks(&engine, code), "{code} after");
}

fn at_a_value(
    code: &str,
    key: &str,
    (good, bad): (Reading<Value>, Reading<Value>),
    for_s: u64,
    beside: Option<(&str, i64)>,
) {
    let see = |reading: &Reading<Value>| {
        let mut values = vec![(key, reading.clone())];
        values.extend(beside.map(|(key, value)| (key, number(value))));
        seen(&values)
    };
    let mut engine = engine();
    engine.observe(0, &see(&good));
    engine.observe(HOUR, &see(&good));
    assert!(!speaks(&engine, code), "{code} at {key} {good}");
    let since = 2 * HOUR;
    engine.observe(since, &see(&bad));
    if for_s > 0 {
        engine.observe(since + for_s * SECOND - 1, &see(&bad));
        assert!(!speaks(&engine, code), "{code} before {for_s} s");
    }
    engine.observe(since + for_s * SECOND, &see(&bad));
    assert!(speaks(&engine, code), "{code} at {key} {bad}");
    engine.observe(since + for_s * SECOND + 1, &see(&good));
    assert!(!speaks(&engine, code), "{code} after it");
}

fn at_a_rate(code: &str, key: &str, by: i64, within_s: u64) {
    let window = within_s * SECOND;
    let at = |at_ms: u64, risen: i64| {
        let mut engine = engine();
        engine.observe(HOUR, &seen(&[(key, number(100))]));
        engine.observe(HOUR + at_ms, &seen(&[(key, number(100 + risen))]));
        speaks(&engine, code)
    };
    assert!(!at(1, by - 1), "{code} below {by}");
    assert!(at(1, by), "{code} at {by} at once");
    assert!(!at(window, by - 1), "{code} below {by} in {within_s} s");
    assert!(at(window, by), "{code} at {by} in {within_s} s");
    // Two windows allow twice the rise; one more exceeds the limit in one of them.
    assert!(!at(2 * window, 2 * (by - 1)), "{code} in two windows");
    assert!(at(2 * window, 2 * (by - 1) + 1), "{code} in two windows");
}

fn at_a_loss(code: &str, key: &str, (was, now): (Reading<Value>, Reading<Value>), for_s: u64) {
    let see = |reading: &Reading<Value>| seen(&[(key, reading.clone())]);
    let mut engine = engine();
    engine.set_boot_id("b1");
    for at in 0..10 {
        engine.observe(at * HOUR, &see(&now));
    }
    assert!(!speaks(&engine, code), "{code}: it was never {was}");
    engine.observe(10 * HOUR, &see(&was));
    assert!(!speaks(&engine, code), "{code}");
    let memory = serde_json::to_string(engine.memory()).unwrap();
    let memory: EngineState = serde_json::from_str(&memory).unwrap();
    let mut engine = Engine::new(Table::shipped().unwrap(), memory);
    engine.set_boot_id("b1");
    let since = 11 * HOUR;
    engine.observe(since, &see(&now));
    engine.observe(since + for_s * SECOND - 1, &see(&now));
    assert!(!speaks(&engine, code), "{code} before {for_s} s");
    engine.observe(since + for_s * SECOND, &see(&now));
    assert!(speaks(&engine, code), "{code}");
    // The reason persists for any time, whether or not the value is readable.
    engine.observe(1000 * HOUR, &see(&Reading::failed("input/output error")));
    engine.observe(1001 * HOUR, &see(&now));
    assert!(speaks(&engine, code), "{code} ends by itself");
    let mut booted = engine.clone();
    booted.set_boot_id("b2");
    for at in 1002..1010 {
        booted.observe(at * HOUR, &see(&now));
    }
    assert!(!speaks(&booted, code), "{code} of the boot before");
    // The operator removed the cable permanently, and clears the reason.
    let mut meant = engine.clone();
    assert_eq!(meant.clear(code, Some("gpu.9")), 0);
    assert_eq!(meant.clear(code, None), 1);
    for at in 1002..1010 {
        meant.observe(at * HOUR, &see(&now));
    }
    assert!(!speaks(&meant, code), "{code} is meant to be so");
    engine.observe(1002 * HOUR, &see(&was));
    assert!(!speaks(&engine, code), "{code} when it is {was} again");
}
