//! External programs for values that no file contains: the allowed command lines, and how they run.
//!
//! Only the lines listed here run, by absolute path and with fixed arguments. The only variable argument is the PCI
//! address of a device ([`Device`]), formatted from its parsed numbers; no input from the network is used. Each program
//! runs without environment except `LC_ALL=C`, within a deadline and a limit on its output. A recorded answer may
//! replace the program, so that a captured tree gives the answers of its host.

use crate::pci;
use crate::process::{self, Bounds, RunFailure, UnreapedPrograms};
use crate::root::read_record;
use lattice_conformance::Reading;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Maximum output of a program, in bytes; 4,000 packages take about 300 KiB.
pub const MAX_OUTPUT_BYTES: u64 = 4 << 20;
/// Folder of recorded answers in a captured tree.
pub const RECORDS: &str = "commands";

/// One program with its arguments. Only this module constructs lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandLine {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
}

/// Every installed RPM: name, then `epoch:version-release.arch`. A missing epoch is written as 0, its value in version
/// comparisons.
pub const RPM_PACKAGES: CommandLine = CommandLine {
    name: "rpm-packages",
    program: "/usr/bin/rpm",
    args: &[
        "-qa",
        "--qf",
        "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}.%{ARCH}\\n",
    ],
};

/// The state of every Slingshot NIC.
pub const CXI_STAT: CommandLine = CommandLine {
    name: "cxi-stat",
    program: "/usr/bin/cxi_stat",
    args: &[],
};

/// Placeholder for the PCI address in the arguments of a line.
const DEVICE: &str = "<device>";

/// Firmware configuration of one NVIDIA (Mellanox) NIC, by the tool shipped with its driver: the default, current and
/// next value of each setting (`-e`).
pub const MLXCONFIG: CommandLine = CommandLine {
    name: "mlxconfig",
    program: "/usr/bin/mlxconfig",
    args: &["-d", DEVICE, "-e", "q"],
};

/// Firmware configuration of one NVIDIA (Mellanox) NIC, by the tool of Linux distributions (`mstflint`).
pub const MSTCONFIG: CommandLine = CommandLine {
    name: "mstconfig",
    program: "/usr/bin/mstconfig",
    args: &["-d", DEVICE, "-e", "q"],
};

/// Every line that may run.
pub const ALLOWED: &[CommandLine] = &[RPM_PACKAGES, CXI_STAT, MLXCONFIG, MSTCONFIG];

/// The PCI device that a line queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device(String);

impl Device {
    /// The device at this address, or `None` if the text is not a PCI address. The address is formatted from its parsed
    /// numbers, so no other text enters a line.
    #[must_use]
    pub fn parse(address: &str) -> Option<Self> {
        pci::address(address).present().cloned().map(Self)
    }
}

/// Source of answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Commands {
    /// The programs of this machine.
    Run {
        /// Time after which a program is killed.
        deadline: Duration,
    },
    /// The answers in this folder, as [`record`] wrote them. A line without a recorded answer counts as a program that
    /// was not installed.
    Recorded(PathBuf),
    /// No program runs.
    Disabled,
}

impl CommandLine {
    /// Name of the line in records.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    fn needs_device(&self) -> bool {
        self.args.contains(&DEVICE)
    }
}

/// A line with the device to query, if any.
#[derive(Clone, Copy)]
struct RunningLine<'a> {
    line: &'a CommandLine,
    device: Option<&'a Device>,
}

impl RunningLine<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.line.program);
        for arg in self.line.args {
            match self.device {
                Some(device) if *arg == DEVICE => command.arg(&device.0),
                _ => command.arg(arg),
            };
        }
        command
    }

    /// File name of the recorded answer.
    fn file(&self, ending: &str) -> String {
        let name = self.line.name;
        match self.device {
            Some(device) => format!("{name}-{}.{ending}", device.0.replace(':', "-")),
            None => format!("{name}.{ending}"),
        }
    }

    fn answer_file(&self) -> String {
        self.file("out")
    }

    fn state_file(&self) -> String {
        self.file("state.json")
    }
}

impl Commands {
    /// Default deadline of a program. `rpm -qa` takes a second on a slow disk; a much longer run indicates a damaged
    /// database.
    pub const DEADLINE: Duration = Duration::from_secs(6);

    /// The source that fits the tree below `root`: programs for the running machine, recorded answers for any other
    /// tree.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        if root == Path::new("/") {
            Self::Run {
                deadline: Self::DEADLINE,
            }
        } else {
            Self::Recorded(root.join(RECORDS))
        }
    }

    /// Maximum time for one line; zero if no program runs.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        match self {
            Self::Run { deadline } => *deadline,
            Self::Recorded(_) | Self::Disabled => Duration::ZERO,
        }
    }

    /// The standard output of the program of `line`. Absent if the program is not installed. Failed if the program
    /// exits with an error (with the first line of its standard error), or prints more than [`MAX_OUTPUT_BYTES`].
    #[must_use]
    pub fn output(&self, line: &CommandLine, outstanding: &UnreapedPrograms) -> Reading<Vec<u8>> {
        let asked = RunningLine { line, device: None };
        self.answer(asked, self.deadline(), outstanding)
    }

    /// The standard output of a line about a device, as [`Commands::output`], within `within` and
    /// [`Commands::deadline`].
    #[must_use]
    pub fn device_output(
        &self,
        line: &CommandLine,
        device: &Device,
        within: Duration,
        outstanding: &UnreapedPrograms,
    ) -> Reading<Vec<u8>> {
        let device = Some(device);
        let deadline = self.deadline().min(within);
        self.answer(RunningLine { line, device }, deadline, outstanding)
    }

    fn answer(
        &self,
        asked: RunningLine<'_>,
        deadline: Duration,
        outstanding: &UnreapedPrograms,
    ) -> Reading<Vec<u8>> {
        match self {
            Self::Disabled => Reading::disabled("external programs are disabled"),
            Self::Recorded(folder) => read_recorded(folder, asked),
            Self::Run { .. } if deadline.is_zero() => Reading::Timeout { after_ms: 0 },
            Self::Run { .. } => run(asked.line.program, asked.command(), deadline, outstanding),
        }
    }
}

fn run(
    program: &str,
    mut command: Command,
    deadline: Duration,
    outstanding: &UnreapedPrograms,
) -> Reading<Vec<u8>> {
    command.env_clear().env("LC_ALL", "C").current_dir("/");
    let bounds = Bounds {
        deadline,
        max_output_bytes: MAX_OUTPUT_BYTES,
    };
    match process::run(command, bounds, outstanding) {
        Ok(finished) if finished.status.success() => Reading::Present(finished.stdout),
        Ok(finished) => Reading::failed(finished.failure_text(program)),
        Err(RunFailure::NotStarted(error)) => Reading::from_io(program, &error),
        Err(RunFailure::TimedOut) => Reading::timed_out(deadline),
        Err(RunFailure::TooLong) => Reading::failed(format!(
            "{program} answered more than {MAX_OUTPUT_BYTES} bytes"
        )),
    }
}

fn read_recorded(folder: &Path, asked: RunningLine<'_>) -> Reading<Vec<u8>> {
    let name = asked.line.name;
    let read = |file: String| read_record(&folder.join(file), MAX_OUTPUT_BYTES);
    match read(asked.answer_file()) {
        Ok(bytes) => return Reading::Present(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Reading::from_io(name, &error),
    }
    match read(asked.state_file()) {
        Ok(json) => serde_json::from_slice(&json)
            .unwrap_or_else(|error| Reading::failed(format!("{name}: {error}"))),
        Err(error) => Reading::from_io(name, &error),
    }
}

/// Writes the answer of `commands` to every line into `folder`, for [`Commands::Recorded`]; an absent answer is not
/// written. Lines about a device are run for each of `devices`, within `devices_within` for all of them. `keep` filters
/// each answer. Returns the number of files written.
///
/// # Errors
/// An I/O error.
pub fn record(
    commands: &Commands,
    outstanding: &UnreapedPrograms,
    devices: &[Device],
    devices_within: Duration,
    folder: &Path,
    keep: impl Fn(&CommandLine, Vec<u8>) -> Vec<u8>,
) -> io::Result<u64> {
    let mut files = 0;
    let mut record = |asked: RunningLine<'_>, answer: Reading<Vec<u8>>| -> io::Result<()> {
        let (name, content) = match answer {
            Reading::Absent => return Ok(()),
            Reading::Present(answer) => (asked.answer_file(), keep(asked.line, answer)),
            other => (asked.state_file(), serde_json::to_vec_pretty(&other)?),
        };
        fs::create_dir_all(folder)?;
        fs::write(folder.join(name), content)?;
        files += 1;
        Ok(())
    };
    let ends_at = Instant::now() + devices_within;
    for line in ALLOWED {
        if !line.needs_device() {
            let answer = commands.output(line, outstanding);
            record(RunningLine { line, device: None }, answer)?;
            continue;
        }
        for device in devices {
            let within = ends_at.saturating_duration_since(Instant::now());
            let answer = commands.device_output(line, device, within, outstanding);
            let device = Some(device);
            record(RunningLine { line, device }, answer)?;
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, deadline: Duration) -> Reading<Vec<u8>> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("SECRET", "inherited");
        run("/bin/sh", command, deadline, &UnreapedPrograms::default())
    }

    #[test]
    fn a_program_gets_no_environment_and_no_terminal() {
        let Reading::Present(answer) = shell("env; pwd; cat", LONG) else {
            panic!();
        };
        let text = String::from_utf8(answer).unwrap();
        assert!(
            text.contains("LC_ALL=C\n") && text.ends_with("/\n"),
            "{text}"
        );
        assert!(
            !text.contains("SECRET") && !text.contains("HOME="),
            "{text}"
        );
    }

    #[test]
    fn each_way_of_not_answering_has_its_own_state() {
        assert_eq!(
            shell("echo 'no  database' >&2; echo more >&2; exit 1", LONG),
            Reading::failed("/bin/sh ended with exit status: 1: no database")
        );
        let hung = shell("exec sleep 600", Duration::from_millis(100));
        assert_eq!(hung, Reading::Timeout { after_ms: 100 });
        let started_at = Instant::now();
        let Reading::Failed { why } = shell("exec yes", LONG) else {
            panic!();
        };
        assert!(why.contains("more than 4194304 bytes"), "{why}");
        assert!(started_at.elapsed() < LONG);
        let line = CommandLine {
            name: "none",
            program: "/nonexistent/program",
            args: &[],
        };
        let run = Commands::Run { deadline: LONG };
        let outstanding = UnreapedPrograms::default();
        assert_eq!(run.output(&line, &outstanding), Reading::Absent);
        let disabled = Commands::Disabled.output(&line, &outstanding);
        assert!(matches!(disabled, Reading::Disabled { .. }));
    }

    #[test]
    fn a_record_answers_as_the_program_did() {
        let folder = tempfile::tempdir().unwrap();
        let outstanding = UnreapedPrograms::default();
        let commands = Commands::Recorded(folder.path().to_owned());
        assert_eq!(
            commands.output(&RPM_PACKAGES, &outstanding),
            Reading::Absent
        );
        let timeout: Reading<Vec<u8>> = Reading::Timeout { after_ms: 7 };
        let json = serde_json::to_vec(&timeout).unwrap();
        fs::write(folder.path().join("rpm-packages.state.json"), json).unwrap();
        assert_eq!(commands.output(&RPM_PACKAGES, &outstanding), timeout);
        fs::write(folder.path().join("rpm-packages.out"), "a\t0:1-1.x\n").unwrap();
        let answer = Reading::Present(b"a\t0:1-1.x\n".to_vec());
        assert_eq!(commands.output(&RPM_PACKAGES, &outstanding), answer);

        let copy = tempfile::tempdir().unwrap();
        let kept = record(
            &commands,
            &outstanding,
            &[],
            Duration::ZERO,
            copy.path(),
            |_, answer| answer,
        )
        .unwrap();
        assert_eq!(kept, 1);
        let again = Commands::Recorded(copy.path().to_owned());
        assert_eq!(again.output(&RPM_PACKAGES, &outstanding), answer);
    }

    #[test]
    fn only_the_address_of_a_device_gets_into_a_line() {
        for text in [
            "",
            "5e:00.0; reboot",
            "--help",
            "/dev/mst/mt4129_pciconf0",
            "0000:5e:00.0 x",
        ] {
            assert_eq!(Device::parse(text), None, "{text}");
        }
        let device = Device::parse("0000:5E:00.1").unwrap();
        let asked = RunningLine {
            line: &MLXCONFIG,
            device: Some(&device),
        };
        let command = asked.command();
        let args: Vec<_> = command.get_args().collect();
        assert_eq!(args, ["-d", "0000:5e:00.1", "-e", "q"]);
        assert_eq!(asked.answer_file(), "mlxconfig-0000-5e-00.1.out");
        let run = Commands::Run { deadline: LONG };
        let late = run.device_output(
            &MLXCONFIG,
            &device,
            Duration::ZERO,
            &UnreapedPrograms::default(),
        );
        assert_eq!(late, Reading::Timeout { after_ms: 0 });
    }

    #[test]
    fn every_line_has_its_own_name_and_an_absolute_path() {
        let mut names: Vec<&str> = ALLOWED.iter().map(CommandLine::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALLOWED.len());
        assert!(ALLOWED.iter().all(|line| line.program.starts_with('/')));
    }

    #[test]
    fn a_tree_that_stands_for_another_machine_runs_no_program_of_this_one() {
        assert!(matches!(Commands::of(Path::new("/")), Commands::Run { .. }));
        let other = Commands::of(Path::new("/captures/x"));
        assert_eq!(other, Commands::Recorded("/captures/x/commands".into()));
        assert_eq!(other.deadline(), Duration::ZERO);
    }
}
