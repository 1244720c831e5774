//! Cost of limit checks, submissions, headroom and limit changes on a tree of 3,400 projects, 400 of them below one
//! parent, three levels deep. Prints one table.
//!
//! `cargo bench --profile dist -p lattice-quorum-state --bench limits`
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    reason = "a bench measures time, and ends where something goes wrong; the state machine does not"
)]

use lattice_quorum_state::State;
use lattice_quorum_types::{
    Command, Envelope, NodeId, ProjectPath, UnixMillis, VclusterName,
    command::{LimitChange, Principal, Privilege, SCHEMA},
    limit::{LimitPatch, Limits, Patch, Usage},
    spec::{AllocationSpec, Workload},
};
use lattice_rng::Mmix;
use std::{hint::black_box, time::Instant};

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const PROJECTS: usize = 3_400;
/// Number of projects directly below `people`.
const CHILDREN: usize = 400;
/// Number of measured batches.
const BATCHES: usize = 31;
/// Operations per batch.
const BATCH: usize = 20_000;

fn path(text: &str) -> ProjectPath {
    ProjectPath::new(text).expect("a path")
}

fn envelope(command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "root".to_owned(),
            privilege: Privilege::Admin,
        },
        key: None,
        at: NOW,
        fence: None,
        command,
    }
}

fn apply(state: &mut State, command: Command) {
    let index = state.last_index() + 1;
    state
        .apply(index, &envelope(command))
        .expect("it is accepted");
}

/// Project paths, parents first: [`CHILDREN`] projects below `people`, and tenants with 12 groups of 12 projects each.
fn paths() -> Vec<ProjectPath> {
    let mut paths = vec![path("people")];
    paths.extend((0..CHILDREN).map(|n| path(&format!("people/user-{n:03}"))));
    for tenant in 0.. {
        let tenant = format!("experiment-{tenant:02}");
        let groups = (0..12).map(|group| format!("{tenant}/group-{group:02}"));
        let below = |group: String| {
            let projects = (0..12).map(|n| format!("{group}/project-{n:02}"));
            projects.collect::<Vec<_>>()
        };
        let all = std::iter::once(tenant.clone())
            .chain(groups.clone())
            .chain(groups.flat_map(below));
        for text in all {
            if paths.len() == PROJECTS {
                return paths;
            }
            // A last path segment is unique within a tenant.
            let text = match text.matches('/').count() {
                2 => text.replace("project-", &format!("p{}-", &text[20..22])),
                _ => text,
            };
            paths.push(path(&text));
        }
    }
    paths
}

fn state_with_limits(paths: &[ProjectPath]) -> State {
    let mut state = State::new();
    for path in paths {
        let nodes = match path.depth() {
            1 => 40_000,
            2 if path.as_str().starts_with("people") => 10,
            2 => 1_200,
            _ => 100,
        };
        let limits = Limits {
            max_nodes: Some(nodes),
            max_concurrent_allocations: Some(nodes),
        };
        apply(
            &mut state,
            Command::CreateProject {
                path: path.clone(),
                limits: Some(limits),
                admins: vec!["ada".to_owned()],
                description: String::new(),
            },
        );
    }
    for n in 0..64 {
        apply(
            &mut state,
            Command::RegisterNode {
                node: NodeId::new(format!("n{n:03}")).expect("a name"),
                vcluster: VclusterName::new("main").expect("a name"),
            },
        );
    }
    state
}

fn submit(project: &ProjectPath, nodes: u32) -> Envelope {
    envelope(Command::Submit {
        spec: Box::new(AllocationSpec::new(
            project.clone(),
            VclusterName::new("main").expect("a name"),
            nodes,
            Workload {
                argv: vec!["true".to_owned()],
                ..Workload::default()
            },
        )),
    })
}

/// Nanoseconds per operation, over paths in random order: the median batch and the slowest.
fn measure(mut one: impl FnMut(usize), batch: usize) -> (f64, f64) {
    let mut random = Mmix::new(7);
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let mut project = || random.below(PROJECTS as u64) as usize;
        let order: Vec<usize> = (0..batch).map(|_| project()).collect();
        let start = Instant::now();
        order.iter().for_each(|n| one(*n));
        times.push(start.elapsed().as_nanos() as f64 / batch as f64);
    }
    times.sort_by(f64::total_cmp);
    (times[BATCHES / 2], times[BATCHES - 1])
}

fn main() {
    let paths = paths();
    let mut state = state_with_limits(&paths);
    let deepest = paths.iter().map(ProjectPath::depth).max().unwrap_or(0);
    println!(
        "{} projects, {CHILDREN} below one parent, {deepest} levels deep; median of {BATCHES} batches \
         of {BATCH}, random projects, one core",
        paths.len()
    );
    println!("{:<44} {:>10} {:>10}", "", "median ns", "slowest ns");
    let print = |what: &str, (median, slowest): (f64, f64)| {
        println!("{what:<44} {median:>10.0} {slowest:>10.0}");
    };
    let asked = |nodes| Usage {
        nodes,
        allocations: 1,
    };
    let fits = |nodes| {
        let (state, paths) = (&state, &paths);
        move |n: usize| {
            let _ = black_box(state.check_fits(black_box(&paths[n]), asked(nodes)));
        }
    };
    print("limit check, accepted", measure(fits(1), BATCH));
    print(
        "limit check, refused at every level",
        measure(fits(1 << 40), BATCH),
    );
    let submits: Vec<Envelope> = paths.iter().map(|path| submit(path, 1)).collect();
    print(
        "submit judged, accepted",
        measure(
            |n| {
                black_box(state.check(black_box(&submits[n]))).expect("it fits");
            },
            BATCH,
        ),
    );
    print(
        "headroom",
        measure(
            |n| {
                black_box(state.headroom(black_box(&paths[n])));
            },
            BATCH,
        ),
    );
    let flip = |path: &ProjectPath, odd: u64| {
        let patch = LimitPatch {
            max_concurrent_allocations: Patch::Set(50 - odd),
            ..LimitPatch::default()
        };
        let path = path.clone();
        envelope(Command::SetLimits {
            changes: vec![LimitChange { path, patch }],
        })
    };
    let leaves: Vec<&ProjectPath> = paths.iter().filter(|path| path.depth() == 3).collect();
    let changes: Vec<Envelope> = (0..PROJECTS)
        .map(|n| flip(leaves[n % leaves.len()], (n / leaves.len()) as u64 % 2))
        .collect();
    print(
        "one limit changed, judged",
        measure(
            |n| {
                black_box(state.check(black_box(&changes[n]))).expect("it fits");
            },
            BATCH,
        ),
    );
    let mut turn = 0;
    print(
        "one limit changed, applied",
        measure(
            |_| {
                turn += 1;
                let leaf = leaves[turn % leaves.len()];
                let change = flip(leaf, (turn / leaves.len()) as u64 % 2);
                let index = state.last_index() + 1;
                black_box(state.apply(index, &change)).expect("it fits");
            },
            BATCH / 20,
        ),
    );
}
