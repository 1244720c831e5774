//! Scenario runner: each feature on a thread and a cluster of its own, several at a time, its scenarios in sequence.

use crate::{
    scaling,
    steps::{Step, StepMatch, Steps},
    world::World,
};
use futures::FutureExt as _;
use gherkin::{Feature, GherkinEnv, Scenario};
use lattice_tests::{Programs, matrix::Matrix, prometheus::Prometheus};
use std::{
    any::Any,
    cell::RefCell,
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Number of concurrent features; `LATTICE_SCENARIOS_AT_ONCE` overrides it.
const AT_ONCE: usize = 2;
/// Timeout of a step.
const LONGEST_STEP: Duration = Duration::from_secs(180);

/// Last row of a file: replay of the control's record of decisions.
const DECIDED_AGAIN: &str = "every recorded plan is decided again";

/// A scenario with its resolved steps.
struct ResolvedScenario<'a> {
    name: String,
    steps: Vec<(gherkin::Step, &'a Step, StepMatch)>,
}

/// One feature file.
struct File<'a> {
    path: PathBuf,
    plays: Vec<ResolvedScenario<'a>>,
}

impl File<'_> {
    /// Whether the peers of the file's scenarios are installed; prints that the file is skipped if not.
    fn has_its_peers(&self) -> bool {
        let steps = self.plays.iter().flat_map(|play| &play.steps);
        let mut steps = steps.map(|(step, ..)| &step.value);
        !steps.any(|step| step.ends_with(scaling::WITH_PROMETHEUS))
            || Prometheus::is_installed_or_skips(&shown(&self.path))
    }
}

/// Result of a scenario.
struct Result {
    feature: String,
    name: String,
    took: Duration,
    failure: Option<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn shown(path: &Path) -> String {
    format!("tests/scenarios/{}", path.file_name().unwrap().display())
}

/// Reads the files to run. Without a filter all files are read, and each defined step must occur.
fn read<'a>(
    steps: &'a Steps,
    filter: Option<&str>,
) -> std::result::Result<Vec<File<'a>>, Vec<String>> {
    let files = std::fs::read_dir(folder()).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "feature"))
        .collect();
    paths.sort();
    let (mut files, mut wrong, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
    for path in paths {
        let feature = match Feature::parse_path(&path, GherkinEnv::default()) {
            Ok(feature) => feature,
            Err(error) => {
                wrong.push(format!("{}: {error}", shown(&path)));
                continue;
            }
        };
        let whole = filter.is_none_or(|filter| shown(&path).contains(filter));
        let is_played =
            |one: &&Scenario| whole || filter.is_some_and(|filter| one.name.contains(filter));
        let mut plays = Vec::new();
        for scenario in feature.scenarios.iter().filter(is_played) {
            if !scenario.examples.is_empty() {
                let at = scenario.position.line;
                wrong.push(format!("{}:{at}: examples are not played", shown(&path)));
            }
            match prepare(&feature, scenario, steps) {
                Ok(play) => {
                    used.extend(play.steps.iter().map(|(_, step, _)| step.place));
                    plays.push(play);
                }
                Err(mistakes) => {
                    let at =
                        |(line, why): (usize, String)| format!("{}:{line}: {why}", shown(&path));
                    wrong.extend(mistakes.into_iter().map(at));
                }
            }
        }
        if !plays.is_empty() {
            files.push(File { path, plays });
        }
    }
    let unused = steps.all().iter();
    let unused = unused.filter(|step| filter.is_none() && !used.contains(step.place));
    wrong.extend(unused.map(|step| format!("{}: no scenario says {:?}", step.place, step.pattern)));
    match wrong.is_empty() {
        true => Ok(files),
        false => Err(wrong),
    }
}

fn prepare<'a>(
    feature: &Feature,
    scenario: &Scenario,
    steps: &'a Steps,
) -> std::result::Result<ResolvedScenario<'a>, Vec<(usize, String)>> {
    let before = feature.background.iter().flat_map(|given| &given.steps);
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for step in before.chain(&scenario.steps) {
        match steps.find(&step.value) {
            Ok((defined, holes)) => {
                let said = StepMatch::new(holes, step.table.clone());
                found.push((step.clone(), defined, said));
            }
            Err(why) => wrong.push((step.position.line, format!("{step}: {why}"))),
        }
    }
    let name = scenario.name.clone();
    match wrong.is_empty() {
        true => Ok(ResolvedScenario { name, steps: found }),
        false => Err(wrong),
    }
}

/// Runs every scenario with the filter in its name or its file's name.
pub fn run(programs: Programs, steps: &Steps, filter: Option<&str>) -> ExitCode {
    notes_where();
    let files = match read(steps, filter) {
        Ok(files) => files,
        Err(wrong) => {
            wrong.iter().for_each(|line| eprintln!("{line}"));
            return ExitCode::FAILURE;
        }
    };
    let files: Vec<_> = files.into_iter().filter(File::has_its_peers).collect();
    let at_once = std::env::var("LATTICE_SCENARIOS_AT_ONCE").ok();
    let at_once = at_once.and_then(|text| text.parse().ok());
    let (next, results, begun) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..at_once.unwrap_or(AT_ONCE).min(files.len()) {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build();
                    let played = runtime.unwrap().block_on(play(programs, file));
                    results.lock().unwrap().extend(played);
                }
            });
        }
    });
    tell(results.into_inner().unwrap(), begun.elapsed())
}

fn tell(results: Vec<Result>, took: Duration) -> ExitCode {
    let mut table = Matrix::new(["feature", "scenario", "seconds", ""]);
    for one in &results {
        let ended = if one.failure.is_some() { "failed" } else { "" };
        let seconds = format!("{:.1}", one.took.as_secs_f64());
        table.row([&one.feature, &one.name, &seconds, ended]);
    }
    let failed = results.iter().filter(|one| one.failure.is_some()).count();
    print!("{table}");
    let (count, seconds) = (results.len(), took.as_secs_f64());
    println!("{count} scenarios, {failed} failed, {seconds:.1} s in all");
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Runs a file. A cluster serves all scenarios of the file until one fails on it.
async fn play(programs: Programs, file: &File<'_>) -> Vec<Result> {
    let mut world = World::new(programs);
    let feature = file.path.file_stem().unwrap().display().to_string();
    let mut results = Vec::new();
    for play in &file.plays {
        let begun = Instant::now();
        let failure = one(&mut world, file, play).await.err();
        let took = begun.elapsed();
        let ended = if failure.is_some() { "FAILED" } else { "ok" };
        println!(
            "{feature}: {} … {ended}, {:.1} s",
            play.name,
            took.as_secs_f64()
        );
        if let Some(failure) = &failure {
            eprintln!("{failure}");
            world.tells_of_daemons();
            world = World::new(programs);
        }
        results.push(Result {
            feature: feature.clone(),
            name: play.name.clone(),
            took,
            failure,
        });
    }
    let begun = Instant::now();
    let failure = caught(world.decides_again(&feature)).await.err();
    if let Some(failure) = &failure {
        eprintln!("{feature}: {DECIDED_AGAIN}: {failure}");
    }
    results.push(Result {
        feature,
        name: DECIDED_AGAIN.to_owned(),
        took: begun.elapsed(),
        failure,
    });
    results
}

/// Runs the steps of a scenario, and then restores the cluster.
async fn one(
    world: &mut World,
    file: &File<'_>,
    play: &ResolvedScenario<'_>,
) -> std::result::Result<(), String> {
    let mut so_far = Vec::new();
    for (step, defined, said) in &play.steps {
        let line = format!("{}:{}: {step}", shown(&file.path), step.position.line);
        let done = (defined.does)(world, said.clone());
        let failed = caught(done).await.err();
        let Some(why) = failed else {
            so_far.push(format!("  done   {line}"));
            continue;
        };
        so_far.push(format!("  FAILED {line}\n  by {}\n{why}", defined.place));
        so_far.push(world.what_was_seen());
        return Err(so_far.join("\n"));
    }
    caught(world.clean()).await.map_err(|why| {
        let seen = world.what_was_seen();
        format!("  it could not be undone: {why}\n{seen}")
    })
}

thread_local! {
    /// Location of this thread's last panic.
    static WHERE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Reports panics with the step, not when they occur.
fn notes_where() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        WHERE.with_borrow_mut(|at| *at = place.unwrap_or_default());
    }));
}

async fn caught(step: impl Future<Output = ()>) -> std::result::Result<(), String> {
    let bounded = tokio::time::timeout(LONGEST_STEP, step);
    match AssertUnwindSafe(bounded).catch_unwind().await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(format!("nothing came of it within {LONGEST_STEP:?}")),
        Err(panic) => {
            let place = WHERE.with_borrow(Clone::clone);
            Err(format!("  {} (at {place})", message(&*panic)))
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default()
}
