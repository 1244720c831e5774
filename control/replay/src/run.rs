//! One replay of a workload on a machine with a scheduler. The result is a schedule and its metrics.

use crate::{
    check::{Faults, ScheduleFacts, check},
    cluster::Cluster,
    live::{self, ActionCounts, LiveError, Options, OverLimitPolicy, ProposalCheck},
    metrics::{MetricInputs, Metrics, Party, measure},
    schedule::{EventOrder, JobStart, NodeSets, Schedule},
    textbook::{self, TextbookScheduler},
    trace::{SkippedLines, UNKNOWN, Workload},
};
use lattice_placement::{Policy, Weights};
use lattice_quorum_types::VclusterName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Scheduler of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplayScheduler {
    /// A scheduler of the literature, on identical processors.
    Textbook(TextbookScheduler),
    /// The product, on the cluster's nodes: every vCluster, or that of [`ReplayOptions::vcluster`], has this policy.
    /// `None`: the policy of the cluster file, or the default.
    Lattice(Option<Policy>),
    /// No scheduler: the recorded start times.
    Recorded,
}

impl ReplayScheduler {
    /// Name of the scheduler in reports and on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Textbook(TextbookScheduler::Fcfs) => "fcfs",
            Self::Textbook(TextbookScheduler::Easy) => "easy",
            Self::Textbook(TextbookScheduler::Sjbf) => "sjbf",
            Self::Textbook(TextbookScheduler::Conservative) => "conservative",
            Self::Lattice(_) => "lattice",
            Self::Recorded => "recorded",
        }
    }
}

/// Machine on which a workload is replayed.
#[derive(Debug, Clone)]
pub enum Machine {
    /// This number of identical processors or nodes.
    Alike(u64),
    /// A described cluster.
    Cluster(Box<Cluster>),
}

impl Machine {
    /// Size of the machine: processors or nodes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Alike(size) => *size,
            Self::Cluster(cluster) => cluster.nodes.len() as u64,
        }
    }

    /// Returns the machine as a cluster.
    ///
    /// # Errors
    /// When the number of identical nodes is too small or too large.
    pub fn cluster(&self) -> Result<Cluster, LiveError> {
        match self {
            Self::Alike(size) => Ok(Cluster::identical(*size)?),
            Self::Cluster(cluster) => Ok((**cluster).clone()),
        }
    }
}

/// Options of a replay.
#[derive(Debug, Clone, Default)]
pub struct ReplayOptions {
    /// Order of events of one instant for schedulers of the literature; `None`: one by one. The product always takes
    /// such events together.
    pub order: Option<EventOrder>,
    /// vCluster that gets the policy of [`ReplayScheduler::Lattice`]; `None`: all vClusters.
    pub vcluster: Option<VclusterName>,
    /// Longest time between two plans of the product, milliseconds.
    pub every_ms: Option<u64>,
    /// Component that accepts or refuses the product's placements.
    pub judge: ProposalCheck,
    /// Treatment of submits that are refused because a limit is reached.
    pub refused: OverLimitPolicy,
    /// Whether to record the nodes of each job.
    pub keeps_nodes: bool,
    /// Whether to check the schedule against the invariants of every schedule.
    pub checks: bool,
}

/// Result of a replay.
#[derive(Debug)]
pub struct Outcome {
    /// Start of each job.
    pub schedule: Schedule,
    /// Metrics of the schedule.
    pub metrics: Metrics,
    /// Jobs that were not replayed.
    pub skipped: SkippedLines,
    /// Counts of other actions of the product; `None` for other schedulers.
    pub actions: Option<ActionCounts>,
    /// Order in which events of one instant were taken.
    pub order: EventOrder,
    /// Violated invariants; `None` when the schedule was not checked.
    pub faults: Option<Faults>,
}

/// Error of a replay.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Error of the product's replay.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The trace contains no wait times, so there is no recorded schedule.
    #[error("the trace has no wait times, so there is no recorded schedule")]
    NotRecorded,
}

/// Replays a workload that fits the machine ([`crate::workload::fit`]).
///
/// # Errors
/// When the cluster or a name is not valid, the quorum refuses the end of a job, or the recorded schedule is requested
/// and the trace contains no wait times.
pub fn run(
    workload: &Workload,
    machine: &Machine,
    decider: &ReplayScheduler,
    replay_options: &ReplayOptions,
) -> Result<Outcome, RunError> {
    let jobs = workload.jobs.len();
    let mut schedule = Schedule::of(jobs, replay_options.checks);
    let mut skipped = SkippedLines::default();
    let mut deeds = None;
    let mut order = replay_options.order.unwrap_or(EventOrder::OneByOne);
    match decider {
        ReplayScheduler::Textbook(policy) => {
            // No machine has 2^32 processors.
            let size = u32::try_from(machine.size()).unwrap_or(u32::MAX);
            textbook::run(*policy, size, order, &workload.jobs, &mut schedule);
        }
        ReplayScheduler::Lattice(policy) => {
            order = EventOrder::Together;
            let cluster = machine.cluster()?;
            if replay_options.keeps_nodes || replay_options.checks {
                schedule.nodes = Some(NodeSets::of(jobs, cluster.nodes.keys()));
            }
            let options = Options {
                policy: *policy,
                vcluster: replay_options.vcluster.clone(),
                judge: replay_options.judge,
                refused: replay_options.refused,
                every_ms: replay_options.every_ms,
            };
            deeds = Some(live::run(
                &cluster,
                workload,
                &options,
                &mut schedule,
                &mut skipped,
            )?);
        }
        ReplayScheduler::Recorded => {
            for (job, served) in workload.jobs.iter().zip(&mut schedule.served) {
                if job.waited_ms != UNKNOWN {
                    *served = JobStart {
                        start_ms: job.submit_ms + job.waited_ms,
                        ..JobStart::default()
                    };
                }
            }
            if !schedule.served.iter().any(JobStart::has_started) {
                return Err(RunError::NotRecorded);
            }
        }
    }
    let mut metrics = measure(workload, &schedule.served, &terms(workload, machine));
    metrics.refused = skipped.refused();
    metrics.never_started = metrics.never_started.saturating_sub(metrics.refused);
    let is_recorded = *decider == ReplayScheduler::Recorded;
    // A recorded schedule is not checked: its scheduler had other rules.
    let faults = (replay_options.checks && !is_recorded).then(|| {
        let known = ScheduleFacts {
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
        actions: deeds,
        order,
        faults,
    })
}

/// Whether the first waiting job stays the first until it starts. This is so if no factor but the wait time counts.
fn keeps_order(decider: &ReplayScheduler) -> bool {
    match decider {
        ReplayScheduler::Textbook(_) => true,
        ReplayScheduler::Lattice(Some(policy)) => {
            let weights = policy.weights.to_array();
            let mut others = Weights::NAMES
                .iter()
                .zip(weights)
                .filter(|(name, _)| **name != "wait_time");
            others.all(|(_, weight)| weight == 0.0)
        }
        ReplayScheduler::Lattice(None) | ReplayScheduler::Recorded => false,
    }
}

/// Returns the inputs with which a schedule on this machine is measured.
pub fn terms(workload: &Workload, machine: &Machine) -> MetricInputs {
    let size = machine.size();
    match machine {
        Machine::Alike(_) => MetricInputs {
            size,
            ..MetricInputs::default()
        },
        Machine::Cluster(cluster) => {
            let (parties, party_of) = parties(workload, cluster);
            MetricInputs {
                size,
                has_groups: cluster.has_groups(),
                parties,
                party_of,
                targets_ms: cluster.targets_of(&workload.requests),
            }
        }
    }
}

/// Maps each tenant of the trace to the nearest project, at or above the tenant's project, with a share in the cluster
/// file. A tenant without such a project is a party of its own.
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
        // There are fewer than 2^32 parties.
        place as u32
    };
    let party_of = workload.tenants.iter().map(of).collect();
    (parties, party_of)
}

/// Error of a text that does not name a valid scheduler. Valid are `easy`, `conservative`, `fcfs`, `sjbf`, `recorded`,
/// `lattice`, and `lattice:` followed by a profile or a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidScheduler {
    /// Text as given.
    pub text: String,
    /// Reason of the rejection.
    pub reason: String,
}

impl fmt::Display for InvalidScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.text, self.reason)
    }
}

/// Parses a scheduler. `weights` is the profile or policy file for a `lattice` without one of its own.
///
/// # Errors
/// When `text` does not name a scheduler, or the policy is not valid.
pub fn decider(text: &str, weights: Option<&str>) -> Result<ReplayScheduler, InvalidScheduler> {
    let unknown = |reason: String| InvalidScheduler {
        text: text.to_owned(),
        reason,
    };
    let (name, of_name) = match text.split_once(':') {
        Some((name, weights)) => (name, Some(weights)),
        None => (text, None),
    };
    let decider = match name {
        "fcfs" => ReplayScheduler::Textbook(TextbookScheduler::Fcfs),
        "easy" => ReplayScheduler::Textbook(TextbookScheduler::Easy),
        "sjbf" => ReplayScheduler::Textbook(TextbookScheduler::Sjbf),
        "conservative" => ReplayScheduler::Textbook(TextbookScheduler::Conservative),
        "recorded" => ReplayScheduler::Recorded,
        "lattice" => {
            let policy = of_name.or(weights).map(crate::policy::named).transpose();
            let policy = policy.map_err(|error| unknown(error.to_string()))?;
            return Ok(ReplayScheduler::Lattice(policy));
        }
        _ => {
            let reason = "unknown policy; it must be one of easy, conservative, fcfs, sjbf, lattice, recorded";
            return Err(unknown(reason.to_owned()));
        }
    };
    match of_name {
        None => Ok(decider),
        Some(_) => Err(unknown(
            "only lattice accepts weights after a colon".to_owned(),
        )),
    }
}
