//! Steps for jobs: submission and results.

use crate::{
    COUNTS, step,
    steps::Step,
    world::{ENDED, Job, World},
};
use lattice_api::{AllocationRequest, allocation::CheckpointBody};
use lattice_client::{ClientError, SubmitOptions};
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    script::{Behaviour, Script, with_interpreter},
    wait::{eventually, until},
};

/// Step of the counting program, milliseconds.
const STEP_MS: u64 = 20;

/// Reads the columns of a request. Names of jobs stand for their ids.
fn request(world: &mut World, row: &[(String, String)]) -> (String, AllocationRequest, Job) {
    let script = world.script();
    let mut request = world.site().request(None, "exit 0");
    let mut name = None;
    for (column, cell) in row.iter().filter(|(_, cell)| !cell.is_empty()) {
        let text = || Some(cell.clone());
        match column.as_str() {
            "name" => {
                name = text();
                request.name = text();
            }
            "nodes" => request.nodes = cell.parse().unwrap(),
            "class" => request.class = Some(cell.parse().unwrap()),
            "on" => request.constraints.nodelist = text(),
            "vcluster" => request.vcluster = text(),
            "project" => request.project.clone_from(cell),
            "walltime" => request.walltime = text(),
            "requeue" => request.requeue = text(),
            "checkpoint" => request.checkpoint = Some(when_asked(cell)),
            "trigger" => {
                let terms = request.checkpoint.as_mut().expect("a mode before it");
                terms.trigger = text();
            }
            "takes" => request.checkpoint_time = text(),
            "sensitive" => request.sensitive = cell == "yes",
            "hold" => request.hold = cell == "yes",
            "array" => request.array = text(),
            "dependency" => request.dependency = Some(with_numbers(world, cell)),
            "mutex" => request.mutex = text(),
            "singleton" => request.singleton = cell == "yes",
            "begin" => request.begin = text(),
            "deadline" => request.deadline = text(),
            "reservation" => request.reservation = text(),
            "does" => request.script = Some(with_interpreter(&does(cell, &script))),
            other => panic!("no request has a column {other:?}"),
        }
    }
    let name = name.expect("a job has a name");
    let id = AllocationId(0);
    (name, request, Job { id, script })
}

/// Checkpoints in this mode, on request only.
pub fn when_asked(mode: &str) -> CheckpointBody {
    CheckpointBody {
        mode: mode.to_owned(),
        trigger: Some("manual".to_owned()),
        directory: None,
    }
}

/// Script for a behavior: `waits`, until the job may end, and then fails with 7; `holds out` ignores SIGTERM until it
/// may stop; `counts N`, with more options of the counting program; any other text is a script.
pub fn does(cell: &str, script: &Script) -> String {
    match cell.split_once(' ') {
        _ if cell == "waits" => script.text(Behaviour::Plain),
        _ if cell == "holds out" => script.text(Behaviour::Stubborn),
        Some(("counts", rest)) => {
            let program = std::env::current_exe().unwrap();
            let program = program.display();
            format!("exec {program} {COUNTS} --step-ms {STEP_MS} --steps {rest}\n")
        }
        _ => format!("{cell}\n"),
    }
}

/// Replaces names of jobs by ids, as in `afterok:first:second`.
fn with_numbers(world: &World, text: &str) -> String {
    let parts = text.split_inclusive([':', ',', '_', '?']);
    let number = |part: &str| {
        let bare = part.trim_end_matches([':', ',', '_', '?']);
        match world.jobs().get(bare) {
            Some(job) => part.replacen(bare, &job.id.to_string(), 1),
            None => part.to_owned(),
        }
    };
    parts.map(number).collect()
}

async fn submit(world: &mut World, row: &[(String, String)]) -> (String, Result<(), ClientError>) {
    let (name, request, job) = request(world, row);
    let answer = world.api().submit(&request, SubmitOptions::default()).await;
    let done = answer.map(|submitted| {
        let id = submitted.id.unwrap();
        world.knows(&name, Job { id, ..job });
    });
    (name, done)
}

/// Whether these states appear in this order, with any others between them.
pub fn in_order(all: &[String], wanted: &[&str]) -> bool {
    let mut all = all.iter();
    wanted.iter().all(|state| all.any(|seen| seen == state))
}

/// Submits rows of jobs; each after the previous one has an id. Returns the names.
async fn submit_all(world: &mut World, rows: Vec<Vec<(String, String)>>) -> Vec<String> {
    let mut names = Vec::new();
    for row in rows {
        let (name, done) = submit(world, &row).await;
        if let Err(error) = done {
            panic!("{name} is refused: {error}");
        }
        names.push(name);
    }
    names
}

pub fn steps() -> Vec<Step> {
    vec![
        step!("these jobs are submitted", |world, said| {
            submit_all(world, said.rows()).await;
        }),
        step!("these jobs run", |world, said| {
            for name in submit_all(world, said.rows()).await {
                let running = |state: &str| (state == "running").then_some(());
                world
                    .shows(&name, "runs", |view| running(&view.state))
                    .await;
            }
        }),
        step!(
            "submitting this is refused with {number} for {text}",
            |world, said| {
                for row in said.rows() {
                    let (name, done) = submit(world, &row).await;
                    let error = done.expect_err(&name);
                    let problem = error.problem().unwrap_or_else(|| panic!("{error}"));
                    assert_eq!(u64::from(problem.status), said.number(0), "{problem:?}");
                    assert_eq!(problem.field.as_deref(), Some(said.text(1)), "{problem:?}");
                }
            }
        ),
        step!("{text} is {word}", |world, said| {
            let (name, state) = (said.text(0), said.text(1));
            world
                .shows(name, &format!("is {state}"), |view| {
                    let over = ENDED.contains(&view.state.as_str());
                    assert!(
                        !over || view.state == state,
                        "{name} is {}, not {state}: {:?}",
                        view.state,
                        view.stop
                    );
                    (view.state == state).then_some(())
                })
                .await;
        }),
        step!("{text} may end", |world, said| {
            world.job(said.text(0)).script.may_exit();
        }),
        step!("{text} went through {text}", |world, said| {
            let (name, wanted) = (said.text(0), said.text(1));
            let wanted: Vec<_> = wanted.split_whitespace().collect();
            until(&format!("{name} went through {wanted:?}"), || {
                in_order(&world.states(name), &wanted)
            })
            .await;
        }),
        step!("{text} was never {text}", |world, said| {
            let (name, states) = (said.text(0), world.states(said.text(0)));
            for state in said.text(1).split_whitespace() {
                assert!(
                    !states.iter().any(|seen| seen == state),
                    "{name}: {states:?}"
                );
            }
        }),
        step!("{text} printed {text}", |world, said| {
            let (name, wanted) = (said.text(0), said.text(1));
            let world = &*world;
            eventually(&format!("{name} printed {wanted:?}"), || async move {
                world.output(name).await.contains(wanted).then_some(())
            })
            .await;
        }),
    ]
}
