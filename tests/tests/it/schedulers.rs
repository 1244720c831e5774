//! Scheduler leases. Three controls, two vClusters, and a stream of jobs for both: each vCluster's scheduler has a
//! lease of its own. The holder of one lease is killed, and later its next holder is stopped for longer than the lease.
//! That lease moves each time, the other vCluster's lease does not, and no node is assigned twice.
//!
//! `-- --nocapture` prints the times.

use futures::StreamExt as _;
use lattice_client::{SubmitOptions, api::vcluster::VclusterRequest};
use lattice_quorum_types::{
    AllocationId, Command, Envelope, NodeId, Refusal, Revision, VclusterName,
    command::{ExpectedNode, Fence, Principal, Privilege, SCHEMA},
    event::{AllocationChange, EventKind},
    id::LeaseName,
    node::Holder,
    view::WatchItem,
};
use lattice_tests::{
    service,
    site::{Plan, Site},
    wait::eventually,
};
use rustix::process::Signal;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Longest time until a lease moves: its time to live, the retry interval of the controls, and the delay of a busy
/// machine.
const MOVES_WITHIN: Duration = Duration::from_secs(6 + 2 + 7);
const CONTROLS: usize = 3;
/// Number of vClusters of a large site.
const MANY: usize = 50;
/// Time between two submits of the stream.
const EVERY: Duration = Duration::from_millis(100);

/// A committed assignment.
#[derive(Debug, Clone)]
struct Assigned {
    at: Instant,
    vcluster: String,
    id: AllocationId,
    attempt: u32,
}

/// Events of the quorum's watch.
#[derive(Debug, Default)]
struct AssignmentWatch {
    assigned: Vec<Assigned>,
    holders: BTreeMap<NodeId, Option<Holder>>,
    /// Violations.
    violations: Vec<String>,
}

impl AssignmentWatch {
    fn hear(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Allocation { change, record } if *change == AllocationChange::Assigned => {
                self.assigned.push(Assigned {
                    at: Instant::now(),
                    vcluster: record.spec.vcluster.to_string(),
                    id: record.id,
                    attempt: record.attempt,
                });
            }
            EventKind::Node { record } => {
                let before = self.holders.insert(record.id.clone(), record.holder);
                if let (Some(Some(had)), Some(has)) = (before, record.holder)
                    && had != has
                {
                    let node = &record.id;
                    self.violations
                        .push(format!("{node}: {had:?}, then {has:?}"));
                }
            }
            _ => {}
        }
    }
}

struct Scene {
    site: Site,
    assignments: Arc<Mutex<AssignmentWatch>>,
    vclusters: [String; 2],
    submitted: Vec<AllocationId>,
}

fn lease_of(vcluster: &str) -> LeaseName {
    LeaseName::of_scheduler(&VclusterName::new(vcluster).unwrap())
}

/// Index of the control in a holder, which is a control's name and incarnation.
fn place_of(holder: &str) -> usize {
    let mut all = 0..CONTROLS;
    let is_it = |n: &usize| holder.starts_with(&format!("c{}.", n + 1));
    all.find(is_it).expect("a control of this site")
}

impl Scene {
    /// The control, from 0, that schedules a vCluster, with its lease epoch.
    async fn holder(&self, vcluster: &str) -> (usize, u64) {
        let observer = self.site.observer();
        let name = lease_of(vcluster);
        eventually(&format!("{vcluster} is scheduled"), || async {
            let lease = observer.lease(&name).await?;
            let holder = lease.holder?;
            Some((place_of(&holder), lease.epoch))
        })
        .await
    }

    async fn submit(&self, vcluster: &str, node: Option<&str>) -> AllocationId {
        let at = self.site.path("effects");
        let at = at.display();
        let script = format!("echo $LATTICE_ALLOCATION_ID.$LATTICE_ATTEMPT >> {at}\n");
        let mut request = self.site.request(node, &script);
        request.vcluster = Some(vcluster.to_owned());
        let submitted = self.site.api().submit(&request, SubmitOptions::default());
        submitted.await.unwrap().id.unwrap()
    }

    /// Submits `count` jobs for each vCluster, one after the other.
    async fn stream(&mut self, count: usize) {
        for _ in 0..count {
            for vcluster in self.vclusters.clone() {
                let id = self.submit(&vcluster, None).await;
                self.submitted.push(id);
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// First assignment of a vCluster after `since`.
    async fn assigned_after(&self, vcluster: &str, since: Instant) -> Assigned {
        eventually(&format!("something of {vcluster} is assigned"), || async {
            let assignments = self.assignments.lock().unwrap();
            let is_it = |a: &&Assigned| a.vcluster == vcluster && a.at > since;
            assignments.assigned.iter().find(is_it).cloned()
        })
        .await
    }

    /// Waits until a vCluster's lease has another epoch; returns the new holder and epoch.
    async fn moved(&self, vcluster: &str, from: u64) -> (usize, u64) {
        eventually(&format!("the lease of {vcluster} moves"), || async {
            let (holder, epoch) = self.holder(vcluster).await;
            (epoch > from).then_some((holder, epoch))
        })
        .await
    }

    /// Selects a control that is neither killed nor stopped.
    fn ask_another_than(&mut self, gone: usize) {
        self.site.ask_control((gone + 1) % self.site.controls.len());
    }

    /// Checks that all submitted jobs ended as expected, and ran once.
    async fn all_ran_once(&self) {
        for id in &self.submitted {
            let ended = self
                .site
                .reaches(*id, &["completed", "failed", "cancelled"])
                .await;
            assert_eq!(
                (ended.state.as_str(), ended.attempt),
                ("completed", 1),
                "{id}"
            );
        }
        let effects = std::fs::read_to_string(self.site.path("effects")).unwrap();
        let mut ran: Vec<&str> = effects.lines().collect();
        ran.sort_unstable();
        let mut wanted: Vec<String> = self.submitted.iter().map(|id| format!("{id}.1")).collect();
        wanted.sort_unstable();
        assert_eq!(ran, wanted);
        let assignments = self.assignments.lock().unwrap();
        let attempts = assignments.assigned.iter().map(|a| (a.id, a.attempt));
        let each: BTreeSet<_> = attempts.clone().collect();
        assert_eq!(attempts.count(), each.len(), "never assigned twice");
        assert_eq!(assignments.violations, Vec::<String>::new());
    }

    /// Proposes as a scheduler that has not detected the loss of its lease.
    async fn proposes(&self, id: AllocationId, node: &str, fence: Fence) -> Refusal {
        let hot = self.site.observer().hot().await.unwrap();
        let record = hot
            .nodes
            .into_iter()
            .find(|known| known.id.as_str() == node)
            .unwrap();
        let node = ExpectedNode {
            node: record.id,
            version: record.version,
            boot: None,
        };
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "service:control/late".to_owned(),
                privilege: Privilege::Service,
            },
            key: None,
            at: service::now(),
            fence: Some(fence),
            command: Command::Assign {
                id,
                nodes: vec![node],
            },
        };
        self.site.observer().propose(envelope).await.unwrap_err()
    }
}

/// Sets up two vClusters with two nodes each, scheduled by two controls.
async fn two_vclusters() -> Scene {
    let plan = Plan {
        controls: CONTROLS,
        ..Plan::with_agents(["n1", "n2", "n3", "n4"])
    };
    let site = Site::found(lattice_tests::programs!(), &plan).await;
    std::fs::write(site.path("effects"), "").unwrap();
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(site.path("effects"), mode).unwrap();
    }
    let assignments = Arc::new(Mutex::new(AssignmentWatch::default()));
    let (hears, mut watch) = (
        assignments.clone(),
        Box::pin(site.observer().watch(Revision(0))),
    );
    tokio::spawn(async move {
        while let Some(item) = watch.next().await {
            if let WatchItem::Events(events) = item {
                let mut assignments = hears.lock().unwrap();
                events
                    .iter()
                    .for_each(|event| assignments.hear(&event.kind));
            }
        }
    });
    let mut scene = Scene {
        site,
        assignments,
        vclusters: ["left".to_owned(), String::new()],
        submitted: Vec::new(),
    };
    scene.site.lattice(&["admin", "vcluster", "set", "left"]);
    let (left, _) = scene.holder("left").await;
    // A control with fewer leases requests sooner; on a busy machine the other one may sometimes be first.
    for n in 1..=5 {
        let name = format!("right-{n}");
        scene.site.lattice(&["admin", "vcluster", "set", &name]);
        if scene.holder(&name).await.0 != left {
            scene.vclusters[1] = name;
            break;
        }
    }
    assert_ne!(scene.vclusters[1], "", "one control took everything");
    let [left, right] = scene.vclusters.clone();
    scene
        .site
        .lattice(&["admin", "vcluster", "assign", &left, "n[1-2]"]);
    scene
        .site
        .lattice(&["admin", "vcluster", "assign", &right, "n[3-4]"]);
    scene
}

/// Checks that all controls report the reason and the scheduler, also those without the lease.
async fn all_say_why(scene: &Scene) -> AllocationId {
    let left = scene.vclusters[0].clone();
    scene
        .site
        .lattice(&["node", "drain", "n1", "--reason", "its fans are loud"]);
    let waits = scene.submit(&left, Some("n1")).await;
    let mut said = BTreeSet::new();
    for control in 0..CONTROLS {
        let api = scene.site.api_of(control).clone();
        let why = eventually("everybody says why", || async {
            let why = api.explanation(waits).await.ok()?;
            why.blocker.clone().map(|blocker| (blocker, why.summary))
        });
        said.insert(why.await);
    }
    println!("why {waits} waits, by all three: {said:?}");
    assert_eq!(said.len(), 1, "{said:?}");
    let shown = scene.site.lattice(&["admin", "vcluster", "show", &left]);
    let (holder, epoch) = scene.holder(&left).await;
    let line = format!("c{} (epoch {epoch})", holder + 1);
    assert!(shown.contains(&line), "{shown}");
    waits
}

/// Measures the cost of many vClusters' leases for the quorum.
async fn many(scene: &Scene) {
    let (api, begun) = (scene.site.api(), Instant::now());
    for n in 1..=MANY {
        let request = VclusterRequest::default();
        let name = format!("many-{n}");
        api.set_vcluster(&name, &request, None).await.unwrap();
    }
    let defined = begun.elapsed();
    let mut of_each = [0; CONTROLS];
    for n in 1..=MANY {
        of_each[scene.holder(&format!("many-{n}")).await.0] += 1;
    }
    let taken = begun.elapsed();
    let observer = scene.site.observer();
    let written = || eventually("the members answer", || observer.log_index());
    let (before, since) = (written().await, Instant::now());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (entries, seconds) = (written().await - before, since.elapsed().as_secs_f64());
    println!(
        "{MANY} vClusters defined in {:.1} s, all scheduled after {:.1} s, by {of_each:?}; then {:.1} entries \
         of the log each second",
        defined.as_secs_f64(),
        taken.as_secs_f64(),
        entries as f64 / seconds,
    );
    // Renewals one by one would be 33 entries per second, in addition to the usual ones.
    assert!(entries as f64 / seconds < 15.0, "{entries} entries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_scheduler_assigns_nothing_twice() {
    let begun = Instant::now();
    let mut scene = two_vclusters().await;
    let [left, right] = scene.vclusters.clone();
    let (killed, first_epoch) = scene.holder(&left).await;
    let of_right = scene.holder(&right).await;
    scene.ask_another_than(killed);
    let waits = all_say_why(&scene).await;
    println!("founded after {:.1} s", begun.elapsed().as_secs_f64());

    scene.stream(5).await;
    scene.site.controls[killed].kill();
    let at = Instant::now();
    scene.stream(8).await;
    let (stopped, second_epoch) = scene.moved(&left, first_epoch).await;
    let moved = at.elapsed();
    let next = scene
        .assigned_after(&left, at + moved - Duration::from_millis(500))
        .await;
    let other = scene.assigned_after(&right, at).await;
    println!(
        "killed: the lease of {left} moves from control {} to {} after {:.2} s, epoch {first_epoch} to \
         {second_epoch}; first assignment {:.2} s after the kill; of {right} {:.2} s after it",
        killed + 1,
        stopped + 1,
        moved.as_secs_f64(),
        (next.at - at).as_secs_f64(),
        (other.at - at).as_secs_f64(),
    );
    assert!(moved < MOVES_WITHIN, "{moved:?}");
    assert_ne!(stopped, killed);
    assert!(other.at - at < moved, "{right} waited for {left}'s lease");
    assert_eq!(scene.holder(&right).await, of_right, "undisturbed");
    scene.site.controls[killed].start();
    scene.all_ran_once().await;

    scene.ask_another_than(stopped);
    scene.site.is_up().await;
    scene.stream(2).await;
    scene.site.controls[stopped].signal(Signal::STOP);
    let at = Instant::now();
    scene.stream(5).await;
    let (third, third_epoch) = scene.moved(&left, second_epoch).await;
    let moved = at.elapsed();
    scene.site.controls[stopped].signal(Signal::CONT);
    scene.stream(3).await;
    println!(
        "stopped: it moves from control {} to {} after {:.2} s, epoch {second_epoch} to {third_epoch}",
        stopped + 1,
        third + 1,
        moved.as_secs_f64(),
    );
    assert!(moved < MOVES_WITHIN, "{moved:?}");
    scene.all_ran_once().await;
    let now = scene.holder(&left).await;
    assert_eq!(now, (third, third_epoch), "who woke took nothing back");

    let fence = |vcluster: &str, epoch: u64| Fence {
        lease: lease_of(vcluster),
        epoch,
    };
    let stale = scene
        .proposes(waits, "n1", fence(&left, second_epoch))
        .await;
    println!("what it would have proposed: {stale}");
    assert!(matches!(stale, Refusal::StaleEpoch { .. }), "{stale}");
    let (_, epoch) = scene.holder(&right).await;
    let foreign = scene.proposes(waits, "n1", fence(&right, epoch)).await;
    println!("under another vCluster's lease: {foreign}");
    assert!(
        foreign.to_string().contains("is scheduled under the lease"),
        "{foreign}"
    );
    many(&scene).await;
    println!(
        "{} jobs in {:.1} s",
        scene.submitted.len(),
        begun.elapsed().as_secs_f64()
    );
    scene.site.leaves_nothing().await;
}
