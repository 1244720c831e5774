//! The cases for nested limits in `fixtures/quota/nested_quota_cases.yaml`, run against the state
//! machine. `LATTICE_QUOTA_CASES` names another file of the same form.
//!
//! The mapping: each root is a tenant; `allocate` is a submit that is then assigned; `release`
//! is every rank exiting 0; `actor: admin:X` is a user who administers project X; values that the
//! command cannot even express (a negative number) are refused by the reader, as at the edge.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "reads its cases from a file")]

mod common;

use common::{Cluster, path};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, Command, ProjectPath, Refusal,
    allocation::RankExit,
    command::{LimitChange, Power},
    limit::{LimitPatch, Limits, Patch, Resource},
    refusal::LimitFault,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
struct File {
    version: u32,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    title: String,
    tree: Vec<Root>,
    setup: Vec<Step>,
    steps: Vec<Step>,
}

/// The state that the setup leads to.
#[derive(Deserialize)]
struct Root {
    project: String,
    limit: Option<u64>,
    #[serde(default)]
    used: u64,
}

#[derive(Deserialize, Clone)]
struct Step {
    op: String,
    project: Option<String>,
    parent: Option<String>,
    limits: Option<BTreeMap<String, Option<i64>>>,
    changes: Option<Vec<Change>>,
    nodes: Option<i64>,
    id: Option<String>,
    prefix: Option<String>,
    count: Option<u32>,
    actor: Option<String>,
    expect: Option<String>,
    reason: Option<String>,
    violated: Option<Vec<Violated>>,
    usage: Option<BTreeMap<String, Usage>>,
    value: Option<u64>,
}

#[derive(Deserialize, Clone)]
struct Change {
    project: String,
    limits: BTreeMap<String, Option<i64>>,
}

#[derive(Deserialize, Clone)]
struct Violated {
    project: String,
    quota: String,
    current: Option<u64>,
    requested: Option<u64>,
    limit: Option<u64>,
}

#[derive(Deserialize, Clone)]
struct Usage {
    limit: Option<u64>,
    used: u64,
    hierarchical: u64,
}

/// Why a step was not accepted.
enum No {
    Refused(Refusal),
    /// The reader at the edge cannot make a command of it.
    Unreadable,
    /// It needs an operation that no command does yet.
    Unsupported(String),
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        No::Refused(refusal)
    }
}

struct Run {
    cluster: Cluster,
    paths: BTreeMap<String, ProjectPath>,
    allocations: BTreeMap<String, AllocationId>,
}

impl Run {
    fn path(&self, name: &str) -> ProjectPath {
        self.paths.get(name).cloned().unwrap_or_else(|| path(name))
    }

    fn create(&mut self, name: &str, parent: Option<&str>, step: &Step) -> Result<(), No> {
        let at = match parent {
            None => path(name),
            Some(parent) => path(&format!("{}/{name}", self.path(parent))),
        };
        // A ceiling that is not named gets what it would get if none were.
        let mut limits = None;
        if let Some(given) = &step.limits {
            let mut all = self.cluster.state.default_limits(&at);
            for (key, value) in given {
                let value = value
                    .map(u64::try_from)
                    .transpose()
                    .map_err(|_| No::Unreadable)?;
                *ceiling(&mut all, key) = value;
            }
            limits = Some(all);
        }
        let (name_of, power) = actor(step);
        let admins = vec![format!("admin:{name}")];
        let description = String::new();
        let command = Command::CreateProject {
            path: at.clone(),
            limits,
            admins,
            description,
        };
        self.cluster.propose(&name_of, power, command)?;
        self.paths.insert(name.to_owned(), at);
        Ok(())
    }

    fn set_limits(&mut self, step: &Step) -> Result<(), No> {
        let mut changes = Vec::new();
        for Change { project, limits } in step.changes.as_ref().unwrap() {
            let mut patch = LimitPatch::default();
            for (key, value) in limits {
                let value = match value {
                    None => Patch::Unlimited,
                    Some(n) => Patch::Set(u64::try_from(*n).map_err(|_| No::Unreadable)?),
                };
                match key.as_str() {
                    "nodes" => patch.max_nodes = value,
                    "allocations" => patch.max_concurrent_allocations = value,
                    other => panic!("unknown limit {other}"),
                }
            }
            changes.push(LimitChange {
                path: self.path(project),
                patch,
            });
        }
        let (name, power) = actor(step);
        self.cluster
            .propose(&name, power, Command::SetLimits { changes })?;
        Ok(())
    }

    fn allocate(&mut self, step: &Step) -> Result<(), No> {
        let at = self.path(step.project.as_ref().unwrap());
        let nodes = u32::try_from(step.nodes.unwrap()).map_err(|_| No::Unreadable)?;
        // The cluster must not be what refuses.
        let registered = self.cluster.state.nodes().count();
        self.cluster
            .add_nodes((nodes as usize).saturating_sub(registered));
        let id = self.cluster.submit(common::spec(at.as_str(), nodes))?;
        self.cluster.assign(id)?;
        if nodes % 2 == 0 {
            // Starting and running ones hold alike.
            self.cluster.start_all(id);
        }
        self.allocations.insert(step.id.clone().unwrap(), id);
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), No> {
        let project = || step.project.clone().unwrap();
        match step.op.as_str() {
            "create_project" => self.create(&project(), step.parent.as_deref(), step),
            "create_many" => {
                for i in 0..step.count.unwrap() {
                    let name = format!("{}{i}", step.prefix.as_ref().unwrap());
                    self.create(&name, step.parent.as_deref(), step)?;
                }
                Ok(())
            }
            "delete_project" => {
                let (name, power) = actor(step);
                let command = Command::DeleteProject {
                    path: self.path(&project()),
                };
                self.cluster.propose(&name, power, command)?;
                self.paths.remove(&project());
                Ok(())
            }
            "set_limits" => self.set_limits(step),
            "allocate" => self.allocate(step),
            "release" => {
                let id = self.allocations[step.id.as_ref().unwrap()];
                self.cluster.end_all(id, RankExit::Exited { code: 0 });
                Ok(())
            }
            "restart" => {
                self.cluster.state = State::restore(&self.cluster.state.snapshot()).unwrap();
                Ok(())
            }
            "check" => {
                for (name, expected) in step.usage.as_ref().unwrap() {
                    let found = self.cluster.state.project(&self.path(name)).unwrap();
                    assert_eq!(found.limits.max_nodes, expected.limit, "limit of {name}");
                    assert_eq!(found.own.nodes, expected.used, "own usage of {name}");
                    assert_eq!(
                        found.subtree.nodes, expected.hierarchical,
                        "usage below {name}"
                    );
                }
                Ok(())
            }
            "headroom" => {
                let found = self.cluster.state.headroom(&self.path(&project())).unwrap();
                assert_eq!(Some(found), step.value, "headroom of {}", project());
                Ok(())
            }
            other => Err(No::Unsupported(other.to_owned())),
        }
    }
}

fn ceiling<'a>(limits: &'a mut Limits, key: &str) -> &'a mut Option<u64> {
    match key {
        "nodes" => &mut limits.max_nodes,
        "allocations" => &mut limits.max_concurrent_allocations,
        other => panic!("unknown limit {other}"),
    }
}

fn actor(step: &Step) -> (String, Power) {
    match step.actor.as_deref() {
        None | Some("system") => ("system".to_owned(), Power::Admin),
        Some(admin) => (admin.to_owned(), Power::User),
    }
}

/// What a refusal says, in the words of the cases: reason, and each (project, quota).
fn said(refusal: &Refusal, step: &Step) -> (&'static str, BTreeSet<(String, String)>) {
    let mut levels = BTreeSet::new();
    let mut level = |path: &ProjectPath, resource: Resource| {
        levels.insert((path.name().to_owned(), resource.limit_name().to_owned()));
    };
    let reason = match refusal {
        Refusal::LimitExceeded { levels } => {
            levels.iter().for_each(|l| level(&l.path, l.resource));
            "over_limit"
        }
        Refusal::LimitConflict { faults } => {
            let mut reason = "children_exceed_parent";
            for fault in faults {
                match fault {
                    LimitFault::ChildrenExceed {
                        parent, resource, ..
                    } => {
                        level(parent, *resource);
                        let changes = step.changes.iter().flatten();
                        if changes.into_iter().any(|c| c.project == parent.name()) {
                            reason = "below_children";
                        }
                    }
                    LimitFault::MustBeFinite { .. } => reason = "invalid_value",
                }
            }
            reason
        }
        Refusal::UnknownProject { .. } => "unknown_project",
        Refusal::ProjectExists { .. } => "duplicate",
        Refusal::ProjectNotEmpty { .. } => "not_empty",
        Refusal::Forbidden { .. } => "forbidden",
        Refusal::Invalid { .. } => "invalid_value",
        other => panic!("unexpected refusal: {other}"),
    };
    (reason, levels)
}

fn check_refusal(at: &str, step: &Step, refusal: &Refusal) {
    let (reason, levels) = said(refusal, step);
    assert_eq!(Some(reason), step.reason.as_deref(), "{at}: {refusal}");
    let violated = step.violated.clone().unwrap_or_default();
    let wanted: BTreeSet<_> = violated
        .iter()
        .map(|v| (v.project.clone(), v.quota.clone()))
        .collect();
    if reason != "invalid_value" {
        assert_eq!(levels, wanted, "{at}: {refusal}");
    }
    let text = refusal.to_string();
    for v in &violated {
        assert!(
            text.contains(&v.project),
            "{at}: {text:?} does not name {}",
            v.project
        );
    }
    if let Refusal::LimitExceeded { levels } = refusal {
        let found: Vec<_> = levels
            .iter()
            .map(|l| {
                (
                    l.path.name().to_owned(),
                    Some(l.current),
                    Some(l.requested),
                    Some(l.limit),
                )
            })
            .collect();
        let wanted: Vec<_> = violated
            .iter()
            .map(|v| (v.project.clone(), v.current, v.requested, v.limit))
            .collect();
        assert_eq!(found, wanted, "{at}: order and numbers");
    }
}

/// Runs one case; the operation that is missing when it cannot be run.
fn run_case(case: &Case) -> Result<(), String> {
    let (cluster, paths, allocations) = (Cluster::default(), BTreeMap::new(), BTreeMap::new());
    let mut run = Run {
        cluster,
        paths,
        allocations,
    };
    let missing = |step: &Step| {
        let known = [
            "create_project",
            "create_many",
            "delete_project",
            "set_limits",
            "allocate",
            "release",
            "restart",
            "check",
            "headroom",
        ];
        (!known.contains(&step.op.as_str())).then(|| step.op.clone())
    };
    if let Some(op) = case.setup.iter().chain(&case.steps).find_map(missing) {
        return Err(op);
    }
    for (i, step) in case.setup.iter().enumerate() {
        let at = format!("{} setup {i}", case.id);
        match run.run(step) {
            Ok(()) => {}
            Err(No::Refused(refusal)) => panic!("{at}: {refusal}"),
            Err(_) => panic!("{at}: not a command"),
        }
    }
    for root in &case.tree {
        let found = run.cluster.state.project(&run.path(&root.project)).unwrap();
        assert_eq!(
            (found.limits.max_nodes, found.own.nodes),
            (root.limit, root.used),
            "{}: setup does not lead to the tree at {}",
            case.id,
            root.project
        );
    }
    for (i, step) in case.steps.iter().enumerate() {
        let at = format!("{} step {i} ({})", case.id, step.op);
        let before = run.cluster.state.digest();
        let result = run.run(step);
        match (step.expect.as_deref(), result) {
            (Some("accept") | None, Ok(())) => {}
            (Some("reject"), Err(No::Refused(refusal))) => check_refusal(&at, step, &refusal),
            (Some("reject"), Err(No::Unreadable)) => {
                assert_eq!(step.reason.as_deref(), Some("invalid_value"), "{at}");
            }
            (_, Err(No::Refused(refusal))) => panic!("{at}: {refusal}"),
            (_, Ok(())) => panic!("{at}: accepted, but should be refused"),
            (_, Err(No::Unreadable)) => panic!("{at}: not a command"),
            (_, Err(No::Unsupported(op))) => return Err(op),
        }
        if step.expect.as_deref() == Some("reject") && step.op != "allocate" {
            assert_eq!(
                before,
                run.cluster.state.digest(),
                "{at}: a refusal left a trace"
            );
        }
    }
    Ok(())
}

#[test]
fn every_case_of_the_file_comes_out_as_written() {
    let given = std::env::var_os("LATTICE_QUOTA_CASES");
    let file = given.map(std::path::PathBuf::from).unwrap_or_else(|| {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/quota/nested_quota_cases.yaml")
    });
    let text = std::fs::read_to_string(&file).unwrap();
    let File { version, cases } = serde_yaml_ng::from_str(&text).unwrap();
    assert_eq!(version, 1);
    assert!(!cases.is_empty());
    let (mut passed, mut failed, mut not_run) = (0, Vec::new(), Vec::new());
    for case in &cases {
        match std::panic::catch_unwind(|| run_case(case)) {
            Ok(Ok(())) => passed += 1,
            Ok(Err(op)) => not_run.push(format!("{}: not run: needs {op}", case.id)),
            Err(_) => failed.push(format!("{}: {}", case.id, case.title)),
        }
    }
    println!(
        "{} cases: {passed} passed, {} failed, {} not run",
        cases.len(),
        failed.len(),
        not_run.len()
    );
    for line in &not_run {
        println!("  {line}");
    }
    assert!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
    assert!(passed > 0);
}
