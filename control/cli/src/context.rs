//! Context file of a demo, with which other commands find the demo's cluster.

use anyhow::{Context as _, bail};
use lattice_client::context::{is_ours, is_running, read, runtime_dir};
use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

pub use lattice_client::context::{CONTEXT_VARIABLE, ContextFile, find};

/// Ensures that `dir` is a folder of this user that no other user can enter. In a shared temporary folder, another user
/// may have created a folder or a link with this name.
fn private_dir(dir: &Path) -> anyhow::Result<()> {
    if let Err(error) = DirBuilder::new().mode(0o700).create(dir)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error.into());
    }
    let meta = fs::symlink_metadata(dir)?;
    if !meta.is_dir() || !is_ours(&meta) {
        bail!(
            "the path is not a folder of this user; remove it, or set XDG_RUNTIME_DIR to a folder of this user"
        );
    }
    Ok(fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?)
}

/// Removes the files of demos that were killed.
fn remove_stale_contexts(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let context = read(&entry.path());
        if context.is_ok_and(|c| c.demo_pid.is_some_and(|pid| !is_running(pid))) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Context file that is removed when dropped.
pub struct PublishedContext {
    path: PathBuf,
}

impl PublishedContext {
    /// Writes `context` under the id of this process, mode 0600, without replacing another demo's file.
    pub fn write(context: &ContextFile) -> anyhow::Result<PublishedContext> {
        let dir = runtime_dir();
        private_dir(&dir).with_context(|| dir.display().to_string())?;
        remove_stale_contexts(&dir);
        let path = dir.join(format!("demo-{}.json", std::process::id()));
        // File of a crashed process that had the same process id.
        let _ = fs::remove_file(&path);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        file.write_all(&serde_json::to_vec_pretty(context)?)?;
        Ok(PublishedContext { path })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PublishedContext {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn plant(dir: &Path, pid: u32) -> PathBuf {
        let context = ContextFile {
            server: "s".to_owned(),
            ca_pem: "c".to_owned(),
            token: "t".to_owned(),
            demo_pid: Some(pid),
        };
        let path = dir.join(format!("demo-{pid}.json"));
        fs::write(&path, serde_json::to_vec(&context).unwrap()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn what_a_killed_demo_left_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let living = plant(dir.path(), std::process::id());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let dead = plant(dir.path(), pid);
        // The process has ended, and its exit status was not collected yet.
        while is_running(pid) {
            std::thread::yield_now();
        }
        remove_stale_contexts(dir.path());
        assert!(living.exists() && !dead.exists());
        child.wait().unwrap();
        assert!(!is_running(pid));
    }
}
