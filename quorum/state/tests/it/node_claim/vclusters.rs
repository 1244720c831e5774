//! vClusters: permitted tenants, and home of nodes.

use super::*;
use lattice_quorum_types::{
    Outcome, VclusterName,
    scheduler::{
        PartsPerMillion, PlannedReservations, SchedulerPatch, SchedulerSettings, SettingPatch,
        WeightPatch, WeightSettings,
    },
    vcluster::{MAX_TENANTS, TenantsPatch, VclusterPatch},
};

fn vc(name: &str) -> VclusterName {
    VclusterName::new(name).unwrap()
}

fn set(name: &str, tenants: Option<&[&str]>, expected_version: Option<u32>) -> Command {
    let tenants = match tenants {
        None => TenantsPatch::All,
        Some(names) => TenantsPatch::Only(names.iter().map(|name| path(name)).collect()),
    };
    change(name, tenants, expected_version)
}

fn change(name: &str, tenants: TenantsPatch, expected_version: Option<u32>) -> Command {
    Command::SetVcluster {
        vcluster: vc(name),
        change: Box::new(VclusterPatch {
            tenants,
            ..VclusterPatch::default()
        }),
        expected_version,
    }
}

#[test]
fn a_vcluster_is_for_the_tenants_it_names() {
    let mut c = founded(3);
    c.create("u", Some(limits(4))).unwrap();
    let made = c.admin(set("main", Some(&["t"]), Some(0))).unwrap().outcome;
    assert_eq!(made, Outcome::VclusterSet { version: 1 });
    let same = c.admin(set("main", Some(&["t"]), None)).unwrap();
    assert_eq!(same.outcome, Outcome::VclusterSet { version: 1 });
    assert!(same.events.is_empty());
    c.submit_as("alice", spec("t/a", 1)).unwrap();
    for refused in [
        c.submit_as("bob", spec("u", 1)).unwrap_err(),
        c.claim("bob", "u", &[0]).unwrap_err(),
    ] {
        assert!(
            matches!(refused, Refusal::VclusterClosed { .. }),
            "{refused}"
        );
    }
    let changed = c.admin(set("main", None, Some(0))).unwrap_err();
    assert!(matches!(
        changed,
        Refusal::VclusterChanged { current: 1, .. }
    ));
    let opened = c.admin(set("main", None, Some(1))).unwrap().outcome;
    assert_eq!(opened, Outcome::VclusterSet { version: 2 });
    c.submit_as("bob", spec("u", 1)).unwrap();

    for wrong in [Some(&["t/a"][..]), Some(&["nobody"][..])] {
        assert!(c.admin(set("main", wrong, None)).is_err());
    }
    let user = c.propose("alice", Privilege::Operator, set("main", None, None));
    assert!(matches!(user.unwrap_err(), Refusal::Forbidden { .. }));
}

#[test]
fn nodes_are_lent_while_idle_and_come_back() {
    let mut c = founded(3);
    c.admin(set("main", None, None)).unwrap();
    c.admin(set("other", None, None)).unwrap();
    let lend = |c: &Cluster, i: usize, to: &str| Command::LendNode {
        node: n(i),
        to: vc(to),
        version: c.node(i).version,
    };
    let give_back = |c: &Cluster, i: usize| Command::ReturnNode {
        node: n(i),
        version: c.node(i).version,
    };
    let command = lend(&c, 0, "other");
    let unfenced = c.propose(SERVICE, Privilege::Service, command.clone());
    assert!(matches!(unfenced.unwrap_err(), Refusal::Forbidden { .. }));
    c.fenced(command.clone()).unwrap();
    assert_eq!(
        (&c.node(0).home, &c.node(0).current),
        (&vc("main"), &vc("other"))
    );
    assert!(
        c.fenced(command).unwrap().events.is_empty(),
        "it is lent already"
    );
    let again = lend(&c, 0, "main");
    assert!(c.fenced(again).is_err(), "only its return brings it home");

    let id = c.submit_as("alice", spec("t/a", 1)).unwrap();
    assert!(c.give(id, &[0]).is_err(), "it serves another one");
    c.give(id, &[1]).unwrap();
    c.claim("alice", "t/a", &[2]).unwrap();
    for i in [1, 2] {
        let command = lend(&c, i, "other");
        let nodes = taken(c.fenced(command));
        assert_eq!(nodes[0].node, n(i));
    }
    let mut lent = spec("t/a", 1);
    lent.vcluster = vc("other");
    let id = c.submit_as("alice", lent).unwrap();
    c.give(id, &[0]).unwrap();
    let held = give_back(&c, 0);
    assert_eq!(taken(c.fenced(held)).len(), 1);
    c.end_all(id, RankExit::Exited { code: 0 });
    let Command::ReturnNode { node, version } = give_back(&c, 0) else {
        panic!()
    };
    let stale = Command::ReturnNode {
        node,
        version: version - 1,
    };
    assert_eq!(taken(c.fenced(stale))[0].by, UnavailableReason::Changed);
    let command = give_back(&c, 0);
    c.fenced(command).unwrap();
    assert_eq!(c.node(0).current, vc("main"));
}

#[test]
fn an_administrator_moves_nodes_all_or_none() {
    let mut c = founded(3);
    let assign = |nodes: &[usize], to: &str| assign(nodes, to, None);
    let unknown = c.admin(assign(&[0], "other")).unwrap_err();
    assert!(
        matches!(unknown, Refusal::UnknownVcluster { .. }),
        "{unknown}"
    );
    c.admin(set("other", None, None)).unwrap();
    c.claim("alice", "t/a", &[1]).unwrap();
    let nodes = taken(c.admin(assign(&[0, 1], "other")));
    assert_eq!((nodes.len(), &nodes[0].node), (1, &n(1)));
    assert_eq!(c.node(0).home, vc("main"));
    c.admin(assign(&[0, 2], "other")).unwrap();
    for i in [0, 2] {
        assert_eq!(
            (&c.node(i).home, &c.node(i).current),
            (&vc("other"), &vc("other"))
        );
    }
    assert!(c.admin(assign(&[0, 2], "other")).unwrap().events.is_empty());
    let moved = c.audit().into_iter().filter(|action| {
        matches!(action, AuditAction::NodesMoved { nodes, home: true, .. } if nodes.len() == 2)
    });
    assert_eq!(moved.count(), 1);
}

fn assign(nodes: &[usize], to: &str, from: Option<&str>) -> Command {
    Command::AssignVcluster {
        nodes: nodes.iter().copied().map(n).collect(),
        vcluster: vc(to),
        from: from.map(vc),
    }
}

#[test]
fn unnamed_settings_stay() {
    let mut c = founded(1);
    c.create("u", Some(limits(4))).unwrap();
    let described = |text: &str| Command::SetVcluster {
        vcluster: vc("main"),
        change: Box::new(VclusterPatch {
            description: Some(text.to_owned()),
            ..VclusterPatch::default()
        }),
        expected_version: None,
    };
    c.admin(described("batch")).unwrap();
    let is = |c: &Cluster| c.state.vcluster(&vc("main")).unwrap().clone();
    assert_eq!(is(&c).definition.tenants, None, "open, as it was before");
    c.admin(set("main", Some(&["t"]), None)).unwrap();
    assert_eq!(is(&c).definition.description, "batch");
    c.admin(described("night")).unwrap();
    let definition = is(&c).definition;
    assert_eq!(definition.tenants, Some([path("t")].into()));
    assert_eq!(
        (definition.description.as_str(), is(&c).version),
        ("night", 3)
    );
    c.admin(change("main", TenantsPatch::Unchanged, None))
        .unwrap();
    assert_eq!(is(&c).version, 3, "nothing was changed");
}

fn change_settings(
    settings: SchedulerPatch,
    change: VclusterPatch,
    expected_version: Option<u32>,
) -> Command {
    Command::SetScheduler {
        vcluster: vc("main"),
        change: Box::new(change),
        settings: Box::new(settings),
        expected_version,
    }
}

fn weight(parts: u64) -> SettingPatch<PartsPerMillion> {
    SettingPatch::Set(PartsPerMillion(parts))
}

fn energy(parts: u64) -> SchedulerPatch {
    SchedulerPatch {
        weights: WeightPatch {
            energy: weight(parts),
            ..WeightPatch::default()
        },
        ..SchedulerPatch::default()
    }
}

/// Concurrent changes of different settings all apply; the audit lists the resulting settings.
#[test]
fn settings_of_a_scheduler_are_merged() {
    let mut c = founded(1);
    let plain = VclusterPatch::default;
    c.admin(set("main", None, None)).unwrap();
    let first = SchedulerPatch {
        reservations: SettingPatch::Set(PlannedReservations::All),
        ..energy(400_000)
    };
    c.admin(change_settings(first, plain(), Some(1))).unwrap();
    let described = VclusterPatch {
        description: Some("night".to_owned()),
        ..plain()
    };
    let priority = SchedulerPatch {
        weights: WeightPatch {
            priority: weight(700_000),
            ..WeightPatch::default()
        },
        ..SchedulerPatch::default()
    };
    c.admin(change_settings(priority, described, None)).unwrap();
    let back = SchedulerPatch {
        reservations: SettingPatch::Clear,
        ..SchedulerPatch::default()
    };
    c.admin(change_settings(back, plain(), Some(3))).unwrap();
    let is = c.state.vcluster(&vc("main")).unwrap().clone();
    let expected = SchedulerSettings {
        weights: WeightSettings {
            energy: Some(PartsPerMillion(400_000)),
            priority: Some(PartsPerMillion(700_000)),
            ..WeightSettings::default()
        },
        ..SchedulerSettings::default()
    };
    assert_eq!(is.definition.scheduler, expected);
    assert_eq!(
        (is.definition.description.as_str(), is.version),
        ("night", 4)
    );
    let Some(AuditAction::VclusterSet { before, after, .. }) = c.audit().pop() else {
        panic!("not in the audit")
    };
    let weights = ["weights.energy=0.4", "weights.priority=0.7"];
    let definition = ["tenants: all", "description: night"];
    assert_eq!(after, [definition, weights].concat());
    assert_eq!(
        before,
        [&definition[..], &["reservations=all"], &weights].concat()
    );
    let same = change_settings(energy(400_000), plain(), None);
    let same = c.admin(same).unwrap();
    assert!(same.events.is_empty(), "nothing was changed");

    let changed = change_settings(energy(1), plain(), Some(1));
    let changed = c.admin(changed).unwrap_err();
    assert!(matches!(
        changed,
        Refusal::VclusterChanged { current: 4, .. }
    ));
    let command = change_settings(energy(1), plain(), None);
    let refused = c.propose("alice", Privilege::User, command).unwrap_err();
    assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused}");
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let mut c = founded(1);
    c.admin(set("main", None, None)).unwrap();
    let revision = c.state.revision();
    let mut checked = |edit: fn(&mut SchedulerPatch), name: &str| {
        let mut settings = energy(100_000);
        edit(&mut settings);
        let command = change_settings(settings, VclusterPatch::default(), None);
        let refused = c.admin(command).unwrap_err();
        assert!(
            matches!(&refused, Refusal::Invalid { field, .. } if field == name),
            "{refused}"
        );
    };
    checked(
        |s| s.weights.topology = weight(u64::MAX),
        "scheduler.weights.topology",
    );
    checked(
        |s| s.reference_wait_ms = SettingPatch::Set(0),
        "scheduler.reference_wait_s",
    );
    checked(
        |s| s.preemption.max_victims = SettingPatch::Set(4),
        "movement.preemption.max_victims",
    );
    checked(
        |s| s.sharing.return_grace_ms = SettingPatch::Set(u64::MAX),
        "movement.sharing.return_grace_s",
    );
    checked(
        |s| s.checkpoint.timeout_ms = SettingPatch::Set(86_400_001),
        "movement.checkpoint.timeout_s",
    );
    checked(
        |s| s.scaling.threshold = weight(1_000_000),
        "movement.scaling.threshold",
    );
    assert_eq!(c.state.revision(), revision);

    // Each change has a valid interval, but together they do not.
    let interval = |edit: fn(&mut SchedulerPatch)| {
        let mut settings = SchedulerPatch::default();
        edit(&mut settings);
        change_settings(settings, VclusterPatch::default(), None)
    };
    c.admin(interval(|s| {
        s.checkpoint.max_interval_ms = SettingPatch::Set(1000)
    }))
    .unwrap();
    let refused = c.admin(interval(|s| {
        s.checkpoint.min_interval_ms = SettingPatch::Set(1001)
    }));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "movement.checkpoint.min_interval_s: it is 1001 ms; it must be at most the longest interval, 1000 ms"
    );
}

#[test]
fn foreign_nodes_need_named_source() {
    let mut c = founded(3);
    for name in ["left", "right"] {
        c.admin(set(name, None, None)).unwrap();
    }
    // The nodes are of `main`, which is not defined.
    c.admin(assign(&[0, 1], "left", None)).unwrap();
    for from in [None, Some("main"), Some("right")] {
        let nodes = taken(c.admin(assign(&[0, 1, 2], "right", from)));
        let by = UnavailableReason::Vcluster { home: vc("left") };
        assert_eq!(nodes.len(), 2);
        assert!(nodes.iter().all(|node| node.by == by), "{nodes:?}");
    }
    let homes = |c: &Cluster| [0, 1, 2].map(|i| c.node(i).home.to_string());
    assert_eq!(homes(&c), ["left", "left", "main"]);
    let refused = c.admin(assign(&[1], "right", None)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "ownership conflict: node n001 belongs to vCluster \"left\"; no node was assigned, claimed or \
         moved; choose other nodes. `lattice admin vcluster assign` moves these nodes if `--from` names \
         their vCluster"
    );
    c.claim("alice", "t/a", &[2]).unwrap();
    let refused = c.admin(assign(&[1, 2], "right", None)).unwrap_err();
    let refused = refused.to_string();
    let both =
        "choose other nodes, or wait until these are free. `lattice admin vcluster assign` moves";
    assert!(refused.contains(both), "{refused}");
    c.admin(assign(&[0, 1], "right", Some("left"))).unwrap();
    assert_eq!(homes(&c), ["right", "right", "main"]);
}

#[test]
fn a_vcluster_goes_when_no_node_is_left_in_it() {
    let mut c = founded(2);
    let delete = |version| Command::DeleteVcluster {
        vcluster: vc("night"),
        expected_version: version,
    };
    let unknown = c.admin(delete(None)).unwrap_err();
    assert!(matches!(unknown, Refusal::UnknownVcluster { .. }));
    c.admin(set("night", Some(&["t"]), None)).unwrap();
    c.admin(set("main", None, None)).unwrap();
    c.admin(assign(&[0], "night", Some("main"))).unwrap();
    let lend = Command::LendNode {
        node: n(1),
        to: vc("night"),
        version: c.node(1).version,
    };
    c.fenced(lend).unwrap();
    let refused = c.admin(delete(None)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "vCluster \"night\" has nodes: n[000-001]; they would be open to every tenant. Move them first: \
         `lattice admin vcluster assign OTHER 'n[000-001]' --from night`"
    );
    c.admin(assign(&[0, 1], "main", Some("night"))).unwrap();
    let user = c.propose("alice", Privilege::Operator, delete(None));
    assert!(matches!(user.unwrap_err(), Refusal::Forbidden { .. }));
    let changed = c.admin(delete(Some(2))).unwrap_err();
    assert!(matches!(
        changed,
        Refusal::VclusterChanged { current: 1, .. }
    ));
    let gone = c.admin(delete(Some(1))).unwrap().events;
    let is_deletion = |event: &EventKind| matches!(event, EventKind::VclusterDeleted { .. });
    assert!(
        gone.iter().any(|event| is_deletion(&event.kind)),
        "{gone:?}"
    );
    assert!(c.state.vcluster(&vc("night")).is_none());
    let deletion = AuditAction::VclusterDeleted {
        vcluster: vc("night"),
    };
    assert_eq!(c.audit().last(), Some(&deletion));
}

#[test]
fn work_for_a_vcluster_that_is_not_there_is_refused() {
    let mut c = founded(1);
    let work = |name: &str| AllocationSpec {
        vcluster: vc(name),
        ..spec("t/a", 1)
    };
    let refused = c.submit_as("alice", work("nihgt")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "vCluster \"nihgt\" is not defined; `lattice admin vcluster list` shows all vClusters, \
         and an administrator can define one with `lattice admin vcluster set nihgt`"
    );
    // A vCluster with nodes exists, defined or not; `default` and newly defined ones need no nodes.
    c.submit_as("alice", work("main")).unwrap();
    c.submit_as("alice", work("default")).unwrap();
    c.admin(set("night", None, None)).unwrap();
    c.submit_as("alice", work("night")).unwrap();
    let delete = Command::DeleteVcluster {
        vcluster: vc("night"),
        expected_version: None,
    };
    c.admin(delete).unwrap();
    assert!(c.submit_as("alice", work("night")).is_err());
}

#[test]
fn no_version_of_one_comes_twice() {
    let mut c = founded(1);
    let delete = || Command::DeleteVcluster {
        vcluster: vc("night"),
        expected_version: None,
    };
    let version = |applied: Applied| match applied.outcome {
        Outcome::VclusterSet { version } => version,
        other => panic!("{other:?}"),
    };
    assert_eq!(version(c.admin(set("night", None, Some(0))).unwrap()), 1);
    let twice = c.admin(set("night", Some(&["t"]), Some(0))).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "vCluster \"night\" is defined already, at version 1; name that version to change it"
    );
    c.admin(delete()).unwrap();
    let gone = c.admin(set("night", Some(&["t"]), Some(1))).unwrap_err();
    assert_eq!(
        gone.to_string(),
        "vCluster \"night\" was at version 1 and is not defined now; read it again"
    );
    assert_eq!(version(c.admin(set("night", None, Some(0))).unwrap()), 2);
    // Also after a snapshot.
    c.admin(delete()).unwrap();
    c.state = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(version(c.admin(set("night", None, None)).unwrap()), 3);
    let stale = c.admin(set("night", Some(&["t"]), Some(1))).unwrap_err();
    assert!(matches!(stale, Refusal::VclusterChanged { current: 3, .. }));
}

#[test]
fn a_vcluster_names_no_more_tenants_than_a_page_has_room_for() {
    let mut c = founded(1);
    let names: Vec<String> = (0..=MAX_TENANTS).map(|i| format!("u{i}")).collect();
    for name in &names {
        c.create(name, None).unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    c.admin(set("night", Some(&names[1..]), None)).unwrap();
    let refused = c.admin(set("night", Some(&names), None)).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("tenants: name 500 tenants at most"),
        "{refused}"
    );
}

#[test]
fn a_tenant_that_a_vcluster_names_is_not_deleted() {
    let mut c = founded(1);
    c.create("u", Some(limits(4))).unwrap();
    c.admin(set("main", Some(&["t", "u"]), None)).unwrap();
    let delete = || Command::DeleteProject { path: path("u") };
    let refused = c.admin(delete()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "path: vCluster main is open to tenant u; remove the tenant from the vCluster first"
    );
    c.admin(set("main", Some(&["t"]), None)).unwrap();
    c.admin(delete()).unwrap();
}

#[test]
fn a_lent_node_counts_for_the_tenant_that_uses_it_at_every_level() {
    let mut c = founded(2);
    c.create("u", Some(limits(1))).unwrap();
    c.create("u/x", Some(limits(1))).unwrap();
    c.admin(set("main", Some(&["t"]), None)).unwrap();
    c.admin(set("guest", Some(&["u"]), None)).unwrap();
    for i in [0, 1] {
        let command = Command::LendNode {
            node: n(i),
            to: vc("guest"),
            version: c.node(i).version,
        };
        c.fenced(command).unwrap();
    }
    let mut borrows = spec("u/x", 1);
    borrows.vcluster = vc("guest");
    let id = c.submit_as("alice", borrows.clone()).unwrap();
    let another = c.submit_as("alice", borrows).unwrap();
    c.give(id, &[0]).unwrap();
    assert_eq!((c.usage("u/x"), c.usage("u")), ((1, 1), (1, 1)));
    assert_eq!(c.usage("t"), (0, 0), "not for whom it is lent by");
    let refused = c.give(another, &[1]).unwrap_err();
    assert!(
        matches!(&refused, Refusal::LimitExceeded { levels, .. } if levels.len() == 2),
        "{refused}"
    );
    c.end_all(id, RankExit::Exited { code: 0 });
    c.give(another, &[1]).unwrap();
}
