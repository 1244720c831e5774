//! Numbers from the scheduling algorithm's document.

use super::build::*;
use crate::{priority::factors, *};
use lattice_quorum_types::{AllocationId, ProjectPath, UnixMillis};

const HOUR: u64 = 3_600_000;

fn fraction(value: f64) -> Fraction {
    Fraction::new(value).unwrap()
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}

#[test]
fn the_priority_class_counts_in_tenths() {
    let classes = [0, 5, 10, 11].map(factors::priority);
    assert_eq!(classes, [0.0, 0.5, 1.0, 1.0]);
}

#[test]
fn an_hour_of_waiting_is_ln_2_and_a_week_is_no_bound() {
    let waited = |hours| factors::wait_time(hours * HOUR, HOUR);
    assert_eq!(waited(0), 0.0);
    assert_near(waited(1), std::f64::consts::LN_2);
    // As in the resolution of the document, to two digits.
    assert_eq!((waited(24) * 100.0).round(), 322.0);
    assert_eq!((waited(7 * 24) * 100.0).round(), 513.0);
    assert!(waited(1_000_000) > waited(999_999));
    assert!(
        factors::wait_time(1, 0).is_finite(),
        "a reference of nothing"
    );
}

#[test]
fn deficit_raises_fair_share() {
    let share =
        |target: f64, used: f64| factors::fair_share(Some(fraction(target)), fraction(used));
    assert_near(share(0.15, 0.0), 1.0);
    assert_near(share(0.15, 0.05), 2.0 / 3.0);
    assert_eq!((share(0.15, 0.15), share(0.15, 0.9)), (0.0, 0.0));
    assert_eq!(share(0.0, 0.0), 0.0);
    assert_eq!(factors::fair_share(None, fraction(0.3)), 0.5);
}

#[test]
fn fewer_groups_are_fitter() {
    assert_eq!(factors::topology(1, 8), 0.875);
    assert_eq!(factors::topology(8, 8), 0.0);
    assert_eq!(
        factors::topology(1, 1),
        0.0,
        "as printed: one group in total"
    );
    assert_eq!(factors::topology(1, 0), 0.0);
}

#[test]
fn a_set_of_one_kind_conforms_and_never_more_than_that() {
    assert_eq!(factors::conformance(16, 16), 1.0);
    assert_eq!(factors::conformance(12, 16), 0.75);
    assert_eq!(factors::conformance(128, 1), 1.0);
}

#[test]
fn what_is_not_known_is_neutral() {
    assert_eq!(factors::data_ready(None), 0.5);
    assert_eq!(factors::data_ready(Some(fraction(0.25))), 0.25);
    assert_eq!(factors::energy(None), 0.5);
    assert_eq!(factors::energy(Some(fraction(0.25))), 0.75);
    assert_eq!(factors::checkpoint(None), 0.5);
}

#[test]
fn the_backlog_is_what_waits_for_what_runs() {
    assert_eq!(factors::backlog(0, 0), 0.0);
    assert_eq!(factors::backlog(1, 0), 1.0);
    assert_eq!(factors::backlog(1, 4), 0.25);
    assert_eq!(factors::backlog(9, 4), 1.0);
}

#[test]
fn a_checkpoint_of_a_minute_halves_it() {
    assert_eq!(factors::checkpoint(Some(0.0)), 1.0);
    assert_eq!(factors::checkpoint(Some(1.0)), 0.5);
    assert_near(factors::checkpoint(Some(9.0)), 0.1);
    assert_eq!(factors::checkpoint(Some(f64::INFINITY)), 0.0);
    assert_eq!(factors::checkpoint(Some(f64::NAN)), 0.0);
}

/// 4 nodes with 4 GPUs of 80 GB write 1,280 GB at 10 GB/s: 128 s.
#[test]
fn a_checkpoint_takes_what_the_memory_of_the_gpus_takes() {
    let mut view = machine(1, 4);
    for node in view.nodes.values_mut() {
        node.facts.gpu_memory_bytes = Some(4 * 80_000_000_000);
    }
    submit(&mut view, 1, job(4, Some(5)));
    submit(
        &mut view,
        2,
        PendingView {
            checkpoint_ms: Some(0),
            ..job(1, Some(5))
        },
    );
    let with = |checkpoint_bytes_s| {
        let policy = Policy {
            checkpoint_bytes_s,
            ..Policy::default()
        };
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        let placed = plan.placements.iter().find(|p| p.id == AllocationId(1));
        placed.unwrap().score.factors.checkpoint
    };
    assert_near(with(Some(10_000_000_000)), 1.0 / (1.0 + 128.0 / 60.0));
    assert_eq!(with(Some(0)), 0.0, "it never ends");
    assert_eq!(with(None), 0.5);
}

#[test]
fn a_budget_weighs_from_four_fifths_on_and_leaves_a_twentieth() {
    assert_eq!([0.0, 0.5, 0.8].map(factors::budget), [1.0; 3]);
    assert_near(factors::budget(0.9), 0.525);
    assert_near(factors::budget(1.0), 0.05);
    assert_eq!([1.001, 5.0].map(factors::budget), [0.05; 2]);
    let between: Vec<f64> = (800..=1000)
        .map(|n| factors::budget(f64::from(n) / 1000.0))
        .collect();
    assert!(between.is_sorted_by(|a, b| a > b), "strictly less");
}

#[test]
fn the_budget_that_is_nearer_its_end_counts() {
    let budget = |granted_ms, used_ms| {
        Some(Budget {
            granted_ms,
            used_ms,
        })
    };
    let tenant = |gpu_hours, node_hours| TenantView {
        gpu_hours,
        node_hours,
        ..TenantView::default()
    };
    assert_eq!(tenant(None, None).budget_used(), 0.0);
    assert_eq!(tenant(budget(100, 30), budget(10, 9)).budget_used(), 0.9);
    assert_eq!(
        tenant(budget(0, 0), None).budget_used(),
        1.0,
        "nothing granted"
    );
}

#[test]
fn all_printed_weights_add_up_to_one() {
    let sets = Profile::ALL
        .map(Profile::weights)
        .into_iter()
        .chain([Weights::default()]);
    for weights in sets {
        assert_near(weights.to_array().iter().sum(), 1.0);
    }
    let balanced = [0.20, 0.20, 0.20, 0.15, 0.10, 0.05, 0.00, 0.00, 0.10];
    assert_eq!(Weights::default().to_array(), balanced);
}

#[test]
fn a_weight_that_is_no_weight_is_named() {
    for value in [-0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let raw = RawWeights {
            energy: value,
            ..*Weights::default().get()
        };
        let error = Weights::new(raw).unwrap_err();
        assert_eq!(error.name, "energy");
        assert!(error.to_string().contains("at least 0"), "{error}");
    }
    let json = r#"{"priority":1,"wait_time":-1,"fair_share":0,"topology":0,"data_ready":0,
        "backlog":0,"energy":0,"checkpoint":0,"conformance":0}"#;
    let error = serde_json::from_str::<Weights>(json).unwrap_err();
    assert!(
        error.to_string().contains("weight wait_time is -1"),
        "{error}"
    );
}

#[test]
fn a_fraction_is_from_0_to_1() {
    for value in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let error = Fraction::new(value).unwrap_err();
        assert!(error.to_string().contains("from 0 to 1"), "{error}");
    }
    assert_eq!(fraction(1.0), Fraction::ONE);
    assert_eq!(fraction(0.1234564).get(), 0.123456);
}

/// Four jobs on 8 groups of 20 free nodes. No job runs, so the backlog is 1, and the energy price is neutral.
///
/// | job | class | waited | share | groups | data | checkpoint |
/// |---|---|---|---|---|---|---|
/// | 1, large | 5 | 1 h | no target | 5 of 8 | unknown | 4 min |
/// | 2, urgent | 9 | - | all used | 1 of 8 | unknown | 1 min |
/// | 3, patient | 3 | 7 h | no target | 1 of 8 | all | 1 min |
/// | 4, poor | 6 | - | none used | 1 of 8 | none | 0 min |
fn published() -> ClusterView {
    let mut view = machine(8, 20);
    for (tenant, used) in [("rich", 0.2), ("poor", 0.0)] {
        level(&mut view, tenant, None, 0);
        let had = TenantView {
            share_target: Some(fraction(0.1)),
            share_used: fraction(used),
            ..TenantView::default()
        };
        view.tenants.insert(ProjectPath::new(tenant).unwrap(), had);
    }
    view.energy_price = Some(fraction(0.5));
    let row = |tenant: &str, nodes, class, hours: u64, data: Option<f64>, minutes| PendingView {
        project: ProjectPath::new(tenant).unwrap(),
        class,
        eligible_at: UnixMillis(LATER.0 - hours * HOUR),
        data_ready: data.map(fraction),
        checkpoint_ms: Some(minutes * MINUTE),
        ..job(nodes, Some(60))
    };
    submit(&mut view, 1, row("t", 96, 5, 1, None, 4));
    submit(&mut view, 2, row("rich", 16, 9, 0, None, 1));
    submit(&mut view, 3, row("t", 16, 3, 7, Some(1.0), 1));
    submit(&mut view, 4, row("poor", 16, 6, 0, Some(0.0), 0));
    view
}

const LATER: UnixMillis = UnixMillis(10 * HOUR);

#[test]
fn the_five_profiles_rank_a_published_set_of_jobs_as_by_hand() {
    // Sums of the table's weights times the factors above, to six digits.
    let by_hand = [
        (
            Profile::HpcBatch,
            [(3, 0.967138), (4, 0.621250), (1, 0.579879), (2, 0.491250)],
        ),
        (
            Profile::MlTraining,
            [(3, 0.881694), (4, 0.653750), (2, 0.608750), (1, 0.533065)],
        ),
        (
            Profile::Service,
            [(3, 0.792722), (4, 0.733750), (2, 0.678750), (1, 0.648407)],
        ),
        (
            Profile::Sensitive,
            [(2, 0.910000), (4, 0.640000), (1, 0.550000), (3, 0.370000)],
        ),
        (
            Profile::Interactive,
            [(3, 1.203832), (1, 0.782944), (4, 0.610000), (2, 0.565000)],
        ),
    ];
    for (profile, ranked) in by_hand {
        let policy = Policy {
            weights: profile.weights(),
            ..Policy::default()
        };
        let plan = Planner::with_policy(published(), policy).plan(LATER);
        let found: Vec<u64> = plan.placements.iter().map(|p| p.id.0).collect();
        assert_eq!(found, ranked.map(|(id, _)| id), "{profile:?}");
        for (placement, (_, total)) in plan.placements.iter().zip(ranked) {
            assert!(
                (placement.score.total - total).abs() < 1e-6,
                "{placement:?}"
            );
        }
    }
}

/// The order of one queue does not depend on factors common to all its jobs.
#[test]
fn the_order_does_not_depend_on_the_backlogs_weight() {
    let order = |backlog| {
        let raw = RawWeights {
            backlog,
            ..*Weights::default().get()
        };
        let policy = Policy {
            weights: Weights::new(raw).unwrap(),
            ..Policy::default()
        };
        let plan = Planner::with_policy(published(), policy).plan(LATER);
        plan.placements.iter().map(|p| p.id.0).collect::<Vec<_>>()
    };
    assert_eq!(order(0.0), order(5.0));
}

#[test]
fn a_tenant_that_used_up_its_budget_comes_last_and_keeps_its_order() {
    let mut view = published();
    let spent = Budget {
        granted_ms: HOUR,
        used_ms: 2 * HOUR,
    };
    let tenant = TenantView {
        gpu_hours: Some(spent),
        ..TenantView::default()
    };
    view.tenants.insert(ProjectPath::new("t").unwrap(), tenant);
    let plan = Planner::new(view).plan(LATER);
    let order: Vec<u64> = plan.placements.iter().map(|p| p.id.0).collect();
    assert_eq!(order, [4, 2, 3, 1], "placed nevertheless");
    let budget = TenantFactors {
        budget: 0.05,
        ..TenantFactors::default()
    };
    assert_eq!(plan.placements[3].score.tenant, budget);
}

/// Each cause has its own factor; the lowest multiplies, so that two causes rank a tenant no lower than one.
#[test]
fn lowest_tenant_factor_multiplies() {
    let half_over = Budget {
        granted_ms: 10,
        used_ms: 9,
    };
    let causes = [
        (None, true, false, (1.0, 0.05, 1.0)),
        (None, false, true, (1.0, 1.0, 0.05)),
        (Some(half_over), false, false, (0.525, 1.0, 1.0)),
        (Some(half_over), true, true, (0.525, 0.05, 0.05)),
    ];
    for (gpu_hours, beyond_burst, downscaled, (budget, share, accounting)) in causes {
        let tenant = TenantView {
            gpu_hours,
            beyond_burst,
            downscaled,
            ..TenantView::default()
        };
        let factors = tenant.factors();
        assert!((factors.budget - budget).abs() < 1e-9, "{factors:?}");
        assert_eq!((factors.share, factors.accounting), (share, accounting));
        let mut view = published();
        view.tenants.insert(ProjectPath::new("t").unwrap(), tenant);
        let plan = Planner::new(view).plan(LATER);
        let score = plan
            .placements
            .iter()
            .find(|placed| placed.id.0 == 1)
            .unwrap()
            .score;
        let sum = score.factors.weighted(&Weights::default());
        assert_eq!(score.tenant, factors);
        assert!((score.total - sum * factors.lowest()).abs() < 1e-9);
    }
}
