//! Job scripts. Each step waits for a file, so a test controls the progress, and the script records that it ran.

use crate::procs::{self, Process};
use std::path::{Path, PathBuf};

/// Files of one job.
#[derive(Debug, Clone)]
pub struct Script {
    folder: PathBuf,
}

/// Behavior of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Runs until it may exit, with code 7.
    Plain,
    /// Like `Plain`, but after SIGTERM it continues until it may stop.
    Stubborn,
    /// Exits with code 7 at once, and leaves a process in a session of its own. That process ignores SIGTERM and runs
    /// until it may exit.
    LeavesAnother,
}

/// The commands as a script of the shell, unless their first line names an interpreter.
pub fn with_interpreter(commands: &str) -> String {
    match commands.starts_with("#!") {
        true => commands.to_owned(),
        false => format!("#!/bin/sh\n{commands}"),
    }
}

impl Script {
    /// Creates a job with its files in `folder`. The folder is created, and any user may write to it.
    pub fn in_folder(folder: PathBuf) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        crate::open_to_others(&folder);
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Text of the shell script.
    pub fn text(&self, behaviour: Behaviour) -> String {
        let at = self.folder.display();
        let head = format!(
            "echo \"$LATTICE_ALLOCATION_ID.$LATTICE_ATTEMPT.$LATTICE_NODE_RANK\" >> {at}/effects\n\
             echo $$ > {at}/main.$LATTICE_NODE_RANK\n"
        );
        // Each look starts a process, and tests with 50 jobs share the machine with others that measure time.
        let wait = |file: &str| format!("until [ -e {at}/{file} ]; do sleep 0.3; done\n");
        let body = match behaviour {
            Behaviour::Plain => wait("exit") + "exit 7\n",
            Behaviour::Stubborn => format!(
                "hold_out() {{\ntouch {at}/asked {at}/asked.$LATTICE_NODE_RANK\n{}exit 9\n}}\n\
                 trap hold_out TERM\n\
                 touch {at}/ready {at}/ready.$LATTICE_NODE_RANK\n{}exit 7\n",
                wait("stop"),
                wait("exit"),
            ),
            Behaviour::LeavesAnother => format!(
                "setsid sh -c 'trap \"\" TERM; touch {at}/left; {}' > /dev/null 2>&1 &\n{}exit 7\n",
                wait("exit").trim_end(),
                wait("left"),
            ),
        };
        head + &body
    }

    /// Permits the job to exit.
    pub fn may_exit(&self) {
        std::fs::write(self.file("exit"), "").unwrap();
    }

    /// Permits a stubborn job to stop.
    pub fn may_stop(&self) {
        std::fs::write(self.file("stop"), "").unwrap();
    }

    /// Whether the job created this file. Files of a single rank have the rank's number as extension.
    pub fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    /// Folder of the files.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Whether the first process of rank 0 has recorded its pid.
    pub fn has_main(&self) -> bool {
        self.main(0).is_some()
    }

    /// First process of the latest attempt at a rank, while it lives.
    pub fn process(&self, rank: u32) -> Option<Process> {
        procs::process(self.main(rank)?)
    }

    /// Whether the first process of rank 0 ran and is gone.
    pub fn main_is_gone(&self) -> bool {
        self.main(0)
            .is_some_and(|pid| procs::process(pid).is_none())
    }

    fn main(&self, rank: u32) -> Option<i32> {
        let text = std::fs::read_to_string(self.file(&format!("main.{rank}"))).ok()?;
        // A line without its end may be half written.
        text.strip_suffix('\n')?.parse().ok()
    }

    /// Runs of the job: one line `allocation.attempt.rank` each.
    pub fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.file("effects")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
