//! Project tree of the demo, and a submit that must be refused.

use anyhow::bail;
use lattice_api::{
    AllocationRequest,
    project::{LimitsBody, ProjectRequest},
};
use lattice_client::{Client, ClientError, SubmitOptions};

/// Limit of each project that submits recorded jobs, in a demo of default size.
const MIN_SUBMITTER_LIMIT: u64 = 50;
/// Limit of `atlas/physics`, which [`refused_submit`] exceeds.
const PHYSICS_LIMIT: u64 = 20;

/// Returns the project paths with `max_nodes`, parents first, for a cluster of `nodes` nodes. The recorded jobs grow with
/// the cluster, so the projects that submit them may use twice its nodes: each job fits, and two of the widest fill a
/// project. The limits of `atlas/physics` do not depend on the size, since they are part of the expected refusal.
pub fn tree(nodes: usize) -> [(&'static str, u64); 7] {
    let submitter = MIN_SUBMITTER_LIMIT.max(2 * nodes as u64);
    [
        ("atlas", 2 * submitter + PHYSICS_LIMIT),
        ("atlas/physics", PHYSICS_LIMIT),
        ("atlas/physics/higgs", 0),
        ("atlas/physics/simulation", 10),
        ("atlas/operations", 2 * submitter),
        ("atlas/operations/workflow", submitter),
        ("atlas/operations/web", submitter),
    ]
}

/// Creates the project tree for `nodes` nodes; projects of an earlier start are kept.
pub async fn create_tree(client: &Client, nodes: usize) -> Result<(), ClientError> {
    for (path, max_nodes) in tree(nodes) {
        let request = ProjectRequest {
            path: path.to_owned(),
            limits: LimitsBody {
                max_nodes: Some(max_nodes),
                max_concurrent_allocations: None,
            }
            .into(),
            ..ProjectRequest::default()
        };
        match client
            .create_project(&request, Some(&format!("demo-project-{path}")))
            .await
        {
            Ok(_) => {}
            Err(ClientError::Refused(problem)) if problem.code == "project_exists" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Submits 21 nodes against limits of 10 and, one level above, 20. Returns the text of the refusal.
pub async fn refused_submit(client: &Client) -> anyhow::Result<String> {
    let request = AllocationRequest {
        project: "atlas/physics/simulation".to_owned(),
        nodes: 21,
        name: Some("beyond-two-limits".to_owned()),
        argv: vec!["/bin/true".to_owned()],
        ..AllocationRequest::default()
    };
    match client.submit(&request, SubmitOptions::default()).await {
        Err(ClientError::Refused(problem)) => Ok(problem.detail),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("a submit of 21 nodes to atlas/physics/simulation was accepted"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::demo::{
        fixtures::Fixtures,
        workload::{self, PROJECTS},
    };
    use std::collections::BTreeMap;

    #[test]
    fn limits_admit_every_recorded_job() {
        let trace = Fixtures::of_checkout().trace();
        for nodes in [1, 24, 100, 240, 512] {
            let limits = BTreeMap::from(tree(nodes));
            for job in workload::read(&trace, nodes).unwrap() {
                let limit = limits[job.request.project.as_str()];
                assert!(
                    u64::from(job.request.nodes) <= limit,
                    "{nodes}: {}",
                    job.name
                );
            }
            // The limits of children add up to at most their parent's.
            let submitters: u64 = PROJECTS.iter().map(|path| limits[path]).sum();
            assert!(submitters <= limits["atlas/operations"]);
            let children = limits["atlas/operations"] + limits["atlas/physics"];
            assert!(children <= limits["atlas"], "{nodes}");
        }
        assert_eq!(tree(24)[0], ("atlas", 120));
    }
}
