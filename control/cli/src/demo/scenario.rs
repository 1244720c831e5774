//! Project tree of the demo, and a submit that must be refused.

use anyhow::bail;
use lattice_api::{
    AllocationRequest,
    project::{LimitsBody, ProjectRequest},
};
use lattice_client::{Client, ClientError, SubmitOptions};

/// Project paths with `max_nodes`, parents first. The limits do not depend on the number of nodes.
pub const TREE: [(&str, u64); 7] = [
    ("atlas", 120),
    ("atlas/physics", 20),
    ("atlas/physics/higgs", 0),
    ("atlas/physics/simulation", 10),
    ("atlas/operations", 100),
    ("atlas/operations/workflow", 50),
    ("atlas/operations/web", 50),
];

/// Creates the project tree; projects of an earlier start are kept.
pub async fn create_tree(client: &Client) -> Result<(), ClientError> {
    for (path, max_nodes) in TREE {
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
