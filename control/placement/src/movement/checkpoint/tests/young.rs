//! Checkpoint period when no job waits, compared with Young's formula.

use super::*;

/// Time of the first checkpoint of an allocation without further facts.
fn first_written_s(input: &Input<'_>, policy: &Policy) -> f64 {
    let mut input = input.clone();
    let mut writes = |ms: u64| {
        input.started_at = Some(UnixMillis(0));
        input.now = UnixMillis(ms);
        matches!(decide(&input, policy), Decision::Write { .. })
    };
    let (mut no, mut yes) = (0, 1 << 50);
    assert!(writes(yes) && !writes(no));
    while yes - no > 1 {
        let middle = no.midpoint(yes);
        match writes(middle) {
            true => yes = middle,
            false => no = middle,
        }
    }
    yes as f64 / 1000.0
}

/// Young (1974): sqrt(2·C·MTBF); the MTBF of the job is that of a node divided by its nodes. Daly (2006) subtracts the
/// writing time, and adds terms that are small here.
#[test]
fn without_pressure_the_period_is_youngs() {
    let unbounded = Bounds {
        min_interval_ms: 0,
        max_interval_ms: u64::MAX,
        timeout_ms: HOUR,
    };
    let policy = Policy {
        ordinary: unbounded,
        ..plain()
    };
    let defaults = Policy {
        ordinary: unbounded,
        ..Policy::default()
    };
    let waiting = WaitingUrgency::default();
    for nodes in [1, 2, 16, 128, 1024] {
        for gpus in [0, 4, 8] {
            for write_s in [1, 10, 100, 600] {
                let input = Input {
                    holding: holding(nodes, gpus),
                    checkpoint_ms: Some(write_s * SECOND),
                    ..input(&waiting)
                };
                let mtbf_s = 1000.0 * 86_400.0 / f64::from(nodes);
                let young_s = (2.0 * write_s as f64 * mtbf_s).sqrt();
                let ratio = first_written_s(&input, &policy) / young_s;
                assert!((ratio - 1.0).abs() < 1e-5, "{nodes} {write_s}: {ratio}");
                // The wait and storage terms make the period longer. The largest effect occurs where one GPU pays for
                // the storage of a whole node, since the storage term is then three times the GPU time.
                let ratio = first_written_s(&input, &defaults) / young_s;
                let most = if gpus == 0 { 2.2 } else { 1.4 };
                assert!((1.0..most).contains(&ratio), "{nodes} {gpus}: {ratio}");
            }
        }
    }
}
