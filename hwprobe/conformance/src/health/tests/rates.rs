//! Counter rises over gaps between samples that are longer than a check's window.

use super::*;

const KEY: &str = "nic.1.port.1.symbol_error";
const RECOVERY: &str = "nic.1.port.1.link_error_recovery";

/// Reason codes after these samples of one counter; times are in seconds.
fn after(key: &str, samples: &[(u64, i64)]) -> Vec<String> {
    let mut engine = engine();
    engine.set_boot_id("b1");
    for (at, value) in samples {
        engine.observe(at * SECOND, &seen(&[(key, number(*value))]));
    }
    codes(&engine)
}

#[test]
fn what_rose_in_two_days_without_an_agent_did_not_rise_in_an_hour() {
    const DAYS: u64 = 48 * 3600;
    assert!(after(KEY, &[(0, 0), (60, 0), (DAYS, 130)]).is_empty());
    // The gap does not count as the hour together with the samples after it.
    let later = [(0, 0), (DAYS, 130), (DAYS + 60, 130), (DAYS + 1800, 130)];
    assert!(after(KEY, &later).is_empty());
    assert!(after(KEY, &[(0, 0), (DAYS, 120 * 48)]).is_empty());
    let many = after(KEY, &[(0, 0), (DAYS, 120 * 48 + 1)]);
    assert_eq!(many, ["nic.symbol_errors nic.1.port.1"]);
    // A rise after the gap belongs entirely to this hour.
    let now = [(0, 0), (DAYS, 130), (DAYS + 1800, 130 + 121)];
    assert_eq!(after(KEY, &now), ["nic.symbol_errors nic.1.port.1"]);
    // An event that must not occur at all is reported whenever it occurred.
    let once = after("nic.1.port.1.link_downed", &[(0, 0), (DAYS, 1)]);
    assert_eq!(once, ["nic.link_downed nic.1.port.1"]);
}

#[test]
fn a_node_that_is_looked_at_seldom_is_judged_by_the_same_rate() {
    let fires = ["nic.link_recovery nic.1.port.1"];
    let at_every = |interval: u64, by: i64| {
        let samples: Vec<(u64, i64)> = (0..40).map(|n| (n * interval, by * n as i64)).collect();
        after(RECOVERY, &samples)
    };
    // Six in ten minutes is a tenth of the limit.
    assert!(at_every(600, 6).is_empty());
    assert!(at_every(600, 50).is_empty());
    assert_eq!(at_every(600, 60), fires);
    assert!(at_every(60, 5).is_empty());
    assert_eq!(at_every(60, 6), fires);
    // The interval between passes varies by a tenth.
    assert_eq!(at_every(66, 6), fires);
    assert!(at_every(54, 4).is_empty());
    assert_eq!(at_every(15, 2), fires);
    assert!(at_every(15, 1).is_empty());
}

#[test]
fn three_flaps_count_for_twelve_hours() {
    let key = "nic.1.port.1.link_downed";
    let flaps = |codes: Vec<String>| codes.iter().any(|code| code.starts_with("nic.link_flaps"));
    for minutes in [1, 5, 30, 60] {
        let at = |hours: u64| -> Vec<(u64, i64)> {
            let times = (0..=hours * 60 / minutes).map(|n| n * minutes * 60);
            // Down at 2 h, 5 h and 8 h.
            let value =
                |at: u64| i64::from(at >= 7200) + i64::from(at >= 18_000) + i64::from(at >= 28_800);
            times.map(|at| (at, value(at))).collect()
        };
        assert!(!flaps(after(key, &at(7))), "{minutes}");
        assert!(flaps(after(key, &at(8))), "{minutes}");
        assert!(flaps(after(key, &at(13))), "{minutes}");
        assert!(!flaps(after(key, &at(15))), "{minutes}");
    }
}
