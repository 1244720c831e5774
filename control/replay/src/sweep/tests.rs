//! Generation of weight vectors, and the Pareto front.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn vectors(text: &str) -> Result<Vec<WeightVector>, SpaceError> {
    SweepSpace::read(text)?.vectors(7)
}

#[test]
fn every_combination_is_tried_once() {
    let all = vectors(
        "base: {profile: hpc-batch}\nover: {wait_time: [0.1, 0.2], topology: {from: 0, to: 0.4, steps: 5}}\n\
         reservations: [1, all]\nreference_wait_s: [600]\n",
    )
    .unwrap();
    assert_eq!(all.len(), 20);
    let last = &all[19];
    assert_eq!(last.policy.weights.get().topology, 0.4);
    assert_eq!(last.policy.weights.get().wait_time, 0.2);
    // The other weights are those of the base, in full.
    assert_eq!(last.text.weights["fair_share"], 0.2);
    assert_eq!((last.text.weights.len(), &last.text.profile), (9, &None));
    assert_eq!(last.policy.reference_wait_ms, 600_000);
    assert_eq!(read_policy(&last.text).unwrap(), last.policy);
    let values: BTreeSet<String> = all
        .iter()
        .map(|v| v.text.weights["topology"].to_string())
        .collect();
    assert_eq!(
        values.into_iter().collect::<Vec<_>>(),
        ["0", "0.1", "0.2", "0.3", "0.4"]
    );
    // Equal vectors count once.
    assert_eq!(vectors("over: {energy: [0.1, 0.1]}").unwrap().len(), 1);
}

#[test]
fn a_sample_is_drawn_by_its_seed() {
    let text = "over: {wait_time: {from: 0, to: 1, steps: 100}, topology: {from: 0, to: 1, steps: 100}}\nsample: 50\n";
    let space = SweepSpace::read(text).unwrap();
    let drawn = space.vectors(1).unwrap();
    assert_eq!(drawn.len(), 50);
    assert_eq!(drawn, space.vectors(1).unwrap());
    assert_ne!(drawn, space.vectors(2).unwrap());
}

#[test]
fn what_cannot_be_tried_is_named() {
    let error_of = |text: &str| vectors(text).unwrap_err().to_string();
    assert!(error_of("over: {}").starts_with("over: give at least one weight"));
    assert!(error_of("over: {speed: [1]}").contains("unknown weight \"speed\""));
    assert_eq!(
        error_of("over: {energy: []}"),
        "over.energy: it has no values"
    );
    assert_eq!(
        error_of("over: {energy: {from: 0, to: 1, steps: 1}}"),
        "over.energy: steps must be at least 2"
    );
    assert!(error_of("over: {energy: [-1]}").contains("weight energy is -1"));
    assert!(
        error_of("over: {energy: [1]}\nreservations: [some]").contains("reservations is \"some\"")
    );
    assert_eq!(
        error_of("ovr: {energy: [1]}\nsample: many\n"),
        "sample: must be a whole number, 0 or more, not the text \"many\"; ovr: unknown key; did you mean over?"
    );
    let many = "{from: 0, to: 1, steps: 1000}";
    assert!(
        error_of(&format!("over: {{energy: {many}, topology: {many}}}"))
            .contains("more than 100000")
    );
}

#[test]
fn unbeaten_point_is_on_front() {
    let objectives = ["mean_wait_s", "utilization"].map(|name| Measure::named(name).unwrap());
    let values = [
        vec![10.0, 0.5],
        vec![20.0, 0.9],
        vec![20.0, 0.8],
        vec![15.0, 0.5],
        vec![12.0, 0.85],
        vec![10.0, 0.5],
    ];
    let front = pareto(&values, &objectives);
    assert_eq!(front, [0, 1, 4]);
    assert_eq!(nearest_to_ideal(&values, &front, &objectives), Some(4));
    // Both are equally near, so the first objective decides.
    assert_eq!(nearest_to_ideal(&values, &[1, 0], &objectives), Some(0));
    assert_eq!(nearest_to_ideal(&values, &[], &objectives), None);
}
