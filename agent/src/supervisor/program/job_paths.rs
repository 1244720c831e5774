//! Paths and names of a job, and texts about its start for the user.

use super::child::Step;
use crate::attempt::LaunchRecord;
use lattice_agent_rpc::LogStream;
use lattice_quorum_types::spec::OutputFiles;
use std::io;
use std::path::{Path, PathBuf};

/// Working directory of a rank.
pub(in crate::supervisor) fn working_dir(launch: &LaunchRecord) -> PathBuf {
    match &launch.workload.working_dir {
        Some(dir) => PathBuf::from(dir),
        None => launch.account.home.clone(),
    }
}

/// User's file for an output stream, if one is configured.
pub(in crate::supervisor) fn output_file(
    launch: &LaunchRecord,
    stream: LogStream,
) -> Result<Option<PathBuf>, String> {
    let files = &launch.workload.output;
    let wanted = match stream {
        LogStream::Stdout => &files.stdout,
        LogStream::Stderr => &files.stderr,
    };
    let Some(pattern) = wanted else {
        return Ok(None);
    };
    let path = OutputFiles::file_of(pattern, launch.key.allocation, launch.rank, &launch.node)
        .map_err(|why| format!("output file {pattern}: {why}"))?;
    Ok(Some(working_dir(launch).join(path)))
}

/// Program, paths and user of a child.
pub(in crate::supervisor) struct JobPaths {
    pub(in crate::supervisor) program: String,
    pub(in crate::supervisor) directory: PathBuf,
    /// Whether the directory is the home directory of the user, because the job requests none.
    pub(in crate::supervisor) is_home: bool,
    pub(in crate::supervisor) stdout: Option<PathBuf>,
    pub(in crate::supervisor) stderr: Option<PathBuf>,
    pub(in crate::supervisor) user: String,
}

impl JobPaths {
    /// Values for `program` of this launch.
    pub(in crate::supervisor) fn of(launch: &LaunchRecord, program: &str) -> Result<Self, String> {
        Ok(Self {
            program: program.to_owned(),
            directory: working_dir(launch),
            is_home: launch.workload.working_dir.is_none(),
            stdout: output_file(launch, LogStream::Stdout)?,
            stderr: output_file(launch, LogStream::Stderr)?,
            user: launch.account.name.clone(),
        })
    }

    /// Text for the present step of a child.
    pub(in crate::supervisor) fn step_text(&self, step: Option<Step>) -> String {
        match step {
            None => "forking the process".to_owned(),
            Some(Step::Session | Step::Parent) => "setting up the session".to_owned(),
            Some(Step::Cgroup) => "entering the cgroup".to_owned(),
            Some(Step::User) => format!("changing to user {}", self.user),
            Some(Step::Privileges) => "dropping privileges".to_owned(),
            Some(Step::Keyring) => "creating a session keyring".to_owned(),
            Some(Step::Directory) if self.is_home => {
                format!(
                    "home directory {} of {}",
                    self.directory.display(),
                    self.user
                )
            }
            Some(Step::Directory) => format!("working directory {}", self.directory.display()),
            Some(Step::Stdout) => output_at(self.stdout.as_deref()),
            Some(Step::Stderr) => output_at(self.stderr.as_deref()),
            Some(Step::Program) => format!("program {}", self.program),
        }
    }

    /// Text for the failed step of a child.
    pub(in crate::supervisor) fn explain(&self, step: Option<Step>, error: &io::Error) -> String {
        match step {
            None | Some(Step::Program) => format!("{}: {error}", self.program),
            Some(Step::Session | Step::Parent) => {
                format!("the supervisor exited during the start: {error}")
            }
            Some(Step::Cgroup) => format!("cannot enter the job's cgroup: {error}"),
            Some(Step::User) => format!("cannot change to user {}: {error}", self.user),
            Some(Step::Privileges) => format!("cannot drop privileges: {error}"),
            Some(Step::Keyring) => {
                format!("cannot create a session keyring: {error}")
            }
            Some(Step::Directory) if self.is_home => format!(
                "{}: {error}; submit with --chdir, or have the home directory created on this node",
                self.step_text(step)
            ),
            Some(Step::Directory) => format!("{}: {error}", self.step_text(step)),
            Some(Step::Stdout | Step::Stderr) => {
                let errno = error.raw_os_error();
                let file = self.step_text(step);
                match errno.map(rustix::io::Errno::from_raw_os_error) {
                    Some(rustix::io::Errno::LOOP) => {
                        format!("{file}: it is a symbolic link (symbolic links are not followed)")
                    }
                    Some(rustix::io::Errno::NXIO) => {
                        format!("{file}: it is neither a file nor a device")
                    }
                    _ => format!("{file}: {error}"),
                }
            }
        }
    }
}

fn output_at(path: Option<&Path>) -> String {
    format!("output file {}", path.unwrap_or(Path::new("-")).display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::testing::launch;

    #[test]
    fn missing_home_directory_is_named_with_the_remedy() {
        let mut launch = launch(&[]);
        let missing = io::Error::from_raw_os_error(2);
        let explain = |launch: &LaunchRecord| {
            let paths = JobPaths::of(launch, "true");
            paths.map(|paths| paths.explain(Some(Step::Directory), &missing))
        };
        let home = "home directory /home/alice of alice: No such file or directory (os error 2); submit with \
                    --chdir, or have the home directory created on this node";
        assert_eq!(explain(&launch), Ok(home.to_owned()));
        launch.workload.working_dir = Some("/scratch".to_owned());
        let given = "working directory /scratch: No such file or directory (os error 2)";
        assert_eq!(explain(&launch), Ok(given.to_owned()));
    }

    #[test]
    fn output_path_includes_rank() {
        let mut launch = launch(&[]);
        launch.workload.output.stdout = Some("out/%j.%r-%n%%".to_owned());
        let path = |launch: &LaunchRecord| output_file(launch, LogStream::Stdout);
        let expected = PathBuf::from("/home/alice/out/12.1-gpu001%");
        assert_eq!(path(&launch), Ok(Some(expected)));
        launch.workload.working_dir = Some("/scratch".to_owned());
        launch.workload.output.stdout = Some("/var/tmp/o".to_owned());
        assert_eq!(path(&launch), Ok(Some(PathBuf::from("/var/tmp/o"))));
        assert_eq!(output_file(&launch, LogStream::Stderr), Ok(None));
        for wrong in ["", "a%", "a%u"] {
            launch.workload.output.stdout = Some(wrong.to_owned());
            assert!(path(&launch).is_err(), "{wrong}");
        }
    }
}
