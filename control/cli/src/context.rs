//! Which cluster a command talks to, and as whom.
//!
//! Looked for in this order: `--context FILE`, `LATTICE_CONTEXT`, the user's own default
//! (`$XDG_CONFIG_HOME/lattice/context.json`), then the file of a demo that is running now.

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, DirBuilder, Metadata, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

/// A server with what is needed to trust it and to be known by it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFile {
    /// `https://host:port`.
    pub server: String,
    /// The CA that signed the server's certificate.
    pub ca_pem: String,
    /// Bearer token. The file holding it has mode 0600.
    pub token: String,
    /// The demo process that wrote it; such a context is over when that process is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demo_pid: Option<u32>,
}

/// The environment variable that names a context file.
pub const VARIABLE: &str = "LATTICE_CONTEXT";

/// Folder for demos' files: the user's runtime folder, else a private one below the temporary
/// folder.
pub fn runtime_dir() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if Path::new(&dir).is_dir() => PathBuf::from(dir).join("lattice"),
        _ => {
            let uid = rustix::process::getuid().as_raw();
            std::env::temp_dir().join(format!("lattice-{uid}"))
        }
    }
}

fn user_default() -> Option<PathBuf> {
    let config = match std::env::var_os("XDG_CONFIG_HOME") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".config"),
    };
    Some(config.join("lattice/context.json"))
}

/// Finds and reads the context to use; `None` when there is none.
pub fn find(explicit: Option<&Path>) -> anyhow::Result<Option<ContextFile>> {
    if let Some(path) = explicit {
        return read(path).map(Some);
    }
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return read(Path::new(&path))
            .map(Some)
            .with_context(|| format!("{VARIABLE} names this file"));
    }
    if let Some(path) = user_default().filter(|path| path.exists()) {
        return read(&path).map(Some);
    }
    let mut demos = live_demos(&runtime_dir())?;
    match (demos.pop(), demos.is_empty()) {
        (Some((_, context)), true) => Ok(Some(context)),
        (Some(_), false) => bail!(
            "several demos are running; choose one with --context, from {}",
            runtime_dir().display()
        ),
        (None, _) => Ok(None),
    }
}

/// Reads one context file. A file that others can read, or that is somebody else's, is refused:
/// it holds a token.
pub fn read(path: &Path) -> anyhow::Result<ContextFile> {
    let about = || format!("context file {}", path.display());
    let meta = fs::metadata(path).with_context(about)?;
    let uid = rustix::process::getuid().as_raw();
    if meta.uid() != uid && uid != 0 {
        bail!("{} belongs to another user", about());
    }
    if meta.permissions().mode() & 0o077 != 0 {
        bail!(
            "{} can be read by others; run: chmod 600 {}",
            about(),
            path.display()
        );
    }
    let text = fs::read_to_string(path).with_context(about)?;
    serde_json::from_str(&text).with_context(about)
}

/// Makes sure that `dir` is a folder of ours that nobody else can enter. In a shared temporary
/// folder somebody else may have made it, or a link by that name, first.
fn private_dir(dir: &Path) -> anyhow::Result<()> {
    if let Err(error) = DirBuilder::new().mode(0o700).create(dir)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error.into());
    }
    let meta = fs::symlink_metadata(dir)?;
    if !meta.is_dir() || !is_ours(&meta) {
        bail!("it is not a folder of yours; remove it, or set XDG_RUNTIME_DIR to one that is");
    }
    Ok(fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?)
}

fn is_ours(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::getuid().as_raw()
}

/// Contexts of demos that run now. Only our own folder and files count, for root too: whoever can
/// plant one elsewhere would be sent our commands.
/// Whether a process has this number and has not ended: one that ended and whose parent has not
/// asked how is still listed.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state is in parentheses and may hold anything.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Removes what demos that were killed left behind.
fn clear_away(dir: &Path) {
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

fn live_demos(dir: &Path) -> anyhow::Result<Vec<(PathBuf, ContextFile)>> {
    if !fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir() && is_ours(&meta)) {
        return Ok(Vec::new());
    }
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(Vec::new());
    };
    let mut live = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let ours = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && is_ours(&meta));
        if !ours || path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        // A file that vanishes or is not ours is no candidate; only a named one is worth an error.
        let Ok(context) = read(&path) else { continue };
        if context.demo_pid.is_some_and(is_running) {
            live.push((path, context));
        }
    }
    live.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(live)
}

/// A context file that is removed when dropped.
pub struct Published {
    path: PathBuf,
}

impl Published {
    /// Writes `context` under this process's own name, mode 0600, replacing nobody's file.
    pub fn write(context: &ContextFile) -> anyhow::Result<Published> {
        let dir = runtime_dir();
        private_dir(&dir).with_context(|| dir.display().to_string())?;
        clear_away(&dir);
        let path = dir.join(format!("demo-{}.json", std::process::id()));
        // A leftover of a crashed process that had our pid.
        let _ = fs::remove_file(&path);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        file.write_all(&serde_json::to_vec_pretty(context)?)?;
        Ok(Published { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    fn plant(dir: &Path) -> PathBuf {
        let path = dir.join("demo-1.json");
        let pid = std::process::id();
        let text = format!(r#"{{"server":"s","ca_pem":"c","token":"t","demo_pid":{pid}}}"#);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn what_a_killed_demo_left_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let living = plant(dir.path());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = dir.path().join("demo-2.json");
        let pid = child.id();
        let text = fs::read_to_string(&living).unwrap();
        let text = text.replace(&std::process::id().to_string(), &pid.to_string());
        fs::write(&dead, text).unwrap();
        fs::set_permissions(&dead, fs::Permissions::from_mode(0o600)).unwrap();
        // Ended, and not yet waited for.
        while is_running(pid) {
            std::thread::yield_now();
        }
        assert_eq!(live_demos(dir.path()).unwrap().len(), 1);
        clear_away(dir.path());
        assert!(living.exists() && !dead.exists());
        child.wait().unwrap();
        assert!(!is_running(pid));
    }

    #[test]
    fn a_live_demo_of_ours_is_found_and_nothing_that_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = plant(dir.path());
        assert_eq!(live_demos(dir.path()).unwrap().len(), 1);
        let link = dir.path().with_extension("link");
        symlink(dir.path(), &link).unwrap();
        assert_eq!(
            live_demos(&link).unwrap().len(),
            0,
            "a link is not our folder"
        );
        fs::remove_file(link).unwrap();
        if !rustix::process::getuid().is_root() {
            eprintln!("SKIPPED: files of another user need root");
            return;
        }
        chown(&path, Some(65_534), None).unwrap();
        assert_eq!(
            live_demos(dir.path()).unwrap().len(),
            0,
            "somebody else's file"
        );
        let path = plant(dir.path());
        chown(&path, Some(0), None).unwrap();
        assert_eq!(live_demos(dir.path()).unwrap().len(), 1);
        chown(dir.path(), Some(65_534), None).unwrap();
        assert_eq!(
            live_demos(dir.path()).unwrap().len(),
            0,
            "somebody else's folder"
        );
    }
}
