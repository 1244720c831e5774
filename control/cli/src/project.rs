//! `lattice project`: the tree, its limits, and what is used of them.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
};
use clap::{Args, Subcommand};
use lattice_api::project::ProjectView;

/// What can be asked about projects.
#[derive(Subcommand)]
pub enum ProjectCommand {
    /// Show the tree of tenants and projects with limits and usage.
    Tree(TreeArgs),
    /// Show one project.
    Show {
        /// Its path: tenant/a/b.
        path: String,
    },
}

#[derive(Args)]
pub struct TreeArgs {
    /// Only this project and what is below it.
    path: Option<String>,
}

/// Runs one of them.
pub async fn run(command: ProjectCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        ProjectCommand::Tree(args) => tree(&args, connection).await,
        ProjectCommand::Show { path } => show(&path, connection).await,
    }
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &[
        "project",
        "max_nodes",
        "used",
        "own",
        "below",
        "allocations",
    ],
    wide: &["max_concurrent_allocations", "admins", "description"],
};

fn limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string())
}

fn row(label: String, project: &ProjectView) -> Vec<String> {
    vec![
        label,
        limit(project.limits.max_nodes),
        project.total.nodes.to_string(),
        project.own.nodes.to_string(),
        project.subtree.nodes.to_string(),
        project.total.allocations.to_string(),
        limit(project.limits.max_concurrent_allocations),
        project.admins.join(","),
        project.description.clone(),
    ]
}

/// Depth-first order with two spaces a level. Sorting by path segments keeps children below their
/// parent, which sorting by text does not (`a-b` would come between `a` and `a/c`).
fn labelled(mut projects: Vec<ProjectView>) -> Vec<(String, ProjectView)> {
    let segments = |p: &ProjectView| p.path.split('/').map(str::to_owned).collect::<Vec<_>>();
    projects.sort_by_key(segments);
    projects
        .into_iter()
        .map(|project| {
            let depth = project.path.matches('/').count();
            let name = project.path.rsplit('/').next().unwrap_or_default();
            (format!("{}{name}", "  ".repeat(depth)), project)
        })
        .collect()
}

async fn tree(args: &TreeArgs, connection: &Connection) -> Result<(), Failure> {
    if let Some(root) = &args.path {
        // Asked for by name, so that an unknown one is said to be unknown.
        connection.client.project(root).await?;
    }
    let labelled = labelled(connection.client.projects(args.path.as_deref()).await?);
    let values: Vec<_> = labelled.iter().map(|(_, project)| project).collect();
    let rows = labelled
        .iter()
        .map(|(label, project)| row(label.clone(), project));
    Ok(output::print(connection.format, &values, COLUMNS, rows)?)
}

async fn show(path: &str, connection: &Connection) -> Result<(), Failure> {
    let project = connection.client.project(path).await?;
    let rows = [row(project.path.clone(), &project)];
    Ok(output::print(connection.format, &project, COLUMNS, rows)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_api::project::{LimitsBody, UsageView};
    use lattice_quorum_types::Revision;

    fn project(path: &str) -> ProjectView {
        ProjectView {
            path: path.to_owned(),
            limits: LimitsBody {
                max_nodes: Some(1),
                max_concurrent_allocations: None,
            },
            own: UsageView::default(),
            subtree: UsageView::default(),
            total: UsageView::default(),
            admins: vec![],
            description: String::new(),
            created_at: String::new(),
            revision: Revision(1),
        }
    }

    #[test]
    fn children_stand_below_their_parent() {
        let paths = ["a-b", "a/c/d", "a", "a/c"].map(project).to_vec();
        let labels: Vec<_> = labelled(paths)
            .into_iter()
            .map(|(label, _)| label)
            .collect();
        assert_eq!(labels, ["a", "  c", "    d", "a-b"]);
    }
}
