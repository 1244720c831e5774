//! Attempt folders: paths, and access to the files at them.

use super::durable::{keep_reserve, write_atomically, write_durably, write_durably_from_reserve};
use super::lock::{Lock, holder};
use super::output::CapturedOutput;
use super::record::{
    ExitRecord, HookName, LaunchRecord, OrphanRecord, RecordError, StartedRecord, StartingRecord,
    SupervisorRecord, encode, read,
};
use lattice_agent_rpc::{AttemptKey, LogStream};
use lattice_quorum_types::AllocationId;
use rustix::process::{Pid, geteuid};
use serde::{Serialize, de::DeserializeOwned};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Upper bound, bytes, for the records of an attempt with a script of usual length.
const ATTEMPT_BYTES: usize = 64 << 10;

/// File of the last walltime change.
pub(super) const WALLTIME: &str = "walltime.json";

/// Folder of all attempts.
#[derive(Debug, Clone)]
pub struct Attempts {
    path: PathBuf,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RecordError + '_ {
    move |source| RecordError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Owner and permissions of a folder that a user other than this process's could change; `None` otherwise.
pub(crate) fn foreign_write_access(path: &Path) -> io::Result<Option<(u32, u32)>> {
    let meta = std::fs::metadata(path)?;
    let (uid, mode) = (meta.uid(), meta.mode() & 0o7777);
    let is_ours = uid == geteuid().as_raw() && mode & 0o022 == 0;
    Ok((!is_ours).then_some((uid, mode)))
}

impl Attempts {
    /// Opens the folder, and creates it (mode 0700) if it does not exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RecordError> {
        let path = path.into();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(failed(&path))?;
        if let Some((uid, mode)) = foreign_write_access(&path).map_err(failed(&path))? {
            return Err(RecordError::OpenToOthers { path, uid, mode });
        }
        Ok(Self { path })
    }

    /// Folder of an attempt. It need not exist.
    pub fn dir(&self, key: AttemptKey) -> AttemptDir {
        let name = format!("{}.{}", key.allocation, key.attempt);
        AttemptDir {
            path: self.path.join(name),
        }
    }

    /// Reserves space for one record in the parent of the attempts' folder; see [`AttemptDir::keep_reserve`].
    pub fn keep_reserve(&self) -> Result<(), RecordError> {
        let folder = self.path.parent().unwrap_or(&self.path);
        keep_reserve(folder, 1).map_err(failed(folder))
    }

    /// Attempt key in the last component of `path`, which may lie in another agent's data directory.
    pub fn key_of(path: &Path) -> Option<AttemptKey> {
        parse_key(path.file_name()?.to_str()?)
    }

    /// Path of the folder of all attempts.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the disk has space for an attempt: writes a file of that size and removes it.
    pub fn check_disk_space(&self) -> Result<(), RecordError> {
        let path = self.path.join(".check");
        let written = write_atomically(&path, &[0; ATTEMPT_BYTES]);
        let gone = std::fs::remove_file(&path);
        written.and(gone).map_err(failed(&path))
    }

    /// Creates an attempt's folder durably. An existing folder is used as it is.
    pub fn create(&self, key: AttemptKey) -> Result<AttemptDir, RecordError> {
        let dir = self.dir(key);
        dir.make()?;
        let parent = File::open(&self.path).map_err(failed(&self.path))?;
        parent.sync_all().map_err(failed(&self.path))?;
        Ok(dir)
    }

    /// All attempts on disk, in order of their keys.
    pub fn list(&self) -> Result<Vec<(AttemptKey, AttemptDir)>, RecordError> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed(&self.path))? {
            let entry = entry.map_err(failed(&self.path))?;
            if let Some(key) = entry.file_name().to_str().and_then(parse_key) {
                all.push((key, self.dir(key)));
            }
        }
        all.sort_by_key(|(key, _)| *key);
        Ok(all)
    }
}

/// Parses `<allocation>.<attempt>`, the name of folders and cgroups.
fn parse_key(name: &str) -> Option<AttemptKey> {
    let (allocation, attempt) = name.split_once('.')?;
    Some(AttemptKey {
        allocation: AllocationId(allocation.parse().ok()?),
        attempt: attempt.parse().ok()?,
    })
}

/// Folder of one attempt. It need not exist.
#[derive(Debug, Clone)]
pub struct AttemptDir {
    path: PathBuf,
}

impl AttemptDir {
    /// The folder at `path`, the argument of a supervisor.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
    /// Path of the attempt's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Creates the folder if it does not exist.
    pub fn make(&self) -> Result<(), RecordError> {
        let made = DirBuilder::new().mode(0o700).create(&self.path);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed(&self.path)(error))
            }
            _ => Ok(()),
        }
    }
    /// Whether the folder exists.
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }
    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
    /// Captured output of a stream.
    pub fn output(&self, stream: LogStream) -> CapturedOutput {
        CapturedOutput::at(self.file(match stream {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
        }))
    }
    /// File for the supervisor's own messages.
    pub fn supervisor_log(&self) -> PathBuf {
        self.file("supervisor.log")
    }

    /// Captured output of a hook.
    pub fn hook_log(&self, hook: HookName) -> CapturedOutput {
        CapturedOutput::at(self.file(&format!("{}.log", hook.as_str())))
    }

    /// Launch record: what to run.
    pub fn launch(&self) -> Result<Option<LaunchRecord>, RecordError> {
        read(&self.file("launch.json"))
    }
    /// The attempt's supervisor, alive or not.
    pub fn supervisor(&self) -> Result<Option<SupervisorRecord>, RecordError> {
        read(&self.file("supervisor.json"))
    }
    /// The job's process; `None` before its start.
    pub fn started(&self) -> Result<Option<StartedRecord>, RecordError> {
        read(&self.file("started.json"))
    }
    /// The start that hangs; `None` if no start hangs.
    pub fn starting(&self) -> Result<Option<StartingRecord>, RecordError> {
        read(&self.file("starting.json"))
    }
    /// Result of the job, recorded before the site's hooks run.
    pub fn job_end(&self) -> Result<Option<ExitRecord>, RecordError> {
        read(&self.file("job.json"))
    }
    /// Record of processes that were found without any other record of the attempt.
    pub fn orphan(&self) -> Result<Option<OrphanRecord>, RecordError> {
        read(&self.file("orphan.json"))
    }
    /// Result of the rank.
    pub fn exit(&self) -> Result<Option<ExitRecord>, RecordError> {
        read(&self.file("exit.json"))
    }
    /// Whether a stop was requested.
    pub fn is_stop_requested(&self) -> bool {
        self.file("stop").exists()
    }
    /// Whether control has acknowledged the result.
    pub fn is_acknowledged(&self) -> bool {
        self.file("acknowledged").exists()
    }
    /// Process of the living supervisor. The supervisor itself must not call this: closing the file would release its
    /// lock.
    pub fn living_supervisor(&self) -> Result<Option<Pid>, RecordError> {
        let path = self.file("lock");
        holder(&path).map_err(failed(&path))
    }
    /// Takes the supervisor's lock; `None` if another supervisor lives.
    pub fn take_lock(&self) -> Result<Option<Lock>, RecordError> {
        let path = self.file("lock");
        Lock::take(&path).map_err(failed(&path))
    }

    /// Reserves space for the end records, so that [`AttemptDir::write_exit`] also works on a disk that has become
    /// full. The reserve does not help on a disk that accepts no writes at all, nor on filesystems that never overwrite
    /// in place.
    pub fn keep_reserve(&self) -> Result<(), RecordError> {
        // One for `job.json`, one for `exit.json`.
        keep_reserve(&self.path, 2).map_err(failed(&self.path))
    }
    /// Records what to run, durably.
    pub fn write_launch(&self, launch: &LaunchRecord) -> Result<(), RecordError> {
        self.write("launch.json", launch, write_durably)
    }
    /// Records the supervisor. Not flushed: after a machine crash, the boot id already shows that no process is left.
    pub fn write_supervisor(&self, supervisor: &SupervisorRecord) -> Result<(), RecordError> {
        self.write("supervisor.json", supervisor, write_atomically)
    }
    /// Records the start of the job. Not flushed: after a machine crash, the boot id shows that no process is left.
    pub fn write_started(&self, started: &StartedRecord) -> Result<(), RecordError> {
        self.write("started.json", started, write_atomically)
    }
    /// Records that a start hangs. Not flushed: after a machine crash, the boot id shows that no process is left.
    pub fn write_starting(&self, starting: &StartingRecord) -> Result<(), RecordError> {
        self.write("starting.json", starting, write_atomically)
    }
    /// Removes the record of a hanging start.
    pub fn clear_starting(&self) -> Result<(), RecordError> {
        self.remove_file(&self.file("starting.json"))
    }
    /// Records the result of the job, durably; from the reserve if the disk is full.
    pub fn write_job_end(&self, end: &ExitRecord) -> Result<(), RecordError> {
        self.write("job.json", end, write_durably_from_reserve)
    }
    /// Records the result of the job if hooks are left to run, otherwise the result of the rank.
    pub fn write_job_end_or_exit(&self, end: &ExitRecord) -> Result<(), RecordError> {
        let is_finishing = self
            .launch()?
            .is_some_and(|launch| launch.hooks_after_job().next().is_some());
        match is_finishing {
            true => self.write_job_end(end),
            false => self.write_exit(end),
        }
    }
    /// Records durably that processes of the attempt were found.
    pub fn write_orphan(&self, orphan: &OrphanRecord) -> Result<(), RecordError> {
        self.write("orphan.json", orphan, write_durably)
    }
    /// Records the result of the rank, durably; from the reserve if the disk is full.
    pub fn write_exit(&self, exit: &ExitRecord) -> Result<(), RecordError> {
        self.write("exit.json", exit, write_durably_from_reserve)
    }
    /// Records a stop request: a restarted agent must not start the attempt. Not flushed: after a machine crash no
    /// process of the attempt is left, and none is started.
    pub fn request_stop(&self) -> Result<(), RecordError> {
        let path = self.file("stop");
        let Err(error) = write_atomically(&path, b"") else {
            return Ok(());
        };
        // Only the presence of the file counts, and a second name needs no inode.
        match std::fs::hard_link(self.file("launch.json"), &path) {
            Ok(()) => Ok(()),
            Err(again) if again.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(_) => Err(failed(&path)(error)),
        }
    }
    /// Records that control has the result, then removes the launch record (it holds the user's environment) and all
    /// other records except those of checkpoints. Output, logs, result and acknowledgement stay. Not flushed: if a
    /// machine crash loses the acknowledgement, the agent reports the result once more.
    pub fn acknowledge(&self) -> Result<(), RecordError> {
        let path = self.file("acknowledged");
        if let Err(error) = write_atomically(&path, b"") {
            // The launch record is no longer needed, so its inode becomes the acknowledgement.
            std::fs::rename(self.file("launch.json"), &path)
                .and_then(|()| File::options().write(true).open(&path)?.set_len(0))
                .map_err(|_| failed(&path)(error))?;
        }
        for name in [
            "launch.json",
            "reserve",
            "reserve.2",
            "job.json",
            "orphan.json",
            "supervisor.json",
            "started.json",
            "starting.json",
            WALLTIME,
            "stop",
            "lock",
        ] {
            self.remove_file(&self.file(name))?;
        }
        Ok(())
    }
    /// Removes the captured output and the logs; the result stays.
    pub fn remove_output(&self) -> Result<(), RecordError> {
        let streams = [LogStream::Stdout, LogStream::Stderr].map(|stream| self.output(stream));
        let hooks = [HookName::Prolog, HookName::Epilog, HookName::Wipe];
        for output in streams
            .into_iter()
            .chain(hooks.map(|hook| self.hook_log(hook)))
        {
            for start in output.segments().map_err(failed(output.head()))? {
                self.remove_file(&output.segment(start))?;
            }
            self.remove_file(output.head())?;
        }
        self.remove_file(&self.supervisor_log())
    }
    fn remove_file(&self, path: &Path) -> Result<(), RecordError> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path)(error)),
            _ => Ok(()),
        }
    }
    /// Time at which control acknowledged the result, by the file's time; `None` before.
    pub fn acknowledged_at(&self) -> Option<std::time::SystemTime> {
        let meta = std::fs::metadata(self.file("acknowledged")).ok()?;
        meta.modified().ok()
    }
    /// Removes the folder with all its files.
    pub fn remove(&self) -> Result<(), RecordError> {
        std::fs::remove_dir_all(&self.path).map_err(failed(&self.path))
    }

    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, RecordError> {
        read(&self.file(name))
    }

    pub(super) fn write<T: Serialize>(
        &self,
        name: &str,
        body: &T,
        write_file: fn(&Path, &[u8]) -> io::Result<()>,
    ) -> Result<(), RecordError> {
        let path = self.file(name);
        let bytes = encode(&path, body)?;
        write_file(&path, &bytes).map_err(failed(&path))
    }
}
