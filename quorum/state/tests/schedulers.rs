//! Each vCluster's scheduler has a lease of its own: what it gives nodes to is its vCluster's.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Cluster, envelope, limits, principal, spec};
use lattice_quorum_types::{
    AllocationId, Applied, Command, Outcome, Refusal, VclusterName,
    command::{Fence, Power},
    id::LeaseName,
    vcluster::VclusterPatch,
    view::{Answer, LeaseView, Query},
};

fn take(c: &mut Cluster, vcluster: &str) -> Fence {
    let lease = LeaseName::of_scheduler(&VclusterName::new(vcluster).unwrap());
    let command = Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1.1".to_owned(),
        ttl_ms: 6_000,
    };
    match c.propose("service:c1", Power::Service, command).unwrap() {
        Applied {
            outcome: Outcome::Leased { epoch, .. },
            ..
        } => Fence { lease, epoch },
        other => panic!("{other:?}"),
    }
}

fn ask(c: &mut Cluster, schema: u16, fence: &Fence, command: Command) -> Result<Applied, Refusal> {
    let service = principal("service:c1", Power::Service);
    let mut asked = envelope(c.now(), service, command);
    (asked.schema, asked.fence) = (schema, Some(fence.clone()));
    c.apply(asked)
}

fn assign(
    c: &mut Cluster,
    schema: u16,
    fence: &Fence,
    id: AllocationId,
) -> Result<Applied, Refusal> {
    let nodes = c.free(1);
    ask(c, schema, fence, Command::Assign { id, nodes })
}

fn grow(c: &mut Cluster, schema: u16, fence: &Fence, id: AllocationId) -> Result<Applied, Refusal> {
    let nodes = c.free(1);
    ask(c, schema, fence, Command::Grow { id, nodes })
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
    let refused = assign(&mut c, 5, &other, id).unwrap_err();
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
    assign(&mut c, 5, &dispatch, id).unwrap_err();
    let assigned = assign(&mut c, 5, &main, id).unwrap();
    assert_eq!(assigned.outcome, Outcome::Assigned { attempt: 1 });
    let refused = grow(&mut c, 5, &other, id).unwrap_err().to_string();
    assert!(
        refused.contains("schedule.main, not schedule.other"),
        "{refused}"
    );
    grow(&mut c, 5, &main, id).unwrap();
    assert_eq!(c.state.allocation(id).unwrap().spec.nodes, 2);
}

/// One lease covered all vClusters; such a log gives the state it gave.
#[test]
fn what_was_assigned_before_schema_5_is_judged_as_it_was() {
    let mut c = furnished();
    let id = c.submit(spec("atlas", 1)).unwrap();
    let other = take(&mut c, "other");
    let assigned = assign(&mut c, 4, &other, id).unwrap();
    assert_eq!(assigned.outcome, Outcome::Assigned { attempt: 1 });
    grow(&mut c, 4, &other, id).unwrap();
    assert_eq!(c.state.allocation(id).unwrap().spec.nodes, 2);
}

#[test]
fn who_has_a_lease_is_told_until_it_runs_out() {
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
    // State time goes on with what is proposed.
    c.submit(spec("atlas", 1)).unwrap();
    let over = of_main(&c);
    assert_eq!((over.holder, over.epoch), (None, fence.epoch));
}
