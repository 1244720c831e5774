//! Limits set by force below the sum of the children's limits. The level is marked as overcommitted, and requests are
//! still checked against it. The mark is cleared when the children fit.

use crate::common::{Cluster, limits, path, spec};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Applied, Command, Refusal,
    allocation::RankExit,
    audit::AuditAction,
    command::{LimitChange, Privilege},
    limit::{LimitPatch, Patch, Resource},
    limit_policy::{LimitFault, LimitPolicy},
    view::{Answer, Query},
};

/// Tenant `physics` has a limit of 240 nodes; 150 of the 180 in `physics/a` are used, and the 60 in `physics/b` are
/// unused.
fn physics() -> (Cluster, lattice_quorum_types::AllocationId) {
    let mut c = Cluster::default();
    c.create("physics", Some(limits(240))).unwrap();
    c.create("physics/a", Some(limits(180))).unwrap();
    c.create("physics/b", Some(limits(60))).unwrap();
    c.add_nodes(200);
    let id = c.submit(spec("physics/a", 150)).unwrap();
    c.assign(id).unwrap();
    c.start_all(id);
    (c, id)
}

fn change(at: &str, nodes: u64) -> Vec<LimitChange> {
    vec![LimitChange {
        path: path(at),
        patch: LimitPatch {
            max_nodes: Patch::Set(nodes),
            ..LimitPatch::default()
        },
    }]
}

fn set(c: &mut Cluster, at: &str, nodes: u64) -> Result<Applied, Refusal> {
    let changes = change(at, nodes);
    c.admin(Command::SetLimits { changes })
}

fn force(c: &mut Cluster, at: &str, nodes: u64) -> Result<Applied, Refusal> {
    let changes = change(at, nodes);
    c.admin(Command::ForceLimits { changes })
}

fn is_over(c: &Cluster, at: &str) -> bool {
    c.state.project(&path(at)).unwrap().overcommitted
}

fn exceeds(sum: u128, limit: u64) -> Refusal {
    Refusal::LimitConflict {
        faults: vec![LimitFault::ChildrenExceed {
            parent: path("physics"),
            resource: Resource::Nodes,
            children: sum,
            unlimited: 0,
            limit,
        }],
    }
}

#[test]
fn forced_tenant_limit_ends_no_running_job() {
    let (mut c, id) = physics();
    let before = c.state.project(&path("physics")).cloned();
    assert_eq!(set(&mut c, "physics", 100), Err(exceeds(240, 100)));
    assert_eq!(c.state.project(&path("physics")).cloned(), before);
    for (principal, power) in [
        ("admin-physics", Privilege::User),
        ("op", Privilege::Operator),
    ] {
        let changes = change("physics", 100);
        let refused = c.propose(principal, power, Command::ForceLimits { changes });
        assert!(
            matches!(refused, Err(Refusal::Forbidden { .. })),
            "{refused:?}"
        );
    }

    force(&mut c, "physics", 100).unwrap();
    let tenant = c.state.project(&path("physics")).unwrap();
    assert!(tenant.overcommitted);
    assert_eq!(tenant.limits.max_nodes, Some(100));
    assert_eq!(tenant.total().nodes, 150, "what runs runs on");
    assert!(!is_over(&c, "physics/a") && !is_over(&c, "physics/b"));
    // Only the check of requests still enforces the limit.
    let refused = c.submit(spec("physics/b", 1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "allocation rejected: tenant \"physics\" exceeds max_nodes quota\n  Current usage: 150 \
         nodes\n  New limit: 100 nodes\n  Hint: Wait for running allocations to complete, or contact \
         your tenant admin."
    );
    c.end_all(id, RankExit::Exited { code: 0 });
    let refused = c.submit(spec("physics/a", 101)).unwrap_err();
    assert!(refused.to_string().contains("limit: 100"), "{refused}");
    c.submit(spec("physics/a", 100)).unwrap();

    let (after, limit) = (0, 10_000);
    let Answer::Audit(entries) = c.state.query(&Query::Audit { after, limit }) else {
        panic!("the audit")
    };
    let forced = entries.iter().find_map(|entry| match &entry.action {
        AuditAction::LimitsForced {
            levels,
            overcommitted,
        } => Some((levels[0].project.clone(), overcommitted.clone())),
        _ => None,
    });
    assert_eq!(forced, Some((path("physics"), vec![path("physics")])));
}

#[test]
fn overcommitted_level_is_marked_and_cannot_worsen() {
    let (mut c, _) = physics();
    force(&mut c, "physics", 100).unwrap();
    // A closed project can always be created.
    c.create("physics/new", None).unwrap();
    assert_eq!(set(&mut c, "physics/b", 61), Err(exceeds(241, 100)));
    assert_eq!(set(&mut c, "physics", 99), Err(exceeds(240, 99)));
    let opened = c.create("physics/open", Some(limits(1)));
    assert_eq!(opened, Err(exceeds(241, 100)));
    // Less overcommitted, but still so.
    set(&mut c, "physics/a", 90).unwrap();
    assert!(is_over(&c, "physics"));
    let both = [change("physics", 90), change("physics/a", 80)].concat();
    c.admin(Command::SetLimits { changes: both }).unwrap();
    assert!(is_over(&c, "physics"), "140 of 90");
    set(&mut c, "physics/b", 10).unwrap();
    assert!(!is_over(&c, "physics"));
    assert_eq!(set(&mut c, "physics/b", 11), Err(exceeds(91, 90)));
    // A change that needs no force is not recorded as forced.
    force(&mut c, "physics", 95).unwrap();
    assert!(!is_over(&c, "physics"));

    force(&mut c, "physics/new", 50).unwrap();
    assert!(is_over(&c, "physics"), "a child marks its parent");
    let path = path("physics/new");
    c.admin(Command::DeleteProject { path }).unwrap();
    assert!(!is_over(&c, "physics"), "and heals it when it goes");
}

/// An allocation limit forced on a tenant without limits on its children. The tenant's own administrators may set those
/// limits, but may neither remove one nor exceed the tenant's.
#[test]
fn children_without_a_limit_below_one_that_was_forced_open_nothing() {
    let (mut c, _) = physics();
    let change = |at: &str, max_concurrent_allocations| {
        vec![LimitChange {
            path: path(at),
            patch: LimitPatch {
                max_concurrent_allocations,
                ..LimitPatch::default()
            },
        }]
    };
    let lifted = [
        change("physics", Patch::Unlimited),
        change("physics/a", Patch::Unlimited),
        change("physics/b", Patch::Unlimited),
    ];
    let changes = lifted.concat();
    c.admin(Command::SetLimits { changes }).unwrap();
    c.create("physics/c", None).unwrap();
    let number = [
        change("physics", Patch::Set(10)),
        change("physics/c", Patch::Set(1)),
    ];
    let changes = number.concat();
    c.admin(Command::ForceLimits { changes }).unwrap();
    assert!(is_over(&c, "physics"));

    let mut set = |at: &str, to| {
        let changes = change(at, to);
        let set = c.admin(Command::SetLimits { changes });
        set.map(|_| ()).map_err(|refused| refused.to_string())
    };
    let more = set("physics/c", Patch::Unlimited).unwrap_err();
    assert!(more.contains("3 children of \"physics\""), "{more}");
    let more = set("physics/c", Patch::Set(1_000)).unwrap_err();
    assert!(more.contains("would add up to 1000"), "{more}");
    let more = set("physics/a", Patch::Set(10)).unwrap_err();
    assert!(more.contains("would add up to 11"), "{more}");
    set("physics/c", Patch::Set(2)).unwrap();
    set("physics/a", Patch::Set(8)).unwrap();
    set("physics/b", Patch::Set(0)).unwrap();
    assert!(!is_over(&c, "physics"));
}

#[test]
fn forced_tree_obeys_flat_policy_only() {
    let (mut c, _) = physics();
    force(&mut c, "physics", 100).unwrap();
    let policy = |policy| Command::SetLimitPolicy { policy };
    c.admin(policy(LimitPolicy::Flat)).unwrap();
    assert!(!is_over(&c, "physics"));
    let back = c.admin(policy(LimitPolicy::Strict));
    assert_eq!(back, Err(exceeds(240, 100)));
    set(&mut c, "physics/a", 40).unwrap();
    c.admin(policy(LimitPolicy::Strict)).unwrap();
    assert!(!is_over(&c, "physics"));

    // Replaying the log gives the same state.
    let mut again = State::default();
    for (index, envelope) in (1..).zip(&c.log) {
        let _ = again.apply(index, envelope);
    }
    let records = |state: &State| state.projects().cloned().collect::<Vec<_>>();
    assert_eq!(records(&again), records(&c.state));
}
