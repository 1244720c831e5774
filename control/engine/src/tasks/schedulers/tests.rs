#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::tasks::testing::world::World;
use lattice_quorum_types::vcluster::{Vcluster, VclusterDefinition};
use lattice_quorum_types::view::{Answer, Query};
use lattice_quorum_types::{Revision, id::VclusterName as Name};
use lattice_view::BaseView;

fn defined(names: &[String]) -> View {
    let vcluster = |name: &String| {
        let name = Name::new(name).unwrap();
        let definition = VclusterDefinition::default();
        let (version, revision) = (1, Revision(1));
        let record = Vcluster {
            name: name.clone(),
            definition,
            version,
            revision,
        };
        (name, record)
    };
    View::from(BaseView {
        vclusters: Arc::new(names.iter().map(vcluster).collect()),
        ..BaseView::default()
    })
}

fn held(schedulers: &Schedulers) -> BTreeMap<String, u64> {
    let leases = schedulers.leases().into_iter();
    let epoch = |(name, lease): (Name, Arc<Lease>)| Some((name.to_string(), lease.epoch()?));
    leases.filter_map(epoch).collect()
}

#[tokio::test]
async fn one_control_takes_all_and_another_inherits_them_under_later_epochs() {
    let world = World::new();
    let names: Vec<String> = (1..=6).map(|n| format!("v{n}")).collect();
    let view = defined(&names);
    let control = |run: &str| Schedulers::new(world.scheduler_parts(), format!("c.{run}"));
    let (first, second) = (control("1"), control("2"));
    let (mut running, mut known) = (BTreeMap::new(), BTreeMap::new());
    first.follow(&view, &mut running).await;
    assert_eq!(running.len(), 6);
    first.round(&mut known).await;
    assert_eq!(
        held(&first).len(),
        MIN_REQUESTS_PER_ROUND,
        "others get their turn"
    );
    assert_eq!(
        *world.core.view().schedules.keys().next().unwrap(),
        Name::new("v1").unwrap()
    );
    assert!(world.core.view().acting);
    first.round(&mut known).await;
    let of_first = held(&first);
    assert_eq!(of_first.len(), 6);
    let (mut of_others, mut asked) = (BTreeMap::new(), BTreeMap::new());
    second.follow(&view, &mut of_others).await;
    second.round(&mut asked).await;
    assert!(held(&second).is_empty());
    // A deleted vCluster has no scheduler, and its lease is released.
    let fewer = defined(&names[1..]);
    first.follow(&fewer, &mut running).await;
    assert_eq!(running.len(), 5);
    first.release_leases().await;
    assert!(held(&first).is_empty());
    while held(&second).len() < 6 {
        second.round(&mut asked).await;
        sleep(ROUND_INTERVAL).await;
    }
    for (name, epoch) in held(&second) {
        assert!(epoch > of_first[&name], "{name}");
    }
}

/// No control would renew or forget the lease.
#[tokio::test]
async fn a_lease_that_is_granted_after_its_vcluster_went_is_given_back() {
    let world = World::new();
    let control = Schedulers::new(world.scheduler_parts(), "c.1".to_owned());
    let mut running = BTreeMap::new();
    let names = ["night".to_owned()];
    control.follow(&defined(&names), &mut running).await;
    let asked: Vec<_> = control.leases().into_iter().collect();
    control.follow(&View::default(), &mut running).await;
    let said = control.ask(&asked).await;
    assert!(matches!(said[..], [LeaseReport::Held { .. }]), "{said:?}");
    let left = match world.core.store.read(Query::Leases).await.unwrap() {
        Answer::Leases(left) => left,
        other => panic!("{other:?}"),
    };
    let names: Vec<_> = left.into_iter().map(|lease| lease.name).collect();
    assert_eq!(names, ["schedule.default"]);
}

#[test]
fn busy_scheduler_yields_within_bound() {
    assert_eq!(request_delay(0), Duration::ZERO);
    assert!(request_delay(1) < request_delay(3));
    assert_eq!(request_delay(50), MAX_REQUEST_DELAY);
    assert_eq!(request_delay(usize::MAX), MAX_REQUEST_DELAY);
}

/// Leases last 6 s, and a control must stop acting half a second before their end: three renewals may fail.
#[tokio::test]
async fn failed_renewal_is_retried_soon() {
    let world = World::new();
    let names: Vec<String> = (1..=12).map(|n| format!("v{n:02}")).collect();
    let control = Schedulers::new(world.scheduler_parts(), "c.1".to_owned());
    let (mut running, mut known) = (BTreeMap::new(), BTreeMap::new());
    control.follow(&defined(&names), &mut running).await;
    while held(&control).len() < names.len() {
        control.round(&mut known).await;
        sleep(ROUND_INTERVAL).await;
    }
    assert_eq!(request_delay(names.len()), MAX_REQUEST_DELAY);
    sleep(RENEWAL).await;
    world.copy().set_loses_answers(true);
    control.round(&mut known).await;
    let tried_at = Instant::now();
    assert_eq!(held(&control).len(), names.len());
    for (name, known) in known {
        assert!(
            matches!(known.last_report, Some(LeaseReport::NoAnswer { .. })),
            "{name}"
        );
        assert!(known.ask_at <= tried_at + RETRY, "{name}");
    }
}

#[test]
fn vcluster_exists_while_defined_or_used() {
    use crate::tasks::testing::{allocation, entry, view_of};
    use lattice_quorum_types::AllocationState;
    let named =
        |view: &View| -> Vec<String> { vclusters(view).into_iter().map(Name::to_string).collect() };
    let mut night = defined(&["night".to_owned()]);
    assert_eq!(named(&night), ["night"]);
    let settings_alone = Arc::make_mut(&mut night.vclusters).values_mut();
    settings_alone.for_each(|is| is.version = 0);
    assert!(named(&night).is_empty());
    let mut lent = entry("a");
    if let Some(record) = &mut lent.record {
        (record.home, record.current) = (Name::new("own").unwrap(), Name::new("uses").unwrap());
    }
    let mut waits = allocation(AllocationState::Pending, Vec::new());
    waits.spec.vcluster = Name::new("wanted").unwrap();
    assert_eq!(named(&view_of([lent], waits)), ["uses", "wanted"]);
}
