//! Cases for nested limits in `fixtures/quota/nested_quota_cases.yaml`, run against the state machine.
//! `LATTICE_QUOTA_CASES` names another file of the same form. `lattice-tests` runs them with the same interpreter on a
//! cluster (`nested_limits`).
#![expect(clippy::disallowed_methods, reason = "reads its cases from a file")]

#[path = "../../../../tests/src/quota.rs"]
#[expect(dead_code, reason = "other runs use a part")]
mod quota;

use crate::common::{self, Cluster, path};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, Command, NodeId, ProjectPath, Refusal,
    allocation::RankExit,
    command::{LimitChange, Privilege, RankReport},
    limit::{LimitPatch, Patch, Resource},
    limit_policy::LimitFault,
};
use quota::{Actor, Ceilings, Kind, ProjectState, Quorum, Refused, Value, Violated};
use std::{
    collections::BTreeMap,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// The state machine without a cluster.
#[derive(Default)]
struct LocalState {
    cluster: Cluster,
    allocations: BTreeMap<String, AllocationId>,
}

impl LocalState {
    fn ask(&mut self, actor: &Actor, command: Command) -> Result<(), Refused> {
        let (name, power) = match actor {
            Actor::System => ("system", Privilege::Admin),
            Actor::User(name) => (name.as_str(), Privilege::User),
        };
        let asked = self.cluster.propose(name, power, command);
        asked.map(drop).map_err(|refusal| refused(&refusal))
    }

    fn place(&mut self, id: AllocationId) -> Result<(), Refused> {
        let assigned = self.cluster.assign(id);
        assigned.map_err(|refusal| refused(&refusal))?;
        self.cluster.start_all(id);
        Ok(())
    }

    /// The last `by` of the nodes that it keeps.
    fn last(&self, id: AllocationId, by: usize) -> Vec<NodeId> {
        let record = self.cluster.state.allocation(id).unwrap();
        let kept: Vec<_> = record.kept_nodes().cloned().collect();
        kept[kept.len() - by..].to_vec()
    }
}

impl Quorum for LocalState {
    async fn create(
        &mut self,
        actor: &Actor,
        at: &str,
        limits: &Ceilings,
        admin: &str,
    ) -> Result<(), Refused> {
        let command = Command::NewProject {
            path: path(at),
            limits: patch(limits)?,
            admins: vec![admin.to_owned()],
            description: String::new(),
        };
        self.ask(actor, command)
    }

    async fn delete(&mut self, actor: &Actor, at: &str) -> Result<(), Refused> {
        self.ask(actor, Command::DeleteProject { path: path(at) })
    }

    async fn set_limits(
        &mut self,
        actor: &Actor,
        changes: &[(String, &Ceilings)],
    ) -> Result<(), Refused> {
        let change = |(at, limits): &(String, &Ceilings)| {
            let (path, patch) = (path(at), patch(limits)?);
            Ok(LimitChange { path, patch })
        };
        let changes = changes.iter().map(change).collect::<Result<_, Refused>>()?;
        self.ask(actor, Command::SetLimits { changes })
    }

    async fn allocate(&mut self, at: &str, nodes: &Value, id: &str) -> Result<(), Refused> {
        let nodes = nodes.as_u64().and_then(|nodes| u32::try_from(nodes).ok());
        let nodes = nodes.ok_or_else(|| unreadable("nodes"))?;
        let missing = (nodes as usize).saturating_sub(self.cluster.state.nodes().count());
        if missing < 10_000 {
            self.cluster.add_nodes(missing);
        }
        let submitted = self.cluster.submit(common::spec(at, nodes));
        let submitted = submitted.map_err(|refusal| refused(&refusal))?;
        self.place(submitted)?;
        self.allocations.insert(id.to_owned(), submitted);
        Ok(())
    }

    async fn release(&mut self, id: &str) -> Result<(), Refused> {
        let id = self.allocations[id];
        self.cluster.end_all(id, RankExit::Exited { code: 0 });
        Ok(())
    }

    async fn grow(&mut self, id: &str, by: i64) -> Result<(), Refused> {
        let by = usize::try_from(by).map_err(|_| unreadable("by"))?;
        let id = self.allocations[id];
        // Nodes that it released are excluded: a node gets only one rank per attempt.
        self.cluster.add_nodes(by);
        let had = self.cluster.nodes_of(id);
        let mut nodes = self.cluster.free(usize::MAX);
        nodes.retain(|chosen| !had.contains(&chosen.node));
        nodes.truncate(by);
        let command = Command::Grow {
            id,
            nodes: nodes.clone(),
        };
        self.ask(&Actor::System, command)?;
        for chosen in nodes {
            let at = self.cluster.now();
            let report = RankReport::Started { at };
            self.cluster.report(id, &chosen.node, report).unwrap();
        }
        Ok(())
    }

    async fn shrink(&mut self, id: &str, by: i64) -> Result<(), Refused> {
        let by = usize::try_from(by).map_err(|_| unreadable("by"))?;
        let id = self.allocations[id];
        let nodes = self.last(id, by);
        let command = Command::Shrink {
            id,
            nodes: nodes.clone(),
        };
        self.ask(&Actor::System, command)?;
        for node in nodes {
            assert!(self.cluster.state.node(&node).unwrap().holder.is_some());
            let (at, exit, fault) = (self.cluster.now(), RankExit::Stopped, None);
            let report = RankReport::Ended { at, exit, fault };
            self.cluster.report(id, &node, report).unwrap();
        }
        Ok(())
    }

    async fn suspend(&mut self, id: &str) -> Result<(), Refused> {
        let id = self.allocations[id];
        self.ask(&Actor::System, Command::Suspend { id })?;
        self.cluster.end_all(id, RankExit::Stopped);
        Ok(())
    }

    async fn resume(&mut self, id: &str) -> Result<(), Refused> {
        let id = self.allocations[id];
        self.ask(&Actor::System, Command::Resume { id })?;
        self.place(id)
    }

    async fn standing(&mut self, at: &str) -> Option<ProjectState> {
        let found = self.cluster.state.project(&path(at))?;
        Some(ProjectState {
            max_nodes: found.limits.max_nodes,
            max_allocations: found.limits.max_concurrent_allocations,
            own: found.own.nodes,
            below: found.subtree.nodes,
        })
    }

    async fn headroom(&mut self, at: &str) -> Option<u64> {
        self.cluster.state.headroom(&path(at)).unwrap().nodes
    }

    async fn restart(&mut self) {
        self.cluster.state = State::restore(&self.cluster.state.snapshot()).unwrap();
    }

    /// Nodes are left out, since submitting more nodes than exist adds nodes first.
    async fn everything(&mut self) -> Vec<u8> {
        let projects = self.cluster.state.projects();
        let projects: Vec<_> = projects
            .map(|p| (&p.path, p.limits, p.own, p.subtree))
            .collect();
        let held = self
            .cluster
            .state
            .live_allocations()
            .filter(|a| a.state.holds());
        let held: Vec<_> = held.map(|a| (a.id, &a.ranks)).collect();
        format!("{projects:?} {held:?}").into_bytes()
    }
}

fn patch(limits: &Ceilings) -> Result<LimitPatch, Refused> {
    let mut patch = LimitPatch::default();
    for (key, value) in limits {
        let value = match value {
            Value::Null => Patch::Unlimited,
            value => Patch::Set(value.as_u64().ok_or_else(|| unreadable(key))?),
        };
        match key.as_str() {
            "nodes" => patch.max_nodes = value,
            "allocations" => patch.max_concurrent_allocations = value,
            other => return Err(unreadable(other)),
        }
    }
    Ok(patch)
}

/// A value that no command can express and that the edge rejects.
fn unreadable(field: &str) -> Refused {
    Refused {
        kind: Kind::Invalid,
        text: format!("{field} cannot be that"),
        levels: Vec::new(),
    }
}

fn refused(refusal: &Refusal) -> Refused {
    let named = |path: &ProjectPath, resource: Resource| Violated {
        project: path.to_string(),
        quota: resource.limit_name().to_owned(),
        current: None,
        requested: None,
        limit: None,
    };
    let mut levels = Vec::new();
    let kind = match refusal {
        Refusal::LimitExceeded { levels: found, .. } => {
            levels.extend(found.iter().map(|level| Violated {
                current: Some(level.current),
                requested: Some(level.requested),
                limit: Some(level.limit),
                ..named(&level.path, level.resource)
            }));
            Kind::OverLimit
        }
        Refusal::LimitConflict { faults } => {
            let mut kind = Kind::LimitsConflict;
            for fault in faults {
                match fault {
                    LimitFault::ChildrenExceed {
                        parent, resource, ..
                    } => levels.push(named(parent, *resource)),
                    LimitFault::MustBeFinite { .. } => kind = Kind::Invalid,
                }
            }
            kind
        }
        Refusal::UnknownProject { .. } => Kind::UnknownProject,
        Refusal::ProjectExists { .. } => Kind::Exists,
        Refusal::ProjectNotEmpty { .. } => Kind::NotEmpty,
        Refusal::Forbidden { .. } => Kind::Forbidden,
        Refusal::Invalid { .. } => Kind::Invalid,
        other => panic!("unexpected refusal: {other}"),
    };
    Refused {
        kind,
        text: refusal.to_string(),
        levels,
    }
}

/// Runs a future that never waits.
fn now<T>(asked: impl Future<Output = T>) -> T {
    match pin!(asked).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the state machine waits for nothing"),
    }
}

#[test]
fn every_case_of_the_file_comes_out_as_written() {
    let given = std::env::var_os("LATTICE_QUOTA_CASES");
    let file = given.map(std::path::PathBuf::from).unwrap_or_else(|| {
        let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = |folder: &std::path::Path| folder.join("fixtures/quota/nested_quota_cases.yaml");
        own.ancestors()
            .map(file)
            .find(|file| file.exists())
            .unwrap()
    });
    let text = std::fs::read_to_string(&file).unwrap();
    let file = quota::read(&text).unwrap();
    let mut failed = Vec::new();
    for case in &file.cases {
        if let Err(what) = now(quota::run(case, &mut LocalState::default(), "")) {
            failed.push(format!("{} ({}): {what}", case.id, case.title));
        }
    }
    let (all, failures) = (file.cases.len(), failed.len());
    println!("{all} cases: {} passed, {failures} failed", all - failures);
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}
