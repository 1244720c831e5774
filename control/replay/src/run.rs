//! One replay: a workload, a machine and who decides; and what came of it.

use crate::{
    check::{Faults, Known, check},
    cluster::Cluster,
    live::{self, Deeds, Judge, LiveError, Options, Refused},
    metrics::{Metrics, Party, Terms, measure},
    schedule::{NodeSets, SameInstant, Schedule, Served},
    textbook::{self, Textbook},
    trace::{Skipped, UNKNOWN, Workload},
};
use lattice_placement::{Policy, Weights};
use lattice_quorum_types::VclusterName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decider {
    /// A scheduler of the literature, on processors that are all alike.
    Textbook(Textbook),
    /// The product, on the cluster's nodes: each vCluster by this policy; `None`: as the cluster says, or by default.
    Lattice(Option<Policy>),
    /// Nobody: as it was recorded.
    Recorded,
}

impl Decider {
    /// Its name where people write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Textbook(Textbook::Fcfs) => "fcfs",
            Self::Textbook(Textbook::Easy) => "easy",
            Self::Textbook(Textbook::Sjbf) => "sjbf",
            Self::Textbook(Textbook::Conservative) => "conservative",
            Self::Lattice(_) => "lattice",
            Self::Recorded => "recorded",
        }
    }
}

/// Where a workload is replayed.
#[derive(Debug, Clone)]
pub enum Machine {
    /// So many processors or nodes that are all alike.
    Alike(u64),
    /// A cluster that is described.
    Cluster(Box<Cluster>),
}

impl Machine {
    /// How large it is.
    pub fn size(&self) -> u64 {
        match self {
            Self::Alike(size) => *size,
            Self::Cluster(cluster) => cluster.nodes.len() as u64,
        }
    }

    /// Its nodes.
    ///
    /// # Errors
    /// When it is too small or too large.
    pub fn cluster(&self) -> Result<Cluster, LiveError> {
        match self {
            Self::Alike(size) => Ok(Cluster::alike(*size)?),
            Self::Cluster(cluster) => Ok((**cluster).clone()),
        }
    }
}

/// How it is done.
#[derive(Debug, Clone, Default)]
pub struct How {
    /// Order of events of one instant; `None`: one by one for schedulers of the literature, together for the product.
    pub order: Option<SameInstant>,
    /// The vCluster whose policy the decider's is; `None`: all of them.
    pub vcluster: Option<VclusterName>,
    /// The product plans so often at least, milliseconds.
    pub every_ms: Option<u64>,
    /// Who judges what the product places.
    pub judge: Judge,
    /// What becomes of submits that are refused for now.
    pub refused: Refused,
    /// Keep which nodes jobs had.
    pub keeps_nodes: bool,
    /// Look at the schedule for what must hold of every one.
    pub checks: bool,
}

/// What came of a replay.
#[derive(Debug)]
pub struct Outcome {
    /// When each job started.
    pub schedule: Schedule,
    /// What that is worth.
    pub metrics: Metrics,
    /// Jobs that were not served.
    pub skipped: Skipped,
    /// What the product did beside it.
    pub deeds: Option<Deeds>,
    /// How events of one instant were taken.
    pub order: SameInstant,
    /// What does not hold of it, where that was asked.
    pub faults: Option<Faults>,
}

/// Why there is no replay.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The product.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A schedule that was not recorded.
    #[error("the trace does not say for how long its jobs waited")]
    NotRecorded,
}

/// Replays a workload; it fits the machine ([`crate::workload::fit`]).
///
/// # Errors
/// When the cluster cannot be, or nothing was recorded.
pub fn run(
    workload: &Workload,
    machine: &Machine,
    decider: &Decider,
    how: &How,
) -> Result<Outcome, RunError> {
    let jobs = workload.jobs.len();
    let mut schedule = Schedule::of(jobs, how.checks);
    let mut skipped = Skipped::default();
    let mut deeds = None;
    let mut order = how.order.unwrap_or(SameInstant::OneByOne);
    match decider {
        Decider::Textbook(policy) => {
            // A size beyond this is refused where machines are made.
            let size = u32::try_from(machine.size()).unwrap_or(u32::MAX);
            textbook::run(*policy, size, order, &workload.jobs, &mut schedule);
        }
        Decider::Lattice(policy) => {
            order = SameInstant::Together;
            let cluster = machine.cluster()?;
            if how.keeps_nodes || how.checks {
                schedule.nodes = Some(NodeSets::of(jobs, cluster.nodes.keys()));
            }
            let options = Options {
                policy: *policy,
                vcluster: how.vcluster.clone(),
                judge: how.judge,
                refused: how.refused,
                every_ms: how.every_ms,
            };
            deeds = Some(live::run(
                &cluster,
                workload,
                &options,
                &mut schedule,
                &mut skipped,
            )?);
        }
        Decider::Recorded => {
            for (job, served) in workload.jobs.iter().zip(&mut schedule.served) {
                if job.waited_ms != UNKNOWN {
                    *served = Served {
                        start_ms: job.submit_ms + job.waited_ms,
                        ..Served::default()
                    };
                }
            }
            if !schedule.served.iter().any(Served::has_started) {
                return Err(RunError::NotRecorded);
            }
        }
    }
    let mut metrics = measure(workload, &schedule.served, &terms(workload, machine));
    metrics.refused = skipped.refused();
    metrics.never_started = metrics.never_started.saturating_sub(metrics.refused);
    let is_recorded = *decider == Decider::Recorded;
    // What was recorded elsewhere is not ours to check.
    let faults = (how.checks && !is_recorded).then(|| {
        let known = Known {
            nodes: schedule.nodes.as_ref(),
            promises: schedule.promises.as_deref(),
            keeps_order: keeps_order(decider),
        };
        check(workload, &schedule.served, machine.size(), known)
    });
    Ok(Outcome {
        schedule,
        metrics,
        skipped,
        deeds,
        order,
        faults,
    })
}

/// Whether who came first is the first till it has started: where nothing but age counts.
fn keeps_order(decider: &Decider) -> bool {
    match decider {
        Decider::Textbook(_) => true,
        Decider::Lattice(Some(policy)) => {
            let weights = policy.weights.to_array();
            let mut others = Weights::NAMES
                .iter()
                .zip(weights)
                .filter(|(name, _)| **name != "wait_time");
            others.all(|(_, weight)| weight == 0.0)
        }
        Decider::Lattice(None) | Decider::Recorded => false,
    }
}

/// What a schedule on this machine is judged by.
pub fn terms(workload: &Workload, machine: &Machine) -> Terms {
    let size = machine.size();
    match machine {
        Machine::Alike(_) => Terms {
            size,
            ..Terms::default()
        },
        Machine::Cluster(cluster) => {
            let (parties, party_of) = parties(workload, cluster);
            Terms {
                size,
                has_groups: cluster.has_groups(),
                parties,
                party_of,
                targets_ms: cluster.targets_of(workload),
            }
        }
    }
}

/// Each tenant of the trace is the nearest project above it that is meant to have a share, or else itself.
fn parties(workload: &Workload, cluster: &Cluster) -> (Vec<Party>, Vec<u32>) {
    let mut parties: Vec<Party> = Vec::new();
    let of = |tenant: &String| {
        let project = cluster
            .accounts
            .get(tenant)
            .map_or(tenant.as_str(), |path| path.as_str());
        let mut above = std::iter::successors(Some(project), |path| Some(path.rsplit_once('/')?.0));
        let found = above.find_map(|path| Some((path, *cluster.shares.get(path)?)));
        let name = found.map_or(project, |(path, _)| path);
        let place = parties.iter().position(|party| party.name == name);
        let place = place.unwrap_or_else(|| {
            parties.push(Party {
                name: name.to_owned(),
                share: found.map(|(_, share)| share),
            });
            parties.len() - 1
        });
        // There are not 2^32 of them.
        place as u32
    };
    let party_of = workload.tenants.iter().map(of).collect();
    (parties, party_of)
}

/// Who decides, as people write it: `easy`, `conservative`, `fcfs`, `sjbf`, `recorded`, `lattice`, or `lattice:` and
/// weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// As given.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.text, self.reason)
    }
}

/// Reads who decides.
///
/// # Errors
/// When it is nobody that is known.
pub fn decider(text: &str, weights: Option<&str>) -> Result<Decider, Unknown> {
    let unknown = |reason: String| Unknown {
        text: text.to_owned(),
        reason,
    };
    let (name, of_name) = match text.split_once(':') {
        Some((name, weights)) => (name, Some(weights)),
        None => (text, None),
    };
    let decider = match name {
        "fcfs" => Decider::Textbook(Textbook::Fcfs),
        "easy" => Decider::Textbook(Textbook::Easy),
        "sjbf" => Decider::Textbook(Textbook::Sjbf),
        "conservative" => Decider::Textbook(Textbook::Conservative),
        "recorded" => Decider::Recorded,
        "lattice" => {
            let policy = of_name.or(weights).map(crate::policy::named).transpose();
            let policy = policy.map_err(|error| unknown(error.to_string()))?;
            return Ok(Decider::Lattice(policy));
        }
        _ => {
            let reason = "no such policy; one of easy, conservative, fcfs, sjbf, lattice, recorded";
            return Err(unknown(reason.to_owned()));
        }
    };
    match of_name {
        None => Ok(decider),
        Some(_) => Err(unknown("only lattice has weights".to_owned())),
    }
}
