//! Durable files: a file is replaced atomically, even if the machine crashes.
//!
//! A new file is written under a temporary name in the same folder, flushed to the disk, and renamed. The folder is
//! flushed last, because the new name is an entry of the folder. A reader finds the old content or the new one.
//!
//! Invariant: within one process, one thread at a time writes a path. Processes of one machine and one pid namespace
//! may write the same path at once, since the temporary name holds the process id; the last one that commits wins.

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
    process::{Pid, test_kill_process},
};
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// End of each temporary name.
const TEMPORARY_SUFFIX: &str = ".tmp";

/// Replaces the file at `path` by one with these bytes and this mode; returns once it is on the disk.
///
/// # Errors
/// If the file cannot be written, renamed or flushed. An earlier file at `path` is then unchanged, or already replaced
/// if flushing the folder failed.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = NewFile::create(path, mode)?;
    file.write_all(bytes)?;
    file.commit()
}

/// Flushes the entry of `path` in its folder to the disk.
///
/// # Errors
/// If the folder cannot be opened or flushed.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// A file under a temporary name, removed on drop unless one of the `commit` functions gave it its name.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_committed: bool,
}

impl NewFile {
    /// Creates the temporary file of `path` with exactly this mode, whatever the umask of the process is. Removes
    /// temporary files of `path` that ended processes have left.
    ///
    /// # Errors
    /// If `path` has no file name, or the file cannot be created.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let temporary = Self::temporary_path(path)?;
        remove_abandoned(path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        let new = Self {
            file,
            temporary,
            path: path.to_owned(),
            is_committed: false,
        };
        new.file.set_permissions(Permissions::from_mode(mode))?;
        Ok(new)
    }

    /// The temporary name that this process uses for `path`: `.NAME.PID.tmp` in the same folder.
    ///
    /// # Errors
    /// If `path` has no file name.
    pub fn temporary_path(path: &Path) -> io::Result<PathBuf> {
        let mut name = temporary_prefix(path).ok_or_else(|| {
            let reason = format!("{} has no file name", path.display());
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        })?;
        name.push(std::process::id().to_string());
        name.push(TEMPORARY_SUFFIX);
        Ok(folder_of(path).join(name))
    }

    /// Final path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Flushes the file, gives it its name, and flushes the folder. A file that had the name is replaced.
    ///
    /// # Errors
    /// If one of these steps fails. After a failed last step the file has its name.
    pub fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        let path = self.rename()?;
        sync_folder_of(&path)
    }

    /// Gives the file its name without waiting for the disk: readers find a complete file, but a crash of the machine
    /// may lose it.
    ///
    /// # Errors
    /// If the file cannot be renamed.
    pub fn commit_without_sync(self) -> io::Result<()> {
        self.rename().map(drop)
    }

    /// Commits like [`NewFile::commit`], but never replaces an existing file.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if `path` exists, and as [`NewFile::commit`].
    pub fn commit_new(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        match renameat_with(
            CWD,
            &self.temporary,
            CWD,
            &self.path,
            RenameFlags::NOREPLACE,
        ) {
            Ok(()) => self.is_committed = true,
            // The file system does not support this rename. A hard link does not replace a file either; drop removes
            // the temporary name.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                fs::hard_link(&self.temporary, &self.path)?;
            }
            Err(error) => return Err(error.into()),
        }
        sync_folder_of(&self.path)
    }

    fn rename(mut self) -> io::Result<PathBuf> {
        fs::rename(&self.temporary, &self.path)?;
        self.is_committed = true;
        Ok(std::mem::take(&mut self.path))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // On a full disk the temporary file may hold the last block or inode.
        if !self.is_committed {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// `.NAME.`
fn temporary_prefix(path: &Path) -> Option<OsString> {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name()?);
    prefix.push(".");
    Some(prefix)
}

/// Removes temporary files of `path` that were left by processes which have ended, or by an earlier process with this
/// process id. A failure is not reported: it changes nothing for the new file.
fn remove_abandoned(path: &Path) {
    let Some(prefix) = temporary_prefix(path) else {
        return;
    };
    let own = std::process::id().to_string();
    for entry in fs::read_dir(folder_of(path))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let writer = name
            .as_encoded_bytes()
            .strip_prefix(prefix.as_encoded_bytes())
            .and_then(|rest| rest.strip_suffix(TEMPORARY_SUFFIX.as_bytes()))
            .and_then(|writer| std::str::from_utf8(writer).ok());
        if writer.is_some_and(|writer| writer == own || has_ended(writer)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether the text is a process id that no process of this machine has.
fn has_ended(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn replaces_content_and_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"old", 0o644).unwrap();
        replace(&path, b"new", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["state"]);
    }

    #[test]
    fn dropped_file_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"old", 0o600).unwrap();
        let mut file = NewFile::create(&path, 0o600).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(file);
        assert_eq!(names(folder.path()), ["state"]);
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn commit_new_replaces_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("export");
        let write = |text: &[u8]| {
            let mut file = NewFile::create(&path, 0o600).unwrap();
            file.write_all(text).unwrap();
            file.commit_new()
        };
        write(b"first").unwrap();
        let refused = write(b"second").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["export"]);
    }

    #[test]
    fn unsynced_commit_is_whole_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("started.json");
        let mut file = NewFile::create(&path, 0o600).unwrap();
        file.write_all(b"{}").unwrap();
        file.commit_without_sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{}");
        assert_eq!(names(folder.path()), ["started.json"]);
    }

    #[test]
    fn removes_what_ended_writers_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id();
        child.wait().unwrap();
        let of = |pid: u32, name: &str| folder.path().join(format!(".{name}.{pid}.tmp"));
        let parent = std::os::unix::process::parent_id();
        for left in [
            of(ended, "state"),
            of(std::process::id(), "state"),
            of(parent, "state"),
            of(ended, "other"),
        ] {
            fs::write(left, "half").unwrap();
        }
        replace(&path, b"new", 0o600).unwrap();
        let mut kept = vec![
            format!(".other.{ended}.tmp"),
            format!(".state.{parent}.tmp"),
            "state".to_owned(),
        ];
        kept.sort();
        assert_eq!(names(folder.path()), kept);
    }

    #[test]
    fn path_without_a_name_is_refused() {
        let refused = NewFile::create(Path::new("/"), 0o600).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
