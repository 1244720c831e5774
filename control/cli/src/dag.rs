//! `lattice dag`: DAGs of allocations.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, ResultList, counted, or_dash, time},
    user_file,
};
use clap::{Args, Subcommand};
use lattice_api::{
    dag::{AfterBody, DagDryRunResult, DagEdgeView, DagRequest, DagView, GraphView, MemberRequest},
    suggestion::nearest,
};
use lattice_config::{Problems, read_part};
use serde::Deserialize;
use serde_json::json;
use serde_yaml_ng::Value;
use std::path::{Path, PathBuf};

/// DAG subcommands.
#[derive(Subcommand)]
pub enum DagCommand {
    /// Submit a DAG from a file: all its members, or none; prints its number.
    ///
    /// The file is YAML or JSON: a name, and members. Each member has a name, its
    /// request (project, nodes, argv or script, walltime, array, scale, ...), and in
    /// `after` the members that must end first: their names, or names by condition
    /// (success, failure, any, corresponding). For example:
    ///
    ///   name: nightly
    ///   members:
    ///   - {name: prepare, project: atlas/operations/web, nodes: 1,
    ///     argv: [./prepare]}
    ///   - {name: train, project: atlas/operations/web, nodes: 4,
    ///     argv: [./train], after: [prepare]}
    ///   - {name: clean, project: atlas/operations/web, nodes: 1,
    ///     argv: [./clean], after: {any: [train]}}
    #[command(verbatim_doc_comment)]
    Submit(SubmitArgs),
    /// Show one DAG: its members and their states.
    Status {
        /// DAG number.
        id: u64,
    },
    /// List DAGs: the running ones, and with --all the last ones that ended.
    List(ListArgs),
    /// Cancel all members that have not ended, of one or several DAGs.
    Cancel {
        /// DAG numbers.
        #[arg(required = true)]
        ids: Vec<u64>,
    },
    /// Print the members of a DAG and their dependencies; `--dot` for Graphviz.
    Graph(GraphArgs),
}

#[derive(Args)]
pub struct SubmitArgs {
    /// File, YAML or JSON; `-` reads standard input.
    file: PathBuf,
    /// Submit nothing: report whether the DAG would be accepted now (exit code 0), and print its members as parsed.
    #[arg(long)]
    dry_run: bool,
    /// Idempotency key. A repeated submit with the same key creates no second DAG (for 24 hours).
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Args)]
pub struct ListArgs {
    /// List DAGs of this tenant only.
    #[arg(long)]
    tenant: Option<String>,
    /// Include ended DAGs.
    #[arg(short, long)]
    all: bool,
}

#[derive(Args)]
pub struct GraphArgs {
    /// DAG number.
    id: u64,
    /// Print the graph in the DOT language of Graphviz: lattice dag graph 7 --dot | dot -Tsvg
    #[arg(long)]
    dot: bool,
}

/// Runs a DAG command.
pub async fn run(command: DagCommand, connection: &Connection) -> Result<(), Failure> {
    let (client, format) = (&connection.client, connection.format);
    match command {
        DagCommand::Submit(args) => submit(args, connection).await,
        DagCommand::Status { id } => status(&client.dag(id).await?, format),
        DagCommand::List(args) => {
            let mut all = client.dags(args.tenant.as_deref()).await?;
            all.retain(|dag| args.all || dag.ended_at.is_none());
            output::print_fitted(
                format,
                &all,
                LIST,
                Fitting::Lines(DROPPED_FIRST),
                all.iter().map(row),
            )?;
            if all.is_empty() && !args.all {
                output::message!("no DAG is running; `lattice dag list --all` includes ended DAGs");
            }
            Ok(())
        }
        DagCommand::Cancel { ids } => {
            let mut all = ResultList::for_count(format, ids.len());
            for id in ids {
                match client.cancel_dag(id).await {
                    Ok(dag) => {
                        let left = counted(dag.unfinished, "member");
                        all.add(dag, &format!("{id}: cancel accepted; still to end: {left}"));
                    }
                    Err(error) => all.refuse(&id.to_string(), error.into()),
                }
            }
            all.finish(LIST, row)
        }
        DagCommand::Graph(args) => graph(&client.dag_graph(args.id).await?, args.dot, format),
    }
}

/// Field of a member that is not a field of its request for nodes.
const AFTER: &str = "after";

/// DAG file with members that are not read yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DagFile {
    #[serde(default)]
    name: String,
    members: Vec<Value>,
}

/// Reads a DAG file. JSON is YAML too.
fn read(file: &Path) -> Result<DagRequest, Failure> {
    let text = user_file::read_text(file)?;
    user_file::parse_parts(file, &text, |root, problems| {
        let file: DagFile = read_part(root, problems)?;
        let members = file.members.into_iter().enumerate();
        let members = members.map(|(place, member)| read_named_member(place, member, problems));
        // All members are read, also after one that cannot be read.
        let members: Vec<Option<MemberRequest>> = members.collect();
        Some(DagRequest {
            name: file.name,
            members: members.into_iter().collect::<Option<_>>()?,
        })
    })
}

/// Reads the member at `place`. Mistakes have its name, as the answers of the server do, or its place.
fn read_named_member(
    place: usize,
    member: Value,
    problems: &mut Problems,
) -> Option<MemberRequest> {
    let name = member.get("name").and_then(Value::as_str);
    let key = match name.filter(|name| !name.is_empty()) {
        Some(name) => format!("members.{name}"),
        None => format!("members.{place}"),
    };
    let mut read = None;
    problems.check_part(key, |problems| read = read_member(member, problems));
    read
}

fn read_member(mut member: Value, problems: &mut Problems) -> Option<MemberRequest> {
    let mut after = AfterBody::default();
    if let Value::Mapping(fields) = &mut member {
        let is_near = |key: &&str| *key != AFTER && nearest(key, [AFTER].into_iter()).is_some();
        let misspelt = fields.keys().filter_map(Value::as_str).find(is_near);
        if let Some(key) = misspelt.map(str::to_owned) {
            fields.shift_remove(key.as_str());
            problems.add(key, format!("unknown key; did you mean {AFTER}?"));
        }
        let given = fields.shift_remove(AFTER).filter(|given| !given.is_null());
        problems.check_part(AFTER, |problems| {
            if let Some(read) = given.and_then(|given| read_part(given, problems)) {
                after = read;
            }
        });
    }
    let request = read_part(member, problems)?;
    Some(MemberRequest { after, request })
}

async fn submit(args: SubmitArgs, connection: &Connection) -> Result<(), Failure> {
    let request = read(&args.file)?;
    if args.dry_run {
        let judged = connection.client.dry_run_dag(&request).await?;
        return print_dry_run(&judged, connection.format);
    }
    let key = args.idempotency_key.as_deref();
    let made = connection.client.submit_dag(&request, key).await?;
    let columns = Columns::only(&["id", "revision"]);
    match connection.format {
        Format::Table | Format::Wide => Ok(output::line(&made.id.to_string())?),
        format => {
            let row = vec![made.id.to_string(), made.revision.to_string()];
            Ok(output::print_record(format, &made, columns, row)?)
        }
    }
}

/// Prints the result of a dry run.
fn print_dry_run(judged: &DagDryRunResult, format: Format) -> Result<(), Failure> {
    if format.is_for_reading() {
        let revision = judged.revision.0;
        let members = counted(judged.members.len(), "member");
        output::message!(
            "dry run: {members} would be accepted (at revision {revision}); nothing was submitted"
        );
    }
    let rows = judged.members.iter().map(|member| {
        vec![
            member.name.clone(),
            member.project.clone(),
            member.vcluster.clone(),
            member.nodes.to_string(),
            or_dash(member.elements.map(|count| count.to_string()).as_deref()),
            or_dash(member.walltime.as_deref()),
            or_dash(Some(&in_words(&member.after))),
        ]
    });
    let columns = Columns::only(&[
        "name", "project", "vcluster", "nodes", "elements", "walltime", "after",
    ]);
    Ok(output::print(format, judged, columns, rows)?)
}

/// Formats dependencies; the default condition `success` is not shown.
fn in_words(after: &[DagEdgeView]) -> String {
    let one = |edge: &DagEdgeView| match edge.condition.as_str() {
        "success" => edge.member.clone(),
        condition => format!("{} ({condition})", edge.member),
    };
    after.iter().map(one).collect::<Vec<_>>().join(", ")
}

const LIST: Columns<'_> = Columns {
    narrow: &[
        "id",
        "name",
        "project",
        "state",
        "size",
        "unfinished",
        "submitted_at",
    ],
    wide: &["user", "ended_at", "failed", "cancelled_by"],
};

/// Columns that a narrow terminal leaves out, in this order.
const DROPPED_FIRST: &[&str] = &["submitted_at", "size", "project", "name"];

fn row(dag: &DagView) -> Vec<String> {
    vec![
        dag.id.to_string(),
        or_dash(Some(&dag.name)),
        dag.project.clone(),
        dag.state.clone(),
        dag.size.to_string(),
        dag.unfinished.to_string(),
        time(&dag.submitted_at),
        dag.user.clone(),
        or_dash(dag.ended_at.as_deref().map(time).as_deref()),
        or_dash(dag.failed.as_deref()),
        or_dash(dag.cancelled_by.as_deref()),
    ]
}

fn status(dag: &DagView, format: Format) -> Result<(), Failure> {
    let is_table = format.is_for_reading();
    if is_table {
        let headers = LIST.narrow.iter().chain(LIST.wide);
        let lines = headers
            .zip(row(dag))
            .map(|(key, value)| vec![(*key).to_owned(), value]);
        output::print_details(format, dag, ["key", "value"], lines)?;
        output::line("")?;
    }
    let members = dag.members.iter().map(|member| {
        vec![
            member.allocation.to_string(),
            member.name.clone(),
            member
                .state
                .clone()
                .unwrap_or_else(|| "not kept".to_owned()),
            or_dash(Some(&in_words(&member.after))),
            or_dash(member.stop.as_deref()),
        ]
    });
    let columns = Columns::only(&["allocation", "name", "state", "after", "stop"]);
    Ok(output::print(format, dag, columns, members)?)
}

fn graph(graph: &GraphView, dot: bool, format: Format) -> Result<(), Failure> {
    if dot {
        let text = graph.to_dot();
        return match format.is_for_reading() {
            true => Ok(output::line(text.trim_end())?),
            false => {
                let document = json!({"id": graph.id, "dot": text});
                Ok(output::print_done(format, &document, "")?)
            }
        };
    }
    let rows = graph
        .edges
        .iter()
        .map(|edge| vec![edge.from.clone(), edge.to.clone(), edge.condition.clone()]);
    let columns = Columns::only(&["from", "to", "condition"]);
    Ok(output::print(format, graph, columns, rows)?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::fs;

    #[test]
    fn a_number_that_is_none_is_named_by_its_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let web = "{name: web, project: a, nodes: 1, argv: [serve], scale: \
                   {min_nodes: 1, max_nodes: 2, metric: gpu, target: TARGET, down_threshold: LOW}}";
        let read = |target: &str, low: &str| {
            let web = web.replace("TARGET", target).replace("LOW", low);
            fs::write(path, format!("members: [{web}]")).unwrap();
            read(path).map_err(|failure| failure.to_string())
        };
        let error = read(".nan", "0.5").unwrap_err();
        let expected = "members[0].scale.target: .nan is not a finite number";
        assert!(error.contains(expected), "{error}");
        let error = read("0.7", "-.inf").unwrap_err();
        let expected = "members[0].scale.down_threshold: -.inf is not a finite number";
        assert!(error.contains(expected), "{error}");
        assert_eq!(read("0.7", "0.5").unwrap().members.len(), 1);
    }

    /// Reads a file with this text, and returns the failure without the path.
    fn failure(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("g.yaml");
        fs::write(&path, text).unwrap();
        let failure = read(&path).unwrap_err().to_string();
        let rest = failure.strip_prefix(path.to_str().unwrap());
        rest.unwrap().to_owned()
    }

    #[test]
    fn a_member_that_cannot_be_read_is_named() {
        let member = |more: &str| format!("{{name: b, project: a, nodes: 1, argv: [x]{more}}}");
        let second = |more: &str| failure(&format!("members: [{}, {}]", member(""), member(more)));
        for (more, why) in [
            (", aftr: [a]", "aftr: unknown key; did you mean after?"),
            (
                ", waltime: 1h",
                "waltime: unknown key; did you mean walltime?",
            ),
            (", walltime: 300", "walltime: must be a text, not 300"),
            (", after: b", "after: it must be a list of members' names"),
            (
                ", class: -1",
                "class: must be a whole number from 0 to 255, not -1",
            ),
        ] {
            let found = second(more);
            let expected = format!(": members.b.{why}");
            assert!(found.starts_with(&expected), "{found}");
        }
        let nameless = failure("members: [{project: a}]");
        assert_eq!(nameless, ": members.0: the key `nodes` is missing");
        let list = failure("[a, b]");
        assert!(list.starts_with(": keys and values are expected at the top"));
        let malformed = failure("name: a\nmembers: [1\nlisten: x\n");
        assert!(malformed.starts_with(": malformed YAML: "), "{malformed}");
        assert!(malformed.contains("line 3 column"), "{malformed}");
    }

    #[test]
    fn all_mistakes_of_a_file_are_in_one_report() {
        let text = "nam: nightly\nmembers:\n\
                    - {name: prepare, project: a, nodes: many, argv: [sleep, 10]}\n\
                    - {name: train, project: a, nodes: 1, argv: [x], aftr: [prepare], after: 3}\n\
                    - clean\n";
        let found = failure(text);
        let lines: Vec<&str> = found.lines().collect();
        let (last, others) = lines.split_last().unwrap();
        assert_eq!(
            others,
            [
                " has 6 mistakes:",
                "  nam: unknown key; did you mean name?",
                "  members.prepare.nodes: must be a whole number from 0 to 4294967295, not the text \"many\"",
                "  members.prepare.argv.1: must be a text, not 10",
                "  members.train.aftr: unknown key; did you mean after?",
                "  members.train.after: it must be a list of members' names, of {member, condition}, or \
                 names by condition as {success: [a, b]}",
            ]
        );
        assert!(
            last.starts_with("  members.2: must be keys and values (project, "),
            "{last}"
        );
    }
}
