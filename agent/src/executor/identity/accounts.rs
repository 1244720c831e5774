//! Local accounts, from the system's name services, in a child process with a timeout.
//!
//! The agent does not query the name services through the C library: a directory service that hangs would block the
//! agent. `getent` queries the same services, and can be killed.

mod files;
mod getent;
#[cfg(test)]
mod tests;

use crate::attempt::LocalUser;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Program that queries the name services.
const GETENT: &str = "/usr/bin/getent";
/// Account file of a system without name services.
const PASSWD: &str = "/etc/passwd";
/// Timeout of all queries for one account together.
const DEADLINE: Duration = Duration::from_secs(3);
/// Lifetime of a cached account.
const KEEP_FOUND: Duration = Duration::from_secs(60);
/// Lifetime of a cached "not found" or error: repeated lookups must not each wait for an unreachable directory.
const KEEP_MISSING: Duration = Duration::from_secs(5);

/// Failure of an account lookup: a fault of the node, not of the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The name services did not answer in time.
    #[error(
        "the name services did not answer within {seconds} s ({program} {key}); is the directory reachable from this node?"
    )]
    Deadline {
        /// Program that was run.
        program: String,
        /// Account name or uid of the query.
        key: String,
        /// Timeout in seconds.
        seconds: u64,
    },
    /// The query failed, or its output is not an account line.
    #[error("{program} {key}: {reason}")]
    Failed {
        /// Program that was run, or file that was read.
        program: String,
        /// Account name or uid of the query.
        key: String,
        /// Description of the failure.
        reason: String,
    },
}

/// Source of local accounts, with a cache of recent answers. Clones share the cache.
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

impl Key {
    fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Uid(uid) => uid.to_string(),
        }
    }
}

impl Accounts {
    /// Accounts of this system. A system without `getent` has no name services, only its files.
    pub fn system() -> Self {
        match Path::new(GETENT).exists() {
            true => Self::from_getent(GETENT, DEADLINE),
            false => Self::from_file(PASSWD),
        }
    }
    /// Accounts that `getent`, or a program with the same interface, returns.
    pub fn from_getent(getent: impl Into<PathBuf>, deadline: Duration) -> Self {
        Self::of(Source::NameServices {
            getent: getent.into(),
            deadline,
        })
    }
    /// Accounts in the passwd file at `path`, with the groups in the file `group` in the same folder.
    pub fn from_file(path: impl Into<PathBuf>) -> Self {
        Self::of(Source::File(path.into()))
    }
    fn of(source: Source) -> Self {
        Self {
            source,
            known: Arc::default(),
        }
    }

    /// Name of the place where an operator adds an account.
    pub fn source_name(&self) -> String {
        match &self.source {
            Source::NameServices { .. } => "the name services (getent passwd)".to_owned(),
            Source::File(path) => path.display().to_string(),
        }
    }

    /// Account with this name, with its supplementary groups.
    pub async fn by_name(&self, name: &str) -> Answer {
        self.find(Key::Name(name.to_owned())).await
    }
    /// Account with this uid, without supplementary groups.
    pub async fn by_uid(&self, uid: u32) -> Answer {
        self.find(Key::Uid(uid)).await
    }

    async fn find(&self, key: Key) -> Answer {
        if let Some(answer) = self.remembered(&key) {
            return answer;
        }
        let answer = match &self.source {
            Source::NameServices { getent, deadline } => {
                getent::look_up(getent, *deadline, &key).await
            }
            // Files are read on each call, without the cache.
            Source::File(path) => return files::read(path, &key),
        };
        let mut known = self.known.lock();
        known.retain(|_, (at, answer)| at.elapsed() < lifetime(answer));
        known.insert(key, (Instant::now(), answer.clone()));
        answer
    }

    fn remembered(&self, key: &Key) -> Option<Answer> {
        let known = self.known.lock();
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

/// Whether `text` is safe as a query. It must not be a number. It must not contain characters that a name service or a
/// command line could interpret differently.
pub(in crate::executor) fn is_account_name(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || "_.-@".contains(c);
    let is_number = text.chars().all(|c| c.is_ascii_digit());
    starts_well && text.len() <= 64 && text.chars().all(is_of_names) && !is_number
}
