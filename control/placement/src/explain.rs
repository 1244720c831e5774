//! Why an allocation is not placed: which constraint dropped how many nodes, what is short, and
//! when it is expected to start.

use crate::factors::Score;
use lattice_quorum_types::{
    AllocationId, ProjectPath, UnixMillis, id::ReservationName, refusal::Level,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One unplaced allocation, as it was when its turn came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Nodes it needs.
    pub needed: u32,
    /// Nodes this scheduler knows.
    pub total: u32,
    /// Constraints in the order they were applied; each works on what the one before left.
    pub steps: Vec<Step>,
    /// What stopped it.
    pub blocker: Blocker,
    /// Start of its own reservation, when it has one; else, of one whose start was to be estimated, the first
    /// time at which it finds all it asks for beside the reservations of those before it.
    pub estimated_start: Option<UnixMillis>,
    /// By what its place in the queue was decided; `None` of one that is not planned.
    pub score: Option<Score>,
    /// How many of the queue were served before it, placed or not.
    pub ahead: u32,
}

/// One constraint's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Which.
    pub constraint: Constraint,
    /// Nodes it dropped.
    pub removed: u32,
    /// Nodes that were left.
    pub left: u32,
}

/// What can drop a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// The GPU model asked for.
    GpuModel,
    /// The GPUs asked for on each node.
    GpusPerNode,
    /// The memory asked for on each node.
    Memory,
    /// The features asked for.
    Features,
    /// The list of allowed nodes.
    Nodelist,
    /// The list of excluded nodes.
    Excluded,
    /// The reservation that it names.
    OfReservation,
    /// Lifecycle ready, no drain reason.
    InService,
    /// Nobody else gets it next.
    NotPromised,
    /// It answers.
    Alive,
    /// Healthy, or degraded, which leaves it usable.
    Usable,
    /// Its checks pass; only where that is required.
    Healthy,
    /// Its vCluster's own, and not borrowed; only where that is required.
    Home,
    /// Nobody else has claimed it.
    Unclaimed,
    /// Nobody holds it.
    Free,
    /// Not held back for a blocked job, and not kept by an administrator for others.
    NotReserved,
    /// In the largest conformance group of what is left; only where that is required.
    Conforming,
}

impl Constraint {
    /// Completes "N nodes …".
    pub fn as_str(self) -> &'static str {
        match self {
            Constraint::GpuModel => "match the GPU type",
            Constraint::GpusPerNode => "have the GPUs",
            Constraint::Memory => "have the memory",
            Constraint::Features => "carry the features",
            Constraint::Nodelist => "on the node list",
            Constraint::Excluded => "not excluded",
            Constraint::OfReservation => "of its reservation",
            Constraint::InService => "in service",
            Constraint::NotPromised => "not promised to others",
            Constraint::Alive => "alive",
            Constraint::Usable => "usable",
            Constraint::Healthy => "healthy",
            Constraint::Home => "not borrowed",
            Constraint::Unclaimed => "not claimed by others",
            Constraint::Free => "free",
            Constraint::NotReserved => "not reserved",
            Constraint::Conforming => "conforming",
        }
    }

    /// The conditions that no job asks for are told only when they matter.
    fn is_told(self, removed: u32) -> bool {
        use Constraint::{Alive, Healthy, Home, InService, NotPromised, Unclaimed, Usable};
        removed > 0
            || !matches!(
                self,
                InService | NotPromised | Alive | Usable | Healthy | Home | Unclaimed
            )
    }
}

/// What stopped an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocker {
    /// It asks for 0 nodes.
    NoNodesAsked,
    /// A project on its path is not known.
    UnknownProject {
        /// The first one missing, from the project up.
        path: ProjectPath,
    },
    /// It passed when it was submitted and no longer fits under these limits.
    QuotaHeadroom {
        /// Every level it would violate, from the project up.
        levels: Vec<Level>,
    },
    /// It is sensitive, and more nodes would be in sensitive use than the cluster allows.
    SensitivePool {
        /// In sensitive use, with what was placed before it.
        current: u64,
        /// What it would add.
        requested: u64,
        /// The ceiling, `sensitive_pool_size`.
        limit: u64,
    },
    /// The limits have room, but it is kept for the job with the reservation.
    HeadroomReserved {
        /// That job.
        by: AllocationId,
        /// Its start.
        starts_at: UnixMillis,
    },
    /// Too few nodes fit, were all of them free.
    NotEnoughNodes {
        /// How many are missing.
        short: u32,
    },
    /// No conformance group that fits is large enough, were all of it free.
    NotConforming {
        /// How many are missing in the largest.
        short: u32,
    },
    /// Enough nodes fit, too few of them are free.
    NodesBusy {
        /// How many are missing.
        short: u32,
    },
    /// Sensitive work goes with its nodes' claims, which are too much for one command.
    TooMuchToProve {
        /// What they would have with the command, bytes.
        bytes: u64,
        /// The most that is taken.
        limit_bytes: u64,
    },
    /// Nodes were found for it, and whoever assigns them has not.
    NotAssigned {
        /// Which, as a hostlist.
        nodes: String,
        /// Why not, in words.
        why: String,
    },
    /// The power domains could not run so many of the nodes that fit, did nothing else of the vCluster run.
    NotEnoughPower {
        /// How many nodes could not be paid; of one conformance group where that is asked for.
        short: u32,
    },
    /// The nodes are free, but not the power to run them until it is over.
    PowerShort {
        /// How many nodes could not be paid; of one conformance group where that is asked for.
        short: u32,
    },
    /// A storage system has not the bandwidth left until it is over.
    StorageShort {
        /// Which.
        system: String,
        /// What it needs, MB/s.
        needed_mb_s: u64,
        /// What is left, MB/s.
        left_mb_s: u64,
    },
    /// Enough are free, but starting now would delay the job with the reservation.
    Reserved {
        /// That job.
        by: AllocationId,
        /// Its start.
        starts_at: UnixMillis,
        /// It could have been told to end in time, had it a walltime.
        unbounded: bool,
    },
    /// It may not begin before this moment.
    BeginsLater {
        /// As was asked for.
        at: UnixMillis,
    },
    /// Enough are free, but it would run into a time for which an administrator keeps some of them for others.
    KeptFor {
        /// The reservation: the first of them to begin.
        name: ReservationName,
        /// From when it keeps them.
        from: UnixMillis,
        /// Until when; `None`: until it is deleted.
        until: Option<UnixMillis>,
        /// It could have been told to end in time, had it a walltime.
        unbounded: bool,
    },
    /// It names a reservation that does not hold yet.
    ReservationLater {
        /// Which.
        name: ReservationName,
        /// From when it holds.
        at: UnixMillis,
    },
    /// It names a reservation that is over.
    ReservationOver {
        /// Which.
        name: ReservationName,
        /// Since when.
        at: UnixMillis,
    },
    /// It names a reservation that there is none of any more.
    ReservationGone {
        /// Which.
        name: ReservationName,
    },
    /// It names a reservation that has become one for others.
    ReservationNotFor {
        /// Which.
        name: ReservationName,
        /// Whose work it is.
        user: String,
        /// For which project.
        project: ProjectPath,
    },
}

impl Blocker {
    /// Whether it is over once others give back what they have.
    pub fn passes(&self) -> bool {
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

    /// Whether it can be estimated when it starts. What waits for its own reservation to begin has that anyway,
    /// and needs no other.
    pub(crate) fn has_start(&self) -> bool {
        self.passes() || matches!(self, Blocker::ReservationLater { .. })
    }

    /// Whether people are told the same.
    pub(crate) fn is_told_as(&self, other: &Self) -> bool {
        use Blocker::{HeadroomReserved, Reserved};
        let minute = |blocker: &Self| match blocker {
            HeadroomReserved { by, starts_at } => Some((*by, told_as(*starts_at), None)),
            Reserved {
                by,
                starts_at,
                unbounded,
            } => Some((*by, told_as(*starts_at), Some(*unbounded))),
            _ => None,
        };
        match minute(self) {
            Some(told) => minute(other) == Some(told),
            None => self == other,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needs {} of {} nodes", self.needed, self.total)?;
        let told = self
            .steps
            .iter()
            .filter(|s| s.constraint.is_told(s.removed));
        for (n, step) in told.enumerate() {
            let sign = if n == 0 { ":" } else { "," };
            write!(f, "{sign} {} {}", step.left, step.constraint.as_str())?;
        }
        write!(f, "; {}", self.blocker)?;
        if let Some(start) = self.estimated_start {
            write!(f, "; estimated start {}", Utc(start))?;
        }
        Ok(())
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::NoNodesAsked => f.write_str("it asks for no nodes"),
            Blocker::UnknownProject { path } => write!(f, "project {path} does not exist"),
            Blocker::QuotaHeadroom { levels } => {
                f.write_str("waiting for quota headroom")?;
                for level in levels {
                    let (path, name) = (&level.path, level.resource.limit_name());
                    let kind = if path.is_tenant() {
                        "tenant"
                    } else {
                        "project"
                    };
                    write!(
                        f,
                        "; {kind} \"{path}\" {name} (current: {}, ",
                        level.current
                    )?;
                    write!(f, "requested: {}, limit: {})", level.requested, level.limit)?;
                }
                Ok(())
            }
            Blocker::SensitivePool {
                current,
                requested,
                limit,
            } => write!(
                f,
                "waiting for quota headroom; sensitive_pool_size of the cluster (current: {current}, \
                 requested: {requested}, limit: {limit})"
            ),
            Blocker::HeadroomReserved { by, starts_at } => write!(
                f,
                "waiting for quota headroom: what is left is kept for {by}, which starts at {}",
                Utc(*starts_at)
            ),
            Blocker::NotEnoughNodes { short } => {
                write!(f, "{short} short, even if all were free")
            }
            Blocker::NotConforming { short } => {
                write!(
                    f,
                    "the largest conformance group is {short} too small, even if all were free"
                )
            }
            Blocker::TooMuchToProve { bytes, limit_bytes } => write!(
                f,
                "as sensitive work it is assigned with what each node claims, signed: {bytes} bytes, \
                 and the quorum takes {limit_bytes} at once; submit it for fewer nodes"
            ),
            Blocker::NotAssigned { nodes, why } => {
                write!(f, "placed on {nodes}, and not assigned yet: {why}")
            }
            Blocker::NodesBusy { short } => write!(f, "waits for {short} more to be free"),
            Blocker::NotEnoughPower { short } => write!(
                f,
                "there is power for {short} too few, even if nothing else of the vCluster ran"
            ),
            Blocker::PowerShort { short } => {
                write!(f, "waits for power to run {short} more")
            }
            Blocker::StorageShort {
                system,
                needed_mb_s,
                left_mb_s,
            } => write!(
                f,
                "waits for bandwidth of storage {system}: needs {needed_mb_s} MB/s, {left_mb_s} left"
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
                write!(f, "its reservation {name} begins at {:#}", Utc(*at))
            }
            Blocker::ReservationOver { name, at } => {
                write!(f, "its reservation {name} is over since {:#}", Utc(*at))
            }
            Blocker::ReservationGone { name } => {
                write!(f, "its reservation {name} does not exist any more")
            }
            Blocker::ReservationNotFor {
                name,
                user,
                project,
            } => write!(
                f,
                "its reservation {name} is not for {user} in project \"{project}\" any more"
            ),
            Blocker::Reserved {
                by,
                starts_at,
                unbounded,
            } => {
                write!(
                    f,
                    "starting now would delay {by}, which starts at {}",
                    Utc(*starts_at)
                )?;
                f.write_str(without_a_walltime(*unbounded))
            }
        }
    }
}

fn without_a_walltime(unbounded: bool) -> &'static str {
    match unbounded {
        true => " (without a walltime it cannot be fitted in before)",
        false => "",
    }
}

/// The minute to which a time is told.
pub(crate) fn told_as(at: UnixMillis) -> u64 {
    at.0 / 60_000
}

/// A time as people read it, in UTC. What is estimated is told to the minute; what somebody has set (`{:#}`) with
/// its seconds, where it has some.
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
