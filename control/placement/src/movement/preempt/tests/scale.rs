//! Victim search with thousands of candidates.

use super::{
    super::{
        search::{self, Candidate, SearchGoal},
        *,
    },
    build::*,
};
use proptest::{collection::vec, prelude::*};

fn candidate(id: u64, gain: u32, class: u8, burst: bool, cost: f64) -> Candidate {
    Candidate {
        id: AllocationId(id),
        nodes: (0..gain as usize).collect(),
        gains: vec![gain],
        class,
        burst,
        cost: Cost {
            checkpoint: cost,
            ..Cost::default()
        },
        saved_after_ms: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(64)))]

    /// Dropping dominated candidates loses no better set: compared with every set of 65 to 90 candidates.
    #[test]
    fn of_many_the_best_is_still_found(
        all in vec((1..12_u32, 0..4_u8, any::<bool>(), 1..1_000_u32), 65..90),
        short in 1..24_u32,
    ) {
        let candidates: Vec<Candidate> = (0..).zip(all)
            .map(|(id, (gain, class, burst, cost))| candidate(id, gain, class, burst, f64::from(cost)))
            .collect();
        let goal = SearchGoal { missing: vec![short], most: 3 };
        let value = |class: u8| f64::from(10 - class) * 60.0;
        let mut least: Option<(f64, f64)> = None;
        let n = candidates.len();
        let weight = |set: &[&Candidate]| {
            let weighed = |only_others: bool| {
                let set = set.iter().filter(|c| !(only_others && c.burst));
                // The sum of an empty set is -0.
                let cost = set.clone().map(|c| c.cost.total()).fold(0.0, |a, b| a + b);
                cost * [0.0, 1.0, 1.25, 1.5][set.count()]
            };
            (weighed(true), weighed(false))
        };
        let mut look = |set: &[&Candidate]| {
            let gain: u32 = set.iter().map(|c| c.gains[0]).sum();
            let cost: f64 = set.iter().map(|c| c.cost.total()).sum();
            let class = set.iter().map(|c| c.class).max().unwrap();
            let weight = weight(set);
            if gain >= short && cost < value(class) && least.is_none_or(|l| weight < l) {
                least = Some(weight);
            }
        };
        for a in 0..n {
            look(&[&candidates[a]]);
            for b in a + 1..n {
                look(&[&candidates[a], &candidates[b]]);
                for c in b + 1..n {
                    look(&[&candidates[a], &candidates[b], &candidates[c]]);
                }
            }
        }
        let found = search::best(&candidates, &goal, value);
        let first = found.sets.first().map(|set| weight(&set.members(&candidates)));
        prop_assert_eq!(first, least);
    }
}

/// Candidates differ in size, and larger ones cost more: none is dominated, so some good ones must be dropped.
#[test]
fn of_too_many_a_set_is_still_found() {
    let cost = |n: u32| f64::from(n) * f64::from(1000 - n % 7);
    let candidates: Vec<Candidate> = (1..=2_000)
        .map(|n| candidate(n.into(), n, 3, false, cost(n)))
        .collect();
    for short in [1, 100, 1_999, 2_000, 4_000, 5_997] {
        let goal = SearchGoal {
            missing: vec![short],
            most: 3,
        };
        let found = search::best(&candidates, &goal, |_| f64::INFINITY);
        let best = found.sets[0];
        let gained: u32 = best.members(&candidates).iter().map(|c| c.gains[0]).sum();
        assert!(
            gained >= short && gained <= short + 400,
            "{short}: {gained}"
        );
    }
    let goal = SearchGoal {
        missing: vec![5_998],
        most: 3,
    };
    assert!(
        search::best(&candidates, &goal, |_| f64::INFINITY)
            .sets
            .is_empty()
    );
}

#[test]
fn ten_thousand_nodes_with_two_thousand_running() {
    let mut site = Site::new(100, 100);
    let names: Vec<NodeId> = site.view.nodes.keys().cloned().collect();
    for (n, nodes) in (0..).zip(names.chunks(5)) {
        let names: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
        let of = HolderFacts {
            burst: n % 10 == 4,
            saves: CheckpointAbility::In {
                write_ms: MINUTE + n * 37 % 600 * 1000,
            },
            ..work((n % 7) as u8)
        };
        site.run(
            100 + n,
            &names[..1 + n as usize % 5],
            (6 + n % 40) * HOUR,
            of,
        );
    }
    // The remaining nodes are out of service, so that none is free.
    for node in site.view.nodes.values_mut() {
        node.in_service = node.holder.is_some();
    }
    site.ask(job(12, 8));
    let chosen = site.choose().unwrap();
    assert_eq!((chosen.nodes.len(), chosen.victims.len()), (12, 3));
    assert!(chosen.victims.iter().all(|v| v.burst));
    assert_eq!(site.choose().unwrap(), chosen);
}
