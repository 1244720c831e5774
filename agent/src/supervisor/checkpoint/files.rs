//! Checkpoint mode `signal`: the request file, and the files with the job's answer.
//!
//! All code here runs with the rights of the job's user, so the user decides where its paths lead. The exception is
//! that links are not followed below the checkpoint directory. In a folder that others can write, a link could lead to
//! the user's own files.

use lattice_agent_rpc::CheckpointOrder;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Marks a complete checkpoint; contains its number.
pub(super) const COMPLETE: &str = "complete";
/// Sign of life: a change of the file's time shows that the job is writing.
pub(super) const PROGRESS: &str = "progress";
/// Marks a failed checkpoint; contains its number, then the reason.
pub(super) const FAILED: &str = "failed";
/// Maximum number of bytes read of an answer file.
const MAX_READ_BYTES: u64 = 1024;
/// Maximum number of files that are counted for the size. A count beyond this number or [`COUNT_TIMEOUT`] is abandoned.
const MAX_ENTRIES: usize = 100_000;
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Part of one rank in one checkpoint, in the filesystem.
#[derive(Debug, Clone)]
pub(super) struct Part {
    directory: PathBuf,
    number: u32,
    rank: u32,
    /// Owner of the folders.
    uid: u32,
}

/// State of the part according to its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartState {
    /// The checkpoint is complete.
    Complete,
    /// The job has given up, with the reason.
    Failed(String),
    /// Neither complete nor failed, with the time of the last progress and a present obstacle.
    Open {
        progress: Option<(i64, u64)>,
        obstacle: Option<String>,
    },
}

impl Part {
    pub(super) fn new(order: &CheckpointOrder, rank: u32, uid: u32) -> Self {
        Self {
            directory: PathBuf::from(&order.directory),
            number: order.number,
            rank,
            uid,
        }
    }

    /// Folder of the part.
    pub(super) fn path(&self) -> PathBuf {
        self.directory
            .join(self.number.to_string())
            .join(self.rank_folder())
    }

    fn rank_folder(&self) -> String {
        format!("rank-{}", self.rank)
    }

    /// Creates the folders and removes existing answers, which belong to another request. The error text is for
    /// operators.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let directory = self.directory.display();
        let made = make_directory(&self.directory);
        made.map_err(|error| format!("{directory} cannot be created: {error}"))?;
        let mut folder = open_directory(&self.directory)
            .map_err(|error| format!("{directory} cannot be opened: {error}"))?;
        let mut path = self.directory.clone();
        for part in [self.number.to_string(), self.rank_folder()] {
            path.push(&part);
            let refused = |why: String| format!("{}: {why}", path.display());
            match mkdirat(&folder, &*part, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(refused(format!("cannot be created: {error}"))),
            }
            folder = enter(&folder, &part).map_err(|error| refused(describe_error(error)))?;
            let owner = fstat(&folder)
                .map_err(|error| refused(error.to_string()))?
                .st_uid;
            if owner != self.uid {
                let uid = self.uid;
                return Err(refused(format!(
                    "belongs to uid {owner}, but the job runs as uid {uid}"
                )));
            }
        }
        for name in [COMPLETE, FAILED, PROGRESS] {
            match unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => {
                    let path = path.display();
                    return Err(format!(
                        "{path}/{name} exists and cannot be removed: {error}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Writes the request file atomically.
    pub(super) fn request(&self, at: &Path, timeout_ms: u64) -> Result<(), String> {
        let failed = |error: io::Error| format!("{} cannot be written: {error}", at.display());
        let name = at.file_name().unwrap_or_default().to_string_lossy();
        let hidden = format!(".{name}.new");
        let folder = at.parent().unwrap_or(Path::new("/"));
        // The folder may differ from the order's directory.
        make_directory(folder).map_err(failed)?;
        let folder = open_directory(folder).map_err(|error| failed(error.into()))?;
        // Removes a file of an interrupted attempt or of another user: the request is never written through it.
        let _ = unlinkat(&folder, &*hidden, AtFlags::empty());
        let how =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, &*hidden, how, Mode::from_raw_mode(0o600));
        let mut file = File::from(file.map_err(|error| failed(error.into()))?);
        file.write_all(self.request_text(timeout_ms).as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        renameat(&folder, &*hidden, &folder, &*name).map_err(|error| failed(error.into()))
    }

    fn request_text(&self, timeout_ms: u64) -> String {
        let folder = self.path();
        let mut text = format!("number={}\nfolder={}\n", self.number, folder.display());
        for name in [COMPLETE, PROGRESS, FAILED] {
            let _ = writeln!(text, "{name}={}", folder.join(name).display());
        }
        let _ = writeln!(text, "timeout_ms={timeout_ms}");
        text
    }

    /// Reads the job's answers.
    pub(super) fn read_state(&self) -> io::Result<PartState> {
        let mut folder = open_directory(&self.directory)?;
        for part in [self.number.to_string(), self.rank_folder()] {
            folder = enter(&folder, &part)?;
        }
        let mut obstacle = None;
        match self.answer(&folder, COMPLETE) {
            Ok(Some(_)) => return Ok(PartState::Complete),
            Ok(None) => {}
            Err(why) => obstacle = Some(why),
        }
        match self.answer(&folder, FAILED) {
            Ok(Some(reason)) => return Ok(PartState::Failed(reason)),
            Ok(None) => {}
            Err(why) => obstacle = Some(why),
        }
        let progress = statat(&folder, PROGRESS, AtFlags::SYMLINK_NOFOLLOW).ok();
        Ok(PartState::Open {
            progress: progress.map(|stat| (stat.st_mtime, stat.st_mtime_nsec)),
            obstacle,
        })
    }

    /// Content of an answer after the checkpoint number; `None` if the file does not exist. The error states why the
    /// file is not a valid answer.
    fn answer(&self, folder: &OwnedFd, name: &str) -> Result<Option<String>, String> {
        // Opening a pipe without a writer must not block.
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(folder, name, how, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => {
                let reason = describe_error(error);
                return Err(format!("{name} is not a valid answer: {reason}"));
            }
        };
        let is_file = fstat(&file)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if !is_file {
            return Err(format!(
                "{name} is not a valid answer: it is not a regular file"
            ));
        }
        let mut bytes = Vec::new();
        let read = File::from(file)
            .take(MAX_READ_BYTES)
            .read_to_end(&mut bytes);
        read.map_err(|error| format!("{name} cannot be read: {error}"))?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let (number, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if number.parse() == Ok(self.number) {
            return Ok(Some(rest.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        let number: String = number.chars().take(20).collect();
        let wanted = self.number;
        Err(format!(
            "{name} is not a valid answer: it contains number {number:?}, expected {wanted}"
        ))
    }

    /// Total size of the regular files; `None` if they cannot be counted or are too many.
    pub(super) fn bytes(&self) -> Option<u64> {
        let give_up_at = Instant::now() + COUNT_TIMEOUT;
        let (mut bytes, mut entries) = (0_u64, 0);
        let mut folders = vec![self.path()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).ok()? {
                let entry = entry.ok()?;
                entries += 1;
                if entries > MAX_ENTRIES || Instant::now() > give_up_at {
                    return None;
                }
                // Metadata of the entry itself: a link is not followed.
                let meta = entry.metadata().ok()?;
                if meta.is_dir() {
                    folders.push(entry.path());
                } else if meta.is_file() {
                    bytes = bytes.saturating_add(meta.len());
                }
            }
        }
        Some(bytes)
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens the user's checkpoint directory; links on the way are followed.
fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, how, Mode::empty())
}

fn enter(folder: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, how, Mode::empty())
}

/// Text of an error. With `O_DIRECTORY`, the kernel reports a link as "not a directory".
fn describe_error(error: Errno) -> String {
    match error {
        Errno::LOOP => "it is a symbolic link (symbolic links are not followed)".to_owned(),
        Errno::NOTDIR => "it is not a folder (symbolic links are not followed)".to_owned(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
