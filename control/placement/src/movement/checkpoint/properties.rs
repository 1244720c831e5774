//! Properties of every checkpoint decision, for any input.

use super::tests::*;
use super::*;
use crate::Fraction;
use proptest::{prelude::*, sample::select};

fn any_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..DAY,
        select(&[0, 1, 5 * MINUTE, 6 * HOUR, u64::MAX - 1, u64::MAX][..])
    ]
}

fn any_fraction() -> impl Strategy<Value = Fraction> {
    (0..=1_000_000_u32).prop_map(Fraction::millionths)
}

fn any_waiting() -> impl Strategy<Value = WaitingUrgency> {
    let jobs = proptest::collection::vec((0..12_u8, any_ms()), 0..6);
    (select(&[0, 1, HOUR, u64::MAX][..]), jobs).prop_map(|(urgent_after_ms, jobs)| {
        let mut waiting = WaitingUrgency::new(urgent_after_ms);
        jobs.into_iter()
            .for_each(|(class, ms)| waiting.add(class, ms));
        waiting
    })
}

fn any_holding() -> impl Strategy<Value = HeldResources> {
    let most = || prop_oneof![0..5000_u64, Just(u64::MAX)];
    let nodes = prop_oneof![0..3_u32, 0..5000_u32, Just(u32::MAX)];
    (nodes, most(), any_ms()).prop_map(|(nodes, gpus, bytes)| HeldResources { nodes, gpus, bytes })
}

fn any_storage() -> impl Strategy<Value = Storage> {
    let bytes_s = prop_oneof![1..1_u64 << 40, Just(u64::MAX)];
    prop_oneof![
        4 => Just(Storage::Unknown),
        4 => bytes_s.prop_map(Storage::Writes),
        1 => Just(Storage::Writes(0)),
        1 => Just(Storage::Paused),
    ]
}

/// Any input; most inputs describe an allocation that can write a checkpoint.
fn any_input() -> impl Strategy<Value = Input<'static>> {
    let times = (
        proptest::option::weighted(0.95, any_ms()),
        proptest::option::of(any_ms()),
        proptest::option::of(any_ms()),
        proptest::option::of(any_ms()),
    );
    let failures = proptest::option::weighted(0.2, (any::<u32>(), any_ms()));
    let rest = (any::<bool>(), 0..12_u8, any::<bool>(), any_fraction());
    (times, failures, any_holding(), any_storage(), rest).prop_map(
        |((started, ends, last, checkpoint_ms), failures, holding, storage, rest)| Input {
            now: NOW,
            state: AllocationState::Running,
            timing: Timing::WhenItPays,
            sensitive: rest.0,
            class: rest.1,
            holding,
            checkpoint_ms,
            started_at: started.map(|ms| UnixMillis(NOW.0.saturating_sub(ms))),
            ends_at: ends.map(|ms| NOW.after(ms)),
            last_at: last.map(|ms| UnixMillis(NOW.0.saturating_sub(ms))),
            failures: failures.map(|(times, ms)| Failures {
                times,
                last_at: UnixMillis(NOW.0.saturating_sub(ms)),
            }),
            storage,
            waiting: NOTHING,
            preemptible: rest.2,
            backlog: rest.3,
        },
    )
}

/// Any policy, including settings that no real vCluster would have.
fn any_policy() -> impl Strategy<Value = Policy> {
    let bounds = || {
        (any_ms(), any_ms(), any_ms()).prop_map(|(min, max, timeout)| Bounds {
            min_interval_ms: min,
            max_interval_ms: max,
            timeout_ms: timeout,
        })
    };
    let bounds = || prop_oneof![bounds(), Just(Policy::default().ordinary)];
    let fractions = [
        any_fraction(),
        any_fraction(),
        any_fraction(),
        any_fraction(),
    ];
    let prices = [any_ms(), any_ms(), any_ms(), any_ms()];
    (bounds(), bounds(), fractions, prices, any::<u32>()).prop_map(
        |(ordinary, sensitive, fractions, prices, extension_percent)| {
            let [
                failure_probability,
                preemption_probability,
                backlog_probability,
                wait_part,
            ] = fractions;
            let [failure_period_ms, storage_price, kept_ms, gpu_hour_price] = prices;
            Policy {
                ordinary,
                sensitive,
                failure_probability,
                failure_period_ms,
                preemption_probability,
                backlog_probability,
                wait_part,
                storage_price,
                kept_ms,
                gpu_hour_price,
                extension_percent,
                ..Policy::default()
            }
        },
    )
}

const NOTHING: &WaitingUrgency = &WaitingUrgency::NOTHING;

fn decides_to_write(input: &Input<'_>, policy: &Policy) -> bool {
    matches!(decide(input, policy), Decision::Write { .. })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(2000)))]

    #[test]
    fn every_number_is_finite(input in any_input(), waiting in any_waiting(), policy in any_policy()) {
        let input = Input { waiting: &waiting, ..input };
        let numbers = match decide(&input, &policy) {
            Decision::Write { value, cost, .. } => Some((value, cost)),
            Decision::Wait(CheckpointObstacle::CostsMore { value, cost }) => Some((value, cost)),
            Decision::Wait(_) => None,
        };
        if let Some((value, cost)) = numbers {
            let terms = [
                value.recompute_saved, value.preemptability, value.backlog_relief, value.total(),
                cost.wait, cost.compute_waste, cost.storage, cost.total(),
            ];
            prop_assert!(terms.iter().all(|term| term.is_finite() && *term >= 0.0), "{terms:?}");
        }
        prop_assert_eq!(decide(&input, &policy), decide(&input, &policy));
    }

    #[test]
    fn more_reason_never_makes_it_less_inclined(
        input in any_input(),
        policy in any_policy(),
        waiting in any_waiting(),
        more in (any_ms(), any_fraction(), any_fraction(), 0..12_u8, any_ms()),
    ) {
        let input = Input { waiting: &waiting, ..input };
        if !decides_to_write(&input, &policy) {
            return Ok(());
        }
        let (since, backlog, failure, class, waited) = more;
        // More time since the last checkpoint.
        let earlier = |at: Option<UnixMillis>| at.map(|at| UnixMillis(at.0.saturating_sub(since)));
        let longer = Input {
            started_at: earlier(input.started_at),
            last_at: earlier(input.last_at),
            failures: None,
            ..input.clone()
        };
        prop_assert!(decides_to_write(&longer, &policy), "longer ago");
        // A deeper queue, and one more waiting job.
        let deeper = Input { backlog: input.backlog.max(backlog), ..input.clone() };
        prop_assert!(decides_to_write(&deeper, &policy), "a deeper queue");
        let mut fuller = waiting.clone();
        fuller.add(class, waited);
        let fuller = Input { waiting: &fuller, ..input.clone() };
        prop_assert!(decides_to_write(&fuller, &policy), "one more waits");
        // More node failures.
        let failing = Policy {
            failure_probability: policy.failure_probability.max(failure),
            ..policy.clone()
        };
        prop_assert!(decides_to_write(&input, &failing), "more failures");
        // Less to write, in less time.
        let mut smaller = input.clone();
        smaller.holding.bytes /= 2;
        smaller.checkpoint_ms = input.checkpoint_ms.map(|ms| ms / 2);
        prop_assert!(decides_to_write(&smaller, &policy), "a smaller one");
    }

    #[test]
    fn intervals_are_kept(input in any_input(), policy in any_policy()) {
        let bounds = policy.bounds(input.sensitive);
        let Some(began) = input.started_at.max(input.last_at) else { return Ok(()) };
        let began = began.max(input.started_at.unwrap_or(began));
        let since_ms = NOW.since(began);
        if decides_to_write(&input, &policy) {
            prop_assert!(since_ms >= bounds.min_interval_ms);
            prop_assert!(input.started_at.is_some() && input.holding.nodes > 0);
            let takes_ms = policy.write_ms(&input).unwrap_or(u64::MAX);
            prop_assert!(input.ends_at.is_none_or(|end| end > NOW.after(takes_ms)));
        }
        if let Decision::Wait(CheckpointObstacle::CostsMore { value, cost }) = decide(&input, &policy) {
            prop_assert!(since_ms < bounds.max_interval_ms);
            prop_assert!(value.total() <= cost.total());
        }
    }
}
