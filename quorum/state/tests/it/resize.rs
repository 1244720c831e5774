//! Growing, shrinking, suspending and resuming: held nodes are counted, and no node is free while a process may run on
//! it.

use crate::common::{Cluster, limits, node, path, spec};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Refusal, Revision,
    allocation::{RankExit, RankPhase, StopCause},
    command::{ExpectedNode, LimitChange, Privilege, RankReport},
    event::{AllocationChange, EventKind},
    limit::{LimitPatch, Limits, Patch, SystemLimitPatch},
    limit_policy::LimitPolicy,
    scale::{Metric, ScalingPace, ScalingSpec},
    spec::{AllocationSpec, Requeue},
};

/// Three nodes run in `t/a`, which has a limit of five like `t`; there are eight nodes.
fn running() -> (Cluster, AllocationId) {
    let mut c = Cluster::default();
    c.create("t", Some(limits(5))).unwrap();
    c.create("t/a", Some(limits(5))).unwrap();
    c.add_nodes(8);
    let id = c.submit(spec("t/a", 3)).unwrap();
    c.assign(id).unwrap();
    c.start_all(id);
    (c, id)
}

fn expected(c: &Cluster, names: &[&str]) -> Vec<ExpectedNode> {
    let chosen = |name: &&str| {
        let found = c.state.node(&node(name)).unwrap();
        ExpectedNode {
            node: found.id.clone(),
            version: found.version,
            boot: None,
        }
    };
    names.iter().map(chosen).collect()
}

fn grow(c: &mut Cluster, id: AllocationId, names: &[&str]) -> Result<AllocationChange, Refusal> {
    let nodes = expected(c, names);
    changed(c.admin(Command::Grow { id, nodes })?.events)
}

fn shrink(c: &mut Cluster, id: AllocationId, names: &[&str]) -> Result<AllocationChange, Refusal> {
    let nodes = names.iter().map(|name| node(name)).collect();
    let shrunk = c.propose("alice", Privilege::User, Command::Shrink { id, nodes })?;
    changed(shrunk.events)
}

fn changed(events: Vec<lattice_quorum_types::Event>) -> Result<AllocationChange, Refusal> {
    let change = events.iter().find_map(|event| match &event.kind {
        EventKind::Allocation { change, .. } => Some(*change),
        _ => None,
    });
    Ok(change.unwrap())
}

fn ended(c: &mut Cluster, id: AllocationId, name: &str, exit: RankExit) {
    let (at, fault) = (c.now(), None);
    let report = RankReport::Ended { at, exit, fault };
    c.report(id, &node(name), report).unwrap();
}

/// Nodes of the allocation by its own usage, by its record, and by the nodes' holders.
fn held(c: &Cluster, id: AllocationId) -> (u64, usize, Vec<&str>) {
    let project = c.state.project(&path("t/a")).unwrap();
    let record = c.state.allocation(id).unwrap();
    let by = |n: &&lattice_quorum_types::node::Node| n.holder.is_some_and(|h| h.allocation == id);
    let nodes = c.state.nodes().filter(by);
    (
        project.own.nodes,
        record.spec.nodes as usize,
        nodes.map(|n| n.id.as_str()).collect(),
    )
}

#[test]
fn what_grows_is_judged_on_the_difference_and_counted_at_every_level() {
    let (mut c, id) = running();
    assert_eq!(
        grow(&mut c, id, &["n003"]).unwrap(),
        AllocationChange::Grown
    );
    assert_eq!(held(&c, id), (4, 4, vec!["n000", "n001", "n002", "n003"]));
    let tenant = c.state.project(&path("t")).unwrap();
    assert_eq!((tenant.subtree.nodes, tenant.subtree.allocations), (4, 1));
    let refused = grow(&mut c, id, &["n004", "n005"]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "grow rejected: project \"t/a\" would exceed max_nodes quota (current: 4, requested: \
         2, limit: 5)\ngrow rejected: tenant \"t\" would exceed max_nodes quota (current: 4, \
         requested: 2, limit: 5)"
    );
    // The allocation itself is counted already, whatever the present limit of allocations.
    let patch = LimitPatch {
        max_concurrent_allocations: Patch::Set(0),
        ..LimitPatch::default()
    };
    let changes = ["t/a", "t"].map(|at| LimitChange {
        path: path(at),
        patch,
    });
    c.admin(Command::SetLimits {
        changes: changes.to_vec(),
    })
    .unwrap();
    grow(&mut c, id, &["n004"]).unwrap();
    c.start_all(id);
    assert_eq!(
        c.state.allocation(id).unwrap().state,
        AllocationState::Running
    );
    c.end_all(id, RankExit::Exited { code: 0 });
    assert_eq!(held(&c, id), (0, 5, vec![]));
}

#[test]
fn refused_growth_names_reason() {
    let (mut c, id) = running();
    let said = |c: &mut Cluster, names: &[&str]| grow(c, id, names).unwrap_err().to_string();
    assert_eq!(said(&mut c, &[]), "nodes: name at least one node");
    assert!(said(&mut c, &["n000"]).contains("has, or had, a rank in this attempt"));
    let stale = vec![ExpectedNode {
        version: 99,
        ..expected(&c, &["n003"]).remove(0)
    }];
    let refused = c.admin(Command::Grow { id, nodes: stale }).unwrap_err();
    assert!(
        matches!(refused, Refusal::OwnershipConflict { .. }),
        "{refused}"
    );
    let nodes = expected(&c, &["n003"]);
    for power in [Privilege::User, Privilege::Service] {
        let command = Command::Grow {
            id,
            nodes: nodes.clone(),
        };
        let refused = c.propose("alice", power, command).unwrap_err();
        assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused}");
    }
    let waits = c.submit(spec("t/a", 1)).unwrap();
    let refused = c.admin(Command::Grow { id: waits, nodes }).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("cannot grow allocation {waits}: it is pending")
    );
}

#[test]
fn a_node_goes_back_when_its_rank_is_known_to_have_ended_and_not_before() {
    let (mut c, id) = running();
    let change = shrink(&mut c, id, &["n001"]).unwrap();
    assert_eq!(change, AllocationChange::Shrunk);
    let all = vec!["n000", "n001", "n002"];
    assert_eq!(held(&c, id), (3, 3, all));
    let digest = c.state.digest();
    let nodes = vec![node("n001")];
    c.admin(Command::Shrink { id, nodes }).unwrap();
    assert_eq!(c.state.digest(), digest, "a repeat changes nothing");
    // Killed, as an agent may have to do: this is not a failure of the allocation.
    ended(&mut c, id, "n001", RankExit::Signaled { signal: 9 });
    assert_eq!(held(&c, id), (2, 2, vec!["n000", "n002"]));
    let record = c.state.allocation(id).unwrap();
    assert_eq!(
        (record.state, &record.stop),
        (AllocationState::Running, &None)
    );
    assert!(matches!(record.ranks[1].phase, RankPhase::Left { .. }));
    // A repeated report is accepted, and no rank of this attempt returns to that node.
    ended(&mut c, id, "n001", RankExit::Signaled { signal: 9 });
    assert!(grow(&mut c, id, &["n001"]).is_err());
    let none = shrink(&mut c, id, &["n000", "n002"]).unwrap_err();
    assert!(none.to_string().contains("no node would be left"), "{none}");
    c.end_all(id, RankExit::Exited { code: 0 });
    let record = c.state.allocation(id).unwrap();
    assert_eq!(
        (record.state, record.spec.nodes),
        (AllocationState::Completed, 2)
    );
    assert_eq!(held(&c, id).0, 0);
}

#[test]
fn ended_or_lost_rank_returns_node() {
    let (mut c, id) = running();
    ended(&mut c, id, "n000", RankExit::Exited { code: 0 });
    assert_eq!(
        held(&c, id).0,
        3,
        "nodes go back together, unless asked for"
    );
    shrink(&mut c, id, &["n000", "n001"]).unwrap();
    assert_eq!(held(&c, id), (2, 2, vec!["n001", "n002"]));
    let taken = Command::ForceRelease {
        node: node("n001"),
        reason: "burnt".to_owned(),
        expected: None::<Revision>,
    };
    c.admin(taken).unwrap();
    assert_eq!(held(&c, id), (1, 1, vec!["n002"]));
    assert_eq!(
        c.state.allocation(id).unwrap().state,
        AllocationState::Running
    );
}

#[test]
fn a_rank_that_was_grown_in_vain_leaves_and_the_rest_goes_on() {
    let (mut c, id) = running();
    grow(&mut c, id, &["n003"]).unwrap();
    let evidence = "booted anew".to_owned();
    ended(&mut c, id, "n003", RankExit::Lost { evidence });
    assert_eq!(held(&c, id), (3, 3, vec!["n000", "n001", "n002"]));
    let record = c.state.allocation(id).unwrap();
    assert_eq!(
        (record.state, &record.stop),
        (AllocationState::Running, &None)
    );
    // A rank that ran and is lost is like every lost rank.
    grow(&mut c, id, &["n004"]).unwrap();
    c.start_all(id);
    let evidence = "booted anew".to_owned();
    ended(&mut c, id, "n004", RankExit::Lost { evidence });
    assert_eq!(
        c.state.allocation(id).unwrap().state,
        AllocationState::Stopping
    );
}

/// One node runs, a second is added, and the first is released before the second started.
fn handed_over(requeue: Requeue) -> (Cluster, AllocationId) {
    let mut c = Cluster::default();
    c.create("t", Some(limits(5))).unwrap();
    c.create("t/a", Some(limits(5))).unwrap();
    c.add_nodes(4);
    let asked = AllocationSpec {
        requeue,
        ..spec("t/a", 1)
    };
    let id = c.submit(asked).unwrap();
    c.assign(id).unwrap();
    c.start_all(id);
    grow(&mut c, id, &["n001"]).unwrap();
    shrink(&mut c, id, &["n000"]).unwrap();
    (c, id)
}

#[test]
fn the_last_rank_does_not_leave_and_its_end_is_that_of_the_work() {
    let lost = |evidence: &str| RankExit::Lost {
        evidence: evidence.to_owned(),
    };
    for (requeue, state) in [
        (Requeue::Never, AllocationState::Failed),
        (Requeue::Once, AllocationState::Pending),
    ] {
        let (mut c, id) = handed_over(requeue);
        ended(&mut c, id, "n001", lost("booted anew"));
        let record = c.state.allocation(id).unwrap();
        let cause = StopCause::NodeLost { node: node("n001") };
        assert_eq!(
            (record.state, record.stop.clone()),
            (AllocationState::Stopping, Some(cause))
        );
        ended(&mut c, id, "n000", RankExit::Stopped);
        let record = c.state.allocation(id).unwrap();
        assert_eq!((record.state, record.spec.nodes), (state, 1));
        assert_eq!(held(&c, id).0, 0);
    }
    // Suspended meanwhile, the allocation requests as many nodes as it had last, and resumes.
    let (mut c, id) = handed_over(Requeue::Never);
    ended(
        &mut c,
        id,
        "n001",
        RankExit::SpawnFailed {
            reason: "no such program".to_owned(),
        },
    );
    c.propose("alice", Privilege::User, Command::Cancel { id })
        .unwrap();
    ended(&mut c, id, "n000", RankExit::Stopped);
    let record = c.state.allocation(id).unwrap();
    assert!(record.state.is_terminal() && record.spec.nodes == 1);
}

#[test]
fn of_several_that_were_grown_in_vain_the_last_one_does_not_leave() {
    let (mut c, id) = handed_over(Requeue::Never);
    grow(&mut c, id, &["n002"]).unwrap();
    let evidence = "booted anew".to_owned();
    let lost = RankExit::Lost { evidence };
    ended(&mut c, id, "n001", lost.clone());
    let record = c.state.allocation(id).unwrap();
    assert_eq!(
        (record.state, record.spec.nodes),
        (AllocationState::Running, 2)
    );
    ended(&mut c, id, "n002", lost);
    ended(&mut c, id, "n000", RankExit::Exited { code: 0 });
    let record = c.state.allocation(id).unwrap();
    assert_eq!(
        (record.state, record.spec.nodes),
        (AllocationState::Failed, 1)
    );
}

#[test]
fn grows_only_by_placeable_nodes() {
    let mut c = Cluster::default();
    c.create("t", Some(limits(5))).unwrap();
    c.add_nodes(5);
    let names = |names: &[&str]| names.iter().map(|name| node(name)).collect::<Vec<_>>();
    let mut asked = spec("t", 2);
    asked.constraints.nodelist = names(&["n000", "n001", "n002"]);
    let id = c.submit(asked).unwrap();
    c.assign(id).unwrap();
    let refused = grow(&mut c, id, &["n003"]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "nodes: node n003 is not in the nodelist of allocation {id}; choose from n[000-002]"
        )
    );
    grow(&mut c, id, &["n002"]).unwrap();
    let mut asked = spec("t", 1);
    asked.constraints.exclude = names(&["n004"]);
    let id = c.submit(asked).unwrap();
    c.assign(id).unwrap();
    let refused = grow(&mut c, id, &["n004"]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("nodes: allocation {id} excludes node n004; choose another")
    );
}

#[test]
fn what_leaves_while_others_still_start_does_not_keep_it_from_running() {
    let mut c = Cluster::default();
    c.create("t", Some(limits(5))).unwrap();
    c.add_nodes(2);
    let id = c.submit(spec("t", 2)).unwrap();
    c.assign(id).unwrap();
    let at = c.now();
    c.report(id, &node("n000"), RankReport::Started { at })
        .unwrap();
    let change = shrink(&mut c, id, &["n001"]).unwrap();
    assert_eq!(change, AllocationChange::Started);
    ended(&mut c, id, "n001", RankExit::Stopped);
    assert_eq!(c.state.allocation(id).unwrap().spec.nodes, 1);
}

#[test]
fn suspended_job_requests_same_size() {
    let (mut c, id) = running();
    grow(&mut c, id, &["n003"]).unwrap();
    c.start_all(id);
    let suspend = Command::Suspend { id };
    let stranger = c.propose("mallory", Privilege::User, suspend.clone());
    assert!(matches!(stranger, Err(Refusal::Forbidden { .. })));
    let unfenced = c.propose("service:control/c1", Privilege::Service, suspend.clone());
    assert!(matches!(unfenced, Err(Refusal::Forbidden { .. })));
    c.propose("alice", Privilege::User, suspend.clone())
        .unwrap();
    let record = c.state.allocation(id).unwrap();
    assert_eq!(
        (record.state, record.stop.clone()),
        (AllocationState::Stopping, Some(StopCause::Suspended))
    );
    assert_eq!(held(&c, id).0, 4, "its processes may run");
    let early = c.admin(Command::Resume { id }).unwrap_err();
    assert!(early.to_string().contains("it is stopping"), "{early}");
    c.end_all(id, RankExit::Exited { code: 0 });
    assert_eq!(held(&c, id), (0, 4, vec![]));
    let digest = c.state.digest();
    c.admin(suspend).unwrap();
    assert_eq!(c.state.digest(), digest, "a repeat changes nothing");

    let other = c.submit(spec("t/a", 3)).unwrap();
    c.assign(other).unwrap();
    let refused = c.admin(Command::Resume { id }).unwrap_err();
    let Refusal::LimitExceeded { levels, .. } = refused else {
        panic!("{refused}")
    };
    let named: Vec<_> = levels
        .iter()
        .map(|l| (l.path.as_str(), l.current, l.requested, l.limit))
        .collect();
    assert_eq!(named, [("t/a", 3, 4, 5), ("t", 3, 4, 5)]);
    c.start_all(other);
    c.end_all(other, RankExit::Exited { code: 0 });
    let resumed = c
        .propose("alice", Privilege::User, Command::Resume { id })
        .unwrap();
    assert_eq!(changed(resumed.events).unwrap(), AllocationChange::Resumed);
    c.assign(id).unwrap();
    c.start_all(id);
    let record = c.state.allocation(id).unwrap();
    assert_eq!(
        (record.state, record.attempt),
        (AllocationState::Running, 2)
    );
    assert_eq!(held(&c, id).0, 4);
}

#[test]
fn another_policy_is_followed_only_by_a_tree_that_obeys_it() {
    let (mut c, _) = running();
    let policy = |policy| Command::SetLimitPolicy { policy };
    let operator = c.propose("olga", Privilege::Operator, policy(LimitPolicy::Flat));
    assert!(matches!(operator, Err(Refusal::Forbidden { .. })));
    c.admin(policy(LimitPolicy::Flat)).unwrap();
    assert_eq!(c.state.system().limit_policy, LimitPolicy::Flat);
    // Overcommitted: more below `t` than its limit.
    c.create("t/b", Some(limits(7))).unwrap();
    let refused = c.admin(policy(LimitPolicy::Strict)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("add up to 12, more than its own 5"),
        "{refused}"
    );
    assert_eq!(c.state.system().limit_policy, LimitPolicy::Flat);
    c.admin(Command::DeleteProject { path: path("t/b") })
        .unwrap();
    c.admin(policy(LimitPolicy::Strict)).unwrap();
    assert_eq!(c.state.system().limit_policy, LimitPolicy::Strict);
}

#[test]
fn the_pool_of_the_cluster_is_set_lifted_and_left_alone_by_administrators() {
    let mut c = Cluster::default();
    let set = |change| Command::SetSystemLimits {
        patch: SystemLimitPatch {
            sensitive_pool_size: change,
        },
    };
    assert_eq!(c.state.system().limits.sensitive_pool_size, None);
    let operator = c.propose("olga", Privilege::Operator, set(Patch::Set(4)));
    assert!(matches!(operator, Err(Refusal::Forbidden { .. })));
    c.admin(set(Patch::Set(4))).unwrap();
    let revision = c.state.revision();
    c.admin(set(Patch::Unchanged)).unwrap();
    assert_eq!(c.state.system().limits.sensitive_pool_size, Some(4));
    assert_eq!(c.state.revision(), revision, "nothing happened");
    c.admin(set(Patch::Unlimited)).unwrap();
    assert_eq!(c.state.system().limits.sensitive_pool_size, None);
}

#[test]
fn a_new_project_is_closed_but_for_what_is_named() {
    let mut c = Cluster::default();
    let both = Limits {
        max_nodes: Some(9),
        max_concurrent_allocations: Some(3),
    };
    c.create("t", Some(both)).unwrap();
    let new = |limits| Command::NewProject {
        path: path("t/a"),
        limits,
        admins: Vec::new(),
        description: String::new(),
    };
    let lifted = LimitPatch {
        max_concurrent_allocations: Patch::Unlimited,
        ..LimitPatch::default()
    };
    let refused = c.admin(new(lifted)).unwrap_err();
    assert!(
        refused.to_string().contains("give the child a number"),
        "{refused}"
    );
    let nodes = LimitPatch {
        max_nodes: Patch::Set(4),
        ..LimitPatch::default()
    };
    c.admin(new(nodes)).unwrap();
    let made = c.state.project(&path("t/a")).unwrap().limits;
    assert_eq!(
        (made.max_nodes, made.max_concurrent_allocations),
        (Some(4), Some(0))
    );
    let room = c.state.headroom(&path("t/a")).unwrap();
    assert_eq!((room.nodes, room.allocations), (Some(0), Some(0)));
}

#[test]
fn a_service_runs_since_those_nodes_did_that_it_began_with() {
    let mut c = Cluster::default();
    c.create("t", Some(limits(5))).unwrap();
    c.add_nodes(8);
    let mut service = spec("t", 2);
    service.terms.scale = Some(ScalingSpec {
        min_nodes: 2,
        max_nodes: 4,
        metric: Metric::Gpu,
        target_micro: 500_000,
        pace: ScalingPace::default(),
    });
    let id = c.submit(service).unwrap();
    c.assign(id).unwrap();
    let starts = |c: &mut Cluster, name: &str| {
        let at = c.now();
        c.report(id, &node(name), RankReport::Started { at })
            .unwrap();
        at
    };
    starts(&mut c, "n000");
    c.clock += 700;
    let began = starts(&mut c, "n001");
    assert_eq!(c.of(id).attempt_began_at(), Some(began));
    c.clock += 60_000;
    grow(&mut c, id, &["n003"]).unwrap();
    let at = starts(&mut c, "n003");
    let record = c.of(id);
    assert_eq!(record.attempt_began_at(), Some(began));
    assert_eq!(record.used_ms(at), 60_000);
}
