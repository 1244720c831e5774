//! Local accounts: asked of the system's name services, in a child with a deadline.
//!
//! Never through the C library in this process: a directory service that hangs would hang the
//! agent with it. `getent` asks the same services, and can be killed.

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

impl Key {
    fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Uid(uid) => uid.to_string(),
        }
    }
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
            Source::NameServices { getent, deadline } => getent::ask(getent, *deadline, &key).await,
            // Read anew each time.
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

/// Whether `text` may be asked for: nothing that a name service or a command line could take for
/// something else, a number least of all.
pub(super) fn is_account_name(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || "_.-@".contains(c);
    let is_number = text.chars().all(|c| c.is_ascii_digit());
    starts_well && text.len() <= 64 && text.chars().all(is_of_names) && !is_number
}
