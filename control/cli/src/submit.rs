//! `lattice submit`: ask for nodes and say what runs on them.

use crate::{
    allocation::{in_numbers, with_details},
    connect::Connection,
    failure::Failure,
    output::{self, Format},
};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use lattice_api::{
    allocation::{AllocationRequest, ConstraintsBody, read_bandwidth},
    outlook::OutlookView,
};
use lattice_client::{ClientError, SubmitOptions, Submitted};
use std::{collections::BTreeMap, fs, io::Read as _, path::PathBuf};

/// Layout over dragonfly groups.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Layout {
    /// Fewest groups.
    Tight,
    /// As many groups as possible.
    Spread,
    /// Whatever is free.
    Any,
}

/// What happens when a node is lost.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Requeue {
    /// It fails.
    Never,
    /// It is queued again at most once.
    Once,
    /// It is queued again each time.
    Always,
}

/// Ask for nodes and say what runs on them; prints the allocation's number.
///
/// For example: lattice submit --project atlas/web --nodes 4 --walltime 2h -- ./run --fast
#[derive(Args)]
pub struct SubmitArgs {
    /// Project whose limits apply.
    #[arg(short, long)]
    project: String,
    /// Number of nodes, at least 1.
    #[arg(short = 'N', long, default_value_t = 1)]
    nodes: u32,
    /// The vCluster whose nodes it is given [default: default].
    #[arg(long, value_name = "NAME")]
    vcluster: Option<String>,
    /// A name for people.
    #[arg(long)]
    name: Option<String>,
    /// Longest run time: 90s, 1h30m, 01:30:00. Without it: unbounded, never backfilled.
    #[arg(short = 't', long)]
    walltime: Option<String>,
    /// Priority class, 0-10 [default: 5].
    #[arg(long)]
    class: Option<u8>,
    /// All nodes must share one conformance group, which each of them signs for before the start;
    /// its traces are wiped before a node goes back.
    #[arg(long)]
    sensitive: bool,
    /// Acceptable GPU models, by the words of their names: H100, 'V100M16|V100M32'; A10 is not A100.
    #[arg(long = "gpu-model", value_name = "MODEL")]
    gpu_models: Vec<String>,
    /// GPUs each node must have, and the work uses: of more it sees those that hang together best.
    #[arg(long, value_name = "COUNT")]
    gpus_per_node: Option<u32>,
    /// Memory each node must have at least: 512GiB, 2TB.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
    /// Feature every node must carry; repeat for several.
    #[arg(long = "feature", value_name = "FEATURE")]
    features: Vec<String>,
    /// Only these nodes: gpu[001-004,007].
    #[arg(short = 'w', long, value_name = "HOSTLIST")]
    nodelist: Option<String>,
    /// None of these nodes.
    #[arg(short = 'x', long, value_name = "HOSTLIST")]
    exclude: Option<String>,
    /// Layout over dragonfly groups [default: tight].
    #[arg(long, value_enum)]
    spread: Option<Layout>,
    /// What happens when a node is lost [default: never].
    #[arg(long, value_enum)]
    requeue: Option<Requeue>,
    /// Submit on hold.
    #[arg(long)]
    hold: bool,
    /// Part of the input data that is on the hot tier, 0 to 1; more of it comes earlier. Without it: not
    /// known, a half.
    #[arg(long, value_name = "PART", allow_negative_numbers = true)]
    data_ready: Option<f64>,
    /// How long it takes to write a checkpoint: 90s, 5m [default: as long as the GPUs' memory makes it].
    #[arg(long, value_name = "TIME")]
    checkpoint_time: Option<String>,
    /// Bandwidth that all of it together needs of a storage system while it runs: scratch=40GB/s,
    /// home=500MB/s; repeat for several systems.
    #[arg(long = "storage", value_name = "SYSTEM=RATE")]
    storage: Vec<String>,
    /// Environment variable for the processes; repeat for several.
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Working directory on the nodes.
    #[arg(long, value_name = "DIR")]
    chdir: Option<String>,
    /// File of your own for standard output, opened as you on each node and appended to; relative
    /// to the working directory. %j is the allocation, %r the rank, %n the node, %% a percent
    /// sign. Without it the node keeps the output and `lattice logs` shows it.
    #[arg(long, value_name = "PATH")]
    output: Option<String>,
    /// The same for standard error.
    #[arg(long, value_name = "PATH")]
    error: Option<String>,
    /// A script to run instead of a command; `-` reads it from standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    script: Option<PathBuf>,
    /// Submit nothing: say whether it would be accepted now (exit code 0), and when and where it would
    /// start, or why it would wait.
    #[arg(long)]
    dry_run: bool,
    /// Repeating a submit with the same key makes no second allocation (for 24 hours).
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Program and arguments, after `--`.
    #[arg(last = true, required_unless_present = "script")]
    command: Vec<String>,
}

/// Units of a size, each with its bytes.
const SIZES: [(&str, u64); 6] = [
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

fn bytes(text: &str) -> Result<u64, String> {
    let read = |(unit, bytes): &(&str, u64)| {
        let count = text.trim().strip_suffix(unit)?.trim_end();
        count.parse::<u64>().ok()?.checked_mul(*bytes)
    };
    let size = SIZES.iter().find_map(read).filter(|size| *size > 0);
    size.ok_or_else(|| "write it like 512GiB or 2TB".to_owned())
}

fn environment(pairs: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    pairs
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(Failure::usage(format!("--env {pair:?}: write NAME=VALUE"))),
        })
        .collect()
}

/// GB/s by the system's name.
fn storage(pairs: &[String]) -> Result<BTreeMap<String, f64>, Failure> {
    let mut systems = BTreeMap::new();
    for pair in pairs {
        let usage = |reason: String| Failure::usage(format!("--storage {pair:?}: {reason}"));
        let (system, rate) = (pair.split_once('='))
            .ok_or_else(|| usage("write SYSTEM=RATE, as scratch=40GB/s".to_owned()))?;
        let rate = read_bandwidth(rate).map_err(|error| usage(error.to_string()))?;
        if systems.insert(system.to_owned(), rate).is_some() {
            return Err(usage(format!("{system} is named twice")));
        }
    }
    Ok(systems)
}

/// The flag by which a field is given.
fn flag(field: &str) -> String {
    match field {
        "storage_gb_s" => "storage".to_owned(),
        "constraints.memory_bytes" => "memory".to_owned(),
        "constraints.gpu_models" => "gpu-model".to_owned(),
        "constraints.features" => "feature".to_owned(),
        field => {
            let name = field.strip_prefix("constraints.").unwrap_or(field);
            name.replace('_', "-")
        }
    }
}

fn script(path: &PathBuf) -> anyhow::Result<String> {
    if path.as_os_str() != "-" {
        return fs::read_to_string(path).with_context(|| format!("--script {}", path.display()));
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("cannot read the script from standard input")?;
    Ok(text)
}

fn word<T: ValueEnum>(value: Option<T>) -> Option<String> {
    Some(value?.to_possible_value()?.get_name().to_owned())
}

impl SubmitArgs {
    fn request(&self) -> Result<AllocationRequest, Failure> {
        Ok(AllocationRequest {
            project: self.project.clone(),
            nodes: self.nodes,
            name: self.name.clone(),
            vcluster: self.vcluster.clone(),
            argv: self.command.clone(),
            script: self.script.as_ref().map(script).transpose()?,
            env: environment(&self.env)?,
            working_dir: self.chdir.clone(),
            walltime: self.walltime.clone(),
            class: self.class,
            sensitive: self.sensitive,
            constraints: ConstraintsBody {
                gpu_models: self.gpu_models.clone(),
                gpus_per_node: self.gpus_per_node,
                memory_bytes: self.memory,
                features: self.features.clone(),
                nodelist: self.nodelist.clone(),
                exclude: self.exclude.clone(),
                spread: word(self.spread),
            },
            requeue: word(self.requeue),
            hold: self.hold,
            output: self.output.clone(),
            error: self.error.clone(),
            data_ready: self.data_ready,
            checkpoint_time: self.checkpoint_time.clone(),
            storage_gb_s: storage(&self.storage)?,
        })
    }
}

/// How often a submit without an answer is repeated. All of them carry the same key.
const REPEATS: u32 = 2;

/// Submits once, whatever becomes of the answer: a submit that nobody answered may have been
/// accepted, so it is repeated under its key, and the key is told in the end.
async fn submit(
    args: &SubmitArgs,
    request: &AllocationRequest,
    connection: &Connection,
) -> Result<Submitted, Failure> {
    let made = || format!("submit-{:032x}", rand::random::<u128>());
    let key = args.idempotency_key.clone().unwrap_or_else(made);
    let mut repeats = 0;
    loop {
        let options = SubmitOptions {
            key: Some(key.clone()),
            dry_run: args.dry_run,
        };
        match connection.client.submit(request, options).await {
            Err(ClientError::Unreachable { .. } | ClientError::Unavailable(_))
                if repeats < REPEATS =>
            {
                repeats += 1;
            }
            Err(error) => {
                let mut failure = Failure::from(error);
                if failure.is_unreachable() && !args.dry_run {
                    failure.text.push_str(&format!(
                        "\nwhether it was accepted is not known; the same command with \
                         --idempotency-key {key} does not submit it twice"
                    ));
                }
                return Err(failure);
            }
            Ok(answer) => return Ok(answer),
        }
    }
}

fn in_words(outlook: OutlookView) -> String {
    match (&outlook.explanation, &outlook.score) {
        (Some(why), _) => with_details(outlook.summary, why),
        (None, Some(score)) => format!("{}\n{}", outlook.summary, in_numbers(score)),
        (None, None) => outlook.summary,
    }
}

/// Submits, and prints the allocation's number.
pub async fn run(args: &SubmitArgs, connection: &Connection) -> Result<(), Failure> {
    let request = args.request()?;
    // The server's rule, so that a mistake is named by its flag before anybody is asked.
    request
        .clone()
        .into_spec()
        .map_err(|error| Failure::usage(format!("--{}: {}", flag(&error.field), error.reason)))?;
    let answer = submit(args, &request, connection).await?;
    match (connection.format, answer.id) {
        (Format::Table | Format::Wide, Some(id)) => Ok(output::line(&id.to_string())?),
        (Format::Table | Format::Wide, None) => {
            let revision = answer.revision.0;
            eprintln!("would be accepted (judged at revision {revision}); nothing was submitted");
            match answer.outlook {
                Some(outlook) => Ok(output::line(&in_words(outlook))?),
                None => {
                    eprintln!(
                        "this control cannot plan at present: when it would start is not known"
                    );
                    Ok(())
                }
            }
        }
        (format, _) => {
            let columns = output::Columns::only(&["id", "revision", "dry_run"]);
            let row = vec![
                answer.id.map(|id| id.to_string()).unwrap_or_default(),
                answer.revision.0.to_string(),
                answer.dry_run.to_string(),
            ];
            Ok(output::print(format, &answer, columns, [row])?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    /// Those of which the API's rule, or the control's, says that they are wrong.
    #[test]
    fn a_field_is_named_by_a_flag_that_there_is() {
        let command = SubmitArgs::augment_args(Command::new("submit"));
        let is_flag = |name: &str| command.get_arguments().any(|a| a.get_long() == Some(name));
        for field in [
            "project",
            "nodes",
            "vcluster",
            "walltime",
            "class",
            "requeue",
            "data_ready",
            "checkpoint_time",
            "storage_gb_s",
            "constraints.gpu_models",
            "constraints.gpus_per_node",
            "constraints.memory_bytes",
            "constraints.features",
            "constraints.nodelist",
            "constraints.exclude",
            "constraints.spread",
        ] {
            let flag = flag(field);
            assert!(is_flag(&flag), "{field} would be --{flag}");
        }
    }
}
