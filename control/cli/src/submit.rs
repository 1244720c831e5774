//! `lattice submit`: requests nodes for a program or script.

mod flags;
mod joined_values;
mod script;

use crate::{
    allocation::{score_text, with_details},
    connect::Connection,
    failure::Failure,
    output::{self, Format},
};
use anyhow::Context as _;
use clap::{Arg, Args, CommandFactory as _, ValueEnum};
use flags::{CommandLineFlags, Flags};
pub use joined_values::separate as separate_joined_values;
use lattice_api::{
    allocation::{AllocationRequest, CheckpointBody, ConstraintsBody},
    outlook::OutlookView,
    problem::FieldError,
};
use lattice_client::{ClientError, SubmitOptions, SubmitResult};
use lattice_quorum_types::limit::OnLimit;
use script::{Directive, DirectiveKind, Fault, Header, ScriptContext};
use std::{fs, io::Read as _, path::Path};

/// Request nodes for a program or script; prints the allocation number.
///
/// For example: lattice submit --project atlas/operations/web --nodes 4 --walltime 2h -- ./run --fast, or lattice submit
/// job.sh
///
/// A script may contain flags before its first command: #LATTICE --nodes 4 --walltime 2h, and the common ones of
/// #SBATCH --nodes=4 --time=2:00:00. Options that are not supported are rejected by name. For each flag, the command
/// line takes precedence over #LATTICE, and #LATTICE over #SBATCH. A script runs once on every node.
#[derive(Args)]
#[command(override_usage = "lattice submit [OPTIONS] SCRIPT [ARGS]...\n       \
                            lattice submit [OPTIONS] -- COMMAND [ARGS]...")]
pub struct SubmitArgs {
    #[command(flatten)]
    said: CommandLineFlags,
    /// Script to run without arguments; its file does not name the allocation. `-` reads it from standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "job"])]
    script: Option<String>,
    /// Submit nothing: report whether the request would be accepted now (exit code 0), and when and where it would
    /// start, or why it would wait.
    #[arg(long)]
    dry_run: bool,
    /// Idempotency key. A repeated submit with the same key creates no second allocation (for 24 hours).
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Script to run, with its arguments; `-` reads it from standard input. Its first line is #! and the path of an
    /// interpreter. Everything after it belongs to the script, also options such as --dry-run; a note names them.
    // clap takes everything after the first value verbatim, and also accepts an unknown flag as the first value, which
    // `SubmitArgs::read_input` rejects.
    #[arg(
        value_name = "SCRIPT",
        allow_hyphen_values = true,
        conflicts_with = "command"
    )]
    job: Vec<String>,
    /// Program and arguments, after `--`.
    #[arg(last = true, required_unless_present_any = ["script", "job"])]
    command: Vec<String>,
}

/// Request of the command line and the script together.
struct SubmitInput {
    flags: Flags,
    /// Text of the script.
    script: Option<String>,
    argv: Vec<String>,
    /// File name of the script, and the flags in it.
    header: Option<(String, Header)>,
}

/// Mistake, with its line in the script; line 0: not in the script.
type ScriptError = (usize, String);

/// Reports all mistakes at once.
fn combined_failure(mut wrong: Vec<ScriptError>) -> Failure {
    wrong.sort_by_key(|(line, _)| *line);
    let count = wrong.len();
    let texts: Vec<String> = wrong.into_iter().map(|(_, text)| text).collect();
    let texts = texts.join("\n");
    Failure::usage(match count {
        1 => texts,
        _ => format!("not submitted: {count} errors\n{texts}"),
    })
}

/// Returns the command-line flag for a field of the request, without its dashes.
fn flag(field: &str) -> String {
    match field {
        "storage_gb_s" => "storage".to_owned(),
        "working_dir" => "chdir".to_owned(),
        "dependencies" | "after" => "dependency".to_owned(),
        "on_limit" => "wait-for-limit".to_owned(),
        "checkpoint.mode" => "checkpoint".to_owned(),
        "checkpoint.directory" => "checkpoint-dir".to_owned(),
        "constraints.memory_bytes" => "memory".to_owned(),
        "constraints.gpu_models" => "gpu-model".to_owned(),
        "constraints.features" => "feature".to_owned(),
        field => {
            let name = field.strip_prefix("constraints.").unwrap_or(field);
            name.replace('_', "-")
        }
    }
}

/// Replaces the field of a constraint at the start of a refusal by its flag: `--nodelist` for `constraints.nodelist`.
fn with_flag(refusal: &str, field: &str) -> String {
    let rest = refusal.strip_prefix(field);
    match rest.filter(|rest| field.starts_with("constraints.") && rest.starts_with(':')) {
        Some(rest) => format!("--{}{rest}", flag(field)),
        None => refusal.to_owned(),
    }
}

/// Reads a script; `-` is standard input.
fn read_script(file: &str) -> Result<String, Failure> {
    let mut text = String::new();
    if file == "-" {
        let read = std::io::stdin().read_to_string(&mut text);
        read.context("cannot read the script from standard input")?;
        return Ok(text);
    }
    let bytes = fs::read(file).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "; a command is written after --, as lattice submit -- hostname"
            }
            _ => "",
        };
        Failure::usage(format!("script {file}: {error}{hint}"))
    })?;
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage(format!(
            "script {file}: it is not text; a program is written after --, as lattice submit -- \
             {file}"
        ))
    })
}

fn on_limit(waits: bool) -> OnLimit {
    match waits {
        true => OnLimit::Wait,
        false => OnLimit::Reject,
    }
}

/// Note on a refusal that --wait-for-limit would avoid: the request fits every violated limit, but not with the present
/// usage.
fn wait_note(error: &ClientError) -> Option<&'static str> {
    let problem = error.problem()?;
    let violations = &problem.violations;
    let could_wait = matches!(&*problem.code, "limit_exceeded" | "sensitive_pool")
        && !violations.is_empty()
        && violations
            .iter()
            .all(|violation| violation.requested <= violation.limit);
    could_wait
        .then_some("with --wait-for-limit the request is accepted, and waits for quota headroom")
}

fn word<T: ValueEnum>(value: Option<T>) -> Option<String> {
    Some(value?.to_possible_value()?.get_name().to_owned())
}

impl SubmitArgs {
    /// Reads the script, if there is one, and merges its flags with the command line.
    fn read_input(&self) -> Result<SubmitInput, Failure> {
        if let Some(word) = self
            .job
            .first()
            .filter(|word| word.starts_with('-') && *word != "-")
        {
            let read = Flags::read(std::slice::from_ref(word)).err();
            let why = read.map_or_else(
                || format!("{word:?} is not a script"),
                |e| script::one_line_error(&e),
            );
            return Err(Failure::usage(format!("{why} (see lattice submit --help)")));
        }
        let (file, name) = match (&self.script, self.job.first()) {
            (Some(file), _) => (Some(file), None),
            (None, Some(file)) => (Some(file), Path::new(file).file_name()),
            (None, None) => (None, None),
        };
        let name = name
            .and_then(|name| name.to_str())
            .filter(|name| *name != "-");
        let script = file.map(|file| read_script(file)).transpose()?;
        if let (Some(file), Some(text)) = (file, &script) {
            let name = match file.as_str() {
                "-" => "from standard input",
                file => file,
            };
            script::check_text(text, name).map_err(Failure::usage)?;
        }
        let header = file.zip(script.as_ref()).map(|(file, text)| {
            let said = &self.said;
            (
                file.clone(),
                script::read(
                    text,
                    &ScriptContext {
                        name,
                        command_line: said,
                    },
                ),
            )
        });
        let directives = header.as_ref().map(|(_, header)| &*header.directives);
        let words = script::merge_flags(directives.unwrap_or_default(), &self.said);
        let mut flags = Flags::read(&words).map_err(|error| {
            let mut wrong = faults(header.as_ref());
            wrong.push((0, script::one_line_error(&error)));
            combined_failure(wrong)
        })?;
        flags.name = flags.name.or_else(|| name.map(str::to_owned));
        let arguments = self.job.iter().skip(1).chain(&self.command);
        Ok(SubmitInput {
            flags,
            script,
            argv: arguments.cloned().collect(),
            header,
        })
    }

    /// Returns a note on options after the script, which belong to the script as those of sbatch do. Without the note,
    /// `lattice submit job.sh --dry-run` would submit without a word.
    fn passed_note(&self) -> Option<String> {
        let passed = passed_options(self.job.get(1..)?);
        let all = passed.join(", ");
        match passed.len() {
            0 => None,
            1 => Some(format!("{all} comes after the script and is passed to it")),
            _ => Some(format!("{all} come after the script and are passed to it")),
        }
    }
}

/// Returns the words after a script that would be options before it, each with its value.
fn passed_options(words: &[String]) -> Vec<String> {
    let command = crate::Cli::command();
    let submit = command.find_subcommand("submit");
    let own = submit.into_iter().flat_map(|submit| submit.get_arguments());
    let known: Vec<&Arg> = command.get_arguments().chain(own).collect();
    let mut found = Vec::new();
    let mut words = words.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        let (option, has_value) = match word.strip_prefix("--") {
            Some(long) => {
                let name = long.split('=').next();
                let option = known.iter().find(|arg| arg.get_long() == name);
                (option, long.contains('='))
            }
            None => {
                let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
                let short = letters.next();
                let is_known = |arg: &&&Arg| short.is_some() && arg.get_short() == short;
                let option = known.iter().find(is_known);
                (option, !letters.as_str().is_empty())
            }
        };
        let Some(option) = option else { continue };
        let value = match option.get_action().takes_values() && !has_value {
            true => words.next(),
            false => None,
        };
        found.push(match value {
            Some(value) => format!("{word} {value}"),
            None => word.clone(),
        });
    }
    found
}

/// Returns the mistakes in the lines of a script.
fn faults(header: Option<&(String, Header)>) -> Vec<ScriptError> {
    let faults = header.iter().flat_map(|(file, header)| {
        let line_and_text = move |fault: &Fault| (fault.line, format!("{file}:{fault}"));
        header.faults.iter().map(line_and_text)
    });
    faults.collect()
}

impl SubmitInput {
    fn request(&self) -> Result<AllocationRequest, Failure> {
        let flags = &self.flags;
        let project = flags.project.clone().ok_or_else(|| {
            Failure::usage(
                "--project: name the project whose limits apply, here, or in a script as #LATTICE --project \
                 atlas/operations/web or #SBATCH --account=atlas/operations/web; `lattice project tree` lists the \
                 projects",
            )
        })?;
        Ok(AllocationRequest {
            project,
            nodes: flags.nodes,
            name: flags.name.clone(),
            vcluster: flags.vcluster.clone(),
            argv: self.argv.clone(),
            script: self.script.clone(),
            env: flags.env(),
            working_dir: flags.chdir.clone(),
            walltime: flags.walltime.clone(),
            class: flags.class,
            sensitive: flags.sensitive,
            constraints: ConstraintsBody {
                gpu_models: flags.gpu_models.clone(),
                gpus_per_node: flags.gpus_per_node,
                memory_bytes: flags.memory,
                features: flags.features.clone(),
                nodelist: flags.nodelist.clone(),
                exclude: flags.exclude.clone(),
                spread: word(flags.spread),
            },
            requeue: word(flags.requeue),
            hold: flags.hold,
            output: flags.output.clone(),
            error: flags.error.clone(),
            data_ready: flags.data_ready,
            checkpoint_time: flags.checkpoint_time.clone(),
            storage_gb_s: flags.storage()?,
            array: flags.array.clone(),
            dependency: flags.dependency.clone(),
            begin: flags.begin.clone(),
            deadline: flags.deadline.clone(),
            reservation: flags.reservation.clone(),
            on_limit: flags
                .wait_for_limit
                .map(|waits| on_limit(waits).to_string()),
            checkpoint: flags.checkpoint.map(|mode| CheckpointBody {
                mode: word(Some(mode)).unwrap_or_default(),
                trigger: None,
                directory: flags.checkpoint_dir.clone(),
            }),
            // `dependency` covers all dependencies, and the other fields have no flag.
            dependencies: Vec::new(),
            singleton: false,
            mutex: None,
            scale: None,
        })
    }

    /// Returns the request, or all mistakes in it.
    fn check_request(&self, said: &CommandLineFlags) -> Result<AllocationRequest, Failure> {
        let mut wrong = faults(self.header.as_ref());
        // The two flags may be on different lines, so clap cannot check this.
        if self.flags.checkpoint_dir.is_some() && self.flags.checkpoint.is_none() {
            let error = FieldError {
                field: "checkpoint.directory".to_owned(),
                reason: "give --checkpoint too: how the job is requested to write one".to_owned(),
            };
            wrong.push(self.script_error(&error, said));
        }
        match self.request() {
            // The server's rules are checked here, so that a mistake is reported with its flag before a request is
            // sent.
            Ok(request) => {
                wrong.extend(
                    request
                        .faults()
                        .iter()
                        .map(|error| self.script_error(error, said)),
                );
                if wrong.is_empty() {
                    return Ok(request);
                }
            }
            Err(failure) => wrong.push((0, failure.text)),
        }
        Err(combined_failure(wrong))
    }

    /// Returns notes on differences from sbatch that the author of a script may not expect.
    fn notes(&self) -> Vec<String> {
        let directives = self.header.as_ref().map(|(_, header)| &*header.directives);
        let slurm = directives.unwrap_or_default().iter();
        let slurm: Vec<&Directive> = slurm
            .filter(|one| one.kind == DirectiveKind::Slurm)
            .collect();
        if slurm.is_empty() {
            return Vec::new();
        }
        let mut notes = Vec::new();
        let nodes = self.flags.nodes;
        if nodes > 1 {
            notes.push(format!(
                "the script runs on each of the {nodes} nodes; sbatch would run it on the first alone"
            ));
        }
        if self.flags.chdir.is_none() {
            notes.push(
                "the script runs in your home directory on the nodes, because --chdir is not given; sbatch would \
                 run it in the current directory"
                .to_owned(),
            );
        }
        for (flag, text) in [
            ("begin", &self.flags.begin),
            ("deadline", &self.flags.deadline),
        ] {
            let is_said = slurm.iter().any(|one| one.given.flag == flag);
            if let Some(text) = text
                .as_deref()
                .filter(|text| is_said && depends_on_time_zone(text))
            {
                notes.push(format!(
                    "--{flag}={text} is UTC; sbatch would take it as the time here: write it with an offset, as \
                     2026-12-01T08:00+01:00"
                ));
            }
        }
        if let Some(name) = self.script.as_deref().and_then(slurm_variable) {
            notes.push(format!(
                "the script uses {name}, which is not set here; see LATTICE_ARRAY_INDEX, \
                 LATTICE_ALLOCATION_ID, LATTICE_NNODES and LATTICE_NODE_RANK"
            ));
        }
        notes
    }

    /// Describes a mistake by its flag, with its place in the script unless the command line sets the flag.
    fn script_error(&self, error: &FieldError, said: &CommandLineFlags) -> ScriptError {
        let flag = flag(&error.field);
        let mut lines = self.header.iter().flat_map(|(file, header)| {
            let directives = header.directives.iter();
            directives.map(move |directive| (file, directive))
        });
        let here = lines.find(|(_, directive)| directive.given.flag == flag);
        match here.filter(|_| said.get(&flag).is_none()) {
            Some((file, directive)) => (
                directive.line,
                format!("{file}:{}: {}", directive.place(), error.reason),
            ),
            None => (0, format!("--{flag}: {}", error.reason)),
        }
    }
}

/// Whether a time depends on the time zone.
fn depends_on_time_zone(text: &str) -> bool {
    !text.trim().to_ascii_lowercase().starts_with("now")
        && lattice_api::text::read_time(text.trim()).is_none()
}

/// Returns the first Slurm variable that a script uses, outside its comments.
fn slurm_variable(script: &str) -> Option<&str> {
    let code = script
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    code.filter_map(|line| {
        let from = &line[line.find("SLURM_")?..];
        let is_of_it = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let end = from.find(|c| !is_of_it(c)).unwrap_or(from.len());
        Some(&from[..end])
    })
    .next()
}

/// Maximum number of repeats of a submit without an answer, with the same key.
const REPEATS: u32 = 2;

/// Submits at most once, whatever happens to the answer. A submit without an answer may have been accepted, so it is
/// repeated with its key, and a final failure reports the key.
async fn submit(
    args: &SubmitArgs,
    request: &AllocationRequest,
    connection: &Connection,
) -> Result<SubmitResult, Failure> {
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
                let note = wait_note(&error);
                let field = error.problem().and_then(|problem| problem.field.clone());
                let mut failure = Failure::from(error);
                if let Some(field) = field {
                    failure.text = with_flag(&failure.text, &field);
                }
                if let Some(note) = note {
                    failure.text.push_str(&format!("\nnote: {note}"));
                }
                if failure.is_unreachable() && !args.dry_run {
                    failure.text.push_str(&format!(
                        "\nit is unknown whether the submit was accepted; repeat the command with \
                         --idempotency-key {key}, which never submits twice"
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
        (None, Some(score)) => format!("{}\n{}", outlook.summary, score_text(score)),
        (None, None) => outlook.summary,
    }
}

/// Submits, and prints the allocation number.
pub async fn run(args: &SubmitArgs, connection: &Connection) -> Result<(), Failure> {
    let asked = args.read_input()?;
    let request = asked.check_request(&args.said)?;
    for note in asked.notes().into_iter().chain(args.passed_note()) {
        output::message!("note: {note}");
    }
    let answer = submit(args, &request, connection).await?;
    match (connection.format, answer.id) {
        (Format::Table | Format::Wide, Some(id)) => Ok(output::line(&id.to_string())?),
        (Format::Table | Format::Wide, None) => {
            let revision = answer.revision.0;
            output::message!(
                "dry run: would be accepted (at revision {revision}); nothing was submitted"
            );
            match answer.outlook {
                Some(outlook) => Ok(output::line(&in_words(outlook))?),
                None => {
                    output::message!(
                        "this control cannot plan at present: the start time is unknown"
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
            Ok(output::print_record(format, &answer, columns, row)?)
        }
    }
}

#[cfg(test)]
mod tests;
