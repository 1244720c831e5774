//! Flags of a submit, on the command line and in a script's lines.

use crate::failure::Failure;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum, parser::ValueSource};
use lattice_api::allocation::read_bandwidth;
use std::collections::BTreeMap;

/// Layout over dragonfly groups.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Layout {
    /// Fewest groups.
    Tight,
    /// As many groups as possible.
    Spread,
    /// Any free nodes.
    Any,
}

/// Checkpoint mode, by which Lattice requests a checkpoint from a job.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CheckpointModeArg {
    /// SIGUSR1 to the first process of the job.
    Signal,
    /// Numbers in a file that the job maps into its memory.
    #[value(name = "shared_memory", alias = "shared-memory")]
    SharedMemory,
    /// gRPC over a socket of the job.
    Callback,
}

/// Policy after the loss of a node, or after a preemption or reclaim without a checkpoint.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Requeue {
    /// The allocation fails.
    Never,
    /// The allocation is requeued at most once.
    Once,
    /// The allocation is requeued each time.
    Always,
}

/// Flags with their values.
#[derive(Args)]
pub struct Flags {
    /// Project for limits and usage; here or in the script.
    #[arg(short, long)]
    pub project: Option<String>,
    /// Number of nodes, at least 1.
    #[arg(short = 'N', long, default_value_t = 1)]
    pub nodes: u32,
    /// vCluster that schedules the allocation [default: default].
    #[arg(long, value_name = "NAME")]
    pub vcluster: Option<String>,
    /// Free-text name [default: that of the file SCRIPT].
    #[arg(long)]
    pub name: Option<String>,
    /// Longest run time: 90s, 1h30m, 01:30:00, 2-12:00 (days, hours and minutes). Left out: unbounded, never
    /// backfilled.
    #[arg(short = 't', long)]
    pub walltime: Option<String>,
    /// Priority class, 0-10 [default: 5].
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub class: Option<u8>,
    /// Run as a sensitive allocation: all nodes must share one conformance group, which each node attests before the
    /// start. The allocation's traces on a node are wiped before the node returns to service.
    #[arg(long)]
    pub sensitive: bool,
    /// Acceptable GPU model, by words of its name: H100, 'V100M16|V100M32'; A10 does not match A100. Repeat for
    /// several.
    #[arg(long = "gpu-model", value_name = "MODEL")]
    pub gpu_models: Vec<String>,
    /// GPUs per node. On a node with more GPUs the job gets exactly this number, those that are connected best.
    #[arg(long, value_name = "COUNT")]
    pub gpus_per_node: Option<u32>,
    /// Minimum memory per node: 512GiB, 2TB.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Feature that every node must have; repeat for several.
    #[arg(long = "feature", value_name = "FEATURE")]
    pub features: Vec<String>,
    /// Allowed nodes: gpu[001-004,007].
    #[arg(short = 'w', long, value_name = "HOSTLIST")]
    pub nodelist: Option<String>,
    /// Excluded nodes.
    #[arg(short = 'x', long, value_name = "HOSTLIST")]
    pub exclude: Option<String>,
    /// Layout over dragonfly groups [default: tight].
    #[arg(long, value_enum)]
    pub spread: Option<Layout>,
    /// Policy after the loss of a node, or after a preemption or reclaim without a checkpoint [default: never].
    #[arg(long, value_enum)]
    pub requeue: Option<Requeue>,
    /// Submit the allocation on hold.
    #[arg(long)]
    pub hold: bool,
    /// Job array: indices, and how many elements run at a time: 0-99%10, 1,3,5-7, 0-15:4. Each element has its index in
    /// LATTICE_ARRAY_INDEX.
    #[arg(short, long, value_name = "INDICES")]
    pub array: Option<String>,
    /// Dependencies: afterok:12:13, afternotok:14, afterany:15, aftercorr:16 (index by index), singleton (one of the
    /// name at a time); several separated by commas, array elements as 12_7.
    #[arg(short, long, value_name = "CONDITIONS")]
    pub dependency: Option<String>,
    /// Earliest start: 2026-12-01T08:00, 16:00, tomorrow, now+2hours; UTC without an offset.
    #[arg(short, long, value_name = "TIME")]
    pub begin: Option<String>,
    /// Time by which the allocation must have ended; the allocation is cancelled when that is no longer possible. A
    /// time of day is the first one after --begin.
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// Reservation; only its nodes are used.
    #[arg(long, value_name = "NAME")]
    pub reservation: Option<String>,
    /// Wait for quota headroom if the allocation fits the limits, but not with the present usage, instead of being
    /// refused; --wait-for-limit=false: be refused. A request above a limit itself is always refused [default: the
    /// setting of the tenant].
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub wait_for_limit: Option<bool>,
    /// Checkpoint mode of the job. The job can then save its state before a preemption and resumes from its last
    /// checkpoint.
    #[arg(long, value_name = "MODE", value_enum)]
    pub checkpoint: Option<CheckpointModeArg>,
    /// Directory for checkpoints, an absolute path [default: that of the site].
    #[arg(long, value_name = "DIR")]
    pub checkpoint_dir: Option<String>,
    /// Fraction of the input data that is on the hot tier, 0 to 1; a higher fraction gives a higher score. Left out:
    /// unknown, scored as 0.5.
    #[arg(long, value_name = "PART", allow_negative_numbers = true)]
    pub data_ready: Option<f64>,
    /// Time to write a checkpoint: 90s, 5m [default: estimated from the memory of the GPUs].
    #[arg(long, value_name = "TIME")]
    pub checkpoint_time: Option<String>,
    /// Bandwidth that the whole allocation needs of a storage system while it runs: scratch=40GB/s, home=500MB/s;
    /// repeat for several systems.
    #[arg(long = "storage", value_name = "SYSTEM=RATE", value_parser = storage)]
    storage: Vec<(String, f64)>,
    /// Environment variable for the processes; repeat for several.
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Working directory on the nodes, an absolute path [default: your home].
    #[arg(long, value_name = "DIR")]
    pub chdir: Option<String>,
    /// File for standard output, opened as your user on each node and appended to; relative to the working directory.
    /// %j is the allocation, %A the array, %a the index in the array, %r the rank, %n the node, %% a percent sign. Left
    /// out: the site's default file, if control's configuration sets one (`default_output`). Otherwise, and for `-`,
    /// each node keeps the output, and `lattice logs` shows it: the first and the last part if it is longer than 64 MiB,
    /// for 7 days after the end unless the site sets other limits. `lattice status ID` shows the place.
    #[arg(long, value_name = "PATH")]
    pub output: Option<String>,
    /// File for standard error; written like --output. Left out, with a default file: the file of standard output.
    #[arg(long, value_name = "PATH")]
    pub error: Option<String>,
}

/// Units of a size, with their bytes.
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

fn variable(pair: &str) -> Result<(String, String), String> {
    match pair.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// Reads the name of a storage system, and its bandwidth in GB/s.
fn storage(pair: &str) -> Result<(String, f64), String> {
    let (system, rate) =
        (pair.split_once('=')).ok_or_else(|| "write SYSTEM=RATE, as scratch=40GB/s".to_owned())?;
    let rate = read_bandwidth(rate).map_err(|error| error.to_string())?;
    Ok((system.to_owned(), rate))
}

impl Flags {
    /// Returns a clap command with these flags alone.
    pub fn command() -> Command {
        let command = Command::new("flags").no_binary_name(true);
        Self::augment_args(command.disable_help_flag(true))
    }

    /// Reads words such as those of [`GivenFlag::words`].
    ///
    /// # Errors
    /// An unknown flag, or an invalid value.
    pub fn read(words: &[String]) -> Result<Self, clap::Error> {
        Self::from_arg_matches(&Self::command().try_get_matches_from(words)?)
    }

    /// Returns the environment variables by name; for a repeated name the last value.
    pub fn env(&self) -> BTreeMap<String, String> {
        self.env.iter().cloned().collect()
    }

    /// Returns the bandwidths by storage system, GB/s.
    ///
    /// # Errors
    /// A system that is named twice.
    pub fn storage(&self) -> Result<BTreeMap<String, f64>, Failure> {
        let mut systems = BTreeMap::new();
        for (system, rate) in &self.storage {
            if systems.insert(system.clone(), *rate).is_some() {
                let text = format!("--storage: {system} is named twice");
                return Err(Failure::usage(text));
            }
        }
        Ok(systems)
    }
}

/// Flag as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenFlag {
    /// Long name of the flag.
    pub flag: String,
    /// `--flag`, or `--flag=value` for each value.
    pub words: Vec<String>,
}

impl GivenFlag {
    /// Returns the flags in `matches` that were given explicitly; flags with default values are left out.
    pub fn all(matches: &ArgMatches) -> Vec<Self> {
        let mut all = Vec::new();
        for argument in Flags::command().get_arguments() {
            let id = argument.get_id().as_str();
            let Some(flag) = argument.get_long() else {
                continue;
            };
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let values = matches.get_raw(id).into_iter().flatten();
            let words = match argument.get_action().takes_values() {
                false => vec![format!("--{flag}")],
                true => values
                    .map(|value| format!("--{flag}={}", value.to_string_lossy()))
                    .collect(),
            };
            all.push(Self {
                flag: flag.to_owned(),
                words,
            });
        }
        all
    }
}

/// Flags of the command line, which take precedence over a script's.
pub struct CommandLineFlags(pub Vec<GivenFlag>);

impl CommandLineFlags {
    /// Returns the words of a flag, if it was given.
    pub fn get(&self, flag: &str) -> Option<&[String]> {
        let given = self.0.iter().find(|given| given.flag == flag)?;
        Some(&given.words)
    }

    /// Returns the last value of a flag, if it was given with one.
    pub fn value(&self, flag: &str) -> Option<&str> {
        let (_, value) = self.get(flag)?.last()?.split_once('=')?;
        Some(value)
    }
}

impl FromArgMatches for CommandLineFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(GivenFlag::all(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for CommandLineFlags {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}
