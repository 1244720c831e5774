//! Local accounts: asked of the system's name services, in a child with a deadline.
//!
//! Never through the C library in this process: a directory service that hangs would hang the
//! agent with it. `getent` asks the same services, and can be killed.

use crate::attempt::LocalUser;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Asks the name services.
const GETENT: &str = "/usr/bin/getent";
/// The accounts of a system without name services.
const PASSWD: &str = "/etc/passwd";
/// How long they have, all questions of one account together.
const DEADLINE: Duration = Duration::from_secs(3);
/// How long an answer counts.
const KEEP_FOUND: Duration = Duration::from_secs(60);
/// How long "not known", or no answer, counts: repeats must not each wait for a dead directory.
const KEEP_MISSING: Duration = Duration::from_secs(5);
/// `getent`'s exit code for a key that is not there.
const NOT_FOUND: i32 = 2;

/// Why it is not known whether there is an account. A fault of the node's, not of the user's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The name services did not answer.
    #[error(
        "the name services did not answer within {seconds} s ({program} {key}); is the directory reachable from this node?"
    )]
    Deadline {
        /// What was asked.
        program: String,
        /// With what.
        key: String,
        /// How long.
        seconds: u64,
    },
    /// They could not be asked, or said something else than an account.
    #[error("{program} {key}: {reason}")]
    Failed {
        /// What was asked, or read.
        program: String,
        /// With what.
        key: String,
        /// What was said.
        reason: String,
    },
}

/// Where accounts are looked up, with the answers of the last minute. Clones share them.
#[derive(Debug, Clone)]
pub struct Accounts {
    source: Source,
    known: Arc<Mutex<BTreeMap<Key, (Instant, Answer)>>>,
}

type Answer = Result<Option<LocalUser>, LookupError>;

#[derive(Debug, Clone)]
enum Source {
    NameServices { getent: PathBuf, deadline: Duration },
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Name(String),
    Uid(u32),
}

impl Accounts {
    /// The accounts of this system. One without `getent` has no name services, only its files.
    pub fn system() -> Self {
        match Path::new(GETENT).exists() {
            true => Self::asked_of(GETENT, DEADLINE),
            false => Self::at(PASSWD),
        }
    }
    /// The accounts that `getent`, or a program that answers like it, knows.
    pub fn asked_of(getent: impl Into<PathBuf>, deadline: Duration) -> Self {
        Self::of(Source::NameServices {
            getent: getent.into(),
            deadline,
        })
    }
    /// The accounts in the passwd file at `path` and the groups in `group` beside it, as text.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::of(Source::File(path.into()))
    }
    fn of(source: Source) -> Self {
        Self {
            source,
            known: Arc::default(),
        }
    }

    /// Where somebody would have to add one.
    pub fn place(&self) -> String {
        match &self.source {
            Source::NameServices { .. } => "the name services (getent passwd)".to_owned(),
            Source::File(path) => path.display().to_string(),
        }
    }

    /// The account of this name, with its supplementary groups.
    pub async fn by_name(&self, name: &str) -> Answer {
        self.find(Key::Name(name.to_owned())).await
    }
    /// The account of this number, without supplementary groups.
    pub async fn by_uid(&self, uid: u32) -> Answer {
        self.find(Key::Uid(uid)).await
    }

    async fn find(&self, key: Key) -> Answer {
        if let Some(answer) = self.remembered(&key) {
            return answer;
        }
        let answer = match &self.source {
            Source::NameServices { getent, deadline } => ask(getent, *deadline, &key).await,
            // Read anew each time.
            Source::File(path) => return read(path, &key),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, answer)| at.elapsed() < lifetime(answer));
        known.insert(key, (Instant::now(), answer.clone()));
        answer
    }

    fn remembered(&self, key: &Key) -> Option<Answer> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = known.get(key)?;
        (at.elapsed() < lifetime(answer)).then(|| answer.clone())
    }
}

fn lifetime(answer: &Answer) -> Duration {
    match answer {
        Ok(Some(_)) => KEEP_FOUND,
        Ok(None) | Err(_) => KEEP_MISSING,
    }
}

/// Whether `text` may be asked for: nothing that a name service or a command line could take for
/// something else, a number least of all.
pub(super) fn is_account_name(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || "_.-@".contains(c);
    let is_number = text.chars().all(|c| c.is_ascii_digit());
    starts_well && text.len() <= 64 && text.chars().all(is_of_names) && !is_number
}

async fn ask(getent: &Path, deadline: Duration, key: &Key) -> Answer {
    let (program, text) = (getent.display().to_string(), key_text(key));
    let failed = |reason: String| LookupError::Failed {
        program: program.clone(),
        key: text.clone(),
        reason,
    };
    let asking = async {
        let Some(said) = question(getent, &["passwd", &text]).await.map_err(failed)? else {
            return Ok(None);
        };
        let line = said.lines().next().unwrap_or_default();
        let user = parse_line(line);
        let user = user.ok_or_else(|| failed(format!("{line:?} is no account")))?;
        let groups = match key {
            Key::Uid(uid) if user.uid == *uid => return Ok(Some(user)),
            Key::Name(name) if user.name == *name => question(getent, &["initgroups", name])
                .await
                .map_err(failed)?,
            // Another spelling, or another domain: the site says that both are the same.
            Key::Uid(_) | Key::Name(_) => {
                return Err(failed(format!(
                    "answered with {}; name that account in executor.user_map",
                    user.name
                )));
            }
        };
        let said = groups.ok_or_else(|| failed("its groups are not known".to_owned()))?;
        let groups = said
            .split_whitespace()
            .skip(1)
            .filter_map(|g| g.parse().ok());
        Ok(Some(with_groups(user, groups)))
    };
    let answer = tokio::time::timeout(deadline, asking).await;
    answer.unwrap_or_else(|_| {
        Err(LookupError::Deadline {
            program: program.clone(),
            key: text.clone(),
            seconds: deadline.as_secs(),
        })
    })
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Name(name) => name.clone(),
        Key::Uid(uid) => uid.to_string(),
    }
}

/// What it prints; `None` where the key is not known. It is killed when this is dropped.
async fn question(getent: &Path, arguments: &[&str]) -> Result<Option<String>, String> {
    let done = Command::new(getent)
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(Some(String::from_utf8_lossy(&done.stdout).into_owned()));
    }
    if done.status.code() == Some(NOT_FOUND) {
        return Ok(None);
    }
    let complaint = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(format!("{}: {complaint}", done.status))
}

/// Neither its own group again nor root's: membership in group 0 is not passed on to work.
fn with_groups(user: LocalUser, groups: impl Iterator<Item = u32>) -> LocalUser {
    let groups: BTreeSet<u32> = groups.filter(|gid| *gid != 0 && *gid != user.gid).collect();
    LocalUser {
        groups: groups.into_iter().collect(),
        ..user
    }
}

fn read(path: &Path, key: &Key) -> Answer {
    let text = |path: &Path| match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(LookupError::Failed {
            program: path.display().to_string(),
            key: key_text(key),
            reason: error.to_string(),
        }),
    };
    let accounts = text(path)?;
    let mut accounts = accounts.lines().filter_map(parse_line);
    match key {
        Key::Uid(uid) => Ok(accounts.find(|user| user.uid == *uid)),
        Key::Name(name) => {
            let Some(user) = accounts.find(|user| user.name == *name) else {
                return Ok(None);
            };
            let groups = text(&path.with_file_name("group"))?;
            let groups = groups.lines().filter_map(|line| member_of(line, name));
            Ok(Some(with_groups(user, groups)))
        }
    }
}

/// `name:password:gid:member,member`.
fn member_of(line: &str, name: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split(':').collect();
    let [_, _, gid, members] = fields.as_slice() else {
        return None;
    };
    let is_member = members.split(',').any(|member| member == name);
    is_member.then(|| gid.parse().ok())?
}

/// `name:password:uid:gid:comment:home:shell`; other lines are left out.
fn parse_line(line: &str) -> Option<LocalUser> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields.as_slice() else {
        return None;
    };
    Some(LocalUser {
        name: (*name).to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        groups: Vec::new(),
        home: PathBuf::from(if home.is_empty() { "/" } else { home }),
        shell: PathBuf::from(if shell.is_empty() { "/bin/sh" } else { shell }),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn lines_that_are_no_accounts_are_left_out() {
        for line in ["# note", "+::::::", ""] {
            assert_eq!(parse_line(line), None, "{line:?}");
        }
        let alice = parse_line("alice:x:1000:1001:::").unwrap();
        assert_eq!((alice.uid, alice.gid), (1000, 1001));
        assert_eq!(alice.home, Path::new("/"));
        assert_eq!(alice.shell, Path::new("/bin/sh"));
    }

    #[test]
    fn only_plain_names_are_asked_for() {
        for name in ["alice", "_svc", "a.b-c", "alice@example.org", "7of9"] {
            assert!(is_account_name(name), "{name}");
        }
        for name in [
            "",
            "-s",
            "1000",
            "a b",
            "a:b",
            "a/b",
            "a\n",
            "ålice",
            "a;b",
            &"a".repeat(65),
        ] {
            assert!(!is_account_name(name), "{name:?}");
        }
    }

    fn program(folder: &Path, text: &str) -> PathBuf {
        let (source, path) = (folder.join("text"), folder.join("getent"));
        let text = format!("#!/bin/sh\necho x >> {}/asked\n{text}\n", folder.display());
        std::fs::write(&source, text).unwrap();
        // By another process: one that this one forks meanwhile would hold it open for writing.
        let mut install = std::process::Command::new("install");
        let done = install.args(["-m", "755"]).args([&source, &path]).status();
        assert!(done.unwrap().success());
        path
    }

    fn asked(folder: &Path) -> usize {
        std::fs::read_to_string(folder.join("asked"))
            .unwrap()
            .lines()
            .count()
    }

    #[tokio::test]
    async fn this_systems_name_services_know_nobody_and_root_and_not_a_stranger() {
        let accounts = Accounts::system();
        let nobody = accounts.by_name("nobody").await.unwrap().unwrap();
        assert_eq!(nobody.uid, 65534);
        assert_eq!(accounts.by_uid(0).await.unwrap().unwrap().name, "root");
        let stranger = accounts.by_name("no-such-account-here").await;
        assert_eq!(stranger, Ok(None));
    }

    #[tokio::test]
    async fn groups_come_with_the_name_but_never_roots() {
        let folder = tempfile::tempdir().unwrap();
        let getent = program(
            folder.path(),
            "case $1 in passwd) echo 'alice:*:1000:1000:A:/home/alice:/bin/bash';;
             initgroups) echo \"alice   44 0 1000 109 44\";; esac",
        );
        let accounts = Accounts::asked_of(getent, DEADLINE);
        let alice = accounts.by_name("alice").await.unwrap().unwrap();
        assert_eq!(alice.groups, [44, 109]);
        let again = accounts.by_name("alice").await.unwrap().unwrap();
        assert_eq!(again, alice);
        assert_eq!(asked(folder.path()), 2, "the second answer is remembered");
    }

    #[tokio::test]
    async fn a_directory_that_hangs_is_given_up_and_not_asked_again_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let getent = program(folder.path(), "exec sleep 1000");
        let accounts = Accounts::asked_of(getent, Duration::from_millis(300));
        let began = Instant::now();
        for _ in 0..5 {
            let answer = accounts.by_name("alice").await;
            assert!(
                matches!(answer, Err(LookupError::Deadline { .. })),
                "{answer:?}"
            );
        }
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(asked(folder.path()), 1);
    }

    #[tokio::test]
    async fn an_answer_about_somebody_else_is_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let getent = program(folder.path(), "echo 'bob:*:1001:1001::/:/bin/sh'");
        let accounts = Accounts::asked_of(getent, DEADLINE);
        let error = accounts.by_name("Bob").await.unwrap_err();
        assert!(error.to_string().contains("executor.user_map"), "{error}");
        let error = accounts.by_uid(7).await.unwrap_err();
        assert!(matches!(error, LookupError::Failed { .. }));
    }
}
