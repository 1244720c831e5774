//! vClusters over REST and gRPC: the same content and settings, and for each caller only the tenants that it may see.

use super::{
    super::{fixture::ApiFixture, grpc, projects},
    for_tenants, nodes,
};
use lattice_api::{
    Problem,
    scheduler::{AllReservations, ReservationsView},
    v1,
};
use lattice_quorum_types::{Command, NodeId, Outcome, VclusterName, command::Fence, id::LeaseName};
use tonic::{Code, Status, transport::Channel};
use v1::admin_service_client::AdminServiceClient;

#[tokio::test]
async fn both_faces_tell_the_same_and_no_tenant_of_another() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let ocean = projects::request("ocean", Some(9));
    root.create_project(&ocean, None).await.unwrap();
    let both = for_tenants(&["atlas", "ocean"]);
    root.set_vcluster("night", &both, None).await.unwrap();
    root.assign_vcluster("night", &nodes("gpu001", None), None)
        .await
        .unwrap();
    lend(&fixture, "gpu002", "night").await;

    let mut admin = AdminServiceClient::new(grpc::channel(&fixture).await);
    for (caller, tenants) in [("eye", &["atlas", "ocean"][..]), ("diver", &["ocean"])] {
        let client = fixture.client(caller);
        let one = client.vcluster("night").await.unwrap();
        assert_eq!(one.tenants.as_ref().unwrap(), tenants);
        assert_eq!(
            (one.nodes.as_str(), one.borrowed.as_str()),
            ("gpu001", "gpu002")
        );
        let name = "night".to_owned();
        let asked = grpc::by(&fixture, caller, v1::GetVclusterRequest { name });
        let answer = admin.get_vcluster(asked).await.unwrap().into_inner();
        assert_eq!(answer, v1::Vcluster::from(one));
        let list = client.vclusters().await.unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[0].lent, "gpu002", "of default");
        let request = v1::ListVclustersRequest {
            limit: 1,
            cursor: list[0].name.clone(),
        };
        let page = admin.list_vclusters(grpc::by(&fixture, caller, request));
        let page = page.await.unwrap().into_inner();
        assert_eq!(page.items, [v1::Vcluster::from(list[1].clone())]);
        assert_eq!(page.next_cursor, None);
    }

    // A caller that may see none of its tenants is informed whether the vCluster is usable.
    for (tenants, usable) in [(&["atlas"][..], true), (&[], false)] {
        let request = for_tenants(tenants);
        root.set_vcluster("night", &request, None).await.unwrap();
        let answer = fixture.client("diver").vcluster("night").await.unwrap();
        assert_eq!((answer.tenants, answer.usable), (Some(vec![]), usable));
    }

    // gRPC sets the same as REST.
    let request = v1::SetVclusterRequest {
        name: "night".to_owned(),
        tenants: Some(v1::TenantsChange {
            all: true,
            names: Vec::new(),
        }),
        ..Default::default()
    };
    let set = admin.set_vcluster(grpc::by(&fixture, "root", request));
    let set = set.await.unwrap().into_inner();
    assert!(set.all_tenants && set.tenants.is_empty(), "{set:?}");
    let all = v1::Reservations::from(ReservationsView::All(AllReservations::All));
    let scheduler = v1::SchedulerChange {
        profile: Some("interactive".to_owned()),
        reservations: Some(all),
        checkpoint_gb_s: Some(200.0),
        ..Default::default()
    };
    let scheduler = schedule(&fixture, &mut admin, scheduler).await.unwrap();
    assert_eq!(scheduler.weights.unwrap().wait_time, 0.3);
    assert_eq!(scheduler.reservations, Some(all));
    assert_eq!(scheduler.checkpoint_gb_s, Some(200.0));
    let taken_back = v1::SchedulerChange {
        no_checkpoint_gb_s: true,
        ..Default::default()
    };
    let scheduler = schedule(&fixture, &mut admin, taken_back).await.unwrap();
    assert_eq!(scheduler.checkpoint_gb_s, None);
    for (field, change) in [
        (
            "scheduler.reservations",
            v1::SchedulerChange {
                reservations: Some(v1::Reservations::default()),
                ..Default::default()
            },
        ),
        (
            "scheduler.checkpoint_gb_s",
            v1::SchedulerChange {
                checkpoint_gb_s: Some(1.0),
                no_checkpoint_gb_s: true,
                ..Default::default()
            },
        ),
    ] {
        let refused = schedule(&fixture, &mut admin, change).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let problem = Problem::from_grpc(&refused).unwrap();
        assert_eq!(problem.field.as_deref(), Some(field));
    }
    let kept = root.vcluster("night").await.unwrap().scheduler;
    let all = ReservationsView::All(AllReservations::All);
    assert_eq!(kept.reservations, all, "what is refused changes nothing");
    let request = v1::DeleteVclusterRequest {
        name: "night".to_owned(),
        ..Default::default()
    };
    let refused = admin.delete_vcluster(grpc::by(&fixture, "root", request));
    assert_eq!(refused.await.unwrap_err().code(), Code::FailedPrecondition);
}

/// Changes the scheduler of `night`.
async fn schedule(
    fixture: &ApiFixture,
    admin: &mut AdminServiceClient<Channel>,
    change: v1::SchedulerChange,
) -> Result<v1::Scheduler, Status> {
    let request = v1::SetVclusterRequest {
        name: "night".to_owned(),
        scheduler: Some(change),
        ..Default::default()
    };
    let set = admin.set_vcluster(grpc::by(fixture, "root", request));
    Ok(set.await?.into_inner().scheduler.unwrap())
}

/// Lends a node, as the sharing reconciler does.
async fn lend(fixture: &ApiFixture, node: &str, to: &str) {
    let lease = LeaseName::new("borrow").unwrap();
    let acquired = fixture.service_answer(Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1".to_owned(),
        ttl_ms: 60_000,
    });
    let Outcome::Leased { epoch, .. } = acquired.unwrap().outcome else {
        panic!("not leased");
    };
    fixture.settled().await;
    let node = NodeId::new(node).unwrap();
    let view = fixture.core.view();
    let record = view.node(&node).unwrap().record.clone().unwrap();
    let command = Command::LendNode {
        node,
        to: VclusterName::new(to).unwrap(),
        version: record.version,
    };
    fixture.fenced(Fence { lease, epoch }, command);
    fixture.settled().await;
}
