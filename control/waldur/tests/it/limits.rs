//! Limits, pauses and priorities that Waldur sets.

use crate::{
    common::{HOUR, path},
    waldur::SyncFixture,
};
use lattice_fake_waldur::Version;
use lattice_quorum_types::{Command, command::Privilege};
use lattice_waldur::cluster::AccountedCluster as _;

/// Exhausted credit, and a purchase that lets allocations start again.
#[tokio::test]
async fn what_waldur_gives_a_tenant_is_what_it_may_use() {
    let mut fixture =
        SyncFixture::with(Version::V8, |settings| settings.category = "HPC".to_owned()).await;
    fixture.world.ran("bio", "batch", 2, HOUR);
    fixture.round().await;
    let resource = fixture.waldur.snapshot().resources[0]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let limit = |nodes: u64| serde_json::Map::from_iter([("max_nodes".to_owned(), nodes.into())]);
    assert!(fixture.waldur.set_limits(&resource, limit(7)));
    fixture.round().await;
    assert_eq!(fixture.world.max_nodes("bio"), Some(7));
    // An administrator's change stays in force until the number in Waldur changes.
    fixture
        .world
        .propose(
            Privilege::Admin,
            "root",
            Command::UpdateTenant {
                tenant: path("bio"),
                limits: lattice_quorum_types::limit::LimitPatch {
                    max_nodes: lattice_quorum_types::limit::Patch::Set(9),
                    ..Default::default()
                },
                soft: Default::default(),
                force: false,
            },
        )
        .unwrap();
    fixture.round().await;
    assert_eq!(fixture.world.max_nodes("bio"), Some(9));
    fixture.waldur.set_limits(&resource, limit(40));
    fixture.round().await;
    assert_eq!(fixture.world.max_nodes("bio"), Some(40));

    fixture.waldur.set_paused(&resource, true);
    fixture.round().await;
    let credit = fixture.world.credit("bio").unwrap();
    assert_eq!(credit.paused.len(), 1);
    assert!(credit.valid_until > fixture.world.now());
    fixture.waldur.set_paused(&resource, false);
    fixture.waldur.set_downscaled(&resource, true);
    fixture.round().await;
    let credit = fixture.world.credit("bio").unwrap();
    assert_eq!((credit.paused.len(), credit.downscaled), (0, true));
}

/// A tenant's limit is not lowered below the sum of its projects' limits: nothing is applied, and the refusal is
/// reported.
#[tokio::test]
async fn reports_contradictory_limits() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let resource = fixture.waldur.snapshot().resources[0]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let limits = serde_json::Map::from_iter([("max_nodes".to_owned(), 20.into())]);
    fixture.waldur.set_limits(&resource, limits);
    let status = fixture.round().await;
    assert_eq!(fixture.world.max_nodes("physics"), Some(100));
    let parked = &status.parked["limits of physics"];
    assert!(
        parked.reason.contains("physics") && parked.reason.contains("50"),
        "{parked:?}"
    );
    assert_eq!(status.failure, None);
}
