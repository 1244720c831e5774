//! Runs the real `lattice` in a private environment.

pub mod api;

use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// Environment that contains only what the test creates.
pub struct Sandbox {
    pub dir: tempfile::TempDir,
}

/// Result of a command.
#[derive(Debug)]
pub struct CommandResult {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CommandResult {
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

impl From<Output> for CommandResult {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Sandbox {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The daemons' data is below this folder, and jobs of another user run there too.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("run")).unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lattice"));
        command
            .args(args)
            .env_remove("LATTICE_CONTEXT")
            .env_remove("LATTICE_LOG")
            .env_remove("XDG_CONFIG_HOME")
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .stdin(Stdio::null());
        command
    }

    pub fn lattice(&self, args: &[&str]) -> CommandResult {
        self.command(args).output().unwrap().into()
    }

    /// Returns the contexts that demos have published.
    pub fn contexts(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("run/lattice")) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// Demo that runs concurrently with the test.
pub struct Demo {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Demo {
    pub fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut command = sandbox.command(&["demo"]);
        command.args(args);
        Self::spawn(command)
    }

    /// Starts a demo with a command that the test has prepared.
    pub fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (into, from) = (said.clone(), child.stderr.take().unwrap());
        let reader = thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                let Ok(line) = line else { return };
                let mut said = into.lock().unwrap();
                said.push_str(&line);
                said.push('\n');
            }
        });
        Self {
            child,
            said,
            reader: Some(reader),
        }
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until the demo has printed `words`.
    #[track_caller]
    pub fn wait_for(&mut self, words: &str, at_most: Duration) {
        wait_until(&format!("the demo says {words:?}"), at_most, || {
            let said = self.said();
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the demo ended ({status}) before it said {words:?}: {said}");
            }
            said.contains(words)
        });
    }

    /// Ends the demo as Ctrl-C does. Returns its exit code and everything that it has printed.
    pub fn interrupt(mut self) -> (Option<i32>, String) {
        self.signal("-INT");
        let code = self.child.wait().unwrap().code();
        // Processes of jobs may hold the stream open, so its end is not awaited for ever.
        if let Some(reader) = self.reader.take() {
            let ends_at = Instant::now() + Duration::from_secs(5);
            while !reader.is_finished() && Instant::now() < ends_at {
                thread::sleep(Duration::from_millis(10));
            }
        }
        (code, self.said())
    }

    /// Ends the demo as a crash does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub fn wait_until(what: &str, at_most: Duration, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < at_most, "in {at_most:?}: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Number of temporary folders of demos in a folder.
pub fn demo_folders(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    let is_of_demo = |name: &OsString| name.to_string_lossy().starts_with("lattice-demo-");
    names.filter(is_of_demo).count()
}

pub fn copy_tree(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(copied.success());
}

/// Checks that a command fails with this exit code, with these words on stderr and nothing on stdout.
#[track_caller]
pub fn refused(sandbox: &Sandbox, args: &[&str], code: i32, words: &[&str]) {
    let done = sandbox.lattice(args);
    assert_eq!(done.code, Some(code), "{args:?}: {done:?}");
    for word in words {
        assert!(
            done.stderr.contains(word),
            "{args:?}: {word:?} is missing in {}",
            done.stderr
        );
    }
    assert_eq!(done.stdout, "", "{args:?}");
}

/// Returns a context file with a server that is never contacted: the mistakes are reported before.
pub fn context(sandbox: &Sandbox) -> String {
    let folder = sandbox.path("https");
    let file = sandbox.path("context.json");
    let (folder, path) = (folder.to_str().unwrap(), file.to_str().unwrap().to_owned());
    if file.exists() {
        return path;
    }
    let args = ["admin", "https", "--host", "localhost", "--out", folder];
    assert_eq!(sandbox.lattice(&args).code, Some(0));
    let ca_pem = fs::read_to_string(format!("{folder}/https-ca.pem")).unwrap();
    let server = "https://localhost:1";
    let text = serde_json::json!({"server": server, "ca_pem": ca_pem, "token": "t"});
    fs::write(&file, text.to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    path
}
