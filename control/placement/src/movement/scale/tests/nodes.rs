//! Changes of the nodes of a service.

use super::*;

fn below(nodes: u32, from: Source) -> Decision {
    Decision::Grow {
        nodes,
        from,
        cause: Cause::BelowMin,
    }
}

#[test]
fn its_least_nodes_are_its_own_vclusters() {
    let grows = |nodes: Vec<HeldNode>| {
        let mut service = Service::of(0);
        service.nodes = nodes;
        service.minutes_until(HIGH).1
    };
    assert_eq!(grows(vec![own(0), own(1)]), up(Source::Any));
    assert_eq!(grows(vec![own(0), own(1), borrowed(2)]), up(Source::Any));
    assert_eq!(grows(vec![own(0), borrowed(1)]), up(Source::Home));
    assert_eq!(grows(vec![borrowed(0), borrowed(1)]), up(Source::Home));
}

#[test]
fn newest_node_leaves_first() {
    let goes = |nodes: Vec<HeldNode>| {
        let mut service = Service::of(0);
        service.nodes = nodes;
        service.minutes_until(LOW).1
    };
    assert_eq!(goes(vec![own(0), own(2), own(1)]), down(2));
    // Added at the same time: the last by name.
    let [a, b, c] = [2, 4, 3].map(|n| HeldNode {
        added_at: START,
        ..own(n)
    });
    assert_eq!(goes(vec![a, b, c]), down(4));
    // The minimum must stay of its own vCluster.
    assert_eq!(goes(vec![own(5), own(6), borrowed(1)]), down(1));
    assert_eq!(goes(vec![own(5), borrowed(7), borrowed(6)]), down(7));
    assert_eq!(goes(vec![own(5), own(6), own(7), borrowed(1)]), down(7));
}

#[test]
fn least_loaded_node_leaves_first() {
    let loads = |loads: [Option<f64>; 4]| {
        let mut service = Service::of(0);
        let node = |(n, load)| HeldNode { load, ..own(n) };
        service.nodes = (0..4).zip(loads).map(node).collect();
        service.minutes_until(LOW).1
    };
    assert_eq!(loads([Some(3.0), Some(1.0), Some(2.0), Some(4.0)]), down(1));
    assert_eq!(loads([Some(1.0), Some(1.0), Some(2.0), Some(4.0)]), down(1));
    assert_eq!(loads([Some(3.0), Some(1.0), None, Some(4.0)]), down(3));
    let nan = Some(f64::NAN);
    assert_eq!(loads([Some(3.0), Some(1.0), nan, Some(4.0)]), down(3));
    let negative = Some(f64::NEG_INFINITY);
    assert_eq!(loads([negative, Some(1.0), Some(0.0), Some(4.0)]), down(3));
    // The load of nodes that stay in any case need not be known.
    let mut service = Service::of(2);
    let known = |n, load| HeldNode {
        load: Some(load),
        ..borrowed(n)
    };
    service.nodes.extend([known(2, 0.1), known(3, 0.2)]);
    assert_eq!(service.minutes_until(LOW).1, down(2));
}

#[test]
fn leaving_node_counts_and_leaves_once() {
    let mut service = Service::of(6);
    service.nodes[5].leaving = true;
    assert_eq!(service.minutes_until(LOW).1, down(4));
    // Six nodes are present, and five of them stay.
    let mut service = Service::of(6);
    service.nodes[5].leaving = true;
    for _ in 0..2 {
        service.waits(HIGH);
        service.pass(MINUTE);
    }
    assert_eq!(service.waits(HIGH), NoScalingReason::AtMax);
    service.nodes.pop();
    service.pass(MINUTE);
    assert_eq!(service.decides(HIGH), UP);
}

#[test]
fn a_drain_is_one_change() {
    let mut service = Service::of(4);
    let (_, decision) = service.minutes_until(LOW);
    assert_eq!(decision, down(3));
    service.nodes[3].leaving = true;
    service.answer(ProposalOutcome::Done);
    let until = service.now.after(3 * MINUTE);
    service.pass(MINUTE);
    assert_eq!(service.waits(LOW), NoScalingReason::Cooldown { until });
    // The node is gone now, which is not another change.
    service.nodes.pop();
    service.pass(MINUTE);
    assert_eq!(service.waits(LOW), NoScalingReason::Cooldown { until });
    service.pass(MINUTE);
    assert_eq!(service.decides(LOW), down(2));
}

#[test]
fn what_is_reclaimed_below_its_least_is_replaced_at_once() {
    let mut service = Service::of(5);
    service.waits(HIGH);
    service.nodes.truncate(1);
    service.pass(SECOND);
    let outcome = service.asked(None);
    assert_eq!(outcome.decision, below(1, Source::Home));
    let alert = Alert::BelowMin {
        nodes: 1,
        min_nodes: 2,
    };
    assert_eq!(outcome.alerts, [alert]);
    // One alert; one proposal per evaluation.
    let at = service.now.after(54 * SECOND);
    service.pass(SECOND);
    assert_eq!(service.waits(None), NoScalingReason::NotDue { at });
    service.pass(53 * SECOND);
    assert_eq!(service.decides(FINE), below(1, Source::Home));
    service.commit(&below(1, Source::Home));
    let until = service.now.after(3 * MINUTE);
    service.pass(MINUTE);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
    // The cooldown does not delay a replacement, and the alert is raised again.
    service.nodes.clear();
    let outcome = service.asked(HIGH);
    assert_eq!(outcome.decision, below(2, Source::Home));
    assert_eq!(outcome.alerts.len(), 1);
}

#[test]
fn reclaimed_node_is_replaced_early() {
    let mut service = Service::of(2);
    service.nodes[0].leaving = true;
    let outcome = service.asked(FINE);
    assert_eq!(outcome.decision, below(1, Source::Home));
    assert_eq!(outcome.alerts.len(), 1);
    // Not beyond the maximum.
    let mut service = Service::of(2);
    service.policy.max_nodes = 2;
    service.nodes[0].leaving = true;
    let outcome = service.asked(FINE);
    assert_eq!(outcome.decision, Decision::Wait(NoScalingReason::AtMax));
}

#[test]
fn a_replacement_waits_for_room_and_for_the_end_of_a_pause() {
    let mut service = Service::of(0);
    service.headroom = 0;
    assert_eq!(
        service.asked(FINE).decision,
        Decision::Wait(NoScalingReason::LimitReached)
    );
    // As many as the headroom allows.
    service.headroom = 1;
    assert_eq!(service.decides(None), below(1, Source::Home));
    for retry in 0..4 {
        service.answer(ProposalOutcome::Refused);
        service.pass(MINUTE);
        match retry {
            3 => assert!(matches!(
                service.waits(FINE),
                NoScalingReason::BackingOff { .. }
            )),
            _ => assert_eq!(service.decides(FINE), below(1, Source::Home)),
        }
    }
    service.pass(5 * MINUTE);
    assert_eq!(service.decides(FINE), below(1, Source::Home));
}

#[test]
fn what_is_reclaimed_above_its_least_is_a_change() {
    let mut service = Service::of(2);
    service.nodes.extend([borrowed(2), borrowed(3)]);
    service.waits(HIGH);
    service.pass(MINUTE);
    service.nodes.pop();
    service.waits(HIGH);
    let until = service.now.after(3 * MINUTE);
    service.pass(MINUTE);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
    service.pass(MINUTE);
    assert_eq!(service.minutes_until(HIGH), (1, UP));
}

#[test]
fn one_that_comes_while_another_goes_is_a_change() {
    let mut service = Service::of(3);
    let (_, decision) = service.minutes_until(HIGH);
    // The addition was not reported.
    service.happens(&decision);
    service.nodes.remove(0);
    service.pass(MINUTE);
    let until = service.now.after(3 * MINUTE);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
    // The addition was reported, but the node left before any call saw it; the expectation ends.
    service.pass(MINUTE);
    let (_, decision) = service.minutes_until(HIGH);
    service.answer(ProposalOutcome::Done);
    service.pass(MINUTE);
    let until = service.now.after(3 * MINUTE);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
    service.pass(MINUTE);
    assert_eq!(service.minutes_until(HIGH), (2, decision));
}

#[test]
fn a_node_that_is_seen_late_is_one_change() {
    let mut service = Service::of(2);
    let (_, decision) = service.minutes_until(HIGH);
    service.answer(ProposalOutcome::Done);
    service.pass(30 * SECOND);
    assert!(matches!(
        service.waits(HIGH),
        NoScalingReason::NotDue { .. }
    ));
    service.happens(&decision);
    service.pass(30 * SECOND);
    // The cooldown starts before the node was present.
    let until = service.now.after(150 * SECOND);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
}

#[test]
fn lowered_maximum_releases_one_by_one() {
    let mut service = Service::of(5);
    service.policy.max_nodes = 3;
    let trim = |n| Decision::Shrink {
        node: name(n),
        cause: Cause::AboveMax,
    };
    // Never without a metric.
    assert!(matches!(
        service.waits(None),
        NoScalingReason::MetricMissing { .. }
    ));
    service.pass(MINUTE);
    assert_eq!(service.minutes_until(HIGH), (0, trim(4)));
    service.commit(&trim(4));
    assert_eq!(service.minutes_until(HIGH), (3, trim(3)));
    service.commit(&trim(3));
    service.pass(5 * MINUTE);
    service.waits(HIGH);
}
