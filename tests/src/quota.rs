//! Runner for the cases of nested project limits in `fixtures/quota/nested_quota_cases.yaml`. The cases run against a
//! [`Quorum`]: the state machine alone, or a cluster with its public interfaces. This module defines the meaning of the
//! file's words once.
//!
//! Mapping: each root is a tenant; `allocate` is a submit followed by a placement; `release` means that every rank
//! exits with 0; `actor: admin:X` is a user with administrator rights on project X.

use serde::Deserialize;
pub use serde_yaml_ng::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// Limits by the file's names: `nodes`, `allocations`. `null` removes a limit. Invalid names and values are kept,
/// because the tested side must refuse them.
pub type Ceilings = BTreeMap<String, Value>;

/// File of cases.
#[derive(Debug, Deserialize)]
pub struct File {
    version: u32,
    /// Cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// One case: a tree of projects, its setup, and the tested steps.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// Id of the case.
    pub id: String,
    /// Title of the case.
    pub title: String,
    #[serde(default)]
    tree: Vec<QuotaProject>,
    #[serde(default)]
    setup: Vec<Step>,
    steps: Vec<Step>,
}

/// Project after the setup.
#[derive(Debug, Deserialize)]
struct QuotaProject {
    project: String,
    limit: Option<u64>,
    #[serde(default)]
    used: u64,
    max_allocations: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Step {
    op: String,
    project: Option<String>,
    parent: Option<String>,
    limits: Option<Ceilings>,
    #[serde(default)]
    changes: Vec<Change>,
    nodes: Option<Value>,
    by: Option<i64>,
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

#[derive(Debug, Deserialize)]
struct Change {
    project: String,
    limits: Ceilings,
}

#[derive(Debug, Deserialize)]
struct Usage {
    limit: Option<u64>,
    used: u64,
    hierarchical: u64,
}

/// Level with a limit that refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Violated {
    /// Path of the project; in the file, its name.
    pub project: String,
    /// Name of the limit.
    pub quota: String,
    /// Usage before the request.
    pub current: Option<u64>,
    /// Requested amount.
    pub requested: Option<u64>,
    /// Value of the limit.
    pub limit: Option<u64>,
}

/// State of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectState {
    /// `max_nodes` of the project.
    pub max_nodes: Option<u64>,
    /// `max_concurrent_allocations` of the project.
    pub max_allocations: Option<u64>,
    /// Nodes used by the project itself.
    pub own: u64,
    /// Nodes used by all projects below it.
    pub below: u64,
}

/// Kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request would exceed limits.
    OverLimit,
    /// The limits would contradict each other.
    LimitsConflict,
    /// The project does not exist.
    UnknownProject,
    /// The project already exists.
    Exists,
    /// The project has children or allocations.
    NotEmpty,
    /// The actor lacks the permission.
    Forbidden,
    /// The request can never be valid.
    Invalid,
}

/// Refusal.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Kind of the refusal.
    pub kind: Kind,
    /// Text of the refusal.
    pub text: String,
    /// Levels in the refusal, in its order, with their paths.
    pub levels: Vec<Violated>,
}

/// Actor of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// The system administrator.
    System,
    /// User of this name, an administrator of the projects that list the user.
    User(String),
}

/// Tested side of the cases. Projects are given by path, allocations by the id of [`Quorum::allocate`].
#[allow(
    async_fn_in_trait,
    reason = "awaited where it is called, in tests alone; a lint only where this module is public"
)]
pub trait Quorum {
    /// Creates a project with these limits and one administrator; limits that are not named are closed.
    async fn create(
        &mut self,
        actor: &Actor,
        path: &str,
        limits: &Ceilings,
        admin: &str,
    ) -> Result<(), Refused>;
    /// Deletes an empty project.
    async fn delete(&mut self, actor: &Actor, path: &str) -> Result<(), Refused>;
    /// Changes limits, all or none.
    async fn set_limits(
        &mut self,
        actor: &Actor,
        changes: &[(String, &Ceilings)],
    ) -> Result<(), Refused>;
    /// Submits and places an allocation.
    async fn allocate(&mut self, path: &str, nodes: &Value, id: &str) -> Result<(), Refused>;
    /// Ends an allocation: every rank exits with 0.
    async fn release(&mut self, id: &str) -> Result<(), Refused>;
    /// Adds nodes to an allocation.
    async fn grow(&mut self, id: &str, by: i64) -> Result<(), Refused>;
    /// Removes nodes from an allocation.
    async fn shrink(&mut self, id: &str, by: i64) -> Result<(), Refused>;
    /// Suspends an allocation, which loses its nodes.
    async fn suspend(&mut self, id: &str) -> Result<(), Refused>;
    /// Resumes an allocation: it requests nodes again and gets them.
    async fn resume(&mut self, id: &str) -> Result<(), Refused>;
    /// State of a project; `None` where it does not exist.
    async fn standing(&mut self, path: &str) -> Option<ProjectState>;
    /// Largest request that would be accepted now; `None`: unlimited.
    async fn headroom(&mut self, path: &str) -> Option<u64>;
    /// Stops all members and starts them again.
    async fn restart(&mut self);
    /// The whole state, to check that a refusal changed nothing.
    async fn everything(&mut self) -> Vec<u8>;
}

/// Parses a file of cases.
///
/// # Errors
/// The reason why the text is not valid.
pub fn read(text: &str) -> Result<File, String> {
    let file: File = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    match (file.version, file.cases.len()) {
        (1, 0) => Err("there are no cases in it".to_owned()),
        (1, _) => Ok(file),
        (version, _) => Err(format!("version {version} is not known; 1 is")),
    }
}

impl Case {
    /// All steps of the case, with its setup.
    fn named(&self) -> impl Iterator<Item = &Step> {
        self.setup.iter().chain(&self.steps)
    }

    /// Upper bound of the nodes held at a time, if no step were refused.
    pub fn nodes_at_most(&self) -> u64 {
        let asked = self.named().filter_map(|step| match step.op.as_str() {
            "allocate" => step.nodes.as_ref().and_then(Value::as_u64),
            "grow" => step.by.and_then(|by| u64::try_from(by).ok()),
            _ => None,
        });
        asked.filter(|nodes| *nodes < 100_000).sum()
    }

    /// Users that act in the case, with their names under `prefix`.
    pub fn users(&self, prefix: &str) -> BTreeSet<String> {
        let actors = self.named().map(|step| step.actor(prefix));
        let user = |actor| match actor {
            Actor::System => None,
            Actor::User(name) => Some(name),
        };
        actors.filter_map(user).collect()
    }
}

/// Runs one case. Names of tenants get the prefix `prefix`, which keeps cases apart.
///
/// # Errors
/// The first step with another outcome than written.
pub async fn run(case: &Case, quorum: &mut impl Quorum, prefix: &str) -> Result<(), String> {
    let mut run = Run {
        quorum,
        prefix,
        paths: BTreeMap::new(),
    };
    for (n, step) in case.setup.iter().enumerate() {
        if let Err(refused) = run.step(step).await? {
            return Err(format!("setup {n} ({}): {}", step.op, refused.text));
        }
    }
    for planted in &case.tree {
        run.check_planted(planted).await?;
    }
    for (n, step) in case.steps.iter().enumerate() {
        let outcome = run.expect(step).await;
        outcome.map_err(|what| format!("step {n} ({}): {what}", step.op))?;
    }
    Ok(())
}

impl Step {
    fn actor(&self, prefix: &str) -> Actor {
        match self.actor.as_deref() {
            None | Some("system") => Actor::System,
            Some(admin) => Actor::User(admin.replace(':', &format!("-{prefix}"))),
        }
    }
}

struct Run<'a, Q> {
    quorum: &'a mut Q,
    prefix: &'a str,
    paths: BTreeMap<String, String>,
}

impl<Q: Quorum> Run<'_, Q> {
    /// Path of a project; for a project that was never created, the path of a tenant of its name.
    fn path(&self, name: &str) -> String {
        let made = self.paths.get(name).cloned();
        made.unwrap_or_else(|| format!("{}{name}", self.prefix))
    }

    fn place(&self, name: &str, parent: Option<&str>) -> String {
        match parent {
            None => format!("{}{name}", self.prefix),
            Some(parent) => format!("{}/{name}", self.path(parent)),
        }
    }

    async fn check_planted(&mut self, planted: &QuotaProject) -> Result<(), String> {
        let name = &planted.project;
        let found = self.quorum.standing(&self.path(name)).await;
        let found = found.ok_or_else(|| format!("the setup makes no {name}"))?;
        let wanted = ProjectState {
            max_nodes: planted.limit,
            max_allocations: planted.max_allocations.or(found.max_allocations),
            own: planted.used,
            below: found.below,
        };
        match found == wanted {
            true => Ok(()),
            false => Err(format!(
                "the setup leaves {name} at {found:?}, not {wanted:?}"
            )),
        }
    }

    async fn expect(&mut self, step: &Step) -> Result<(), String> {
        let rejects = step.expect.as_deref() == Some("reject");
        let before = match rejects {
            true => self.quorum.everything().await,
            false => Vec::new(),
        };
        match (rejects, self.step(step).await?) {
            (false, Ok(())) => Ok(()),
            (false, Err(refused)) => Err(format!("refused: {}", refused.text)),
            (true, Ok(())) => Err("accepted, but should be refused".to_owned()),
            (true, Err(refused)) => {
                self.check_refused(step, &refused)?;
                match before == self.quorum.everything().await {
                    true => Ok(()),
                    false => Err("the refusal left a trace".to_owned()),
                }
            }
        }
    }

    /// Runs one step. The outer error is an error of the file, or a failed check.
    async fn step(&mut self, step: &Step) -> Result<Result<(), Refused>, String> {
        let missing = |field: &str| format!("it has no {field}");
        let project = || step.project.as_deref().ok_or_else(|| missing("project"));
        let id = || step.id.as_deref().ok_or_else(|| missing("id"));
        let by = || step.by.ok_or_else(|| missing("by"));
        let actor = step.actor(self.prefix);
        let none = Ceilings::new();
        let limits = step.limits.as_ref().unwrap_or(&none);
        Ok(match step.op.as_str() {
            "create_project" => {
                let (name, parent) = (project()?, step.parent.as_deref());
                self.create(&actor, name, parent, limits).await
            }
            "create_many" => {
                let prefix = step.prefix.as_deref().ok_or_else(|| missing("prefix"))?;
                for n in 0..step.count.ok_or_else(|| missing("count"))? {
                    let (name, parent) = (format!("{prefix}{n}"), step.parent.as_deref());
                    if let Err(refused) = self.create(&actor, &name, parent, limits).await {
                        return Ok(Err(refused));
                    }
                }
                Ok(())
            }
            "delete_project" => {
                let name = project()?;
                let deleted = self.quorum.delete(&actor, &self.path(name)).await;
                if deleted.is_ok() {
                    self.paths.remove(name);
                }
                deleted
            }
            "set_limits" => {
                let changes = step.changes.iter();
                let changes = changes.map(|change| (self.path(&change.project), &change.limits));
                let changes: Vec<_> = changes.collect();
                self.quorum.set_limits(&actor, &changes).await
            }
            "allocate" => {
                let nodes = step.nodes.as_ref().ok_or_else(|| missing("nodes"))?;
                let path = self.path(project()?);
                self.quorum.allocate(&path, nodes, id()?).await
            }
            "release" => self.quorum.release(id()?).await,
            "grow" => self.quorum.grow(id()?, by()?).await,
            "shrink" => self.quorum.shrink(id()?, by()?).await,
            "suspend" => self.quorum.suspend(id()?).await,
            "resume" => self.quorum.resume(id()?).await,
            "restart" => {
                self.quorum.restart().await;
                Ok(())
            }
            "check" => {
                let usage = step.usage.as_ref().ok_or_else(|| missing("usage"))?;
                for (name, wanted) in usage {
                    self.check_usage(name, wanted).await?;
                }
                Ok(())
            }
            "headroom" => {
                let name = project()?;
                let found = self.quorum.headroom(&self.path(name)).await;
                if found != step.value {
                    return Err(format!(
                        "{name} has room for {found:?}, not {:?}",
                        step.value
                    ));
                }
                Ok(())
            }
            other => return Err(format!("there is no operation {other}")),
        })
    }

    async fn create(
        &mut self,
        actor: &Actor,
        name: &str,
        parent: Option<&str>,
        limits: &Ceilings,
    ) -> Result<(), Refused> {
        let path = self.place(name, parent);
        let admin = format!("admin-{}{name}", self.prefix);
        self.quorum.create(actor, &path, limits, &admin).await?;
        self.paths.insert(name.to_owned(), path);
        Ok(())
    }

    async fn check_usage(&mut self, name: &str, wanted: &Usage) -> Result<(), String> {
        let found = self.quorum.standing(&self.path(name)).await;
        let found = found.ok_or_else(|| format!("there is no {name}"))?;
        let (limit, own, below) = (found.max_nodes, found.own, found.below);
        let as_wanted = limit == wanted.limit && own == wanted.used && below == wanted.hierarchical;
        match as_wanted {
            true => Ok(()),
            false => Err(format!("{name} is at {found:?}, not {wanted:?}")),
        }
    }

    fn check_refused(&self, step: &Step, refused: &Refused) -> Result<(), String> {
        let reason = self.word(step, refused);
        if step.reason.as_deref() != Some(reason) {
            let wanted = step.reason.as_deref().unwrap_or("no reason");
            return Err(format!("{reason}, not {wanted}: {}", refused.text));
        }
        let violated = step.violated.as_deref().unwrap_or_default();
        let names_numbers = refused.kind == Kind::OverLimit;
        let wanted = violated.iter().map(|level| Violated {
            project: self.path(&level.project),
            ..level.clone()
        });
        let wanted: Vec<Violated> = wanted.collect();
        let same = match refused.kind {
            Kind::OverLimit => refused.levels == wanted,
            Kind::LimitsConflict => names(&refused.levels) == names(&wanted),
            _ => true,
        };
        let mut faults = String::new();
        if !same {
            let _ = write!(faults, "it names {:?}, not {wanted:?}; ", refused.levels);
        }
        for level in violated
            .iter()
            .filter(|_| names_numbers || refused.kind == Kind::LimitsConflict)
        {
            if !refused.text.contains(&level.project) {
                let _ = write!(faults, "its text does not name {}; ", level.project);
            }
        }
        match faults.is_empty() {
            true => Ok(()),
            false => Err(format!("{faults}it said: {}", refused.text)),
        }
    }

    /// Returns the file's word for a refusal.
    fn word(&self, step: &Step, refused: &Refused) -> &'static str {
        match refused.kind {
            Kind::OverLimit => "over_limit",
            Kind::LimitsConflict => {
                // The parent was lowered below its children, unless the children were raised.
                let changed = |level: &Violated| {
                    let mut changes = step.changes.iter();
                    changes.any(|change| self.path(&change.project) == level.project)
                };
                match refused.levels.iter().any(changed) {
                    true => "below_children",
                    false => "children_exceed_parent",
                }
            }
            Kind::UnknownProject => "unknown_project",
            Kind::Exists => "duplicate",
            Kind::NotEmpty => "not_empty",
            Kind::Forbidden => "forbidden",
            Kind::Invalid => "invalid_value",
        }
    }
}

fn names(levels: &[Violated]) -> BTreeSet<(&str, &str)> {
    let name = |level| {
        let Violated { project, quota, .. }: &Violated = level;
        (project.as_str(), quota.as_str())
    };
    levels.iter().map(name).collect()
}
