//! Jobs on a site: submission, hooks, states, and remaining processes.

use super::{PROJECT, Site, plan::Hook};
use crate::{
    procs,
    script::with_interpreter,
    wait::{LOOK_EVERY, PATIENCE},
};
use lattice_api::{AllocationRequest, allocation::ConstraintsBody, node::NodeView};
use lattice_client::{AllocationView, ClientError, SubmitOptions};
use lattice_quorum_types::AllocationId;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

impl Site {
    /// Request for one node that runs a script of the shell, or of the interpreter in its first line.
    pub fn request(&self, node: Option<&str>, script: &str) -> AllocationRequest {
        AllocationRequest {
            project: PROJECT.to_owned(),
            nodes: 1,
            script: Some(with_interpreter(script)),
            env: [(procs::SITE_VARIABLE.to_owned(), self.name().to_owned())].into(),
            walltime: Some("30m".to_owned()),
            constraints: ConstraintsBody {
                nodelist: node.map(str::to_owned),
                ..ConstraintsBody::default()
            },
            ..AllocationRequest::default()
        }
    }

    /// Submits a script for one node, as the administrator.
    pub async fn submit(&self, node: &str, script: &str) -> AllocationId {
        self.submit_request(&self.request(Some(node), script)).await
    }

    /// Submits a request. While the quorum is unavailable, the submit is repeated with its key, as clients do.
    ///
    /// # Panics
    /// When the request is refused, or the quorum is unavailable for longer than [`PATIENCE`].
    pub async fn submit_request(&self, request: &AllocationRequest) -> AllocationId {
        let key = format!("test-{:032x}", rand::random::<u128>());
        let begun = Instant::now();
        loop {
            let options = SubmitOptions {
                key: Some(key.clone()),
                dry_run: false,
            };
            match self.api().submit(request, options).await {
                Err(ClientError::Unavailable(_)) if begun.elapsed() < PATIENCE => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                submitted => return submitted.unwrap().id.unwrap(),
            }
        }
    }

    fn hook_file(&self, node: &str, hook: Hook, end: &str) -> PathBuf {
        self.path(&format!("hooks/{node}.{}.{end}", hook.word()))
    }

    /// Holds the hook on that node from now on.
    pub fn hold(&self, node: &str, hook: Hook) {
        fs::write(self.hook_file(node, hook, "hold"), "").unwrap();
    }

    /// Releases the hook.
    pub fn let_go(&self, node: &str, hook: Hook) {
        let _ = fs::remove_file(self.hook_file(node, hook, "hold"));
    }

    /// Whether the hook runs, or was killed while it ran.
    pub fn is_in(&self, node: &str, hook: Hook) -> bool {
        self.hook_file(node, hook, "here").exists()
    }

    /// Whether a process of an allocation lives.
    pub fn job_lives(&self, id: AllocationId) -> bool {
        procs::of_site(self.name())
            .values()
            .any(|of| of.allocation == id.0)
    }

    /// Waits until the API reports an allocation in one of these states.
    pub async fn reaches(&self, id: AllocationId, states: &[&str]) -> AllocationView {
        let begun = Instant::now();
        loop {
            let found = self.api().allocation(id).await;
            if let Ok(view) = &found
                && states.contains(&view.state.as_str())
            {
                return found.unwrap();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "allocation {id} did not become {states:?}: {found:?}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the API reports these nodes as ready, alive and without a holder.
    pub async fn are_ready(&self, nodes: &[String]) {
        let begun = Instant::now();
        loop {
            let all = self.api().nodes().await.unwrap_or_default();
            let missing: Vec<String> = nodes
                .iter()
                .filter_map(|name| what_is_missing(name, &all))
                .collect();
            if missing.is_empty() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "not ready: {missing:#?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Folder in which an agent records an attempt.
    pub fn attempt_folder(&self, node: &str, id: AllocationId, attempt: u32) -> PathBuf {
        self.path(&format!("agent-{node}/executor/attempts/{id}.{attempt}"))
    }

    /// Current supervisor of an attempt.
    pub fn supervisor(&self, node: &str, id: AllocationId, attempt: u32) -> Option<procs::Process> {
        procs::naming(&self.attempt_folder(node, id, attempt)).pop()
    }

    /// Waits until no supervisor and no process of a job lives. A supervisor ends shortly after it recorded the end of
    /// its rank, and the node is already free by then.
    pub async fn leaves_nothing(&self) {
        let begun = Instant::now();
        loop {
            let left = self.jobs_left();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "these live on: {left:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Live supervisors and processes of jobs.
    fn jobs_left(&self) -> Vec<procs::Process> {
        let mut left: Vec<_> = procs::of_site(self.name()).into_keys().collect();
        let ours = procs::naming(self.folder.path());
        let supervisors = procs::naming(Path::new("/executor/attempts/"));
        left.extend(supervisors.into_iter().filter(|found| ours.contains(found)));
        left
    }
}

/// Returns the reason why a node is not ready, alive and free.
fn what_is_missing(name: &str, all: &[NodeView]) -> Option<String> {
    let Some(node) = all.iter().find(|node| node.name == name) else {
        return Some(format!("{name} is not known"));
    };
    let holder = node.holder.as_ref();
    let is_ready = node.lifecycle == "ready" && node.drain.is_empty();
    if is_ready && node.liveness == "alive" && holder.is_none() {
        return None;
    }
    let (lifecycle, liveness, drain) = (&node.lifecycle, &node.liveness, &node.drain);
    Some(format!(
        "{name} is {lifecycle}, {liveness}, held by {holder:?}, drained: {drain:?}"
    ))
}
