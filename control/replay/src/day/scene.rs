//! Scene: the contents of one day, generated from a seed in advance. A scene has the cluster, the projects, the storage
//! outage, and the events: submissions, cancellations, reservations and failures.
#![expect(clippy::expect_used, reason = "names that are written here are names")]

use super::job_behavior::{CheckpointReaction, JobBehavior};
use lattice_quorum_types::{
    NodeId, ProjectPath, UnixMillis, VclusterName,
    checkpoint::CheckpointMode,
    dag::{DagSpec, Edge, MemberSpec},
    id::ReservationName,
    limit::Limits,
    reservation::ReservationSpec,
    scale::{Metric, ScalingPace, ScalingSpec},
    scheduler::{PreemptionPatch, SchedulerPatch, SettingPatch, SharingPatch},
    spec::{AllocationSpec, Requeue},
    terms::{CheckpointTerms, CheckpointTrigger, Condition, Terms},
};
use lattice_rng::Rng;
use std::{collections::BTreeSet, f64::consts::TAU};

/// Start of the simulated day. The load over the day assumes that this is 09:00.
pub const START: UnixMillis = UnixMillis(1_700_006_400_000);
/// Length of a day, milliseconds.
pub const DAY_MS: u64 = 24 * HOUR;
const HOUR: u64 = 60 * MINUTE;
const MINUTE: u64 = 60_000;

/// vCluster that lends, with jobs of its own during the day.
pub const OWNER: &str = "lab";
/// vCluster with more jobs than nodes; it borrows.
pub const BORROWER: &str = "batch";
/// vCluster with services that scale with their load.
pub const SERVICES: &str = "web";
/// vCluster with sensitive jobs; it neither lends nor borrows.
pub const SENSITIVE: &str = "vault";

/// Contents of one day.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Seed of the scene.
    pub seed: u64,
    /// vClusters with their nodes.
    pub vclusters: Vec<VclusterScene>,
    /// Projects with their limits, parents first.
    pub projects: Vec<(ProjectPath, Limits)>,
    /// Events in order of time.
    pub events: Vec<(UnixMillis, DayEvent)>,
    /// Period in which checkpoints cannot be stored.
    pub outage: (UnixMillis, UnixMillis),
    /// End of the period in which users submit and nodes fail.
    pub until: UnixMillis,
}

/// A vCluster with its settings and nodes.
#[derive(Debug, Clone)]
pub struct VclusterScene {
    /// Name of the vCluster.
    pub name: VclusterName,
    /// Scheduler settings of the vCluster.
    pub settings: SchedulerPatch,
    /// Nodes of the vCluster.
    pub nodes: Vec<NodeId>,
}

/// Action of a user or administrator, or event of a node or of the storage.
#[derive(Debug, Clone)]
pub enum DayEvent {
    /// A user submits an allocation.
    Submit {
        /// Name of the user.
        user: String,
        /// Submitted allocation.
        spec: Box<AllocationSpec>,
    },
    /// A user submits a DAG.
    SubmitDag {
        /// Name of the user.
        user: String,
        /// Submitted DAG.
        dag: Box<DagSpec>,
    },
    /// A user cancels one of the live allocations that are not services.
    Cancel {
        /// Index among the live allocations, modulo their number.
        nth: u64,
    },
    /// A node fails with all its processes.
    Fail {
        /// Failed node.
        node: NodeId,
        /// Time until the node is up again, milliseconds.
        for_ms: u64,
    },
    /// An administrator reserves nodes.
    Reserve {
        /// Name of the reservation.
        name: ReservationName,
        /// Reserved nodes, period and projects.
        spec: Box<ReservationSpec>,
    },
    /// Checkpoint storage fails.
    StorageOut {
        /// Whether an administrator sets the storage bandwidth of the vClusters to 0.
        announced: bool,
    },
    /// Checkpoint storage is available again.
    StorageBack,
    /// Users end the services.
    EndServices,
}

/// Unwraps the result for a name that is a literal in this file.
fn name<T, E: std::fmt::Debug>(made: Result<T, E>) -> T {
    made.expect("a name")
}

fn path(text: &str) -> ProjectPath {
    name(ProjectPath::new(text))
}

fn limits(nodes: u64, allocations: Option<u64>) -> Limits {
    Limits {
        max_nodes: Some(nodes),
        max_concurrent_allocations: allocations,
    }
}

impl Scene {
    /// Creates the scene of the first `hours` hours of a seed's day; more than 24 count as 24.
    pub fn of_hours(seed: u64, hours: u64) -> Self {
        let mut scene = Self::of(seed);
        let until = START.after(hours.min(24) * HOUR);
        let goes_on = |deed: &DayEvent| matches!(deed, DayEvent::StorageBack);
        scene
            .events
            .retain(|(at, deed)| *at < until || goes_on(deed));
        scene.events.push((until, DayEvent::EndServices));
        scene.events.sort_by_key(|(at, _)| *at);
        scene.until = until;
        scene
    }

    /// Creates the scene of a seed's day, with all 24 hours.
    pub fn of(seed: u64) -> Self {
        let parts = parts(seed);
        let mut scene = Self {
            seed,
            projects: projects(),
            events: Vec::new(),
            outage: outage(seed),
            until: START.after(DAY_MS),
            vclusters: parts,
        };
        scene.add_services();
        for (vcluster, times) in [(OWNER, 5), (BORROWER, 11), (SENSITIVE, 1)] {
            scene.add_jobs(vcluster, times);
        }
        scene.add_dags();
        scene.add_failures();
        scene.add_reservations();
        let (from, until) = scene.outage;
        let is_announced = Rng::new(seed, "told").chance(500);
        scene.events.push((
            from,
            DayEvent::StorageOut {
                announced: is_announced,
            },
        ));
        scene.events.push((until, DayEvent::StorageBack));
        let mut rng = Rng::new(seed, "cancels");
        for _ in 0..5 {
            let at = START.after(rng.range(HOUR, DAY_MS));
            let nth = rng.next();
            scene.events.push((at, DayEvent::Cancel { nth }));
        }
        scene
            .events
            .push((START.after(DAY_MS), DayEvent::EndServices));
        scene.events.sort_by_key(|(at, _)| *at);
        scene
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.vclusters.iter().flat_map(|part| &part.nodes)
    }

    fn add_services(&mut self) {
        let mut rng = Rng::new(self.seed, "services");
        for number in 0..2 {
            let scale = ScalingSpec {
                min_nodes: 1,
                max_nodes: 4,
                metric: Metric::Gpu,
                target_micro: 600_000,
                pace: ScalingPace::default(),
            };
            let nature = JobBehavior {
                work_ms: None,
                write_ms: 1000,
                reaction: CheckpointReaction::Ignores,
                code: 0,
            };
            let mut spec = AllocationSpec::new(
                path("boreas/web"),
                name(VclusterName::new(SERVICES)),
                1,
                nature.workload(),
            );
            spec.class = 8;
            spec.requeue = Requeue::Always;
            spec.terms.scale = Some(scale);
            spec.name = Some(format!("service-{number}"));
            let at = START.after(rng.range(1, 10 * MINUTE));
            let user = "wendy".to_owned();
            let spec = Box::new(spec);
            self.events.push((at, DayEvent::Submit { user, spec }));
        }
    }

    /// Adds about `an_hour` jobs an hour on average, most of them during the day.
    fn add_jobs(&mut self, vcluster: &'static str, an_hour: u64) {
        let mut rng = Rng::new(self.seed, vcluster);
        let busy = 0.7 + 0.6 * rng.part();
        let mut at_ms = 0_u64;
        loop {
            let of_day = at_ms as f64 / DAY_MS as f64;
            // The most jobs arrive 6 h after the start (15:00), the fewest twelve hours later.
            let now = 1.0 - 0.8 * (TAU * (of_day + 0.25)).cos();
            let mean_ms = HOUR as f64 / (an_hour as f64 * busy * now);
            let gap = -mean_ms * (1.0 - rng.part()).ln();
            at_ms += (gap as u64).clamp(1, 3 * HOUR);
            if at_ms >= DAY_MS {
                return;
            }
            let at = START.after(at_ms);
            let (user, spec) = job(&mut rng, vcluster, at);
            let spec = Box::new(spec);
            self.events.push((at, DayEvent::Submit { user, spec }));
        }
    }

    fn add_dags(&mut self) {
        let mut rng = Rng::new(self.seed, "graphs");
        for _ in 0..4 {
            let at = START.after(rng.range(0, DAY_MS - HOUR));
            let (user, _) = job(&mut rng, BORROWER, at);
            let mut member = |name: &str, after: &[(&str, Condition)]| {
                let (_, mut spec) = job(&mut rng, BORROWER, at);
                spec.project = path("boreas/ml");
                spec.terms.array = None;
                spec.terms.deadline_at = None;
                let edge = |(member, condition): &(&str, Condition)| Edge {
                    member: (*member).to_owned(),
                    condition: *condition,
                };
                MemberSpec {
                    name: name.to_owned(),
                    spec,
                    after: after.iter().map(edge).collect(),
                }
            };
            let members = vec![
                member("prepare", &[]),
                member("train", &[("prepare", Condition::Success)]),
                member("judge", &[("train", Condition::Success)]),
                member("mourn", &[("train", Condition::Failure)]),
                member("tidy", &[("prepare", Condition::Any)]),
            ];
            let dag = Box::new(DagSpec {
                name: "pipeline".to_owned(),
                members,
            });
            self.events.push((at, DayEvent::SubmitDag { user, dag }));
        }
    }

    fn add_failures(&mut self) {
        let mut rng = Rng::new(self.seed, "failures");
        let nodes: Vec<NodeId> = self.nodes().cloned().collect();
        for _ in 0..rng.range(3, 10) {
            let at = START.after(rng.range(0, DAY_MS));
            // The node reboots at once, or stays down for a while.
            let for_ms = match rng.chance(300) {
                true => rng.range(MINUTE / 2, 4 * MINUTE),
                false => rng.range(10 * MINUTE, 2 * HOUR),
            };
            let Some(node) = rng.pick(&nodes).cloned() else {
                return;
            };
            self.events.push((at, DayEvent::Fail { node, for_ms }));
        }
    }

    fn add_reservations(&mut self) {
        let mut rng = Rng::new(self.seed, "reservations");
        for (number, vcluster) in [OWNER, BORROWER].into_iter().enumerate() {
            let of_it = self
                .vclusters
                .iter()
                .find(|part| part.name.as_str() == vcluster);
            let nodes = of_it.map_or(&[][..], |part| &part.nodes);
            let first = rng.range(0, nodes.len().saturating_sub(2) as u64) as usize;
            let nodes: BTreeSet<NodeId> = nodes.iter().skip(first).take(2).cloned().collect();
            let said_at = START.after(rng.range(HOUR, 14 * HOUR));
            let from = said_at.after(rng.range(HOUR, 5 * HOUR));
            // The first reservation admits no project, the second one admits one.
            let projects = match number {
                0 => BTreeSet::new(),
                _ => BTreeSet::from([path("atlas/chem")]),
            };
            let spec = ReservationSpec {
                nodes,
                from,
                until: Some(from.after(rng.range(HOUR / 2, 2 * HOUR))),
                users: BTreeSet::new(),
                projects,
                reason: "a day's".to_owned(),
            };
            let name = name(ReservationName::new(format!("r{number}")));
            let spec = Box::new(spec);
            self.events
                .push((said_at, DayEvent::Reserve { name, spec }));
        }
    }
}

fn outage(seed: u64) -> (UnixMillis, UnixMillis) {
    let from = START.after(Rng::new(seed, "outage").range(2 * HOUR, 22 * HOUR));
    (from, from.after(HOUR))
}

fn parts(seed: u64) -> Vec<VclusterScene> {
    let mut rng = Rng::new(seed, "parts");
    let mut part = |name_of: &str, nodes: std::ops::Range<u64>, settings: SchedulerPatch| {
        let count = rng.range(nodes.start, nodes.end);
        let node = |n| name(NodeId::new(format!("{name_of}{n:02}")));
        VclusterScene {
            name: name(VclusterName::new(name_of)),
            settings,
            nodes: (0..count).map(node).collect(),
        }
    };
    let usual = SchedulerPatch::default;
    let services = SchedulerPatch {
        preemption: PreemptionPatch {
            only_borrowed: SettingPatch::Set(true),
            ..PreemptionPatch::default()
        },
        ..usual()
    };
    let sensitive = SchedulerPatch {
        sharing: SharingPatch {
            allow_lending: SettingPatch::Set(false),
            allow_borrowing: SettingPatch::Set(false),
            ..SharingPatch::default()
        },
        ..usual()
    };
    vec![
        part(OWNER, 8..12, usual()),
        part(BORROWER, 6..10, usual()),
        part(SERVICES, 3..5, services),
        part(SENSITIVE, 3..4, sensitive),
    ]
}

fn projects() -> Vec<(ProjectPath, Limits)> {
    [
        ("atlas", limits(16, None)),
        ("atlas/physics", limits(8, None)),
        ("atlas/physics/simulation", limits(5, Some(4))),
        ("atlas/chem", limits(8, None)),
        ("boreas", limits(18, None)),
        ("boreas/ml", limits(10, Some(8))),
        ("boreas/ml/train", limits(7, Some(6))),
        ("boreas/web", limits(7, None)),
        ("clinic", limits(3, None)),
        ("clinic/study", limits(3, None)),
    ]
    .map(|(at, limits)| (path(at), limits))
    .to_vec()
}

/// Draws a user and a project that may submit to the vCluster.
fn pick_submitter(rng: &mut Rng, vcluster: &str) -> (&'static str, &'static str) {
    let places: &[(&str, &str)] = match vcluster {
        OWNER => &[
            ("alice", "atlas/physics"),
            ("aaron", "atlas/physics/simulation"),
            ("anna", "atlas/chem"),
        ],
        BORROWER => &[
            ("bob", "boreas/ml"),
            ("beate", "boreas/ml/train"),
            ("anna", "atlas/chem"),
        ],
        _ => &[("carol", "clinic/study")],
    };
    *rng.pick(places).expect("a place")
}

fn job(rng: &mut Rng, vcluster: &str, at: UnixMillis) -> (String, AllocationSpec) {
    let (user, project) = pick_submitter(rng, vcluster);
    let is_sensitive = vcluster == SENSITIVE;
    let work_ms = rng.log_uniform(4 * MINUTE, 4 * HOUR);
    let saves = rng.chance(450);
    let answers = match rng.range(0, 20) {
        0 => CheckpointReaction::Declines,
        1 => CheckpointReaction::Ignores,
        2 => CheckpointReaction::TooSlow,
        3 => CheckpointReaction::Defers,
        _ => CheckpointReaction::Writes,
    };
    let write_ms = rng.log_uniform(2_000, 6 * MINUTE);
    let nature = JobBehavior {
        work_ms: Some(work_ms),
        write_ms,
        reaction: answers,
        code: i32::from(rng.chance(40)),
    };
    let most = if is_sensitive { 3 } else { 6 };
    let nodes = [1, 1, 1, 2, 2, 3, 4, 6][rng.range(0, 8) as usize].min(most);
    let mut spec = AllocationSpec::new(
        path(project),
        name(VclusterName::new(vcluster)),
        nodes,
        nature.workload(),
    );
    // Walltimes as users estimate them: often far too long, sometimes too short.
    let factor = [0.8, 1.05, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0][rng.range(0, 8) as usize];
    spec.walltime_ms = Some((work_ms as f64 * factor) as u64);
    spec.class = match rng.range(0, 100) {
        0..35 => rng.range(0, 4) as u8,
        35..75 => rng.range(4, 7) as u8,
        75..96 => rng.range(7, 10) as u8,
        _ => 10,
    };
    spec.sensitive = is_sensitive;
    spec.requeue = [
        Requeue::Always,
        Requeue::Always,
        Requeue::Once,
        Requeue::Never,
    ][rng.range(0, 4) as usize];
    if saves {
        let trigger = match rng.chance(250) {
            true => CheckpointTrigger::Manual,
            false => CheckpointTrigger::Automatic,
        };
        spec.terms = Terms {
            checkpoint: Some(CheckpointTerms {
                mode: CheckpointMode::Signal,
                trigger,
                directory: None,
            }),
            ..Terms::default()
        };
        spec.demand.checkpoint_ms = rng.chance(600).then_some(write_ms);
    }
    if rng.chance(60) {
        let within = rng.range(HOUR, 8 * HOUR);
        spec.terms.deadline_at = Some(at.after(within).after(work_ms));
    }
    if !is_sensitive && rng.chance(30) {
        spec.nodes = 1;
        let text = ["0-7%3", "1-5", "0-9:3%2"][rng.range(0, 3) as usize];
        spec.terms.array = Some(name(text.parse()));
    }
    (user.to_owned(), spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_day() {
        let (one, again, other) = (Scene::of(3), Scene::of(3), Scene::of(4));
        assert_eq!(format!("{one:?}"), format!("{again:?}"));
        assert_ne!(format!("{:?}", one.events), format!("{:?}", other.events));
        let jobs = |scene: &Scene| {
            let all = scene.events.iter();
            all.filter(|(_, deed)| matches!(deed, DayEvent::Submit { .. }))
                .count()
        };
        for seed in 0..20 {
            let jobs = jobs(&Scene::of(seed));
            assert!((150..900).contains(&jobs), "{jobs} pieces of work");
        }
    }
}
