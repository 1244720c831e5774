//! Explanations: why an allocation is not placed, with the nodes dropped by each constraint, what is missing, and the
//! expected start.

use crate::priority::factors::Score;
use lattice_quorum_types::{
    AllocationId, AllocationName, NameLookup, ProjectPath, UnixMillis,
    id::ReservationName,
    refusal::{LimitNumbers, LimitOwner, SENSITIVE_POOL_LIMIT, ViolatedLevel},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Explanation of one unplaced allocation, as of its turn in the cycle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Nodes requested.
    pub needed: u32,
    /// Nodes in the view of this scheduler.
    pub total: u32,
    /// Constraints in the order in which they were applied; each filters the nodes left by the one before.
    pub steps: Vec<Step>,
    /// Reason why the allocation does not start.
    pub blocker: Blocker,
    /// Start of the allocation's own reservation, if it has one. Otherwise, if an estimate was requested, the first
    /// time at which it gets all it requests despite the reservations of earlier jobs.
    pub estimated_start: Option<UnixMillis>,
    /// Score that determined the allocation's place in the queue; `None` for an allocation that is not planned.
    pub score: Option<Score>,
    /// Number of queued allocations served before this one, placed or not.
    pub ahead: u32,
}

/// Effect of one constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The constraint.
    pub constraint: Constraint,
    /// Nodes that the constraint dropped.
    pub removed: u32,
    /// Nodes left after the constraint.
    pub left: u32,
}

/// Condition that can drop a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// Has the requested GPU model.
    GpuModel,
    /// Has at least the requested number of GPUs.
    GpusPerNode,
    /// Has at least the requested memory.
    Memory,
    /// Has the requested features.
    Features,
    /// Is in the list of allowed nodes.
    Nodelist,
    /// Is not in the list of excluded nodes.
    Excluded,
    /// Belongs to the reservation that the allocation names.
    OfReservation,
    /// Lifecycle `ready`, without a drain reason.
    InService,
    /// Is not promised to another allocation, and not reclaimed by its owner.
    NotPromised,
    /// Answers pings.
    Alive,
    /// Healthy, or degraded but usable.
    Usable,
    /// Passes its health checks; applied only where required.
    Healthy,
    /// Belongs to the vCluster and is not borrowed; applied only where required.
    Home,
    /// Is not claimed by another user.
    Unclaimed,
    /// Is held by no allocation.
    Free,
    /// Is not reserved for a blocked job, and not kept for others by an operator's reservation.
    NotReserved,
    /// Is in the largest conformance group of the remaining nodes; applied only where required.
    Conforming,
}

impl Constraint {
    /// Text that completes "N nodes …".
    pub fn as_str(self) -> &'static str {
        match self {
            Constraint::GpuModel => "match the GPU type",
            Constraint::GpusPerNode => "have the GPUs",
            Constraint::Memory => "have the memory",
            Constraint::Features => "have the features",
            Constraint::Nodelist => "on the node list",
            Constraint::Excluded => "not excluded",
            Constraint::OfReservation => "in its reservation",
            Constraint::InService => "in service",
            Constraint::NotPromised => "not promised to others",
            Constraint::Alive => "alive",
            Constraint::Usable => "usable",
            Constraint::Healthy => "healthy",
            Constraint::Home => "not borrowed",
            Constraint::Unclaimed => "not claimed by other users",
            Constraint::Free => "free",
            Constraint::NotReserved => "not reserved",
            Constraint::Conforming => "conforming",
        }
    }

    /// Whether the step is shown: conditions that no job requests are shown only if they dropped nodes.
    fn is_shown(self, removed: u32) -> bool {
        use Constraint::{Alive, Healthy, Home, InService, NotPromised, Unclaimed, Usable};
        removed > 0
            || !matches!(
                self,
                InService | NotPromised | Alive | Usable | Healthy | Home | Unclaimed
            )
    }
}

/// Reason why an allocation does not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocker {
    /// The allocation requests 0 nodes.
    NoNodesAsked,
    /// The allocation's project, or a project above it, is unknown.
    UnknownProject {
        /// First unknown project, from the allocation's project up.
        path: ProjectPath,
    },
    /// The allocation does not fit under the limits at present.
    QuotaHeadroom {
        /// Every level with a limit that the allocation would exceed, from its project up.
        levels: Vec<ViolatedLevel>,
    },
    /// The allocation is sensitive and would exceed the cluster's limit of nodes in sensitive use.
    SensitivePool {
        /// Nodes in sensitive use, including earlier placements of this plan.
        current: u64,
        /// Nodes that the allocation would add.
        requested: u64,
        /// The limit, `sensitive_pool_size`.
        limit: u64,
    },
    /// The headroom suffices, but is kept for a job with a reservation.
    HeadroomReserved {
        /// Job with the reservation.
        by: AllocationId,
        /// Start of that job.
        starts_at: UnixMillis,
    },
    /// Too few nodes fit, even if all were free.
    NotEnoughNodes {
        /// Number of missing nodes.
        short: u32,
    },
    /// No conformance group has enough nodes that fit, even if all of them were free.
    NotConforming {
        /// Number of nodes missing in the largest group.
        short: u32,
    },
    /// Enough nodes fit, but too few of them are free.
    NodesBusy {
        /// Number of missing nodes.
        short: u32,
    },
    /// The attestations of the nodes of this sensitive allocation are too large for one command.
    TooMuchToProve {
        /// Size of the command with the attestations, bytes.
        bytes: u64,
        /// Largest accepted size, bytes.
        limit_bytes: u64,
    },
    /// The solver placed the allocation, but the assignment was not committed.
    NotAssigned {
        /// Nodes of the placement, as a hostlist.
        nodes: String,
        /// Reason, as text.
        why: String,
    },
    /// The power domains could not supply enough of the nodes that fit, even if nothing else of the vCluster ran.
    NotEnoughPower {
        /// Number of nodes without power; within one conformance group where that is required.
        short: u32,
    },
    /// Enough nodes are free, but power does not suffice to run them until the job ends.
    PowerShort {
        /// Number of nodes without power; within one conformance group where that is required.
        short: u32,
    },
    /// A storage system lacks bandwidth for the duration of the job.
    StorageShort {
        /// Name of the storage system.
        system: String,
        /// Bandwidth needed, MB/s.
        needed_mb_s: u64,
        /// Bandwidth left, MB/s.
        left_mb_s: u64,
    },
    /// Enough nodes are free, but starting now would delay the job with the reservation.
    Reserved {
        /// Job with the reservation.
        by: AllocationId,
        /// Start of that job.
        starts_at: UnixMillis,
        /// Whether the allocation has no walltime; with one, it might end in time.
        unbounded: bool,
    },
    /// The allocation may not begin before this time.
    BeginsLater {
        /// Requested begin time.
        at: UnixMillis,
    },
    /// Enough nodes are free, but the allocation would overlap a reservation that keeps some of them for others.
    KeptFor {
        /// First of these reservations to begin.
        name: ReservationName,
        /// Start of the reservation.
        from: UnixMillis,
        /// End of the reservation; `None`: until it is deleted.
        until: Option<UnixMillis>,
        /// Whether the allocation has no walltime and the reservation has not begun; with a walltime, it might end
        /// before.
        unbounded: bool,
    },
    /// The allocation names a reservation that has not begun.
    ReservationLater {
        /// Name of the reservation.
        name: ReservationName,
        /// Start of the reservation.
        at: UnixMillis,
    },
    /// The allocation names a reservation that is over.
    ReservationOver {
        /// Name of the reservation.
        name: ReservationName,
        /// End of the reservation.
        at: UnixMillis,
    },
    /// The allocation names a reservation that does not exist any more.
    ReservationGone {
        /// Name of the reservation.
        name: ReservationName,
    },
    /// The allocation names a reservation that no longer admits its user and project.
    ReservationNotFor {
        /// Name of the reservation.
        name: ReservationName,
        /// User of the allocation.
        user: String,
        /// Project of the allocation.
        project: ProjectPath,
    },
}

impl Blocker {
    /// Whether the reason ends once other jobs release their resources, or once an operator's reservation is over.
    pub fn is_temporary(&self) -> bool {
        use Blocker::{KeptFor, NodesBusy, PowerShort, Reserved, StorageShort};
        matches!(
            self,
            NodesBusy { .. }
                | Reserved { .. }
                | KeptFor { .. }
                | PowerShort { .. }
                | StorageShort { .. }
        )
    }

    /// Whether a start can be estimated. An allocation that waits for its own reservation to begin has an estimate and
    /// needs no other reservation.
    pub(crate) fn has_start(&self) -> bool {
        self.is_temporary() || matches!(self, Blocker::ReservationLater { .. })
    }

    /// Whether both reasons appear the same in an explanation, which shows times to the minute.
    pub(crate) fn is_shown_as(&self, other: &Self) -> bool {
        use Blocker::{HeadroomReserved, Reserved};
        let minute = |blocker: &Self| match blocker {
            HeadroomReserved { by, starts_at } => Some((*by, shown_minute(*starts_at), None)),
            Reserved {
                by,
                starts_at,
                unbounded,
            } => Some((*by, shown_minute(*starts_at), Some(*unbounded))),
            _ => None,
        };
        match minute(self) {
            Some(own_minute) => minute(other) == Some(own_minute),
            None => self == other,
        }
    }
}

impl Explanation {
    /// Text with the names of other allocations.
    pub fn text(&self, name: NameLookup<'_>) -> String {
        let explanation = self;
        NamedExplanation { explanation, name }.to_string()
    }

    fn fmt_named(&self, f: &mut fmt::Formatter<'_>, name: NameLookup<'_>) -> fmt::Result {
        write!(f, "needs {} of {} nodes", self.needed, self.total)?;
        let shown_steps = self
            .steps
            .iter()
            .filter(|s| s.constraint.is_shown(s.removed));
        for (n, step) in shown_steps.enumerate() {
            let sign = if n == 0 { ":" } else { "," };
            write!(f, "{sign} {} {}", step.left, step.constraint.as_str())?;
        }
        write!(f, "; {}", self.blocker.text(name))?;
        if let Some(start) = self.estimated_start {
            write!(f, "; estimated start {}", Utc(start))?;
        }
        Ok(())
    }
}

/// Follows the numbers of a limit that a waiting request exceeds by itself, since the limit was lowered.
const ABOVE_LIMIT: &str = ", less than the request: it starts only after the limit is raised";

/// Explanation with a lookup of names.
struct NamedExplanation<'a> {
    explanation: &'a Explanation,
    name: NameLookup<'a>,
}

impl fmt::Display for NamedExplanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explanation.fmt_named(f, self.name)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_named(f, &AllocationName::of_id)
    }
}

impl Blocker {
    /// Text with the names of other allocations.
    pub fn text(&self, name: NameLookup<'_>) -> String {
        match self {
            Blocker::HeadroomReserved { by, starts_at } => format!(
                "waiting for quota headroom: the rest is reserved for {}, which starts at {}",
                name(*by),
                Utc(*starts_at)
            ),
            Blocker::Reserved {
                by,
                starts_at,
                unbounded,
            } => {
                let (by, at) = (name(*by), Utc(*starts_at));
                let note = without_a_walltime(*unbounded);
                format!("held back so that {by} can start at {at}{note}")
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::NoNodesAsked => f.write_str("the request has no nodes"),
            Blocker::UnknownProject { path } => write!(f, "project {path} does not exist"),
            Blocker::QuotaHeadroom { levels } => {
                f.write_str("waiting for quota headroom")?;
                for level in levels {
                    let (owner, name) = (level.owner(), level.resource.limit_name());
                    write!(f, "; {owner} {name} {}", level.numbers())?;
                    if level.requested > level.limit {
                        f.write_str(ABOVE_LIMIT)?;
                    }
                }
                Ok(())
            }
            Blocker::SensitivePool {
                current,
                requested,
                limit,
            } => {
                let numbers = LimitNumbers {
                    current: *current,
                    requested: *requested,
                    limit: *limit,
                };
                let (owner, name) = (LimitOwner::Cluster, SENSITIVE_POOL_LIMIT);
                write!(f, "waiting for quota headroom; {owner} {name} {numbers}")?;
                match requested > limit {
                    true => f.write_str(ABOVE_LIMIT),
                    false => Ok(()),
                }
            }
            Blocker::HeadroomReserved { .. } | Blocker::Reserved { .. } => {
                f.write_str(&self.text(&AllocationName::of_id))
            }
            Blocker::NotEnoughNodes { short } => {
                write!(f, "cannot start: {short} too few, even if all were free")
            }
            Blocker::NotConforming { short } => {
                write!(
                    f,
                    "cannot start: the largest conformance group is {short} too small, \
                     even if all were free"
                )
            }
            Blocker::TooMuchToProve { bytes, limit_bytes } => write!(
                f,
                "signed attestations of {bytes} bytes exceed the command limit of {limit_bytes} bytes; \
                 request fewer nodes"
            ),
            Blocker::NotAssigned { nodes, why } => {
                write!(f, "placed on {nodes}, not assigned yet: {why}")
            }
            Blocker::NodesBusy { short } => write!(f, "waiting for {short} more to be free"),
            Blocker::NotEnoughPower { short } => write!(
                f,
                "cannot start: power is {short} nodes short, \
                 even if no other job of the vCluster ran"
            ),
            Blocker::PowerShort { short } => {
                write!(f, "waiting for power for {short} more of its nodes")
            }
            Blocker::StorageShort {
                system,
                needed_mb_s,
                left_mb_s,
            } => write!(
                f,
                "waiting for bandwidth of storage {system}: needs {needed_mb_s} MB/s, {left_mb_s} left"
            ),
            Blocker::BeginsLater { at } => write!(f, "begins at {:#} at the earliest", Utc(*at)),
            Blocker::KeptFor {
                name,
                from,
                until,
                unbounded,
            } => {
                write!(f, "kept for reservation {name} from {:#}", Utc(*from))?;
                if let Some(until) = until {
                    write!(f, " until {:#}", Utc(*until))?;
                }
                f.write_str(without_a_walltime(*unbounded))
            }
            Blocker::ReservationLater { name, at } => {
                write!(f, "its reservation {name} starts at {:#}", Utc(*at))
            }
            Blocker::ReservationOver { name, at } => {
                write!(f, "its reservation {name} ended at {:#}", Utc(*at))
            }
            Blocker::ReservationGone { name } => {
                write!(f, "its reservation {name} no longer exists")
            }
            Blocker::ReservationNotFor {
                name,
                user,
                project,
            } => write!(
                f,
                "its reservation {name} no longer admits {user} in project \"{project}\""
            ),
        }
    }
}

fn without_a_walltime(unbounded: bool) -> &'static str {
    match unbounded {
        true => " (without a walltime it cannot be backfilled)",
        false => "",
    }
}

/// Minute of an estimated time as explanations show it, counted from the Unix epoch.
pub(crate) fn shown_minute(at: UnixMillis) -> u64 {
    at.0 / 60_000
}

/// A time for display, in UTC. Estimates are shown to the minute. Times that a user or operator set (`{:#}`) include
/// seconds other than 0.
struct Utc(UnixMillis);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = i64::try_from(self.0.0)
            .ok()
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        match time {
            Some(time) if f.alternate() && !(self.0.0 / 1000).is_multiple_of(60) => {
                write!(f, "{}", time.strftime("%Y-%m-%d %H:%M:%S UTC"))
            }
            Some(time) => write!(f, "{}", time.strftime("%Y-%m-%d %H:%M UTC")),
            None => f.write_str("no foreseeable time"),
        }
    }
}
