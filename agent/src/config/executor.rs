//! Section `executor` of the configuration file: how jobs run.

use crate::attempt::{Hook, RankHooks};
use crate::executor::{
    AgentUser, CgroupSettings, CgroupUse, Hooks, Ids, OrphanPolicy, UserMap, UserMapError,
};
use crate::settings::{
    CHECKPOINT_POLL, GRACE, JobSettings, KEEP_OUTPUT, MIN_UID, OUTPUT_CAP_BYTES,
};
use crate::with_causes;
use lattice_config::{Check, Problems};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Section `executor`.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct ExecutorConfig {
    /// Whether this node runs jobs.
    pub enabled: bool,
    /// Account that runs every job.
    pub run_as: Option<Ids>,
    /// File of `principal: account` lines; see [`UserMap`].
    pub user_map: Option<PathBuf>,
    /// Whether an agent that is not root may run jobs as its own user.
    pub allow_same_user: bool,
    /// Lowest uid that jobs may run as; not checked for an agent that is not root.
    pub min_uid: u32,
    /// Working directory of jobs that request none, an absolute path. Default: the home directory of the job's account.
    /// A service account without a home directory needs it.
    pub working_dir: Option<PathBuf>,
    /// Whether ranks run in cgroups of version 2.
    pub cgroup: CgroupUse,
    /// Parent of the agent's own cgroup, as a path from the root of the cgroup mount.
    pub cgroup_parent: PathBuf,
    /// Memory withheld from ranks, bytes: `memory.max` is the machine's memory minus this value.
    pub memory_reserve_bytes: Option<u64>,
    /// Processors that ranks may use, as in `0-3,8`: `cpuset.cpus`.
    pub cpus: Option<String>,
    /// Policy for processes of an attempt without a record.
    pub orphans: OrphanPolicy,
    /// Site hooks.
    pub hooks: HooksConfig,
    /// Folder for small files and sockets that the agent shares with jobs that write checkpoints. Default:
    /// `/run/lattice`; for an agent that is not root, a folder in its data directory.
    pub runtime_dir: Option<PathBuf>,
    /// Milliseconds between two reads of a job's checkpoint status.
    pub checkpoint_poll_ms: u64,
    /// Maximum number of bytes kept of each output stream of a rank, at least 4096. Of a longer
    /// output, the first and the last part are kept.
    pub output_cap_bytes: u64,
    /// Seconds between SIGTERM and SIGKILL.
    pub grace_s: u64,
    /// Days for which the output of a rank stays readable after control has acknowledged the end [default: 7].
    pub keep_output_days: Option<u64>,
    /// Earlier key for the same time, in hours.
    pub keep_output_h: Option<u64>,
}

/// Smallest accepted `output_cap_bytes`: the output is written in segments of a sixteenth of it.
const MIN_OUTPUT_CAP_BYTES: u64 = 4096;

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            run_as: None,
            user_map: None,
            allow_same_user: false,
            min_uid: MIN_UID,
            working_dir: None,
            cgroup: CgroupUse::Auto,
            cgroup_parent: "/".into(),
            memory_reserve_bytes: None,
            cpus: None,
            orphans: OrphanPolicy::End,
            hooks: HooksConfig::default(),
            runtime_dir: None,
            checkpoint_poll_ms: CHECKPOINT_POLL.subsec_millis().into(),
            output_cap_bytes: OUTPUT_CAP_BYTES,
            grace_s: GRACE.as_secs(),
            keep_output_days: None,
            keep_output_h: None,
        }
    }
}

/// `executor.hooks`: executables of the site, run as the agent's user.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HooksConfig {
    /// Runs before each rank.
    pub prolog: Option<HookConfig>,
    /// Runs after each rank, whatever its result.
    pub epilog: Option<HookConfig>,
    /// Runs last after a sensitive job, and when a claimed node is released.
    pub wipe: Option<HookConfig>,
    /// Site's declaration that the node needs no wipe; excludes `wipe`.
    pub nothing_to_wipe: bool,
    /// Runs before the node returns to service.
    pub health_gate: Option<HookConfig>,
}

/// One hook of `executor.hooks`.
#[derive(Debug, Deserialize)]
pub struct HookConfig {
    /// Absolute path. Only root and the agent's user may be able to change the file.
    pub program: PathBuf,
    /// Arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Timeout in seconds, 1 to 86400. On timeout the hook is killed and counts as failed.
    #[serde(default = "default_timeout")]
    pub timeout_s: u64,
    /// Environment variables in addition to those that the agent sets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

fn default_timeout() -> u64 {
    60
}

impl Check for ExecutorConfig {
    fn check(&self, problems: &mut Problems) {
        if let Some(ids @ Ids { uid, gid }) = self.run_as {
            if !ids.are_real() {
                problems.add("run_as", "4294967295 is not a valid uid or gid");
            } else if uid == 0 || gid == 0 {
                problems.add("run_as", "must not be root: jobs never run as root");
            } else if uid < self.min_uid {
                let text = format!("uid {uid} is below executor.min_uid ({})", self.min_uid);
                problems.add("run_as", text);
            }
            if self.user_map.is_some() {
                problems.add(
                    "user_map",
                    "has no effect together with run_as: all work runs as that account",
                );
            }
        }
        if self
            .working_dir
            .as_ref()
            .is_some_and(|dir| !dir.is_absolute())
        {
            problems.add("working_dir", "must be an absolute path");
        }
        if self.output_cap_bytes < MIN_OUTPUT_CAP_BYTES {
            let text = format!("must be at least {MIN_OUTPUT_CAP_BYTES}");
            problems.add("output_cap_bytes", text);
        }
        if self.keep_output_days.is_some() && self.keep_output_h.is_some() {
            let text = "is the earlier key for keep_output_days: set only one of the two";
            problems.add("keep_output_h", text);
        }
        if self.grace_s > 3600 {
            problems.add("grace_s", "must be 0 to 3600");
        }
        if self
            .cgroup_parent
            .components()
            .any(|part| part.as_os_str() == "..")
        {
            problems.add("cgroup_parent", "must not contain `..`");
        }
        if self.cpus.as_deref().is_some_and(|cpus| !is_cpu_list(cpus)) {
            problems.add("cpus", "must be a list like 0-3,8");
        }
        if self
            .runtime_dir
            .as_ref()
            .is_some_and(|dir| !dir.is_absolute())
        {
            problems.add("runtime_dir", "must be an absolute path");
        }
        if !(10..=10_000).contains(&self.checkpoint_poll_ms) {
            problems.add("checkpoint_poll_ms", "must be 10 to 10000");
        }
        problems.check_part("hooks", |problems| self.hooks.check(problems));
    }
}

/// Checks a CPU list such as `0-3,8`: numbers and ranges.
fn is_cpu_list(text: &str) -> bool {
    let is_part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => first <= last,
            _ => false,
        }
    };
    text.split(',').all(is_part)
}

impl Check for HooksConfig {
    fn check(&self, problems: &mut Problems) {
        if self.nothing_to_wipe && self.wipe.is_some() {
            problems.add(
                "nothing_to_wipe",
                "contradicts wipe: set only one of the two",
            );
        }
        for (key, hook) in [
            ("prolog", &self.prolog),
            ("epilog", &self.epilog),
            ("wipe", &self.wipe),
            ("health_gate", &self.health_gate),
        ] {
            if let Some(hook) = hook {
                problems.check_part(key, |problems| hook.check(problems));
            }
        }
    }
}

impl Check for HookConfig {
    fn check(&self, problems: &mut Problems) {
        if !self.program.is_absolute() {
            problems.add("program", "must be an absolute path");
        }
        if !(1..=86_400).contains(&self.timeout_s) {
            problems.add("timeout_s", "must be 1 to 86400");
        }
        let is_no_variable = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        if let Some(name) = self.env.keys().find(is_no_variable) {
            problems.add("env", format!("{name:?} cannot be an environment variable"));
        }
    }
}

impl ExecutorConfig {
    /// Adds every mistake in the user map and the hooks.
    pub(super) fn add_file_mistakes(&self, problems: &mut Problems) {
        let agent = AgentUser::current();
        if let Some(path) = &self.user_map
            && let Err(error) = UserMap::open(path, agent)
        {
            for reason in reasons(&error) {
                problems.add("user_map", reason);
            }
        }
        problems.check_part("hooks", |problems| {
            for (key, cause) in self.hooks.settings().distrusted(agent) {
                problems.add(key, with_causes(&cause));
            }
        });
    }

    pub(super) fn into_settings(self) -> JobSettings {
        let keep_output = match (self.keep_output_days, self.keep_output_h) {
            (Some(days), _) => Duration::from_secs(days.saturating_mul(24 * 3600)),
            (None, Some(hours)) => Duration::from_secs(hours.saturating_mul(3600)),
            (None, None) => KEEP_OUTPUT,
        };
        JobSettings {
            enabled: self.enabled,
            run_as: self.run_as,
            allow_same_user: self.allow_same_user,
            min_uid: self.min_uid,
            cgroup: CgroupSettings {
                use_of_cgroups: self.cgroup,
                parent: self.cgroup_parent,
                memory_reserve_bytes: self.memory_reserve_bytes,
                cpus: self.cpus,
            },
            orphans: self.orphans,
            hooks: self.hooks.settings(),
            user_map: self.user_map,
            runtime_dir: self.runtime_dir,
            checkpoint_poll: Duration::from_millis(self.checkpoint_poll_ms),
            output_cap_bytes: self.output_cap_bytes,
            grace: Duration::from_secs(self.grace_s),
            working_dir: self.working_dir,
            keep_output,
        }
    }
}

/// Reasons that the user map cannot be used, without the configuration key.
fn reasons(error: &UserMapError) -> Vec<String> {
    match error {
        UserMapError::Io { path, source } => vec![format!("{}: {source}", path.display())],
        UserMapError::Untrusted(cause) => vec![with_causes(cause)],
        UserMapError::Malformed { path, mistakes } => {
            let mistakes = mistakes.iter();
            mistakes
                .map(|mistake| format!("{}: {mistake}", path.display()))
                .collect()
        }
    }
}

impl HooksConfig {
    fn settings(&self) -> Hooks {
        let hook = |hook: &Option<HookConfig>| hook.as_ref().map(HookConfig::settings);
        Hooks {
            rank: RankHooks {
                prolog: hook(&self.prolog),
                epilog: hook(&self.epilog),
                wipe: hook(&self.wipe),
            },
            health_gate: hook(&self.health_gate),
            nothing_to_wipe: self.nothing_to_wipe,
        }
    }
}

impl HookConfig {
    fn settings(&self) -> Hook {
        Hook {
            program: self.program.clone(),
            args: self.args.clone(),
            timeout_ms: self.timeout_s.saturating_mul(1000),
            env: self.env.clone(),
        }
    }
}
