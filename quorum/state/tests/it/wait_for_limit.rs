//! Submits that wait for quota headroom: they are accepted although they do not fit with the present usage, hold
//! nothing, and start only within the limits.

use crate::common::{self, Cluster, path, spec};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Outcome, Refusal,
    allocation::RankExit,
    audit::{AuditAction, ChangedLimit, LevelLimits},
    budget::SoftPatch,
    command::{LimitChange, Privilege},
    event::EventKind,
    limit::{LimitPatch, Limits, OnLimit, Patch, Resource, SystemLimitPatch, Usage},
    spec::AllocationSpec,
    view::{Answer, Query},
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn submit(
    c: &mut Cluster,
    spec: AllocationSpec,
    on_limit: OnLimit,
) -> Result<AllocationId, Refusal> {
    let spec = Box::new(spec);
    let command = Command::SubmitOnLimit { spec, on_limit };
    match c.propose("alice", Privilege::User, command)?.outcome {
        Outcome::Submitted { id } => Ok(id),
        other => panic!("a submit gave {other:?}"),
    }
}

fn wait(c: &mut Cluster, project: &str, nodes: u32) -> Result<AllocationId, Refusal> {
    submit(c, spec(project, nodes), OnLimit::Wait)
}

fn end(c: &mut Cluster, id: AllocationId) {
    c.start_all(id);
    c.end_all(id, RankExit::Exited { code: 0 });
}

fn state_of(c: &Cluster, id: AllocationId) -> AllocationState {
    c.state.allocation(id).unwrap().state
}

/// Nodes and allocations that a project and everything below it holds.
fn used(c: &Cluster, project: &str) -> (u64, u64) {
    let total = c.state.project(&path(project)).unwrap().total();
    (total.nodes, total.allocations)
}

fn set_limit(c: &mut Cluster, project: &str, patch: LimitPatch) {
    let path = path(project);
    let changes = vec![LimitChange { path, patch }];
    c.admin(Command::SetLimits { changes }).unwrap();
}

fn max_nodes(nodes: u64) -> LimitPatch {
    LimitPatch {
        max_nodes: Patch::Set(nodes),
        ..LimitPatch::default()
    }
}

/// Tenant `t` with a limit of 4 nodes, 2 of which a running allocation holds.
fn half_used() -> (Cluster, AllocationId) {
    let mut c = Cluster::default();
    c.create("t", Some(common::limits(4))).unwrap();
    c.add_nodes(8);
    let runs = c.submit(spec("t", 2)).unwrap();
    c.assign(runs).unwrap();
    (c, runs)
}

#[test]
fn waits_above_usage_and_starts_within_limit() {
    let (mut c, runs) = half_used();
    let refused = c.submit(spec("t", 3)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "allocation rejected: tenant \"t\" would exceed max_nodes quota (current: 2, requested: 3, \
         limit: 4)"
    );
    let waits = wait(&mut c, "t", 3).unwrap();
    assert_eq!(state_of(&c, waits), AllocationState::Pending);
    assert_eq!(used(&c, "t"), (2, 1), "waiting work counts for nothing");
    assert_eq!(c.state.headroom(&path("t")).unwrap().nodes, Some(2));
    // Work that fits is accepted and starts meanwhile.
    let small = c.submit(spec("t", 2)).unwrap();
    c.assign(small).unwrap();
    for ended in [runs, small] {
        let refused = c.assign(waits).unwrap_err();
        assert_eq!(refused.code(), "limit_exceeded");
        assert_eq!(state_of(&c, waits), AllocationState::Pending);
        end(&mut c, ended);
    }
    c.assign(waits).unwrap();
    assert_eq!(used(&c, "t"), (3, 1));
}

#[test]
fn request_above_the_limit_itself_is_refused() {
    let (mut c, _) = half_used();
    let refused = submit(&mut c, spec("t", 5), OnLimit::Reject).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "allocation rejected: tenant \"t\" would exceed max_nodes quota (current: 2, requested: 5, \
         limit: 4)"
    );
    let text = |limit| {
        format!(
            "allocation rejected: tenant \"t\" would exceed max_nodes quota (current: 2, requested: 5, \
             limit: {limit})\n  Hint: The request exceeds the limit by itself and could never start: \
             request less, or contact your tenant admin."
        )
    };
    let refused = wait(&mut c, "t", 5).unwrap_err();
    assert_eq!(
        (refused.code(), refused.to_string()),
        ("limit_exceeded", text(4))
    );
    set_limit(&mut c, "t", max_nodes(1));
    let refused = wait(&mut c, "t", 5).unwrap_err();
    assert_eq!(refused.to_string(), text(1));
    // More nodes than the cluster has.
    set_limit(&mut c, "t", max_nodes(100));
    assert_eq!(wait(&mut c, "t", 9).unwrap_err().code(), "too_large");
}

#[test]
fn every_limit_of_every_level_is_kept() {
    let mut c = Cluster::default();
    let limits = |nodes, allocations| {
        Some(Limits {
            max_nodes: Some(nodes),
            max_concurrent_allocations: Some(allocations),
        })
    };
    c.create("t", limits(10, 3)).unwrap();
    c.create("t/a", limits(4, 2)).unwrap();
    c.create("t/a/b", limits(4, 1)).unwrap();
    c.add_nodes(8);
    let runs = c.submit(spec("t/a/b", 1)).unwrap();
    c.assign(runs).unwrap();
    let waits = wait(&mut c, "t/a/b", 4).unwrap();
    let levels = |refused: Refusal| match refused {
        Refusal::LimitExceeded { levels, .. } => {
            let levels = levels.into_iter();
            let levels = levels.map(|level| (level.path.to_string(), level.resource));
            levels.collect::<Vec<_>>()
        }
        other => panic!("{other}"),
    };
    let named = |path: &str, resource| (path.to_owned(), resource);
    assert_eq!(
        levels(c.assign(waits).unwrap_err()),
        [
            named("t/a/b", Resource::Nodes),
            named("t/a/b", Resource::Allocations),
            named("t/a", Resource::Nodes),
        ]
    );
    assert_eq!(
        levels(wait(&mut c, "t/a/b", 5).unwrap_err()),
        [
            named("t/a/b", Resource::Nodes),
            named("t/a", Resource::Nodes)
        ],
        "only the limits that the request exceeds by itself"
    );
    end(&mut c, runs);
    c.assign(waits).unwrap();
    let none = LimitPatch {
        max_concurrent_allocations: Patch::Set(0),
        ..LimitPatch::default()
    };
    set_limit(&mut c, "t/a/b", none);
    assert_eq!(
        levels(wait(&mut c, "t/a/b", 1).unwrap_err()),
        [named("t/a/b", Resource::Allocations)]
    );
}

#[test]
fn limit_below_a_waiting_request_keeps_it_waiting() {
    let (mut c, runs) = half_used();
    let waits = wait(&mut c, "t", 3).unwrap();
    set_limit(&mut c, "t", max_nodes(2));
    end(&mut c, runs);
    assert_eq!(c.assign(waits).unwrap_err().code(), "limit_exceeded");
    assert_eq!(state_of(&c, waits), AllocationState::Pending);
    set_limit(&mut c, "t", max_nodes(3));
    c.assign(waits).unwrap();
    assert_eq!(used(&c, "t"), (3, 1));
}

#[test]
fn array_waits_and_its_elements_start_within_limit() {
    let (mut c, runs) = half_used();
    let mut array = spec("t", 3);
    array.terms.array = Some("0-1".parse().unwrap());
    let refused = submit(&mut c, array.clone(), OnLimit::Reject).unwrap_err();
    assert_eq!(refused.code(), "limit_exceeded");
    let id = submit(&mut c, array, OnLimit::Wait).unwrap();
    let numbers = c.state.allocation(id).unwrap().element_numbers().unwrap();
    let elements = [0, 1].map(|index| numbers.id_of(index).unwrap());
    let place = |c: &mut Cluster, id| {
        let nodes = c.free(3);
        c.admin(Command::Assign { id, nodes })
    };
    let refused = place(&mut c, elements[0]).unwrap_err();
    assert_eq!(refused.code(), "limit_exceeded");
    end(&mut c, runs);
    place(&mut c, elements[0]).unwrap();
    let refused = place(&mut c, elements[1]).unwrap_err();
    assert_eq!(refused.code(), "limit_exceeded");
    end(&mut c, elements[0]);
    place(&mut c, elements[1]).unwrap();
    assert_eq!(used(&c, "t"), (3, 1));
}

#[test]
fn sensitive_work_waits_for_the_pool() {
    let mut c = Cluster::default();
    c.create("t", Some(common::limits(8))).unwrap();
    c.admin(Command::SetSystemLimits {
        patch: SystemLimitPatch {
            sensitive_pool_size: Patch::Set(2),
        },
    })
    .unwrap();
    let runs = c.sensitive_work("t", 2);
    c.assign_sensitive(runs);
    c.add_nodes(4);
    let sensitive = |nodes| AllocationSpec {
        sensitive: true,
        ..spec("t", nodes)
    };
    let refused = submit(&mut c, sensitive(1), OnLimit::Reject).unwrap_err();
    assert_eq!(refused.code(), "sensitive_pool");
    let waits = submit(&mut c, sensitive(1), OnLimit::Wait).unwrap();
    assert_eq!(state_of(&c, waits), AllocationState::Pending);
    let refused = submit(&mut c, sensitive(3), OnLimit::Wait).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "sensitive use rejected: the cluster would exceed sensitive_pool_size quota (current: 2, \
         requested: 3, limit: 2)\n  Hint: The request exceeds the limit by itself: request less, or \
         contact an administrator of the cluster."
    );
}

fn set_tenant(tenant: &str, limits: LimitPatch, on_limit: OnLimit) -> Command {
    Command::SetTenant {
        tenant: path(tenant),
        limits,
        soft: SoftPatch::default(),
        force: false,
        on_limit,
    }
}

fn set_on_limit(on_limit: OnLimit) -> Command {
    set_tenant("t", LimitPatch::default(), on_limit)
}

#[test]
fn tenant_sets_the_default_and_a_submit_overrides_it() {
    let (mut c, _) = half_used();
    c.create("t/a", Some(common::limits(4))).unwrap();
    assert_eq!(c.submit(spec("t", 3)).unwrap_err().code(), "limit_exceeded");
    let applied = c.admin(set_on_limit(OnLimit::Wait)).unwrap();
    let kinds: Vec<_> = applied.events.into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::OnLimit {
        tenant: path("t"),
        on_limit: OnLimit::Wait,
    }));
    let again = c.admin(set_on_limit(OnLimit::Wait)).unwrap();
    assert!(again.events.is_empty(), "nothing changed");
    for project in ["t", "t/a"] {
        let waits = c.submit(spec(project, 3)).unwrap();
        assert_eq!(state_of(&c, waits), AllocationState::Pending);
        let refused = submit(&mut c, spec(project, 3), OnLimit::Reject).unwrap_err();
        assert_eq!(refused.code(), "limit_exceeded");
    }
    let expected = BTreeMap::from([(path("t"), OnLimit::Wait)]);
    assert_eq!(
        c.state.query(&Query::OnLimits),
        Answer::OnLimits(expected.clone())
    );
    let restored = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(restored.digest(), c.state.digest());
    assert_eq!(restored.query(&Query::OnLimits), Answer::OnLimits(expected));
    let all = Query::Audit {
        after: 0,
        limit: 1_000,
    };
    let Answer::Audit(entries) = c.state.query(&all) else {
        panic!("another answer")
    };
    let changed = AuditAction::LimitsChanged {
        levels: vec![LevelLimits {
            project: path("t"),
            limits: vec![ChangedLimit {
                name: "on_limit".to_owned(),
                before: Some(0),
                after: Some(1),
            }],
        }],
    };
    let found = entries.iter().filter(|entry| entry.action == changed);
    assert_eq!(found.count(), 1);
}

#[test]
fn tenant_setting_and_limits_change_together_or_not_at_all() {
    let (mut c, _) = half_used();
    c.create("t/a", Some(common::limits(3))).unwrap();
    let refused = c.admin(set_tenant("t", max_nodes(2), OnLimit::Wait));
    assert_eq!(refused.unwrap_err().code(), "limit_conflict");
    assert_eq!(c.state.on_limit(&path("t")), OnLimit::Reject);
    c.admin(set_tenant("t", max_nodes(6), OnLimit::Wait))
        .unwrap();
    let limits = c.state.project(&path("t")).unwrap().limits;
    assert_eq!(limits.max_nodes, Some(6));
    assert_eq!(c.state.on_limit(&path("t")), OnLimit::Wait);
    for power in [
        Privilege::User,
        Privilege::Operator,
        Privilege::Service,
        Privilege::Accounting,
    ] {
        let refused = c.propose("eve", power, set_on_limit(OnLimit::Reject));
        assert_eq!(refused.unwrap_err().code(), "forbidden", "{power:?}");
    }
    let refused = c.admin(set_tenant("t/a", LimitPatch::default(), OnLimit::Wait));
    assert_eq!(refused.unwrap_err().code(), "invalid");
    let refused = c.admin(set_tenant("u", LimitPatch::default(), OnLimit::Wait));
    assert_eq!(refused.unwrap_err().code(), "unknown_project");
}

#[test]
fn new_tenant_of_a_deleted_name_starts_with_the_default() {
    let mut c = Cluster::default();
    c.create("t", None).unwrap();
    c.admin(set_on_limit(OnLimit::Wait)).unwrap();
    c.admin(Command::DeleteProject { path: path("t") }).unwrap();
    c.create("t", None).unwrap();
    assert_eq!(c.state.on_limit(&path("t")), OnLimit::Reject);
    assert_eq!(
        c.state.query(&Query::OnLimits),
        Answer::OnLimits(BTreeMap::new())
    );
}

const PROJECTS: [&str; 4] = ["t", "t/a", "t/a/b", "t/c"];

#[derive(Debug, Clone)]
enum Step {
    Submit {
        project: usize,
        nodes: u32,
        on_limit: Option<OnLimit>,
    },
    Start {
        nth: usize,
    },
    End {
        nth: usize,
    },
    Cancel {
        nth: usize,
    },
    Limit {
        project: usize,
        nodes: u64,
        allocations: Option<u64>,
    },
    Tenant {
        on_limit: OnLimit,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let project = 0..PROJECTS.len();
    let handling = prop::sample::select(OnLimit::ALL.to_vec());
    let one = prop_oneof![
        5 => (project.clone(), 1..7u32, prop::option::of(handling.clone()))
            .prop_map(|(project, nodes, on_limit)| Step::Submit { project, nodes, on_limit }),
        5 => any::<usize>().prop_map(|nth| Step::Start { nth }),
        3 => any::<usize>().prop_map(|nth| Step::End { nth }),
        1 => any::<usize>().prop_map(|nth| Step::Cancel { nth }),
        2 => (project, 0..9u64, prop::option::of(0..5u64))
            .prop_map(|(project, nodes, allocations)| Step::Limit { project, nodes, allocations }),
        1 => handling.prop_map(|on_limit| Step::Tenant { on_limit }),
    ];
    prop::collection::vec(one, 1..60)
}

/// The allocation at this position, counted around, of those that `is_wanted` selects.
fn nth(
    c: &Cluster,
    nth: usize,
    is_wanted: impl Fn(AllocationState) -> bool,
) -> Option<AllocationId> {
    let live = c.state.live_allocations();
    let ids: Vec<AllocationId> = live.filter(|a| is_wanted(a.state)).map(|a| a.id).collect();
    ids.get(nth.checked_rem(ids.len())?).copied()
}

fn fits(c: &Cluster, project: &str, nodes: u32) -> bool {
    let asked = Usage {
        nodes: u64::from(nodes),
        allocations: 1,
    };
    c.state.check_fits(&path(project), asked).is_ok()
}

/// Whether an allocation fits the limits of every level if nothing else holds nodes.
fn is_feasible(c: &Cluster, project: &str, nodes: u32) -> bool {
    let levels = c.state.headroom(&path(project)).unwrap().levels;
    levels.iter().all(|level| {
        let limits = level.limits;
        limits
            .max_nodes
            .is_none_or(|limit| u64::from(nodes) <= limit)
            && limits.max_concurrent_allocations != Some(0)
    })
}

fn force_limits(c: &mut Cluster, project: &str, nodes: u64, allocations: Option<u64>) {
    let patch = LimitPatch {
        max_nodes: Patch::Set(nodes),
        max_concurrent_allocations: allocations.map_or(Patch::Unlimited, Patch::Set),
    };
    let path = path(project);
    let changes = vec![LimitChange { path, patch }];
    c.admin(Command::ForceLimits { changes }).unwrap();
}

fn start(c: &mut Cluster, id: AllocationId) {
    let spec = c.state.allocation(id).unwrap().spec.clone();
    let has_room = fits(c, spec.project.as_str(), spec.nodes);
    assert_eq!(c.assign(id).is_ok(), has_room);
}

fn take(c: &mut Cluster, step: &Step) {
    match step {
        Step::Submit {
            project,
            nodes,
            on_limit,
        } => {
            let project = PROJECTS[*project];
            let handling = on_limit.unwrap_or(c.state.on_limit(&path("t")));
            let may_wait = handling == OnLimit::Wait && is_feasible(c, project, *nodes);
            let is_accepted = fits(c, project, *nodes) || may_wait;
            let asked = spec(project, *nodes);
            let submitted = match on_limit {
                Some(on_limit) => submit(c, asked, *on_limit),
                None => c.submit(asked),
            };
            assert_eq!(submitted.is_ok(), is_accepted, "{submitted:?}");
        }
        Step::Start { nth: place } => {
            if let Some(id) = nth(c, *place, |state| state == AllocationState::Pending) {
                start(c, id);
            }
        }
        Step::End { nth: place } => {
            if let Some(id) = nth(c, *place, AllocationState::holds) {
                end(c, id);
            }
        }
        Step::Cancel { nth: place } => {
            if let Some(id) = nth(c, *place, |state| state == AllocationState::Pending) {
                c.admin(Command::Cancel { id }).unwrap();
            }
        }
        Step::Limit {
            project,
            nodes,
            allocations,
        } => force_limits(c, PROJECTS[*project], *nodes, *allocations),
        Step::Tenant { on_limit } => {
            c.admin(set_on_limit(*on_limit)).unwrap();
        }
    }
}

/// No level exceeds a limit, unless the limit was lowered below its usage, which then only falls.
fn check_limits(before: &State, after: &State) {
    for project in after.projects() {
        let was = before
            .project(&project.path)
            .map_or(Usage::default(), |p| p.total());
        for resource in Resource::ALL {
            let (usage, was) = (project.total().get(resource), was.get(resource));
            let limit = project.limits.get(resource).unwrap_or(u64::MAX);
            assert!(
                usage <= limit || usage <= was,
                "{} grew to {usage} of {limit}",
                project.path
            );
        }
    }
}

/// Usage is that of the allocations that hold nodes.
fn check_usage(c: &Cluster) {
    let holding = c.state.live_allocations().filter(|a| a.state.holds());
    let held = holding.fold((0, 0), |(nodes, allocations), a| {
        (nodes + a.ranks.len() as u64, allocations + 1)
    });
    assert_eq!(used(c, "t"), held);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: common::cases(64), ..ProptestConfig::default() })]

    #[test]
    fn waiting_work_never_exceeds_a_limit_and_is_never_lost(steps in steps()) {
        let mut c = Cluster::default();
        for project in PROJECTS {
            c.create(project, Some(common::limits(0))).unwrap();
        }
        for project in PROJECTS {
            force_limits(&mut c, project, 5, Some(3));
        }
        c.add_nodes(12);
        for step in &steps {
            let before = c.state.clone();
            take(&mut c, step);
            check_limits(&before, &c.state);
            check_usage(&c);
        }
        let restored = State::restore(&c.state.snapshot()).unwrap();
        prop_assert_eq!(restored.digest(), c.state.digest());
        // With room for everything, all work that waits starts.
        for project in PROJECTS {
            force_limits(&mut c, project, 1_000, None);
        }
        while let Some(id) = nth(&c, 0, |state| state == AllocationState::Pending) {
            c.assign(id).unwrap();
        }
        check_usage(&c);
    }
}
