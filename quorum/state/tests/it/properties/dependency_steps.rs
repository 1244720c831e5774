//! Random steps for dependencies, arrays, checkpoints and preemption.

use super::{
    movement::{ARRAYS, RESERVED},
    *,
};
use lattice_quorum_types::terms::Condition;

/// One random step; resolved against the state when it is taken.
#[derive(Debug, Clone)]
pub enum Step {
    Submit(ExtraRequest),
    Dag {
        members: Vec<ExtraRequest>,
        edges: Vec<(usize, usize, Condition)>,
    },
    AfterArray {
        nth: usize,
        asked: ExtraRequest,
    },
    CancelDag {
        nth: usize,
    },
    Element {
        nth: usize,
        place: usize,
        cancel: bool,
    },
    Requeue {
        nth: usize,
    },
    Walltime {
        nth: usize,
        ms: u64,
    },
    Expire {
        nth: usize,
    },
    Checkpoint {
        nth: usize,
    },
    Extend {
        nth: usize,
    },
    GiveUp {
        nth: usize,
    },
    Wrote {
        nth: usize,
        rank: usize,
        good: bool,
        other: bool,
    },
    AllWrote {
        nth: usize,
    },
    /// Moves an allocation after a checkpoint, to the end.
    MovedWhole {
        nth: usize,
        resume: bool,
    },
    /// An allocation that writes a checkpoint leaves, or is suspended, after that one.
    MakeRoom {
        nth: usize,
        writes: bool,
        reclaim: bool,
    },
    Preempt {
        nth: usize,
        victims: usize,
        writes: bool,
        any: bool,
    },
    AssignPromised {
        nth: usize,
    },
    Withdraw {
        nth: usize,
    },
    Lend {
        node: usize,
        back: bool,
    },
    Recall {
        node: usize,
        wanted: bool,
    },
    Reserve {
        name: usize,
        from: usize,
        after: u64,
        lasts: Option<u64>,
        delete: bool,
    },
}

/// Terms of a request in addition to its nodes.
#[derive(Debug, Clone)]
pub struct ExtraRequest {
    pub nodes: u32,
    pub class: u8,
    pub requeue: Requeue,
    pub hold: bool,
    /// Dependencies, by distance below the next id.
    pub after: Vec<(u64, Condition)>,
    pub mutex: Option<usize>,
    pub array: Option<usize>,
    pub writes: bool,
    pub begin_ms: Option<u64>,
    pub deadline_ms: Option<u64>,
    pub walltime_ms: Option<u64>,
    pub reservation: bool,
}

fn conditions() -> impl Strategy<Value = Condition> {
    (0..Condition::ALL.len()).prop_map(|n| Condition::ALL[n])
}

fn asked() -> impl Strategy<Value = ExtraRequest> {
    let requeue = prop_oneof![
        Just(Requeue::Never),
        Just(Requeue::Once),
        Just(Requeue::Always)
    ];
    let rare = |most: usize| prop::option::weighted(0.25, 0..most);
    let after = prop::collection::vec((1..8u64, conditions()), 0..3);
    let time = || prop::option::weighted(0.15, 1..20_000u64);
    (
        (1..3u32, 0..=10u8, requeue, prop::bool::weighted(0.1), after),
        (rare(2), rare(ARRAYS.len()), any::<bool>()),
        (
            time(),
            time(),
            prop::option::of(1..20_000u64),
            prop::bool::weighted(0.1),
        ),
    )
        .prop_map(|(what, how, when)| {
            let (nodes, class, requeue, hold, after) = what;
            let (mutex, array, writes) = how;
            let (begin_ms, deadline_ms, walltime_ms, reservation) = when;
            ExtraRequest {
                nodes,
                class,
                requeue,
                hold,
                after,
                mutex,
                array,
                writes,
                begin_ms,
                deadline_ms,
                walltime_ms,
                reservation,
            }
        })
}

pub fn steps() -> impl Strategy<Value = Step> {
    let nth = || 0..6usize;
    let edges = prop::collection::vec((0..4usize, 0..4usize, conditions()), 0..5);
    prop_oneof![
        10 => asked().prop_map(Step::Submit),
        8 => (prop::collection::vec(asked(), 1..5), edges)
            .prop_map(|(members, edges)| Step::Dag { members, edges }),
        5 => (nth(), asked()).prop_map(|(nth, asked)| Step::AfterArray { nth, asked }),
        3 => nth().prop_map(|nth| Step::CancelDag { nth }),
        16 => (nth(), 0..4usize, prop::bool::weighted(0.2))
            .prop_map(|(nth, place, cancel)| Step::Element { nth, place, cancel }),
        1 => nth().prop_map(|nth| Step::Requeue { nth }),
        1 => (nth(), 0..20_000u64).prop_map(|(nth, ms)| Step::Walltime { nth, ms }),
        2 => nth().prop_map(|nth| Step::Expire { nth }),
        6 => nth().prop_map(|nth| Step::Checkpoint { nth }),
        2 => nth().prop_map(|nth| Step::Extend { nth }),
        2 => nth().prop_map(|nth| Step::GiveUp { nth }),
        3 => (nth(), 0..3usize, prop::bool::weighted(0.7), prop::bool::weighted(0.1))
            .prop_map(|(nth, rank, good, other)| Step::Wrote { nth, rank, good, other }),
        5 => nth().prop_map(|nth| Step::AllWrote { nth }),
        4 => (nth(), any::<bool>()).prop_map(|(nth, resume)| Step::MovedWhole { nth, resume }),
        2 => (nth(), any::<bool>(), any::<bool>())
            .prop_map(|(nth, writes, reclaim)| Step::MakeRoom { nth, writes, reclaim }),
        8 => (nth(), 1..3usize, prop::bool::weighted(0.8), prop::bool::weighted(0.2))
            .prop_map(|(nth, victims, writes, any)| Step::Preempt { nth, victims, writes, any }),
        3 => nth().prop_map(|nth| Step::AssignPromised { nth }),
        1 => nth().prop_map(|nth| Step::Withdraw { nth }),
        2 => (0..NODES, any::<bool>()).prop_map(|(node, back)| Step::Lend { node, back }),
        2 => (0..NODES, prop::bool::weighted(0.7))
            .prop_map(|(node, wanted)| Step::Recall { node, wanted }),
        1 => (0..RESERVED.len(), 0..NODES, 0..20_000u64, prop::option::of(1..20_000u64), any::<bool>())
            .prop_map(|(name, from, after, lasts, delete)| {
                Step::Reserve { name, from, after, lasts, delete }
            }),
    ]
}

/// Mostly these steps, with a small part of other commands.
pub fn busy() -> impl Strategy<Value = Move> {
    let nth = 0..6usize;
    prop_oneof![
        6 => moves(),
        24 => steps().prop_map(Move::Movement),
        6 => (nth.clone(), any::<bool>()).prop_map(|(nth, fenced)| {
            Move::Assign { nth, shift: 0, stale: false, fenced }
        }),
        4 => nth.clone().prop_map(|nth| Move::StartAll { nth }),
        3 => (nth.clone(), 0..3usize, exits())
            .prop_map(|(nth, rank, exit)| Move::End { nth, rank, exit }),
        4 => nth.clone().prop_map(|nth| Move::EndAll { nth }),
        1 => nth.clone().prop_map(|nth| Move::Cancel { nth, owner: true }),
        1 => nth.clone().prop_map(|nth| Move::Hold { nth }),
        1 => nth.clone().prop_map(|nth| Move::Release { nth }),
        1 => nth.clone().prop_map(|nth| Move::Suspend { nth, owner: true }),
        5 => nth.prop_map(|nth| Move::Resume { nth }),
        2 => (0..NODES).prop_map(|node| Move::Accept { node }),
        4 => (1..3_000u64).prop_map(|ms| Move::Wait { ms }),
    ]
}

/// Many steps of one kind or the other.
pub fn sequences(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Move>> {
    prop_oneof![
        prop::collection::vec(moves(), length.clone()),
        prop::collection::vec(busy(), length),
    ]
}
