//! Cases of nested project limits, on three members and a control. Projects, limits, submits, checks and headroom use
//! REST, with the user that the case names. Placements, reports, growing, shrinking, suspending and resuming are done
//! by a service under its lease, because no hundred agents run here. `LATTICE_QUOTA_CASES` names another file of the
//! same form. The same cases run on the state machine alone, with the same interpreter.

mod rest;
mod service;

use lattice_quorum_types::{AllocationId, Command, allocation::RankExit};
use lattice_tests::{
    quota::{self, Actor, Ceilings, ProjectState, Quorum, Refused},
    site::{Plan, Site},
    wait::eventually,
};
use reqwest::Method;
use rest::Rest;
use serde_json::{Value, json};
use service::Service;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Instant,
};

/// Cluster under test.
struct Cluster {
    site: Site,
    rest: Rest,
    service: Service,
    allocations: BTreeMap<String, AllocationId>,
}

impl Cluster {
    async fn place(&self, id: AllocationId) -> Result<(), Refused> {
        let record = self.service.allocation(id).await;
        let nodes = self.service.free(record.spec.nodes as usize, &[]).await;
        self.service.ask(Command::Assign { id, nodes }).await?;
        self.service.start(id).await;
        Ok(())
    }

    /// Waits until control's view has everything that was proposed directly to the quorum.
    async fn view_follows(&self) {
        let wanted = self.service.hot().await.revision;
        eventually("the control has heard of everything", || async {
            let (status, answer) = self.rest.get("status").await;
            let at = answer["revision"].as_u64().unwrap_or(0);
            (status == 200 && at >= wanted.0).then_some(())
        })
        .await;
    }

    async fn found(&self, path: &str) -> Option<Value> {
        self.view_follows().await;
        match self.rest.get(&format!("projects/{path}")).await {
            (200, answer) => Some(answer),
            (404, _) => None,
            (status, answer) => panic!("{status}: {answer}"),
        }
    }

    /// Ends the allocations of the case, so that the next case has all nodes.
    async fn clear(&mut self) {
        for id in std::mem::take(&mut self.allocations).into_values() {
            let record = self.service.allocation(id).await;
            if record.state.holds() {
                self.service.end(id, &RankExit::Exited { code: 0 }).await;
            } else if !record.state.is_terminal() {
                self.service.ask(Command::Cancel { id }).await.unwrap();
            }
        }
    }
}

/// Limits with their names in the API.
fn body(limits: &Ceilings) -> Value {
    let field = |(key, value): (&String, &quota::Value)| {
        let name = match key.as_str() {
            "nodes" => "max_nodes",
            "allocations" => "max_concurrent_allocations",
            other => other,
        };
        (name.to_owned(), json!(value))
    };
    Value::Object(limits.iter().map(field).collect())
}

impl Quorum for Cluster {
    async fn create(
        &mut self,
        actor: &Actor,
        path: &str,
        limits: &Ceilings,
        admin: &str,
    ) -> Result<(), Refused> {
        let asked = json!({"path": path, "limits": body(limits), "admins": [admin]});
        let (actor, path) = (Some(actor), "projects");
        self.rest
            .ask(actor, Method::POST, path, Some(asked))
            .await?;
        Ok(())
    }

    async fn delete(&mut self, actor: &Actor, path: &str) -> Result<(), Refused> {
        let path = format!("projects/{path}");
        self.view_follows().await;
        let asked = self.rest.ask(Some(actor), Method::DELETE, &path, None);
        asked.await.map(drop)
    }

    async fn set_limits(
        &mut self,
        actor: &Actor,
        changes: &[(String, &Ceilings)],
    ) -> Result<(), Refused> {
        let change = |(path, limits): &(String, &Ceilings)| {
            let mut change = body(limits);
            change["path"] = json!(path);
            change
        };
        let changes: Vec<Value> = changes.iter().map(change).collect();
        let asked = json!({ "changes": changes });
        let asked = self
            .rest
            .ask(Some(actor), Method::PUT, "limits", Some(asked));
        asked.await.map(drop)
    }

    async fn allocate(
        &mut self,
        path: &str,
        nodes: &quota::Value,
        id: &str,
    ) -> Result<(), Refused> {
        let asked = json!({"project": path, "nodes": nodes, "argv": ["/bin/true"]});
        let asked = self
            .rest
            .ask(None, Method::POST, "allocations", Some(asked));
        let number = AllocationId(asked.await?["id"].as_u64().unwrap());
        self.allocations.insert(id.to_owned(), number);
        self.place(number).await
    }

    async fn release(&mut self, id: &str) -> Result<(), Refused> {
        let id = self.allocations[id];
        self.service.end(id, &RankExit::Exited { code: 0 }).await;
        Ok(())
    }

    async fn grow(&mut self, id: &str, by: i64) -> Result<(), Refused> {
        let id = self.allocations[id];
        let record = self.service.allocation(id).await;
        let had: Vec<String> = record.nodes().map(ToString::to_string).collect();
        let nodes = self.service.free(usize::try_from(by).unwrap(), &had).await;
        self.service.ask(Command::Grow { id, nodes }).await?;
        self.service.start(id).await;
        Ok(())
    }

    async fn shrink(&mut self, id: &str, by: i64) -> Result<(), Refused> {
        let id = self.allocations[id];
        let record = self.service.allocation(id).await;
        let kept: Vec<_> = record.kept_nodes().cloned().collect();
        let from = kept.len() - usize::try_from(by).unwrap();
        let nodes = kept[from..].to_vec();
        let command = Command::Shrink {
            id,
            nodes: nodes.clone(),
        };
        self.service.ask(command).await?;
        self.service.ended(id, &nodes, &RankExit::Stopped).await;
        Ok(())
    }

    async fn suspend(&mut self, id: &str) -> Result<(), Refused> {
        let id = self.allocations[id];
        self.service.ask(Command::Suspend { id }).await?;
        self.service.end(id, &RankExit::Stopped).await;
        Ok(())
    }

    async fn resume(&mut self, id: &str) -> Result<(), Refused> {
        let id = self.allocations[id];
        self.service.ask(Command::Resume { id }).await?;
        self.place(id).await
    }

    async fn standing(&mut self, path: &str) -> Option<ProjectState> {
        let found = self.found(path).await?;
        Some(ProjectState {
            max_nodes: found["limits"]["max_nodes"].as_u64(),
            max_allocations: found["limits"]["max_concurrent_allocations"].as_u64(),
            own: found["own"]["nodes"].as_u64().unwrap(),
            below: found["subtree"]["nodes"].as_u64().unwrap(),
        })
    }

    async fn headroom(&mut self, path: &str) -> Option<u64> {
        let (status, answer) = self.rest.get(&format!("projects/{path}/headroom")).await;
        assert_eq!(status, 200, "{answer}");
        answer["nodes"].as_u64()
    }

    async fn restart(&mut self) {
        self.site.quorum.iter_mut().for_each(|member| member.kill());
        self.site
            .quorum
            .iter_mut()
            .for_each(|member| member.start());
        let observer = self.site.observer();
        eventually("the members answer again", || async {
            observer.hot().await
        })
        .await;
        self.site.is_up().await;
        self.service.lease().await;
    }

    async fn everything(&mut self) -> Vec<u8> {
        let hot = self.service.hot().await;
        let projects = hot.projects.iter();
        let projects: Vec<_> = projects
            .map(|p| (&p.path, p.limits, p.own, p.subtree))
            .collect();
        let live: Vec<_> = hot
            .allocations
            .iter()
            .map(|a| (a.id, a.state, &a.ranks))
            .collect();
        format!("{projects:?} {live:?}").into_bytes()
    }
}

fn file() -> PathBuf {
    let own = || {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        tests.join("../fixtures/quota/nested_quota_cases.yaml")
    };
    std::env::var_os("LATTICE_QUOTA_CASES").map_or_else(own, PathBuf::from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_limits_on_three_members_behind_a_control() {
    let text = std::fs::read_to_string(file()).unwrap();
    let file = quota::read(&text).unwrap();
    let prefix = |n: usize| format!("c{n:03}-");
    let cases = || file.cases.iter().enumerate();
    let users = cases().flat_map(|(n, case)| case.users(&prefix(n)));
    let plan = Plan {
        users: users.collect(),
        ..Plan::with_agents(Vec::<String>::new())
    };
    let site = Site::found(lattice_tests::programs!(), &plan).await;
    let nodes = file.cases.iter().map(quota::Case::nodes_at_most).max();
    let service = Service::new(&site).await;
    service.add_nodes(nodes.unwrap_or(0)).await;
    let mut cluster = Cluster {
        rest: Rest::new(&site),
        service,
        site,
        allocations: BTreeMap::new(),
    };
    let (begun, mut failed) = (Instant::now(), Vec::new());
    for (n, case) in cases() {
        if let Err(what) = quota::run(case, &mut cluster, &prefix(n)).await {
            failed.push(format!("{} ({}): {what}", case.id, case.title));
        }
        cluster.clear().await;
    }
    let (all, failures) = (file.cases.len(), failed.len());
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{all} cases on 3 members: {} passed, {failures} failed, {took:.1} s",
        all - failures
    );
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}
