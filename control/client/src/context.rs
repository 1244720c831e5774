//! Context files: the cluster that a program connects to, and its token. The `lattice` command and the SDKs share them.
//!
//! Search order: a file given explicitly, `LATTICE_CONTEXT`, the user's default (`lattice/context.json` in
//! `$XDG_CONFIG_HOME` or `~/.config`), then the file of a running demo.

use lattice_config::ConfigErrors;
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
    #[error("{}", several_text(demos))]
    Several {
        /// The running demos, at least two, by process id.
        demos: Vec<RunningDemo>,
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
    #[error("context file: {0}")]
    Malformed(ConfigErrors),
    /// The file that [`CONTEXT_VARIABLE`] names cannot be used.
    #[error("{CONTEXT_VARIABLE} names this file")]
    Variable(#[source] Box<ContextError>),
}

/// Context file of a running demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningDemo {
    /// Path of the file.
    pub path: PathBuf,
    /// `https://host:port` of the demo's server.
    pub server: String,
    /// Process id of the demo.
    pub pid: u32,
}

/// Lists the demos, each with the option that selects it.
fn several_text(demos: &[RunningDemo]) -> String {
    let mut text = format!("several demos are running; name one, or set {CONTEXT_VARIABLE}:");
    for RunningDemo { path, server, pid } in demos {
        let path = shell_word(&path.display().to_string());
        text.push_str(&format!("\n  --context {path}   ({server}, process {pid})"));
    }
    text
}

/// Returns the text as one word of a shell's command line.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
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
    match demos.len() {
        0 | 1 => Ok(demos.pop().map(|(_, context)| context)),
        _ => Err(ContextError::Several {
            demos: demos.into_iter().map(|(demo, _)| demo).collect(),
        }),
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
    lattice_config::load_json(path, &text).map_err(ContextError::Malformed)
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

/// Returns the contexts of running demos, by process id. Only folders and files of the user count, also for root: a
/// planted file would redirect the user's commands to another server.
fn live_demos(dir: &Path) -> io::Result<Vec<(RunningDemo, ContextFile)>> {
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
        if let Some(pid) = context.demo_pid.filter(|pid| is_running(*pid)) {
            let server = context.server.clone();
            live.push((RunningDemo { path, server, pid }, context));
        }
    }
    live.sort_by(|(a, _), (b, _)| (a.pid, &a.path).cmp(&(b.pid, &b.path)));
    Ok(live)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    #[test]
    fn several_demos_are_listed_with_the_option_to_type() {
        let demo = |path: &str, pid| RunningDemo {
            path: PathBuf::from(path),
            server: format!("https://127.0.0.1:{pid}"),
            pid,
        };
        let demos = vec![
            demo("/run/user/1000/lattice/demo-7001.json", 7001),
            demo("/tmp/it's mine/demo-7002.json", 7002),
        ];
        let error = ContextError::Several { demos };
        assert_eq!(
            error.to_string(),
            "several demos are running; name one, or set LATTICE_CONTEXT:\n  \
             --context /run/user/1000/lattice/demo-7001.json   (https://127.0.0.1:7001, process 7001)\n  \
             --context '/tmp/it'\\''s mine/demo-7002.json'   (https://127.0.0.1:7002, process 7002)"
        );
    }

    #[test]
    fn mistakes_of_a_context_file_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let path = plant(dir.path());
        fs::write(&path, r#"{"server":"s","ca":"c","token":["secret"]}"#).unwrap();
        let refused = read(&path).unwrap_err().to_string();
        let mistakes = refused.split_once('\n').unwrap().1;
        assert_eq!(
            mistakes,
            "  token: must be a text, not a list\n  \
             the key `ca_pem` is missing\n  \
             ca: unknown key; known here: server, ca_pem, token, demo_pid",
            "{refused}"
        );
        fs::write(&path, "{").unwrap();
        let refused = read(&path).unwrap_err().to_string();
        let named = format!("context file: the file {} has a mistake:", path.display());
        assert_eq!(
            refused,
            format!("{named}\n  malformed JSON: the text ends too early, at line 1 column 1")
        );
    }

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
        let (demo, context) = live_demos(dir.path()).unwrap().remove(0);
        assert_eq!((&demo.path, demo.pid), (&path, std::process::id()));
        assert_eq!((demo.server.as_str(), context.token.as_str()), ("s", "t"));
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
