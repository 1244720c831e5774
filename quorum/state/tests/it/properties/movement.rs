//! Commands that random steps stand for when they are taken.

use super::{
    dependency_steps::{ExtraRequest, Step},
    *,
};
use lattice_quorum_types::{
    checkpoint::{CheckpointFailure, CheckpointMode, CheckpointOutcome},
    command::{RequestedCheckpoint, Victim},
    dag::{DagSpec, Edge, MemberSpec},
    id::ReservationName,
    progress::{MoveReason, RankCheckpoint},
    reservation::ReservationSpec,
    spec::AllocationSpec,
    terms::{CheckpointTerms, CheckpointTrigger, Condition, Dependency},
};

/// Home vCluster of lent nodes.
const LENDER: &str = "lab";
/// Nodes of the lender.
const LENT: [&str; 2] = ["n004", "n005"];

pub const ARRAYS: [&str; 4] = ["0-2", "1-5:2%1", "0,2", "1-4%2"];
pub const RESERVED: [&str; 2] = ["course", "firmware"];

/// Sets up nodes that may be lent, and the vClusters.
pub fn found(c: &mut Cluster) {
    for name in ["main", LENDER] {
        let change = lattice_quorum_types::vcluster::VclusterPatch {
            description: Some("for all".to_owned()),
            ..Default::default()
        };
        c.admin(Command::SetVcluster {
            vcluster: VclusterName::new(name).unwrap(),
            change: Box::new(change),
            expected_version: None,
        })
        .unwrap();
    }
    c.admin(Command::AssignVcluster {
        nodes: LENT.map(node).to_vec(),
        vcluster: VclusterName::new(LENDER).unwrap(),
        from: Some(VclusterName::new("main").unwrap()),
    })
    .unwrap();
    for lent in LENT {
        let version = c.state.node(&node(lent)).unwrap().version;
        let (node, to) = (node(lent), VclusterName::new("main").unwrap());
        c.service(Command::LendNode { node, to, version }).unwrap();
    }
    c.admin(Command::ReleaseLease {
        lease: lease(),
        holder: "c1".to_owned(),
    })
    .unwrap();
}

fn spec(c: &Cluster, asked: &ExtraRequest, next: u64) -> AllocationSpec {
    let mut spec = AllocationSpec {
        class: asked.class,
        requeue: asked.requeue,
        hold: asked.hold,
        walltime_ms: asked.walltime_ms,
        ..common::spec("t", asked.nodes)
    };
    let after = asked.after.iter().map(|(back, condition)| Dependency {
        on: AllocationId(next.saturating_sub(*back)),
        condition: *condition,
    });
    spec.terms.after = after.collect();
    spec.terms.mutex = asked.mutex.map(|n| ["db", "disk"][n].to_owned());
    spec.terms.array = asked.array.map(|n| ARRAYS[n].parse().unwrap());
    spec.terms.checkpoint = asked.writes.then_some(CheckpointTerms {
        mode: CheckpointMode::Signal,
        trigger: CheckpointTrigger::Automatic,
        directory: None,
    });
    spec.terms.begin_at = asked.begin_ms.map(|ms| c.now().after(ms));
    spec.terms.deadline_at = asked.deadline_ms.map(|ms| c.now().after(ms));
    spec.terms.reservation = asked.reservation.then(|| reserved(0));
    spec
}

fn reserved(n: usize) -> ReservationName {
    RESERVED[n].parse().unwrap()
}

/// The `nth` allocation that satisfies `is_meant`.
fn pick(state: &State, nth: usize, is_meant: impl Fn(&&Allocation) -> bool) -> Option<&Allocation> {
    let count = state.live_allocations().filter(&is_meant).count();
    let mut meant = state.live_allocations().filter(&is_meant);
    meant.nth(nth.checked_rem(count)?)
}

fn writes(state: &State, nth: usize) -> Option<&Allocation> {
    pick(state, nth, |a| a.progress.writing.is_some())
}

fn asked_to_write() -> RequestedCheckpoint {
    RequestedCheckpoint {
        directory: "/scratch".to_owned(),
        timeout_ms: 1_000,
    }
}

fn victim(a: &Allocation, writes: bool) -> Victim {
    Victim {
        id: a.id,
        attempt: a.attempt,
        checkpoint: (writes && a.spec.terms.checkpoint.is_some()).then(asked_to_write),
    }
}

/// Whether a service proposes the command under its lease.
pub fn is_fenced(command: &Command) -> bool {
    matches!(
        command,
        Command::Expire { .. }
            | Command::WriteCheckpoint { .. }
            | Command::ExtendCheckpoint { .. }
            | Command::GiveUpCheckpoint { .. }
            | Command::LeaveAfterCheckpoint { .. }
            | Command::MakeRoom { .. }
            | Command::Preempt { .. }
            | Command::WithdrawPromise { .. }
            | Command::LendNode { .. }
            | Command::ReturnNode { .. }
            | Command::ReclaimNode { .. }
    )
}

type Proposed = (&'static str, Privilege, Command);

/// Commands that a step stands for in the present state.
pub fn resolve(c: &Cluster, step: &Step) -> Vec<Proposed> {
    let alice = |command| vec![("alice", Privilege::User, command)];
    match command(c, step) {
        None => Vec::new(),
        Some(command) if is_fenced(&command) || matches!(command, Command::Assign { .. }) => {
            let acquire = Command::AcquireLease {
                lease: lease(),
                holder: "control/c0".to_owned(),
                ttl_ms: 60_000,
            };
            let service = |command| ("service:control/c1", Privilege::Service, command);
            vec![service(acquire), service(command)]
        }
        Some(command @ Command::Report { .. }) => {
            vec![("service:control/c1", Privilege::Service, command)]
        }
        Some(command @ (Command::SetReservation { .. } | Command::DeleteReservation { .. })) => {
            vec![("olga", Privilege::Operator, command)]
        }
        Some(command) => alice(command),
    }
    .into_iter()
    .chain(match step {
        // Every rank, one after the other.
        Step::AllWrote { nth } => all_wrote(c, *nth),
        Step::MovedWhole { nth, resume } => moved_whole(c, *nth, *resume),
        _ => Vec::new(),
    })
    .collect()
}

fn wrote(c: &Cluster, a: &Allocation, rank: usize, number: u32, good: bool) -> Option<Command> {
    let at = c.now();
    let outcome = match good {
        true => CheckpointOutcome::Written {
            at,
            bytes: (rank != 1).then_some(10),
            took_ms: 5,
        },
        false => CheckpointOutcome::Failed {
            at,
            cause: CheckpointFailure::Declined,
            reason: "no".to_owned(),
        },
    };
    let of = RankCheckpoint { number, outcome };
    Some(Command::Report {
        id: a.id,
        attempt: a.attempt,
        node: a.ranks.get(rank)?.node.clone(),
        report: RankReport::Checkpoint { of },
    })
}

fn all_wrote(c: &Cluster, nth: usize) -> Vec<Proposed> {
    let Some(a) = writes(&c.state, nth) else {
        return Vec::new();
    };
    let number = a
        .progress
        .writing
        .as_ref()
        .map_or(0, |writing| writing.number);
    let all = (0..a.ranks.len()).filter_map(|rank| wrote(c, a, rank, number, true));
    let service = |command| ("service:control/c1", Privilege::Service, command);
    all.map(service).collect()
}

fn moved_whole(c: &Cluster, nth: usize, resume: bool) -> Vec<Proposed> {
    let runs =
        |a: &&Allocation| a.state == AllocationState::Running && a.spec.terms.checkpoint.is_some();
    let Some(a) = pick(&c.state, nth, runs) else {
        return Vec::new();
    };
    let by = "carol".to_owned();
    let make_room = Command::MakeRoom {
        victim: victim(a, true),
        reason: MoveReason::Asked { by },
    };
    let ranks = 0..a.ranks.len();
    let number = a.progress.checkpoints + 1;
    let wrote = ranks
        .clone()
        .filter_map(|rank| wrote(c, a, rank, number, true));
    let ended = ranks.map(|rank| Command::Report {
        id: a.id,
        attempt: a.attempt,
        node: a.ranks[rank].node.clone(),
        report: RankReport::Ended {
            at: c.now(),
            exit: RankExit::Stopped,
            fault: None,
        },
    });
    let resume = resume.then_some(Command::Resume { id: a.id });
    let acquire = Command::AcquireLease {
        lease: lease(),
        holder: "control/c0".to_owned(),
        ttl_ms: 60_000,
    };
    let all = [acquire, make_room].into_iter();
    let service = |command| ("service:control/c1", Privilege::Service, command);
    all.chain(wrote)
        .chain(ended)
        .chain(resume)
        .map(service)
        .collect()
}

fn command(c: &Cluster, step: &Step) -> Option<Command> {
    let state = &c.state;
    // The ids after that of an array belong to its elements.
    let next = state.live_allocations().next_back_id() + 1;
    let expected = |id: &NodeId| {
        let node = state.node(id)?;
        Some(ExpectedNode {
            node: id.clone(),
            version: node.version,
            boot: None,
        })
    };
    let lendable = |n: usize| expected(&node(LENT[n % LENT.len()]));
    Some(match step {
        Step::Submit(asked) => Command::Submit {
            spec: Box::new(spec(c, asked, next)),
        },
        Step::Dag { members, edges } => dag(c, members, edges, next),
        Step::AfterArray { nth, asked } => {
            let array = pick(state, *nth, |a| a.progress.tally.is_some())?;
            let mut spec = spec(c, asked, next);
            let array_of = &ARRAYS[asked.array.unwrap_or(1)];
            spec.terms.array = Some(array_of.parse().unwrap());
            spec.terms.after = vec![Dependency {
                on: array.id,
                condition: Condition::Corresponding,
            }];
            Command::Submit {
                spec: Box::new(spec),
            }
        }
        Step::CancelDag { nth } => {
            let member = pick(state, *nth, |a| a.progress.dag.is_some())?;
            let id = member.progress.dag.as_ref()?.dag;
            Command::CancelDag { id }
        }
        Step::Element { nth, place, cancel } => {
            let array = pick(state, *nth, |a| a.progress.tally.is_some())?;
            let all = array.spec.terms.array.as_ref()?.indices();
            let pending = &array.progress.tally.as_ref()?.pending;
            // Most are elements that wait for nodes.
            let index = pending.at(place.checked_rem(pending.len()).unwrap_or(0));
            let index = index.filter(|_| !next.is_multiple_of(5));
            let place = index
                .and_then(|index| all.position_of(index))
                .unwrap_or(*place);
            let id = AllocationId(array.id.0 + 1 + place as u64);
            let free = state.nodes().filter(|node| node.is_assignable());
            let free = free.take(array.spec.nodes as usize);
            match cancel {
                true => Command::Cancel { id },
                false => Command::Assign {
                    id,
                    nodes: free.filter_map(|node| expected(&node.id)).collect(),
                },
            }
        }
        Step::Requeue { nth } => Command::Requeue {
            id: pick(state, *nth, |_| true)?.id,
        },
        Step::Walltime { nth, ms } => Command::SetWalltime {
            id: pick(state, *nth, |_| true)?.id,
            walltime_ms: *ms,
        },
        Step::Expire { nth } => Command::Expire {
            id: pick(state, *nth, |a| a.spec.terms.deadline_at.is_some())?.id,
        },
        Step::Checkpoint { nth } => {
            let RequestedCheckpoint {
                directory,
                timeout_ms,
            } = asked_to_write();
            let writes = |a: &&Allocation| a.spec.terms.checkpoint.is_some();
            Command::WriteCheckpoint {
                id: pick(state, *nth, |a| {
                    writes(a) && a.state == AllocationState::Running
                })?
                .id,
                directory,
                timeout_ms,
            }
        }
        Step::Extend { nth } => {
            let a = writes(state, *nth)?;
            Command::ExtendCheckpoint {
                id: a.id,
                number: a.progress.writing.as_ref()?.number,
                by_ms: 500,
            }
        }
        Step::GiveUp { nth } => {
            let a = writes(state, *nth)?;
            Command::GiveUpCheckpoint {
                id: a.id,
                number: a.progress.writing.as_ref()?.number,
            }
        }
        Step::Wrote {
            nth,
            rank,
            good,
            other,
        } => {
            let a = writes(state, *nth)?;
            let number = a.progress.writing.as_ref()?.number - u32::from(*other);
            return wrote(c, a, *rank, number, *good);
        }
        Step::AllWrote { .. } | Step::MovedWhole { .. } => return None,
        Step::MakeRoom {
            nth,
            writes,
            reclaim,
        } => {
            let home = VclusterName::new(LENDER).unwrap();
            let by = "carol".to_owned();
            let a = pick(state, *nth, |a| a.state.holds())?;
            let number = a.progress.writing.as_ref().map(|writing| writing.number);
            match (number, reclaim) {
                (Some(number), true) => Command::LeaveAfterCheckpoint {
                    id: a.id,
                    number,
                    home,
                    timeout_ms: 500,
                },
                (Some(_), false) => Command::SuspendAfterCheckpoint {
                    id: a.id,
                    checkpoint: asked_to_write(),
                },
                (None, reclaim) => Command::MakeRoom {
                    victim: victim(a, *writes),
                    reason: match reclaim {
                        true => MoveReason::Reclaimed { home },
                        false => MoveReason::Asked { by },
                    },
                },
            }
        }
        Step::Preempt {
            nth,
            victims,
            writes,
            any,
        } => preempt(state, *nth, *victims, *writes, *any)?,
        Step::AssignPromised { nth } => {
            let has = |a: &&Allocation| state.nodes().any(|node| node.promised == Some(a.id));
            let a = pick(state, *nth, has)?;
            let own = state.nodes().filter(|node| node.promised == Some(a.id));
            Command::Assign {
                id: a.id,
                nodes: own.filter_map(|node| expected(&node.id)).collect(),
            }
        }
        Step::Withdraw { nth } => Command::WithdrawPromise {
            id: pick(state, *nth, |a| a.state == AllocationState::Pending)?.id,
        },
        Step::Lend { node, back } => {
            let ExpectedNode { node, version, .. } = lendable(*node)?;
            let to = VclusterName::new("main").unwrap();
            match back {
                true => Command::ReturnNode { node, version },
                false => Command::LendNode { node, to, version },
            }
        }
        Step::Recall { node, wanted } => {
            let ExpectedNode { node, version, .. } = lendable(*node)?;
            let wanted = *wanted;
            Command::ReclaimNode {
                node,
                wanted,
                version,
            }
        }
        Step::Reserve {
            name, delete: true, ..
        } => Command::DeleteReservation {
            name: reserved(*name),
        },
        Step::Reserve {
            name,
            from,
            after,
            lasts,
            ..
        } => reserve(c, *name, *from, *after, *lasts),
    })
}

fn dag(
    c: &Cluster,
    members: &[ExtraRequest],
    edges: &[(usize, usize, Condition)],
    next: u64,
) -> Command {
    let name = |n: usize| format!("m{}", n % members.len());
    let of = |(n, asked): (usize, &ExtraRequest)| MemberSpec {
        name: name(n),
        spec: match n {
            0 => spec(c, asked, next),
            // One dependency on an unknown allocation is enough.
            _ => spec(
                c,
                &ExtraRequest {
                    after: Vec::new(),
                    ..asked.clone()
                },
                next,
            ),
        },
        after: (edges.iter())
            .filter(|(_, to, _)| name(*to) == name(n))
            .map(|(from, _, condition)| Edge {
                member: name(*from),
                condition: *condition,
            })
            // Most edges go forwards, since backward ones mostly form cycles.
            .filter(|edge| edge.member < name(n) || next.is_multiple_of(7))
            .collect(),
    };
    Command::SubmitDag {
        dag: Box::new(DagSpec {
            name: "night".to_owned(),
            members: members.iter().enumerate().map(of).collect(),
        }),
    }
}

/// Nodes of some running allocations, and free ones.
fn preempt(state: &State, nth: usize, victims: usize, writes: bool, any: bool) -> Option<Command> {
    let waits = |a: &&Allocation| a.state == AllocationState::Pending && a.progress.tally.is_none();
    let a = pick(state, nth, waits)?;
    let may = |v: &&Allocation| v.state.holds() && (any || v.spec.class < a.spec.class);
    let chosen: Vec<&Allocation> = state.live_allocations().filter(may).take(victims).collect();
    let held = chosen.iter().filter_map(|v| v.kept_nodes().next().cloned());
    let free = state.nodes().filter(|node| node.is_assignable());
    let nodes: Vec<NodeId> = held.chain(free.map(|node| node.id.clone())).collect();
    Some(Command::Preempt {
        id: a.id,
        nodes: nodes.into_iter().take(a.spec.nodes as usize).collect(),
        victims: chosen
            .into_iter()
            .take(a.spec.nodes as usize)
            .map(|v| victim(v, writes))
            .collect(),
    })
}

fn reserve(c: &Cluster, name: usize, from: usize, after: u64, lasts: Option<u64>) -> Command {
    let nodes = (from..from + 2).map(|n| node(&format!("n{:03}", n % 6)));
    let begins = c.now().after(after);
    // The first reservation is for alice, the owner of the allocations.
    let users = (name == 0).then(|| "alice".to_owned());
    let spec = ReservationSpec {
        nodes: nodes.collect(),
        from: begins,
        until: lasts.map(|ms| begins.after(ms)),
        users: users.into_iter().collect(),
        projects: BTreeSet::new(),
        reason: "asked for".to_owned(),
    };
    Command::SetReservation {
        name: reserved(name),
        spec: Box::new(spec),
        expected: None,
    }
}

trait LastId {
    fn next_back_id(self) -> u64;
}

impl<'a, I: Iterator<Item = &'a Allocation>> LastId for I {
    fn next_back_id(self) -> u64 {
        let last = |a: &Allocation| {
            let array = a.spec.terms.array.as_ref();
            a.id.0 + array.map_or(0, |array| array.indices().len() as u64)
        };
        self.map(last).max().unwrap_or(0)
    }
}
