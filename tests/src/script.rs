//! What jobs run: scripts whose every step waits for a file, so that a test decides how far they
//! are, and which write down that they ran.

use crate::procs::{self, Process};
use std::path::{Path, PathBuf};

/// One job's files.
#[derive(Debug, Clone)]
pub struct Script {
    folder: PathBuf,
}

/// How a job behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Runs until it may exit, with 7.
    Plain,
    /// The same; asked to end, it holds out until it may stop.
    Stubborn,
    /// Exits with 7 at once; a process it left in a session of its own does not heed being asked
    /// to end, and runs until it may exit.
    LeavesAnother,
}

impl Script {
    /// A job with its files in `folder`, which is made and which any user may write to.
    pub fn in_folder(folder: PathBuf) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        crate::open_to_others(&folder);
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The shell script.
    pub fn text(&self, behaviour: Behaviour) -> String {
        let at = self.folder.display();
        let head = format!(
            "echo \"$LATTICE_ALLOCATION_ID.$LATTICE_ATTEMPT.$LATTICE_NODE_RANK\" >> {at}/effects\n\
             echo $$ > {at}/main.$LATTICE_NODE_RANK\n"
        );
        let wait = |file: &str| format!("until [ -e {at}/{file} ]; do sleep 0.05; done\n");
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

    /// Lets it exit.
    pub fn may_exit(&self) {
        std::fs::write(self.file("exit"), "").unwrap();
    }

    /// Lets a stubborn one stop.
    pub fn may_stop(&self) {
        std::fs::write(self.file("stop"), "").unwrap();
    }

    /// Whether a file of that name was made by the job; where each rank makes one of its own, the rank's
    /// number comes behind it.
    pub fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    /// Where its files are.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Whether its first process has said which it is, and that it runs.
    pub fn has_main(&self) -> bool {
        self.main(0).is_some()
    }

    /// The first process of the latest attempt at a rank, while it lives.
    pub fn process(&self, rank: u32) -> Option<Process> {
        procs::process(self.main(rank)?)
    }

    /// Whether its first process ran and is gone.
    pub fn main_is_gone(&self) -> bool {
        self.main(0)
            .is_some_and(|pid| procs::process(pid).is_none())
    }

    fn main(&self, rank: u32) -> Option<i32> {
        let text = std::fs::read_to_string(self.file(&format!("main.{rank}"))).ok()?;
        // With its end: it may be half written.
        text.strip_suffix('\n')?.parse().ok()
    }

    /// What ran: one line `allocation.attempt.rank` each time.
    pub fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.file("effects")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
