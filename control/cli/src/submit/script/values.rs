//! Values of Slurm's options, translated.

use super::{Directive, ScriptContext};
use lattice_api::duration;
use lattice_quorum_types::hostlist;

/// Flag of `lattice submit`, with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SubmitFlag {
    pub flag: &'static str,
    pub value: Option<String>,
    /// Flag that this one accompanies.
    pub with: Option<&'static str>,
}

impl SubmitFlag {
    pub fn new(flag: &'static str, value: impl Into<String>) -> Self {
        Self {
            flag,
            value: Some(value.into()),
            with: None,
        }
    }
}

/// Translated flags, or what is wrong with the value.
pub(super) type Translation = Result<Vec<SubmitFlag>, String>;

/// Values of other options that the translation of an option depends on.
pub(super) struct Job<'a> {
    /// `#SBATCH --nodes`, if it is a number.
    pub nodes: Option<u32>,
    /// Number of nodes in the script: given as a number, or by naming nodes.
    pub nodes_in_script: Option<u32>,
    /// Number of nodes, with the command line taken into account.
    pub node_count: u32,
    /// Whether `#SBATCH --nodes` is present but not a number, which is reported elsewhere.
    is_nodes_invalid: bool,
    /// Name of the allocation.
    pub name: Option<&'a str>,
    /// Whether `#SBATCH --error` is present.
    pub has_error: bool,
}

impl<'a> Job<'a> {
    /// Collects the values from the Slurm options, the `#LATTICE` flags (`ours`) and the command line. `their` returns
    /// the value of a Slurm option, if the script gives it.
    pub fn of(
        their: impl Fn(&str) -> Option<&'a str>,
        ours: &'a [Directive],
        outside: &ScriptContext<'a>,
    ) -> Self {
        let our = |flag: &str| {
            let found = ours.iter().find(|directive| directive.given.flag == flag)?;
            let (_, value) = found.given.words.last()?.split_once('=')?;
            Some(value)
        };
        let nodes = their("nodes").and_then(|nodes| nodes.parse().ok());
        let listed = || count(their("nodelist")?);
        let nodes_here = (our("nodes").and_then(|nodes| nodes.parse().ok()))
            .or(nodes)
            .or_else(listed);
        let nodes_said = outside
            .command_line
            .value("nodes")
            .and_then(|nodes| nodes.parse().ok());
        Self {
            nodes,
            nodes_in_script: nodes_here,
            node_count: nodes_said.or(nodes_here).unwrap_or(1),
            is_nodes_invalid: nodes.is_none() && their("nodes").is_some(),
            name: (outside.command_line.value("name"))
                .or_else(|| our("name"))
                .or_else(|| their("job-name"))
                .or(outside.name),
            has_error: their("error").is_some(),
        }
    }
}

/// Returns the number of nodes in a list; `None` for an invalid list.
fn count(list: &str) -> Option<u32> {
    u32::try_from(hostlist::expand(list).ok()?.len()).ok()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

pub(super) fn nodes(_: &Job<'_>, text: &str) -> Translation {
    match is_number(text) {
        true => Ok(vec![SubmitFlag::new("nodes", text)]),
        false if text.contains('-') => Err(format!(
            "{text:?}: a range is not supported; write one number"
        )),
        false => Err(format!(
            "{text:?} is not a valid number of nodes; write it like 4"
        )),
    }
}

pub(super) fn nodelist(job: &Job<'_>, text: &str) -> Translation {
    let list = hosts(text)?;
    let listed = count(text).unwrap_or(0);
    match job.nodes {
        Some(nodes) if nodes > listed => Err(format!(
            "lists {listed} of {nodes} nodes; sbatch would add further nodes, Lattice does not; list all nodes, or \
             write #LATTICE --nodes {listed}"
        )),
        Some(nodes) if nodes < listed => Err(format!(
            "lists {listed} nodes, but --nodes is {nodes}; give the same number, or write \
             #LATTICE --nodelist, of which --nodes many are used"
        )),
        Some(_) => Ok(vec![SubmitFlag::new("nodelist", list)]),
        None => Ok(vec![
            SubmitFlag::new("nodelist", list),
            // All of the named nodes are requested, as in sbatch.
            SubmitFlag {
                with: Some("nodelist"),
                ..SubmitFlag::new("nodes", listed.to_string())
            },
        ]),
    }
}

pub(super) fn exclude(_: &Job<'_>, text: &str) -> Translation {
    Ok(vec![SubmitFlag::new("exclude", hosts(text)?)])
}

/// Checks a hostlist; a file name is rejected.
fn hosts(text: &str) -> Result<&str, String> {
    if text.contains('/') {
        return Err(format!(
            "{text:?}: no file of nodes is read; write the nodes themselves, as gpu[001-004]"
        ));
    }
    hostlist::expand(text).map_err(|error| error.to_string())?;
    Ok(text)
}

/// Reads a time limit as Slurm does, see [`slurm_time_ms`]. 0, -1, UNLIMITED and INFINITE mean no limit, as without
/// `--time`.
pub(super) fn time(_: &Job<'_>, text: &str) -> Translation {
    let is_unlimited = ["unlimited", "infinite", "-1"]
        .iter()
        .any(|none| text.eq_ignore_ascii_case(none));
    let is_zero = text.contains('0') && text.bytes().all(|b| matches!(b, b'0' | b':' | b'-'));
    if is_unlimited || is_zero {
        return Ok(Vec::new());
    }
    let ms = slurm_time_ms(text).map_err(|reason| {
        format!(
            "{text:?} is not a valid time limit: {reason}; write minutes, minutes:seconds, \
             hours:minutes:seconds, days-hours, days-hours:minutes or days-hours:minutes:seconds"
        )
    })?;
    // A text with the same meaning in both notations stays as written.
    let ours = match (text.contains('-'), text.matches(':').count()) {
        (false, 0) => format!("{text}m"),
        (true, 0) => format!("{text}:00:00"),
        (true, 1) => format!("{text}:00"),
        _ => text.to_owned(),
    };
    let walltime = match duration::parse(&ours) {
        Ok(same) if same == ms => ours,
        _ => duration::format(ms),
    };
    Ok(vec![SubmitFlag::new("walltime", walltime)])
}

/// Reads `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes` and
/// `days-hours:minutes:seconds`, and returns milliseconds. As in Slurm, every part may have any value (`00:90:00` is 90
/// minutes), and the sum is rounded up to whole minutes.
fn slurm_time_ms(text: &str) -> Result<u64, &'static str> {
    const TOO_LONG: &str = "it is longer than ten years";
    let is_allowed = |b: u8| b.is_ascii_digit() || b == b':' || b == b'-';
    if !text.bytes().all(is_allowed) {
        return Err("it has numbers, colons and one dash only");
    }
    let number = |digits: &str| match is_number(digits) {
        true => digits.parse::<u64>().map_err(|_| TOO_LONG),
        false => Err("its parts are whole numbers"),
    };
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let parts: Vec<u64> = clock.split(':').map(number).collect::<Result<_, _>>()?;
    let (hours, minutes, seconds) = match (days, &parts[..]) {
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (Some(_), [hours]) => (*hours, 0, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (None, [minutes]) => (0, *minutes, 0),
        _ => return Err("it has too many colons"),
    };
    let sum_ms = || {
        let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
        let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
        let minutes = minutes.checked_add(seconds.div_ceil(60))?;
        minutes.checked_mul(60_000)
    };
    match sum_ms() {
        Some(ms) if ms <= duration::MAX_MS => Ok(ms),
        _ => Err(TOO_LONG),
    }
}

/// Reads the memory per node: a number with K, M, G or T (powers of 1,024); without a unit, M.
pub(super) fn memory(_: &Job<'_>, text: &str) -> Translation {
    let wrong = || format!("{text:?} is not a valid size; write it like 512G, 16000M or 1T");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.to_ascii_uppercase();
    let mib = match unit.strip_suffix('B').unwrap_or(&unit) {
        "" if unit.is_empty() => Some(number),
        "K" => Some(number.div_ceil(1 << 10)),
        "M" => Some(number),
        "G" => number.checked_mul(1 << 10),
        "T" => number.checked_mul(1 << 20),
        _ => None,
    };
    match mib.ok_or_else(wrong)? {
        // 0 means all memory of a node, which an allocation always gets.
        0 => Ok(Vec::new()),
        mib => Ok(vec![SubmitFlag::new("memory", format!("{mib}MiB"))]),
    }
}

/// Reads `a`, or `a&b`.
pub(super) fn features(_: &Job<'_>, text: &str) -> Translation {
    let refused = |what: &str| {
        Err(format!(
            "{text:?}: {what} is not supported; every node has all features, as in a&b"
        ))
    };
    match text.chars().find(|c| "|*[](),!".contains(*c)) {
        Some('|') => return refused("'|' (one of several)"),
        Some('*') => return refused("'*' (a number of nodes)"),
        Some('!') => return refused("'!' (without a feature)"),
        Some(other) => return refused(&format!("{other:?}")),
        None => {}
    }
    let names: Vec<&str> = text.split('&').map(str::trim).collect();
    match names.iter().any(|name| name.is_empty()) {
        true => Err(format!("{text:?}: a feature is missing; write it like a&b")),
        false => Ok(names
            .into_iter()
            .map(|name| SubmitFlag::new("feature", name))
            .collect()),
    }
}

pub(super) fn vcluster(_: &Job<'_>, text: &str) -> Translation {
    match text.contains(',') {
        true => Err(format!(
            "{text:?}: a job runs in one vCluster; name one of them"
        )),
        false => Ok(vec![SubmitFlag::new("vcluster", text)]),
    }
}

pub(super) fn chdir(_: &Job<'_>, text: &str) -> Translation {
    match text.starts_with('/') {
        true => Ok(vec![SubmitFlag::new("chdir", text)]),
        false => Err(format!(
            "{text:?}: relative paths are not supported; use an absolute path"
        )),
    }
}

/// Reads `NONE`, or `NAME=VALUE` pairs separated by commas.
pub(super) fn export(_: &Job<'_>, text: &str) -> Translation {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    let mut words = Vec::new();
    for pair in text.split(',') {
        if pair.eq_ignore_ascii_case("all") {
            return Err(
                "ALL: the variables of the submitting shell are not sent; write --export=NONE, or \
                 the variables that are needed, as --export=NAME=VALUE"
                    .to_owned(),
            );
        }
        match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.contains(['\'', '"']) => {
                words.push(SubmitFlag::new("env", pair));
            }
            Some(_) => {
                return Err(format!(
                    "{pair:?}: write NAME=VALUE; for a value with commas, #LATTICE --env"
                ));
            }
            None => {
                return Err(format!(
                    "{pair:?}: its value in the submitting shell is not sent; write NAME=VALUE"
                ));
            }
        }
    }
    Ok(words)
}

pub(super) fn hold(_: &Job<'_>, _: &str) -> Translation {
    Ok(vec![SubmitFlag {
        flag: "hold",
        value: None,
        with: None,
    }])
}

pub(super) fn requeue(_: &Job<'_>, _: &str) -> Translation {
    Ok(vec![SubmitFlag::new("requeue", "always")])
}

pub(super) fn no_requeue(_: &Job<'_>, _: &str) -> Translation {
    Ok(vec![SubmitFlag::new("requeue", "never")])
}

/// Accepts the one value that is always in effect.
fn accept_only(text: &str, so: &str, why: &str) -> Translation {
    match text.eq_ignore_ascii_case(so) {
        true => Ok(Vec::new()),
        false => Err(format!("{text:?}: {why}")),
    }
}

const ONE_PROCESS: &str = "one process is started per node, with all resources of the node; start further processes \
                           in the script and remove this option";

/// Accepts only a number of processes equal to the number of nodes.
pub(super) fn ntasks(job: &Job<'_>, text: &str) -> Translation {
    let nodes = job.nodes_in_script.unwrap_or(1);
    match job.is_nodes_invalid || text.parse() == Ok(nodes) {
        true => Ok(Vec::new()),
        false => Err(format!(
            "{text:?} on {nodes} node{}: {ONE_PROCESS}",
            if nodes == 1 { "" } else { "s" }
        )),
    }
}

pub(super) fn ntasks_per_node(_: &Job<'_>, text: &str) -> Translation {
    accept_only(text, "1", ONE_PROCESS)
}

pub(super) fn cpus_per_task(_: &Job<'_>, text: &str) -> Translation {
    let why = "a process has all processors of its node, however many those are; leave it out, or name such nodes by \
               a feature, --constraint";
    accept_only(text, "1", why)
}

pub(super) fn exclusive(_: &Job<'_>, text: &str) -> Translation {
    accept_only(
        text,
        "",
        "nodes are always allocated exclusively; write --exclusive without a value, or remove it",
    )
}

pub(super) fn kill_on_invalid_dep(_: &Job<'_>, text: &str) -> Translation {
    accept_only(
        text,
        "yes",
        "a job that can never start is cancelled; leave it out",
    )
}

pub(super) fn mail_type(_: &Job<'_>, text: &str) -> Translation {
    accept_only(
        text,
        "none",
        "no mail is sent; leave it out, and see lattice status",
    )
}

pub(super) fn open_mode(_: &Job<'_>, text: &str) -> Translation {
    accept_only(
        text,
        "append",
        "output files are always opened in append mode; remove this option and use %j in the file name",
    )
}

pub(super) fn wait_all_nodes(_: &Job<'_>, text: &str) -> Translation {
    accept_only(
        text,
        "1",
        "jobs start on nodes that are ready; leave it out",
    )
}
