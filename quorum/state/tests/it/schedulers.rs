//! Scheduler leases: each vCluster's scheduler assigns nodes to allocations of its vCluster only.

use crate::common::{Cluster, envelope, limits, principal, spec};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, Applied, Command, NodeId, Outcome, Refusal, VclusterName,
    audit::AuditAction,
    command::{Fence, Privilege},
    event::EventKind,
    id::LeaseName,
    scheduler::{
        PartsPerMillion, PlannedReservations, SchedulerPatch, SchedulerSettings, SettingPatch,
        WeightPatch,
    },
    spec::AllocationSpec,
    vcluster::{TenantsPatch, VclusterPatch},
    view::{Answer, LeaseView, Query},
};

fn take(c: &mut Cluster, vcluster: &str) -> Fence {
    let lease = LeaseName::of_scheduler(&VclusterName::new(vcluster).unwrap());
    let command = Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1.1".to_owned(),
        ttl_ms: 6_000,
    };
    match c
        .propose("service:c1", Privilege::Service, command)
        .unwrap()
    {
        Applied {
            outcome: Outcome::Leased { epoch, .. },
            ..
        } => Fence { lease, epoch },
        other => panic!("{other:?}"),
    }
}

fn ask(c: &mut Cluster, fence: &Fence, command: Command) -> Result<Applied, Refusal> {
    let service = principal("service:c1", Privilege::Service);
    let mut asked = envelope(c.now(), service, command);
    asked.fence = Some(fence.clone());
    c.apply(asked)
}

fn assign(c: &mut Cluster, fence: &Fence, id: AllocationId) -> Result<Applied, Refusal> {
    let nodes = c.free(1);
    ask(c, fence, Command::Assign { id, nodes })
}

fn grow(c: &mut Cluster, fence: &Fence, id: AllocationId) -> Result<Applied, Refusal> {
    let nodes = c.free(1);
    ask(c, fence, Command::Grow { id, nodes })
}

fn furnished() -> Cluster {
    let mut c = Cluster::default();
    c.create("atlas", Some(limits(8))).unwrap();
    c.add_nodes(2);
    c.admin(Command::SetVcluster {
        vcluster: VclusterName::new("other").unwrap(),
        change: Box::new(VclusterPatch::default()),
        expected_version: None,
    })
    .unwrap();
    c
}

#[test]
fn a_scheduler_gives_nodes_to_its_own_vclusters_work_alone() {
    let mut c = furnished();
    let id = c.submit(spec("atlas", 1)).unwrap();
    let (main, other) = (take(&mut c, "main"), take(&mut c, "other"));
    let refused = assign(&mut c, &other, id).unwrap_err();
    let said = refused.to_string();
    assert!(
        matches!(refused, Refusal::Invalid { ref field, .. } if field == "fence"),
        "{said}"
    );
    assert!(said.contains("schedule.main, not schedule.other"), "{said}");
    let dispatch = Fence {
        lease: LeaseName::new("schedule").unwrap(),
        epoch: 1,
    };
    c.admin(Command::AcquireLease {
        lease: dispatch.lease.clone(),
        holder: "old".to_owned(),
        ttl_ms: 6_000,
    })
    .unwrap();
    assign(&mut c, &dispatch, id).unwrap_err();
    let assigned = assign(&mut c, &main, id).unwrap();
    assert_eq!(assigned.outcome, Outcome::Assigned { attempt: 1 });
    let refused = grow(&mut c, &other, id).unwrap_err().to_string();
    assert!(
        refused.contains("schedule.main, not schedule.other"),
        "{refused}"
    );
    grow(&mut c, &main, id).unwrap();
    assert_eq!(c.state.allocation(id).unwrap().spec.nodes, 2);
}

#[test]
fn lease_holder_is_reported_until_expiry() {
    let mut c = furnished();
    let fence = take(&mut c, "main");
    let of_main = |c: &Cluster| match c.state.query(&Query::Leases) {
        Answer::Leases(leases) => {
            let is_it = |lease: &LeaseView| lease.name == "schedule.main";
            leases.into_iter().find(is_it).unwrap()
        }
        other => panic!("{other:?}"),
    };
    let held = of_main(&c);
    assert_eq!(
        (held.holder.as_deref(), held.epoch),
        (Some("c1.1"), fence.epoch)
    );
    c.clock += 7_000;
    // Proposed commands advance state time.
    c.submit(spec("atlas", 1)).unwrap();
    let over = of_main(&c);
    assert_eq!((over.holder, over.epoch), (None, fence.epoch));
}

fn vc(name: &str) -> VclusterName {
    VclusterName::new(name).unwrap()
}

fn settings(vcluster: &str, settings: SchedulerPatch, expected: Option<u32>) -> Command {
    with_definition(vcluster, VclusterPatch::default(), settings, expected)
}

fn with_definition(
    vcluster: &str,
    change: VclusterPatch,
    settings: SchedulerPatch,
    expected_version: Option<u32>,
) -> Command {
    Command::SetScheduler {
        vcluster: vc(vcluster),
        change: Box::new(change),
        settings: Box::new(settings),
        expected_version,
    }
}

fn set(vcluster: &str) -> Command {
    Command::SetVcluster {
        vcluster: vc(vcluster),
        change: Box::new(VclusterPatch::default()),
        expected_version: None,
    }
}

fn move_to(vcluster: &str, from: Option<&str>, nodes: Vec<NodeId>) -> Command {
    Command::AssignVcluster {
        nodes,
        vcluster: vc(vcluster),
        from: from.map(vc),
    }
}

/// `n000`, ... of the present nodes.
fn nodes(c: &Cluster, count: usize) -> Vec<NodeId> {
    c.state.nodes().take(count).map(|n| n.id.clone()).collect()
}

fn energy() -> SchedulerPatch {
    SchedulerPatch {
        weights: WeightPatch {
            energy: SettingPatch::Set(PartsPerMillion(100_000)),
            ..WeightPatch::default()
        },
        ..SchedulerPatch::default()
    }
}

/// A mistyped name would be a vCluster with a scheduler, open to every tenant.
#[test]
fn settings_alone_make_no_vcluster() {
    let mut c = furnished();
    for expected in [None, Some(0)] {
        let refused = c.admin(settings("mll", energy(), expected)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "vCluster \"mll\" is not defined; `lattice admin vcluster list` shows all vClusters, \
             and an administrator can define one with `lattice admin vcluster set mll`"
        );
    }
    assert!(c.state.vcluster(&vc("mll")).is_none());
    let work = AllocationSpec {
        vcluster: vc("mll"),
        ..spec("atlas", 1)
    };
    c.submit(work.clone()).unwrap_err();

    // A definition may come together with settings.
    let closed = VclusterPatch {
        tenants: TenantsPatch::Only([].into()),
        ..VclusterPatch::default()
    };
    let made = c
        .admin(with_definition("mll", closed, energy(), Some(0)))
        .unwrap();
    assert_eq!(made.outcome, Outcome::VclusterSet { version: 1 });
    let refused = c.submit(work).unwrap_err();
    assert!(
        matches!(refused, Refusal::VclusterClosed { .. }),
        "{refused}"
    );
}

/// `default` exists, and so does a vCluster with nodes. Scheduler settings do not protect the nodes: nodes can be
/// reassigned freely until the vCluster is defined.
#[test]
fn settings_do_not_define_vcluster() {
    let mut c = furnished();
    for name in ["default", "main"] {
        for _ in 0..2 {
            let set = c.admin(settings(name, energy(), Some(0))).unwrap();
            assert_eq!(set.outcome, Outcome::VclusterSet { version: 0 }, "{name}");
        }
        let is = c.state.vcluster(&vc(name)).unwrap();
        let expected = energy().applied_to(&SchedulerSettings::default());
        assert_eq!(is.definition.scheduler, expected);
    }
    assert!(
        c.admin(settings("default", SchedulerPatch::default(), None))
            .unwrap()
            .events
            .is_empty()
    );
    let all = nodes(&c, 2);
    c.admin(move_to("main", None, all.clone())).unwrap_err();
    c.admin(move_to("other", None, all[..1].to_vec())).unwrap();

    let made = c.admin(set("main")).unwrap();
    assert_eq!(made.outcome, Outcome::VclusterSet { version: 1 });
    let record = made.events.iter().find_map(|event| match &event.kind {
        EventKind::Vcluster { record } => Some(record.definition.scheduler),
        _ => None,
    });
    let expected = energy().applied_to(&SchedulerSettings::default());
    assert_eq!(record, Some(expected), "its settings stay");
    let published = made.events.iter().find_map(|event| match &event.kind {
        EventKind::Audit { entry } => match &entry.action {
            AuditAction::VclusterSet { before, after, .. } => Some((before.len(), after.len())),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(published, Some((0, 2)));
    let refused = c.admin(move_to("other", None, all.clone())).unwrap_err();
    assert!(matches!(refused, Refusal::NodesTaken { .. }), "{refused}");
    let version = |c: &Cluster, name| c.state.vcluster(&vc(name)).unwrap().version;
    let more = SchedulerPatch {
        reservations: SettingPatch::Set(PlannedReservations::All),
        ..SchedulerPatch::default()
    };
    let more = settings("main", more, Some(1));
    c.admin(more).unwrap();
    assert_eq!(version(&c, "main"), 2);
    c.admin(move_to("other", Some("main"), all)).unwrap();

    // No version of a deleted vCluster is used again.
    c.admin(delete("main")).unwrap();
    c.admin(set("default")).unwrap();
    assert_eq!(version(&c, "default"), 3);
    let snapshot = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(snapshot.digest(), c.state.digest());
}

/// Allocations of the vCluster would wait for ever, and its scheduler would have nothing to schedule.
#[test]
fn what_has_settings_alone_is_gone_with_its_last_node() {
    let mut c = furnished();
    c.admin(settings("main", energy(), None)).unwrap();
    let work = || AllocationSpec {
        vcluster: vc("main"),
        ..spec("atlas", 1)
    };
    c.submit(work()).unwrap();
    let lease = take(&mut c, "main").lease;
    let all = nodes(&c, 2);
    c.admin(move_to("other", None, all)).unwrap();
    for again in [
        settings("main", SchedulerPatch::default(), None),
        submit(work()),
    ] {
        let refused = c.admin(again).unwrap_err();
        let is_unknown = matches!(refused, Refusal::UnknownVcluster { .. });
        assert!(is_unknown, "{refused}");
    }
    let holder = "c1.1".to_owned();
    let give_back = Command::ReleaseLease { lease, holder };
    c.propose("service:c1", Privilege::Service, give_back)
        .unwrap();
    assert!(leases(&c).is_empty());
    // Nor is `default` deleted, and remaining settings can be deleted.
    c.admin(settings("default", energy(), None)).unwrap();
    c.admin(delete("main")).unwrap();
}

fn submit(spec: AllocationSpec) -> Command {
    let spec = Box::new(spec);
    Command::Submit { spec }
}

fn delete(vcluster: &str) -> Command {
    Command::DeleteVcluster {
        vcluster: vc(vcluster),
        expected_version: None,
    }
}

fn leases(c: &Cluster) -> Vec<LeaseView> {
    match c.state.query(&Query::Leases) {
        Answer::Leases(leases) => leases,
        other => panic!("{other:?}"),
    }
}

/// Scripts that create and delete vClusters leave nothing behind, and no epoch is used twice.
#[test]
fn the_lease_of_a_scheduler_goes_with_its_vcluster() {
    let mut c = furnished();
    take(&mut c, "main");
    let mut last = 0;
    for round in 0..50 {
        c.admin(set("night")).unwrap();
        let fence = take(&mut c, "night");
        assert!(fence.epoch > last, "{round}: {} after {last}", fence.epoch);
        last = fence.epoch;
        assert_eq!(take(&mut c, "night"), fence, "renewed");
        let deleted = c.admin(delete("night")).unwrap();
        let over = deleted.events.iter().any(|event| {
            matches!(&event.kind, EventKind::Lease { lease, holder: None, epoch }
                if *lease == fence.lease && *epoch > last)
        });
        assert!(over, "{:?}", deleted.events);
        if round == 20 {
            c.state = State::restore(&c.state.snapshot()).unwrap();
        }
    }
    let left = leases(&c);
    let names: Vec<&str> = left.iter().map(|lease| lease.name.as_str()).collect();
    assert_eq!(names, ["schedule.main"]);
    // Commands under an earlier epoch are rejected, both before and after the lease is acquired again.
    let id = c.submit(spec("atlas", 1)).unwrap();
    let stale = Fence {
        lease: LeaseName::of_scheduler(&vc("night")),
        epoch: last,
    };
    for current in [0, last + 2] {
        let refused = assign(&mut c, &stale, id).unwrap_err();
        assert!(
            matches!(refused, Refusal::StaleEpoch { current: is, .. } if is == current),
            "{refused}"
        );
        take(&mut c, "night");
    }
}

/// A control may renew before it receives the deletion of the vCluster, or continue because allocations wait.
#[test]
fn a_lease_that_is_given_back_when_its_vcluster_is_gone_is_forgotten() {
    let mut c = furnished();
    c.admin(set("night")).unwrap();
    let give_back = |lease: &LeaseName| Command::ReleaseLease {
        lease: lease.clone(),
        holder: "c1.1".to_owned(),
    };
    let service = |c: &mut Cluster, command| c.propose("service:c1", Privilege::Service, command);
    let (first, main) = (take(&mut c, "night"), take(&mut c, "main"));
    service(&mut c, give_back(&first.lease)).unwrap();
    assert_eq!(leases(&c).len(), 2, "it is there, and another takes it");
    c.admin(delete("night")).unwrap();
    let again = take(&mut c, "night");
    assert!(again.epoch > first.epoch + 1);
    let given_back = service(&mut c, give_back(&again.lease)).unwrap();
    assert!(matches!(
        given_back.events[0].kind,
        EventKind::Lease { holder: None, epoch, .. } if epoch == again.epoch + 1
    ));
    assert_eq!(leases(&c).len(), 1);
    let nothing = service(&mut c, give_back(&again.lease)).unwrap();
    assert!(nothing.events.is_empty());

    // The lease of an existing vCluster stays.
    service(&mut c, give_back(&main.lease)).unwrap();
    let names: Vec<String> = leases(&c).into_iter().map(|lease| lease.name).collect();
    assert_eq!(names, ["schedule.main"]);
}
