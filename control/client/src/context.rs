//! Context files: the cluster that a program connects to, and its token. The `lattice` command and the SDKs share them.
//!
//! Search order: a file given explicitly, `LATTICE_CONTEXT`, the user's default (`lattice/context.json` in
//! `$XDG_CONFIG_HOME` or `~/.config`), then the file of a running demo.

use lattice_host::private_file::{self, ExposedFile};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Server, with its CA and the caller's token.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFile {
    /// `https://host:port`.
    pub server: String,
    /// CA certificate that signed the server's certificate, PEM.
    pub ca_pem: String,
    /// Bearer token. The file that holds it has mode 0600.
    pub token: String,
    /// Process id of the demo that wrote the file. The context is valid only while that process runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demo_pid: Option<u32>,
}

impl std::fmt::Debug for ContextFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContextFile")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// Environment variable that names a context file.
pub const CONTEXT_VARIABLE: &str = "LATTICE_CONTEXT";

/// Reason why no context can be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// No cluster is named.
    #[error(
        "no cluster is named: give a context file, set {CONTEXT_VARIABLE}, or start one with `lattice demo`"
    )]
    None,
    /// Several demos are running, and none is named.
    #[error("several demos are running; choose one of the context files in {}", folder.display())]
    Several {
        /// Folder of the context files.
        folder: PathBuf,
    },
    /// The file belongs to another user, although it holds a token.
    #[error("context file {} belongs to another user", path.display())]
    OtherOwner {
        /// Path of the file.
        path: PathBuf,
    },
    /// Other users can read the file, although it holds a token.
    #[error("context file: {0}")]
    Exposed(ExposedFile),
    /// The file, or the folder that is searched for it, cannot be read.
    #[error("context file {}", path.display())]
    Io {
        /// Path of the file, or of the folder that is searched for it.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The file is not a valid context file.
    #[error("context file {}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: serde_json::Error,
    },
    /// The file that [`CONTEXT_VARIABLE`] names cannot be used.
    #[error("{CONTEXT_VARIABLE} names this file")]
    Variable(#[source] Box<ContextError>),
}

/// Returns the folder of the demos' context files: in the user's runtime folder, else a private one in the temporary
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

/// Finds and reads the context to use; `None` if there is none.
///
/// # Errors
/// Returns an error if the named context file or the user's default cannot be used, if the folder of the demos' files
/// cannot be read, or if several demos are running.
pub fn find(explicit: Option<&Path>) -> Result<Option<ContextFile>, ContextError> {
    if let Some(path) = explicit {
        return read(path).map(Some);
    }
    if let Some(path) = std::env::var_os(CONTEXT_VARIABLE).filter(|path| !path.is_empty()) {
        let found = read(Path::new(&path)).map(Some);
        return found.map_err(|error| ContextError::Variable(Box::new(error)));
    }
    if let Some(path) = user_default().filter(|path| path.exists()) {
        return read(&path).map(Some);
    }
    let folder = runtime_dir();
    let mut demos = live_demos(&folder).map_err(|source| ContextError::Io {
        path: folder.clone(),
        source,
    })?;
    match (demos.pop(), demos.is_empty()) {
        (Some(_), false) => Err(ContextError::Several { folder }),
        (found, _) => Ok(found),
    }
}

/// Reads one context file. Since the file holds a token, it is rejected if other users can read it or if it belongs to
/// another user. Root may read the files of other users.
///
/// # Errors
/// See [`ContextError`].
pub fn read(path: &Path) -> Result<ContextFile, ContextError> {
    let named = || path.to_owned();
    let failed = |source| ContextError::Io {
        path: named(),
        source,
    };
    let mut file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let uid = rustix::process::getuid().as_raw();
    if meta.uid() != uid && uid != 0 {
        return Err(ContextError::OtherOwner { path: named() });
    }
    private_file::check(path, &meta).map_err(ContextError::Exposed)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    serde_json::from_str(&text).map_err(|source| ContextError::Malformed {
        path: named(),
        source,
    })
}

/// Whether a file or folder belongs to the user of this process. Root is no exception.
pub fn is_ours(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::getuid().as_raw()
}

/// Whether a process with this id runs. A zombie, which has exited but still has an entry in `/proc`, does not count.
pub fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state is in parentheses and may contain any characters.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Returns the contexts of running demos. Only folders and files of the user count, also for root: a planted file would
/// redirect the user's commands to another server.
fn live_demos(dir: &Path) -> io::Result<Vec<ContextFile>> {
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
        // A file that vanishes or belongs to another user is skipped; only an explicitly named file causes an error.
        let Ok(context) = read(&path) else { continue };
        if context.demo_pid.is_some_and(is_running) {
            live.push(context);
        }
    }
    Ok(live)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    fn plant(dir: &Path) -> PathBuf {
        let path = dir.join("demo-1.json");
        let pid = std::process::id();
        let text = format!(r#"{{"server":"s","ca_pem":"c","token":"t","demo_pid":{pid}}}"#);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
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
