//! The cases for limits in a tree of projects, as `fixtures/quota/nested_quota_cases.yaml` writes them,
//! and what runs them. Whom they ask is a [`Quorum`]: the state machine by itself, or a cluster over its
//! public interfaces; what the words of the file mean is here, once.
//!
//! The mapping: each root is a tenant; `allocate` is a submit that is then placed; `release` is
//! every rank exiting 0; `actor: admin:X` is a user who administers project X.

use serde::Deserialize;
pub use serde_yaml_ng::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// Ceilings by the file's names: `nodes`, `allocations`. `null` lifts one. What is no number of
/// nodes, or no name of a ceiling, is kept as it is: whoever is asked must refuse it.
pub type Ceilings = BTreeMap<String, Value>;

/// A file of cases.
#[derive(Debug, Deserialize)]
pub struct File {
    version: u32,
    /// In their order.
    pub cases: Vec<Case>,
}

/// One of them: a tree, how to come to it, and what happens then.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// Its name.
    pub id: String,
    /// What it shows.
    pub title: String,
    #[serde(default)]
    tree: Vec<Planted>,
    #[serde(default)]
    setup: Vec<Step>,
    steps: Vec<Step>,
}

/// A project as the setup leaves it.
#[derive(Debug, Deserialize)]
struct Planted {
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

/// A level that refuses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Violated {
    /// Its project's path; in the file, its name.
    pub project: String,
    /// The limit.
    pub quota: String,
    /// What counted before.
    pub current: Option<u64>,
    /// What was asked for.
    pub requested: Option<u64>,
    /// The ceiling.
    pub limit: Option<u64>,
}

/// A project as it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its `max_nodes`.
    pub max_nodes: Option<u64>,
    /// Its `max_concurrent_allocations`.
    pub max_allocations: Option<u64>,
    /// Nodes it uses itself.
    pub own: u64,
    /// Nodes that everything below it uses.
    pub below: u64,
}

/// What kind of "no" it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Limits would be exceeded.
    OverLimit,
    /// Limits would contradict each other.
    LimitsConflict,
    /// No such project.
    UnknownProject,
    /// It exists already.
    Exists,
    /// It has children or allocations.
    NotEmpty,
    /// The actor may not.
    Forbidden,
    /// What was asked can never be.
    Invalid,
}

/// A "no".
#[derive(Debug, Clone)]
pub struct Refused {
    /// Of which kind.
    pub kind: Kind,
    /// As it is told.
    pub text: String,
    /// The levels it names, in its order, by their paths.
    pub levels: Vec<Violated>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// The system's administrator.
    System,
    /// A user of this name, who administers what names them.
    User(String),
}

/// Whom the cases ask. Projects are named by their paths, allocations by what [`Quorum::allocate`]
/// called them.
#[allow(
    async_fn_in_trait,
    reason = "awaited where it is called, in tests alone; a lint only where this module is public"
)]
pub trait Quorum {
    /// A project, closed but for `limits`.
    async fn create(
        &mut self,
        actor: &Actor,
        path: &str,
        limits: &Ceilings,
        admin: &str,
    ) -> Result<(), Refused>;
    /// An empty project goes.
    async fn delete(&mut self, actor: &Actor, path: &str) -> Result<(), Refused>;
    /// All or none.
    async fn set_limits(
        &mut self,
        actor: &Actor,
        changes: &[(String, &Ceilings)],
    ) -> Result<(), Refused>;
    /// Submits and places.
    async fn allocate(&mut self, path: &str, nodes: &Value, id: &str) -> Result<(), Refused>;
    /// Every rank exits 0.
    async fn release(&mut self, id: &str) -> Result<(), Refused>;
    /// So many nodes more.
    async fn grow(&mut self, id: &str, by: i64) -> Result<(), Refused>;
    /// So many nodes less, given back.
    async fn shrink(&mut self, id: &str, by: i64) -> Result<(), Refused>;
    /// Off its nodes.
    async fn suspend(&mut self, id: &str) -> Result<(), Refused>;
    /// Asks for nodes again, and gets them.
    async fn resume(&mut self, id: &str) -> Result<(), Refused>;
    /// A project as it is; `None` where there is none.
    async fn standing(&mut self, path: &str) -> Option<Standing>;
    /// The largest request that would be accepted now; `None`: any.
    async fn headroom(&mut self, path: &str) -> Option<u64>;
    /// All members stop and start again.
    async fn restart(&mut self);
    /// Everything it knows, to see whether a refusal left a trace.
    async fn everything(&mut self) -> Vec<u8>;
}

/// The cases in a text.
///
/// # Errors
/// What it cannot be read as.
pub fn read(text: &str) -> Result<File, String> {
    let file: File = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    match (file.version, file.cases.len()) {
        (1, 0) => Err("there are no cases in it".to_owned()),
        (1, _) => Ok(file),
        (version, _) => Err(format!("version {version} is not known; 1 is")),
    }
}

impl Case {
    /// Every project that the case names as somebody's child or root.
    fn named(&self) -> impl Iterator<Item = &Step> {
        self.setup.iter().chain(&self.steps)
    }

    /// The most nodes that it could hold at a time, if nothing were refused.
    pub fn nodes_at_most(&self) -> u64 {
        let asked = self.named().filter_map(|step| match step.op.as_str() {
            "allocate" => step.nodes.as_ref().and_then(Value::as_u64),
            "grow" => step.by.and_then(|by| u64::try_from(by).ok()),
            _ => None,
        });
        asked.filter(|nodes| *nodes < 100_000).sum()
    }

    /// Users who ask something in it, where its names stand behind `prefix`.
    pub fn users(&self, prefix: &str) -> BTreeSet<String> {
        let actors = self.named().map(|step| step.actor(prefix));
        let user = |actor| match actor {
            Actor::System => None,
            Actor::User(name) => Some(name),
        };
        actors.filter_map(user).collect()
    }
}

/// Runs one case: its names stand below, or for tenants are prefixed by, `prefix`.
///
/// # Errors
/// Every step that did not come out as written, one line each.
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
        let told = run.expect(step).await;
        told.map_err(|what| format!("step {n} ({}): {what}", step.op))?;
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
    /// Where a project is; of one that was never made, where its tenant would be.
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

    async fn check_planted(&mut self, planted: &Planted) -> Result<(), String> {
        let name = &planted.project;
        let found = self.quorum.standing(&self.path(name)).await;
        let found = found.ok_or_else(|| format!("the setup makes no {name}"))?;
        let wanted = Standing {
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

    /// Takes one step; the outer error is one of the file or of what was found.
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

    /// The file's word for a refusal.
    fn word(&self, step: &Step, refused: &Refused) -> &'static str {
        match refused.kind {
            Kind::OverLimit => "over_limit",
            Kind::LimitsConflict => {
                // Lowered below its children, unless it was them that were raised.
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
