//! One daemon as a child process.

use crate::netns::Netns;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

/// Number of log lines printed when a test fails: of a daemon that ended by itself, and of any other.
const LAST_LINES: (usize, usize) = (12, 4);

/// A daemon with its configuration. Dropping the value kills the daemon; processes that the daemon started survive.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    program: PathBuf,
    config: PathBuf,
    place: Option<Netns>,
    boot: Option<PathBuf>,
    environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Daemon {
    /// Creates a daemon that does not run yet. Its output goes into a file in the folder of its configuration.
    pub fn new(name: &str, program: impl Into<PathBuf>, config: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            program: program.into(),
            config,
            place: None,
            boot: None,
            environment: Vec::new(),
            child: None,
        }
    }

    /// Places the daemon on a host of its own.
    pub fn place(&mut self, place: Option<Netns>) {
        self.place = place;
    }

    /// Sets the boot id that the daemon sees from its next start on. Root only.
    pub fn boot(&mut self, id: &str) {
        let file = self.config.with_extension(format!("boot-{id}"));
        std::fs::write(&file, format!("{id}\n")).unwrap();
        self.boot = Some(file);
    }

    /// Name of the daemon.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Path of the configuration.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Replaces the program from the next start on: an upgrade.
    pub fn replace_program(&mut self, program: impl Into<PathBuf>) {
        self.program = program.into();
    }

    /// Sets an environment variable from the next start on.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Path of the daemon's output.
    pub fn log_file(&self) -> PathBuf {
        self.config.with_extension("log")
    }

    /// Starts the daemon.
    ///
    /// # Panics
    /// When the daemon already runs.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .unwrap();
        let mut command = match (&self.place, &self.boot) {
            (Some(place), _) => place.command(&self.program),
            (None, Some(boot)) => booted(boot, &self.program),
            (None, None) => Command::new(&self.program),
        };
        command.arg("--config").arg(&self.config);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LATTICE_")) {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().cloned());
        let command = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// Process id of the daemon.
    ///
    /// # Panics
    /// When the daemon does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Whether the daemon was started and has not ended.
    pub fn is_running(&mut self) -> bool {
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        self.child.as_mut().is_some_and(running)
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Kills the daemon with SIGKILL: the daemon flushes nothing and notifies no peer. Waits until it has ended.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until the daemon has ended, and returns its exit status.
    pub fn ended(&mut self) -> ExitStatus {
        self.child.take().expect("it runs").wait().unwrap()
    }

    /// Output of the daemon up to now.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }
}

/// Command with another boot id. Its process is the program itself.
fn booted(id: &Path, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    let script = r#"mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@""#;
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(id).arg(program);
    command
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok()?);
            let (lines, state) = match ended {
                Some(status) => (LAST_LINES.0, format!("which ended by itself ({status})")),
                None => (LAST_LINES.1, "which runs or was ended".to_owned()),
            };
            let said = self.said();
            let last: Vec<&str> = said.lines().rev().take(lines).collect();
            eprintln!("--- the last of {}, {state}:", self.name);
            last.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
