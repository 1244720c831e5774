//! Options of sbatch and their translation. The options are those of Slurm 22.05 to 24.11.

use super::{
    Fault, Line, fault, gpus, one_line_error, pattern, shell_split,
    values::{self, Job, SubmitFlag},
};
use Argument::{Bare, Optional, Required};
use OptionTranslation::{Always, Flag, Read, Refused};
use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};

/// Value of an option: none, optional or required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    Bare,
    Optional,
    Required,
}

/// Translation of an option.
pub(super) enum OptionTranslation {
    /// Equivalent flag, with the same value.
    Flag(&'static str),
    /// Function that translates the value.
    Read(fn(&Job<'_>, &str) -> Result<Vec<SubmitFlag>, String>),
    /// The requested behaviour is always in effect.
    Always,
    /// Not supported: the reason, and what to do instead.
    Refused(&'static str),
}

/// Option of sbatch.
pub(super) struct SlurmOption {
    pub long: &'static str,
    short: Option<char>,
    argument: Argument,
    meaning: OptionTranslation,
}

const fn row(
    short: &str,
    long: &'static str,
    argument: Argument,
    meaning: OptionTranslation,
) -> SlurmOption {
    let short = match short.as_bytes() {
        [letter] => Some(*letter as char),
        _ => None,
    };
    SlurmOption {
        long,
        short,
        argument,
        meaning,
    }
}

/// Name of the option that makes the `#PBS` and `#BSUB` lines of a script plain comments.
pub(super) const IGNORE_PBS: &str = "ignore-pbs";

const PROCESSES: OptionTranslation = Refused(
    "one process is started per node, with all resources of the node; start further processes in the script and \
     remove this option",
);
const BINDING: OptionTranslation = Refused(
    "processes are not bound, because nodes are allocated exclusively; bind in the program and remove \
     this option",
);
const PROCESSORS: OptionTranslation =
    Refused("nodes are not chosen by their processors; name such nodes by a feature, --constraint");
const WHOLE_NODES: OptionTranslation =
    Refused("nodes are always allocated exclusively and are never shared; remove this option");
const BURST_BUFFER: OptionTranslation =
    Refused("burst buffers are not supported; let the script move its files, and leave it out");
const ACCOUNT: OptionTranslation =
    Refused("jobs run as the submitting user, named by the token; leave it out");
const COMMAND_LINE: OptionTranslation =
    Refused("it belongs on the command line; see lattice submit --help");
const CLUSTER: OptionTranslation = Refused(
    "only the cluster of the context file is used; leave it out, and give --context on the command \
     line",
);
const PRIORITY: OptionTranslation =
    Refused("priority is a class here; write #LATTICE --class, 0 to 10 (5 when it is left out)");
const GROUPS: OptionTranslation = Refused(
    "placement already uses as few topology groups as possible; remove this option, or use #LATTICE --spread",
);
const BOOT: OptionTranslation = Refused("nodes are not rebooted for a job; leave it out");
const SETTING: OptionTranslation =
    Refused("not supported as a job option; remove it, or set it in the script");
const GPU_SETTING: OptionTranslation =
    Refused("not supported as a job option; remove it, and use --gpus-per-node");
const CONTAINER: OptionTranslation =
    Refused("no container is started; start it in the script, and leave it out");

/// All options, by name.
pub(super) static OPTIONS: &[SlurmOption] = &[
    row("A", "account", Required, Flag("project")),
    row("", "acctg-freq", Required, SETTING),
    row("a", "array", Required, Flag("array")),
    row(
        "",
        "batch",
        Required,
        Refused("the script runs on every node; name their features with --constraint"),
    ),
    row("", "bb", Required, BURST_BUFFER),
    row("", "bbf", Required, BURST_BUFFER),
    row("b", "begin", Required, Flag("begin")),
    row("D", "chdir", Required, Read(values::chdir)),
    row("", "cluster-constraint", Required, CLUSTER),
    row("M", "clusters", Required, CLUSTER),
    row("", "comment", Required, Flag("comment")),
    row("", "consolidate-segments", Bare, GROUPS),
    row("C", "constraint", Required, Read(values::features)),
    row("", "container", Required, CONTAINER),
    row("", "container-id", Required, CONTAINER),
    row("", "contiguous", Bare, GROUPS),
    row("S", "core-spec", Required, WHOLE_NODES),
    row("", "cores-per-socket", Required, PROCESSORS),
    row("", "cpu-freq", Required, SETTING),
    row("", "cpus-per-gpu", Required, PROCESSES),
    row("c", "cpus-per-task", Required, Read(values::cpus_per_task)),
    row("", "deadline", Required, Flag("deadline")),
    row("", "delay-boot", Required, BOOT),
    row("d", "dependency", Required, Flag("dependency")),
    row("m", "distribution", Required, PROCESSES),
    row("e", "error", Required, Read(pattern::error)),
    row("x", "exclude", Required, Read(values::exclude)),
    row("", "exclusive", Optional, Read(values::exclusive)),
    row("", "export", Required, Read(values::export)),
    row(
        "",
        "export-file",
        Required,
        Refused("no file of variables is read; write --export=NAME=VALUE"),
    ),
    row("", "external-launcher", Bare, PROCESSES),
    row("", "extra", Required, SETTING),
    row("B", "extra-node-info", Required, PROCESSORS),
    row(
        "",
        "get-user-env",
        Optional,
        Refused("the user environment is not loaded; write --export=NAME=VALUE"),
    ),
    row("", "gid", Required, ACCOUNT),
    row("", "gpu-bind", Required, BINDING),
    row("", "gpu-freq", Required, GPU_SETTING),
    row("G", "gpus", Required, Read(gpus::total_gpus)),
    row("", "gpus-per-node", Required, Read(gpus::per_node)),
    row(
        "",
        "gpus-per-socket",
        Required,
        Refused("GPUs are requested per node; write --gpus-per-node"),
    ),
    // One process runs on each node, so this equals the number per node.
    row("", "gpus-per-task", Required, Read(gpus::per_node)),
    row("", "gres", Required, Read(gpus::gres)),
    row("", "gres-flags", Required, GPU_SETTING),
    row("h", "help", Bare, COMMAND_LINE),
    row("", "hint", Required, BINDING),
    row("H", "hold", Bare, Read(values::hold)),
    row("", IGNORE_PBS, Bare, Always),
    row(
        "i",
        "input",
        Required,
        Refused("standard input is empty; read the file in the script: program < file"),
    ),
    row("J", "job-name", Required, Flag("name")),
    row(
        "",
        "kill-on-invalid-dep",
        Required,
        Read(values::kill_on_invalid_dep),
    ),
    row(
        "L",
        "licenses",
        Required,
        Refused("licences are not counted; leave it out"),
    ),
    row("", "mail-type", Required, Read(values::mail_type)),
    row(
        "",
        "mail-user",
        Required,
        Refused("no mail is sent; leave it out, and see lattice status"),
    ),
    row(
        "",
        "mcs-label",
        Required,
        Refused("MCS labels are not supported; the site configures the visibility of jobs"),
    ),
    row("", "mem", Required, Read(values::memory)),
    row("", "mem-bind", Required, BINDING),
    row(
        "",
        "mem-per-cpu",
        Required,
        Refused("memory is requested per node; write --mem, that of each node"),
    ),
    row(
        "",
        "mem-per-gpu",
        Required,
        Refused("memory is requested per node; write --mem, that of each node"),
    ),
    row("", "mincpus", Required, PROCESSORS),
    row("", "network", Required, SETTING),
    row("", "nice", Optional, PRIORITY),
    row(
        "k",
        "no-kill",
        Optional,
        Refused("a job that loses a node ends or is requeued (--requeue); leave it out"),
    ),
    row("", "no-requeue", Bare, Read(values::no_requeue)),
    row(
        "F",
        "nodefile",
        Required,
        Refused("no file of nodes is read; write them with --nodelist"),
    ),
    row("w", "nodelist", Required, Read(values::nodelist)),
    row("N", "nodes", Required, Read(values::nodes)),
    row("n", "ntasks", Required, Read(values::ntasks)),
    row("", "ntasks-per-core", Required, PROCESSES),
    row("", "ntasks-per-gpu", Required, PROCESSES),
    row(
        "",
        "ntasks-per-node",
        Required,
        Read(values::ntasks_per_node),
    ),
    row("", "ntasks-per-socket", Required, PROCESSES),
    row("", "oom-kill-step", Optional, SETTING),
    row("", "open-mode", Required, Read(values::open_mode)),
    row("o", "output", Required, Read(pattern::output)),
    row("O", "overcommit", Bare, PROCESSES),
    row("s", "oversubscribe", Bare, WHOLE_NODES),
    row("", "parsable", Bare, Always),
    row("p", "partition", Required, Read(values::vcluster)),
    row("", "power", Required, SETTING),
    row(
        "",
        "prefer",
        Required,
        Refused("optional features are not supported; leave it out, or see --constraint"),
    ),
    row("", "priority", Required, PRIORITY),
    row(
        "",
        "profile",
        Required,
        Refused("profiling is not supported; leave it out"),
    ),
    row(
        "",
        "propagate",
        Optional,
        Refused("resource limits of the submitting shell are not sent; set them in the script"),
    ),
    row(
        "q",
        "qos",
        Required,
        Refused(
            "a project's limits apply to all its jobs, and priority is a class; write #LATTICE \
             --class, 0 to 10",
        ),
    ),
    row("Q", "quiet", Bare, Always),
    row("", "reboot", Bare, BOOT),
    row("", "requeue", Bare, Read(values::requeue)),
    row("", "reservation", Required, Flag("reservation")),
    row("", "resv-ports", Optional, SETTING),
    row("", "segment", Required, GROUPS),
    row("", "share", Bare, WHOLE_NODES),
    row(
        "",
        "signal",
        Required,
        Refused("no signal is sent before the end; leave it out, and catch the SIGTERM at the end"),
    ),
    row("", "sockets-per-node", Required, PROCESSORS),
    row(
        "",
        "spread-job",
        Bare,
        Refused(
            "nodes are always allocated exclusively; remove this option, or use #LATTICE --spread spread",
        ),
    ),
    row("", "stepmgr", Bare, PROCESSES),
    row("", "switches", Required, GROUPS),
    // Alias of `ntasks-per-node`.
    row(
        "",
        "tasks-per-node",
        Required,
        Read(values::ntasks_per_node),
    ),
    row(
        "",
        "test-only",
        Bare,
        Refused("give --dry-run on the command line"),
    ),
    row("", "thread-spec", Required, WHOLE_NODES),
    row("", "threads-per-core", Required, PROCESSORS),
    row("t", "time", Required, Read(values::time)),
    row(
        "",
        "time-min",
        Required,
        Refused("the time limit is never reduced to start a job earlier; use --time only"),
    ),
    row(
        "",
        "tmp",
        Required,
        Refused("nodes are not chosen by their disks; name such nodes by a feature, --constraint"),
    ),
    row("", "tres-bind", Required, BINDING),
    row("", "tres-per-task", Required, PROCESSES),
    row("", "uid", Required, ACCOUNT),
    row("", "usage", Bare, COMMAND_LINE),
    row(
        "",
        "use-min-nodes",
        Bare,
        Refused("there is no range of nodes to choose from; leave it out, and see --nodes"),
    ),
    row("v", "verbose", Bare, COMMAND_LINE),
    row("V", "version", Bare, COMMAND_LINE),
    row(
        "W",
        "wait",
        Bare,
        Refused("submit does not wait for the end; leave it out, and see lattice status"),
    ),
    row("", "wait-all-nodes", Required, Read(values::wait_all_nodes)),
    row(
        "",
        "wckey",
        Required,
        Refused("usage is charged to the project; leave it out, and see --account"),
    ),
    row(
        "",
        "wrap",
        Required,
        Refused("the script itself is what runs; leave it out"),
    ),
    row(
        "",
        "x11",
        Optional,
        Refused("no display is forwarded; leave it out"),
    ),
];

impl SlurmOption {
    /// Translates the option to flags of `lattice submit`.
    pub fn read(&self, value: &str, job: &Job<'_>) -> Result<Vec<SubmitFlag>, String> {
        match self.meaning {
            Flag(flag) => Ok(vec![SubmitFlag::new(flag, value)]),
            Read(read) => read(job, value),
            Always => Ok(Vec::new()),
            Refused(reason) => Err(reason.to_owned()),
        }
    }

    /// Whether the option requires a value.
    #[cfg(test)]
    pub fn requires_value(&self) -> bool {
        self.argument == Required
    }

    fn argument(&self) -> Arg {
        let arg = Arg::new(self.long).long(self.long);
        let arg = match self.short {
            Some(letter) => arg.short(letter),
            None => arg,
        };
        match self.argument {
            Bare => arg.action(ArgAction::SetTrue),
            Required => arg.num_args(1).allow_hyphen_values(true),
            Optional => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(""),
        }
    }

    fn value(&self, matches: &ArgMatches) -> Option<String> {
        if matches.value_source(self.long) != Some(ValueSource::CommandLine) {
            return None;
        }
        match self.argument {
            Bare => Some(String::new()),
            _ => matches.get_one::<String>(self.long).cloned(),
        }
    }
}

/// Option in a line of a script.
pub(super) struct SlurmDirective<'a> {
    pub line: &'a Line<'a>,
    pub option: &'static SlurmOption,
    /// Value; empty if there is none.
    pub value: String,
}

/// Returns the value of an option, if it was given.
pub(super) fn value<'a>(said: &'a [SlurmDirective<'_>], long: &str) -> Option<&'a str> {
    let found = said.iter().find(|said| said.option.long == long)?;
    Some(&found.value)
}

/// Returns the parser for sbatch's options, which accepts unambiguous prefixes of names as sbatch does.
fn command() -> Command {
    let command = Command::new("#SBATCH")
        .no_binary_name(true)
        .infer_long_args(true);
    let command = command.disable_help_flag(true).disable_version_flag(true);
    command.args(OPTIONS.iter().map(SlurmOption::argument))
}

/// Reads the options of one line.
pub(super) fn line<'a>(line: &'a Line<'a>, all: &mut Vec<SlurmDirective<'a>>) -> Result<(), Fault> {
    let words = shell_split::split(line.text).map_err(|reason| fault(line, "", reason))?;
    if let Some(word @ ("hetjob" | "packjob")) = words.first().map(String::as_str) {
        let reason = "heterogeneous jobs are not supported; submit each part, one after the other";
        return Err(fault(line, word, reason));
    }
    let matches = command().try_get_matches_from(words);
    let matches = matches.map_err(|error| fault(line, "", one_line_error(&error)))?;
    for option in OPTIONS {
        let Some(value) = option.value(&matches) else {
            continue;
        };
        if let Some(before) = all.iter().find(|said| said.option.long == option.long) {
            let reason = format!(
                "option already set on line {}; set it once",
                before.line.number
            );
            return Err(fault(line, &format!("--{}", option.long), reason));
        }
        all.push(SlurmDirective {
            line,
            option,
            value,
        });
    }
    Ok(())
}
