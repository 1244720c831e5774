//! `lattice project`: the project tree, its limits and its usage.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Format},
};
use clap::{Args, Subcommand};
use lattice_api::project::{
    LimitChangeBody, LimitsRequest, ProjectRequest, ProjectUpdate, ProjectView,
};
use lattice_quorum_types::limit::Patch;
use serde_json::json;
use std::str::FromStr;

/// Project subcommands.
#[derive(Subcommand)]
pub enum ProjectCommand {
    /// Show the tree of tenants and projects with limits and usage.
    Tree(TreeArgs),
    /// Show one project.
    Show {
        /// Project path: tenant/a/b.
        path: String,
    },
    /// Show how much more a project could get now, and how much each level has left.
    Headroom {
        /// Project path.
        path: String,
    },
    /// Create a project below its parent, or a tenant.
    Create(CreateArgs),
    /// Change the limits of a project.
    Set(SetArgs),
    /// Delete a project that has no children and no allocations.
    Delete {
        /// Project path.
        path: String,
    },
}

#[derive(Args)]
pub struct CreateArgs {
    /// Project path: the name of a tenant, or tenant/a/b; the parent must exist.
    path: String,
    /// Nodes that the project and everything below it may hold: a number, or unlimited [default: unlimited if a parent
    /// exists and no level above limits them, else 0].
    #[arg(long, value_name = "LIMIT")]
    max_nodes: Option<Limit>,
    /// Allocations that may hold nodes at the same time [default: unlimited if no level above limits them, else 0].
    #[arg(long, value_name = "LIMIT")]
    max_concurrent_allocations: Option<Limit>,
    /// User with permission to set the limits of child projects; repeat for several.
    #[arg(long = "admin", value_name = "USER")]
    admins: Vec<String>,
    /// Free-text description.
    #[arg(long, default_value = "")]
    description: String,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct SetLimits {
    /// Nodes that the project and everything below it may hold: a number, or unlimited.
    #[arg(long, value_name = "LIMIT")]
    max_nodes: Option<Limit>,
    /// Allocations that may hold nodes at the same time: a number, or unlimited.
    #[arg(long, value_name = "LIMIT")]
    max_concurrent_allocations: Option<Limit>,
}

#[derive(Args)]
pub struct SetArgs {
    /// Project path.
    path: String,
    #[command(flatten)]
    limits: SetLimits,
    /// Apply the change even if the limits of children then add up to more than their parent's. The parent is shown as
    /// overcommitted until the limits fit, and requests must still fit at every level. For administrators of the whole
    /// cluster.
    #[arg(long)]
    force: bool,
}

/// Number, or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(Option<u64>);

impl FromStr for Limit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(Self(None)),
            number => match number.parse() {
                Ok(limit) => Ok(Self(Some(limit))),
                Err(_) => Err("give a whole number, or unlimited".to_owned()),
            },
        }
    }
}

/// Converts a limit of the command line; `None` keeps the present one.
pub fn patch(limit: Option<Limit>) -> Patch {
    match limit {
        None => Patch::Unchanged,
        Some(Limit(None)) => Patch::Unlimited,
        Some(Limit(Some(limit))) => Patch::Set(limit),
    }
}

#[derive(Args)]
pub struct TreeArgs {
    /// Show only this project and everything below it.
    path: Option<String>,
}

/// Runs a project command.
pub async fn run(command: ProjectCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        ProjectCommand::Tree(args) => tree(&args, connection).await,
        ProjectCommand::Show { path } => show(&path, connection).await,
        ProjectCommand::Headroom { path } => headroom(&path, connection).await,
        ProjectCommand::Create(args) => create(args, connection).await,
        ProjectCommand::Set(args) => set(args, connection).await,
        ProjectCommand::Delete { path } => {
            let done = connection.client.delete_project(&path).await?;
            let deleted = json!({"path": path, "revision": done.revision});
            let sentence = format!("{path}: deleted");
            Ok(output::print_done(connection.format, &deleted, &sentence)?)
        }
    }
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &[
        "path",
        "max_nodes",
        "total_nodes",
        "own_nodes",
        "subtree_nodes",
        "total_allocations",
        "overcommitted",
    ],
    wide: &["max_concurrent_allocations", "admins", "description"],
};

/// Formats a limit.
pub fn limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string())
}

/// Formats whether the children's limits exceed the project's own, after a forced change.
pub fn overcommitted(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn row(label: String, project: &ProjectView) -> Vec<String> {
    vec![
        label,
        limit(project.limits.max_nodes),
        project.total.nodes.to_string(),
        project.own.nodes.to_string(),
        project.subtree.nodes.to_string(),
        project.total.allocations.to_string(),
        overcommitted(project.overcommitted),
        limit(project.limits.max_concurrent_allocations),
        project.admins.join(","),
        project.description.clone(),
    ]
}

/// Sorts depth-first and indents by two spaces per level. Sorting by path segments keeps children below their parent,
/// which sorting by text does not (`a-b` would come between `a` and `a/c`).
fn tree_rows(mut projects: Vec<ProjectView>) -> Vec<(String, ProjectView)> {
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
        // The project is requested by name first, so that an unknown one is reported as such.
        connection.client.project(root).await?;
    }
    let labelled = tree_rows(connection.client.projects(args.path.as_deref()).await?);
    let values: Vec<_> = labelled.iter().map(|(_, project)| project).collect();
    // Documents and CSV contain the complete path; tables show the path by indentation.
    let is_for_reading = connection.format.is_for_reading();
    let rows = labelled
        .iter()
        .map(|(label, project)| match is_for_reading {
            true => row(label.clone(), project),
            false => row(project.path.clone(), project),
        });
    Ok(output::print(connection.format, &values, COLUMNS, rows)?)
}

fn print_project(project: &ProjectView, format: Format) -> Result<(), Failure> {
    let row = row(project.path.clone(), project);
    Ok(output::print_record(format, project, COLUMNS, row)?)
}

async fn show(path: &str, connection: &Connection) -> Result<(), Failure> {
    print_project(&connection.client.project(path).await?, connection.format)
}

/// Prints a line for each level that counts, the project first, and one for the headroom over all levels.
async fn headroom(path: &str, connection: &Connection) -> Result<(), Failure> {
    const COLUMNS: Columns<'_> = Columns::only(&[
        "path",
        "max_nodes",
        "counted_nodes",
        "nodes_left",
        "max_concurrent_allocations",
        "counted_allocations",
        "allocations_left",
    ]);
    let room = connection.client.headroom(path).await?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for level in &room.levels {
        let (nodes, allocations) = (
            level.limits.max_nodes,
            level.limits.max_concurrent_allocations,
        );
        rows.push(vec![
            level.path.clone(),
            limit(nodes),
            level.counted.nodes.to_string(),
            limit(level.nodes_left),
            limit(allocations),
            level.counted.allocations.to_string(),
            limit(level.allocations_left),
        ]);
    }
    let dash = || String::from("-");
    rows.push(vec![
        "available now".to_owned(),
        dash(),
        dash(),
        limit(room.nodes),
        dash(),
        dash(),
        limit(room.allocations),
    ]);
    Ok(output::print(connection.format, &room, COLUMNS, rows)?)
}

async fn create(args: CreateArgs, connection: &Connection) -> Result<(), Failure> {
    let limits = ProjectUpdate {
        max_nodes: patch(args.max_nodes),
        max_concurrent_allocations: patch(args.max_concurrent_allocations),
    };
    let request = ProjectRequest {
        path: args.path,
        limits,
        admins: args.admins,
        description: args.description,
    };
    let project = connection.client.create_project(&request, None).await?;
    print_project(&project, connection.format)?;
    if let Some(note) = closed_note(&project) {
        output::message!("note: {note}");
    }
    Ok(())
}

/// Returns a note on a new project that has a limit of 0, which is the default where a level above is limited.
fn closed_note(project: &ProjectView) -> Option<String> {
    let limits = &project.limits;
    let (name, flag) = match (limits.max_nodes, limits.max_concurrent_allocations) {
        (Some(0), _) => ("max_nodes", "--max-nodes"),
        (_, Some(0)) => ("max_concurrent_allocations", "--max-concurrent-allocations"),
        _ => return None,
    };
    let path = &project.path;
    Some(format!(
        "{name} of {path} is 0, so every submit to it is refused; set it: lattice project set \
         {path} {flag} NUMBER"
    ))
}

async fn set(args: SetArgs, connection: &Connection) -> Result<(), Failure> {
    let change = LimitChangeBody {
        path: args.path.clone(),
        max_nodes: patch(args.limits.max_nodes),
        max_concurrent_allocations: patch(args.limits.max_concurrent_allocations),
    };
    let request = LimitsRequest {
        changes: vec![change],
        force: args.force,
    };
    connection.client.set_limits(&request, None).await?;
    show(&args.path, connection).await
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
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
            overcommitted: false,
        }
    }

    #[test]
    fn limit_of_zero_is_noted() {
        let mut created = project("acme/c");
        assert_eq!(closed_note(&created), None);
        created.limits.max_nodes = Some(0);
        let note = "max_nodes of acme/c is 0, so every submit to it is refused; set it: lattice \
                    project set acme/c --max-nodes NUMBER";
        assert_eq!(closed_note(&created).as_deref(), Some(note));
        created.limits = LimitsBody {
            max_nodes: None,
            max_concurrent_allocations: Some(0),
        };
        let note = closed_note(&created).unwrap();
        assert!(
            note.ends_with("--max-concurrent-allocations NUMBER"),
            "{note}"
        );
    }

    #[test]
    fn marks_overcommitted_limits() {
        let names = [COLUMNS.narrow, COLUMNS.wide].concat();
        for (overcommitted, said) in [(true, "yes"), (false, "no")] {
            let project = ProjectView {
                overcommitted,
                ..project("a")
            };
            let row = row(project.path.clone(), &project);
            assert_eq!(row.len(), names.len());
            let cell = |name| names.iter().position(|is| *is == name).map(|n| &*row[n]);
            assert_eq!(cell("max_nodes"), Some("1"), "a number and nothing else");
            assert_eq!(cell("overcommitted"), Some(said));
        }
    }

    #[test]
    fn children_stand_below_their_parent() {
        let paths = ["a-b", "a/c/d", "a", "a/c"].map(project).to_vec();
        let labels: Vec<_> = tree_rows(paths)
            .into_iter()
            .map(|(label, _)| label)
            .collect();
        assert_eq!(labels, ["a", "  c", "    d", "a-b"]);
    }
}
