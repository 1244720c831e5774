use super::*;

const DAY_MS: u64 = 86_400_000;

#[test]
fn renewal_is_at_two_thirds_give_or_take_a_twentieth_of_the_life() {
    let (issued_at, expires_at) = (UnixMillis(DAY_MS), UnixMillis(31 * DAY_MS));
    let part = |fraction| {
        renew_at(issued_at, expires_at, fraction).since(issued_at) as f64 / (30 * DAY_MS) as f64
    };
    assert!((part(0.0) - 0.6167).abs() < 0.001, "{}", part(0.0));
    assert!((part(0.5) - 0.6667).abs() < 0.001, "{}", part(0.5));
    assert!((part(1.0) - 0.7167).abs() < 0.001, "{}", part(1.0));
}

/// A thousand members with certificates of the same issue time renew at different times.
#[test]
fn members_are_spread() {
    let mut tenths = [0; 10];
    for seed in 0..1000 {
        let fraction = fraction(seed, 1_800_000_000_000);
        assert!((0.0..=1.0).contains(&fraction));
        tenths[((fraction * 10.0) as usize).min(9)] += 1;
    }
    assert!(tenths.iter().all(|n| (60..140).contains(n)), "{tenths:?}");
    assert_ne!(
        fraction(1, 1),
        fraction(1, 2),
        "nor the same one always first"
    );
}

#[test]
fn adopts_new_authority_within_minutes() {
    let issued_at = UnixMillis(0);
    let wait =
        |days: u64, fraction| superseded_wait(issued_at, UnixMillis(days * DAY_MS), fraction);
    assert_eq!(wait(30, 1.0), SUPERSEDED_SPREAD);
    assert_eq!(
        wait(30, 0.0),
        SUPERSEDED_SPREAD / 10,
        "until all have heard"
    );
    let short = superseded_wait(issued_at, UnixMillis(60_000), 1.0);
    assert_eq!(short, Duration::from_secs(3));
}

#[test]
fn retries_slow_down_but_never_sleep_through_the_end() {
    let bounds = (Duration::from_secs(30), Duration::from_secs(900));
    let wait =
        |failures, left| retry_wait(bounds, failures, Duration::from_secs(left), 0.0).as_secs();
    assert_eq!([1, 2, 3, 9].map(|n| wait(n, 864_000)), [30, 60, 120, 900]);
    assert_eq!(wait(9, 400), 100, "a quarter of what is left");
    assert_eq!(wait(9, 2), 1);
    assert_eq!(wait(1, 0), 900, "it has ended");
    let sooner = retry_wait(bounds, 1, Duration::from_secs(864_000), 1.0);
    assert_eq!(sooner, Duration::from_millis(22_500));
}
