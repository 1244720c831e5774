//! Random steps.

use super::*;

/// One random step; resolved against the state when it is taken, so that many are accepted.
#[derive(Debug, Clone)]
pub enum Move {
    Create {
        project: usize,
        nodes: Option<u64>,
        allocations: Option<u64>,
    },
    Delete {
        project: usize,
    },
    Limit {
        changes: Vec<(usize, Resource, Option<u64>)>,
        force: bool,
    },
    Submit {
        project: usize,
        nodes: u32,
        requeue: Requeue,
        hold: bool,
    },
    Cancel {
        nth: usize,
        owner: bool,
    },
    Hold {
        nth: usize,
    },
    Release {
        nth: usize,
    },
    Assign {
        nth: usize,
        shift: usize,
        stale: bool,
        fenced: bool,
    },
    Stop {
        nth: usize,
        suspend: bool,
    },
    Start {
        nth: usize,
        rank: usize,
    },
    StartAll {
        nth: usize,
    },
    End {
        nth: usize,
        rank: usize,
        exit: RankExit,
    },
    EndAll {
        nth: usize,
    },
    Drain {
        node: usize,
        set: bool,
    },
    Lifecycle {
        node: usize,
        to: Lifecycle,
    },
    Register {
        node: usize,
    },
    Lease {
        control: usize,
        ttl_ms: u64,
        give_back: bool,
    },
    Force {
        node: usize,
        power: Privilege,
    },
    EndFaulty {
        nth: usize,
        rank: usize,
        spawned: bool,
    },
    NeverStarted {
        nth: usize,
        rank: usize,
    },
    UndrainUnchecked {
        node: usize,
    },
    Accept {
        node: usize,
    },
    Token {
        uses: u32,
        replace: bool,
    },
    RevokeToken,
    Enrol {
        name: usize,
        replace: bool,
        lifetime_ms: u64,
    },
    Renew {
        name: usize,
        older: bool,
    },
    RevokeName {
        name: usize,
    },
    Authority {
        which: u8,
        what: u8,
    },
    Baseline {
        name: usize,
        from: u32,
        class: usize,
        expected: bool,
        delete: bool,
    },
    Brake {
        hold: bool,
    },
    Grow {
        nth: usize,
        by: usize,
        any: bool,
        stale: bool,
    },
    Shrink {
        nth: usize,
        from: usize,
        by: usize,
        owner: bool,
    },
    Suspend {
        nth: usize,
        owner: bool,
    },
    Resume {
        nth: usize,
    },
    NewProject {
        project: usize,
        nodes: Option<u64>,
        lifted: bool,
    },
    System {
        pool: Option<u64>,
        flat: bool,
    },
    Movement(dependency_steps::Step),
    Wait {
        ms: u64,
    },
}

pub fn exits() -> impl Strategy<Value = RankExit> {
    prop_oneof![
        4 => Just(RankExit::Exited { code: 0 }),
        1 => Just(RankExit::Exited { code: 1 }),
        1 => Just(RankExit::Signaled { signal: 9 }),
        1 => Just(RankExit::Walltime),
        1 => Just(RankExit::Stopped),
        2 => Just(RankExit::Lost { evidence: "rebooted".to_owned() }),
    ]
}

fn resources() -> impl Strategy<Value = Resource> {
    prop_oneof![2 => Just(Resource::Nodes), 1 => Just(Resource::Allocations)]
}

/// `None`: no limit.
fn limits() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![6 => (0..12u64).prop_map(Some), 1 => Just(None)]
}

fn limit_moves() -> impl Strategy<Value = Move> {
    let change = (0..PROJECTS.len(), resources(), limits());
    let changes = prop::collection::vec(change, 1..4);
    (changes, prop::bool::weighted(0.3)).prop_map(|(changes, force)| Move::Limit { changes, force })
}

/// Steps that change only the tree and its limits.
pub fn tree_moves() -> impl Strategy<Value = Move> {
    let project = 0..PROJECTS.len();
    let of_new = (project.clone(), prop::option::of(0..4u64), any::<bool>());
    prop_oneof![
        8 => limit_moves(),
        2 => of_new.prop_map(|(project, nodes, lifted)| Move::NewProject { project, nodes, lifted }),
        1 => project.prop_map(|project| Move::Delete { project }),
        1 => prop::bool::weighted(0.3).prop_map(|flat| Move::System { pool: None, flat }),
    ]
}

pub fn moves() -> impl Strategy<Value = Move> {
    let project = 0..PROJECTS.len();
    let nth = 0..6usize;
    let requeue = prop_oneof![
        Just(Requeue::Never),
        Just(Requeue::Once),
        Just(Requeue::Always)
    ];
    let lifecycles = prop_oneof![
        4 => Just(Lifecycle::Ready),
        1 => Just(Lifecycle::Draining),
        1 => Just(Lifecycle::Quarantined),
        1 => Just(Lifecycle::Retired),
    ];
    prop_oneof![
        3 => (project.clone(), prop::option::of(0..9u64), prop::option::of(0..4u64))
            .prop_map(|(project, nodes, allocations)| Move::Create { project, nodes, allocations }),
        1 => project.clone().prop_map(|project| Move::Delete { project }),
        4 => limit_moves(),
        8 => (project, 0..5u32, requeue, prop::bool::weighted(0.1)).prop_map(
            |(project, nodes, requeue, hold)| Move::Submit { project, nodes, requeue, hold }
        ),
        2 => (nth.clone(), any::<bool>()).prop_map(|(nth, owner)| Move::Cancel { nth, owner }),
        1 => nth.clone().prop_map(|nth| Move::Hold { nth }),
        1 => nth.clone().prop_map(|nth| Move::Release { nth }),
        10 => (nth.clone(), 0..3usize, prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(nth, shift, stale, fenced)| Move::Assign { nth, shift, stale, fenced }),
        1 => (nth.clone(), any::<bool>()).prop_map(|(nth, suspend)| Move::Stop { nth, suspend }),
        3 => (nth.clone(), 0..4usize).prop_map(|(nth, rank)| Move::Start { nth, rank }),
        4 => nth.clone().prop_map(|nth| Move::StartAll { nth }),
        4 => (nth.clone(), 0..4usize, exits())
            .prop_map(|(nth, rank, exit)| Move::End { nth, rank, exit }),
        5 => nth.clone().prop_map(|nth| Move::EndAll { nth }),
        2 => (0..NODES, any::<bool>()).prop_map(|(node, set)| Move::Drain { node, set }),
        3 => (0..NODES, lifecycles).prop_map(|(node, to)| Move::Lifecycle { node, to }),
        2 => (0..NODES).prop_map(|node| Move::Register { node }),
        2 => (0..2usize, 1..90_000u64, prop::bool::weighted(0.2))
            .prop_map(|(control, ttl_ms, give_back)| Move::Lease { control, ttl_ms, give_back }),
        2 => (0..NODES, prop_oneof![1 => Just(Privilege::Service), 4 => Just(Privilege::Operator)])
            .prop_map(|(node, power)| Move::Force { node, power }),
        2 => (nth.clone(), 0..4usize, any::<bool>())
            .prop_map(|(nth, rank, spawned)| Move::EndFaulty { nth, rank, spawned }),
        4 => (nth.clone(), 0..4usize).prop_map(|(nth, rank)| Move::NeverStarted { nth, rank }),
        2 => (0..NODES).prop_map(|node| Move::UndrainUnchecked { node }),
        3 => (0..NODES).prop_map(|node| Move::Accept { node }),
        2 => (0..4u32, any::<bool>()).prop_map(|(uses, replace)| Move::Token { uses, replace }),
        1 => Just(Move::RevokeToken),
        3 => (0..3usize, any::<bool>(), prop_oneof![Just(3_600_000u64), Just(30 * 24 * 3_600_000)])
            .prop_map(|(name, replace, lifetime_ms)| Move::Enrol { name, replace, lifetime_ms }),
        2 => (0..3usize, prop::bool::weighted(0.2))
            .prop_map(|(name, older)| Move::Renew { name, older }),
        1 => (0..3usize).prop_map(|name| Move::RevokeName { name }),
        5 => (0..2u8, 0..3u8).prop_map(|(which, what)| Move::Authority { which, what }),
        4 => (0..3usize, 0..4u32, 0..2usize, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(name, from, class, expected, delete)| {
                Move::Baseline { name, from, class, expected, delete }
            }),
        2 => any::<bool>().prop_map(|hold| Move::Brake { hold }),
        8 => (nth.clone(), 0..3usize, prop::bool::weighted(0.2), prop::bool::weighted(0.1))
            .prop_map(|(nth, by, any, stale)| Move::Grow { nth, by, any, stale }),
        6 => (nth.clone(), 0..4usize, 0..3usize, any::<bool>())
            .prop_map(|(nth, from, by, owner)| Move::Shrink { nth, from, by, owner }),
        2 => (nth.clone(), any::<bool>()).prop_map(|(nth, owner)| Move::Suspend { nth, owner }),
        4 => nth.clone().prop_map(|nth| Move::Resume { nth }),
        1 => (0..PROJECTS.len(), prop::option::of(0..4u64), prop::bool::weighted(0.2))
            .prop_map(|(project, nodes, lifted)| Move::NewProject { project, nodes, lifted }),
        1 => (prop::option::of(0..4u64), prop::bool::weighted(0.3))
            .prop_map(|(pool, flat)| Move::System { pool, flat }),
        2 => prop_oneof![1..5_000u64, Just(90_000), Just(13 * 3600 * 1000), Just(40 * 24 * 3600 * 1000)]
            .prop_map(|ms| Move::Wait { ms }),
    ]
}
