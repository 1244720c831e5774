//! User map: the site's map from token principals to local accounts.
//!
//! The file is YAML with `principal: account` lines. The account `-` denies all jobs; the principal `*` applies to
//! every principal that is not listed.
//!
//! A changed file is read again. If the new content cannot be used, the previous map stays in force, and each lookup
//! logs the error until the file is corrected.

use super::accounts::is_account_name;
use super::ids::AgentUser;
use super::trusted::{self, DistrustCause};
use lattice_config::{ConfigErrors, Problems, Source};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Account entry that denies all jobs.
const DENIED: &str = "-";
/// Principal entry that applies to every principal not listed.
const OTHERS: &str = "*";

/// Reason that a user map cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UserMapError {
    /// The file cannot be read.
    #[error("executor.user_map: {}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is missing, not a regular file, or another user could change it.
    #[error("executor.user_map")]
    Untrusted(#[from] DistrustCause),
    /// The content is not `principal: account` lines, or an account name is invalid or `root`.
    #[error("executor.user_map: {}: {}", path.display(), mistakes.join("; "))]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// All mistakes, each with its principal.
        mistakes: Vec<String>,
    },
}

/// Entry of a principal in the user map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::executor) enum MapEntry {
    /// The principal runs jobs as this account.
    Account(String),
    /// The principal runs no jobs on this node.
    Refused,
    /// The map has no entry for the principal.
    Unlisted,
}

/// User map as last read.
#[derive(Debug)]
pub struct UserMap {
    path: PathBuf,
    agent: AgentUser,
    read: Mutex<LoadedMap>,
}

#[derive(Debug)]
struct LoadedMap {
    of: Version,
    accounts: BTreeMap<String, String>,
}

/// Version of the file, to detect changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Version {
    fn of(meta: &Metadata) -> Self {
        Self {
            inode: meta.ino(),
            bytes: meta.len(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

impl UserMap {
    /// Reads the map, and rejects it if any line is wrong.
    pub fn open(path: &Path, agent: AgentUser) -> Result<Self, UserMapError> {
        Ok(Self {
            path: path.to_owned(),
            agent,
            read: Mutex::new(read(path, agent)?),
        })
    }

    /// Path of the file.
    pub(in crate::executor) fn path(&self) -> &Path {
        &self.path
    }

    /// Current entry of a principal. Blocks on the disk.
    pub(in crate::executor) fn find(&self, principal: &str) -> MapEntry {
        let mut now = self.read.lock();
        // A missing file counts as unreadable: the previous map stays.
        let version = std::fs::metadata(&self.path).map(|meta| Version::of(&meta));
        if !version.is_ok_and(|version| version == now.of) {
            match read(&self.path, self.agent) {
                Ok(read) => {
                    tracing::info!(path = %self.path.display(), "user map reloaded");
                    *now = read;
                }
                Err(error) => {
                    let error = crate::with_causes(&error);
                    tracing::error!(%error, "user map unusable; the previous one stays in use");
                }
            }
        }
        let said = now.accounts.get(principal);
        match said
            .or_else(|| now.accounts.get(OTHERS))
            .map(String::as_str)
        {
            Some(DENIED) => MapEntry::Refused,
            Some(account) => MapEntry::Account(account.to_owned()),
            None => MapEntry::Unlisted,
        }
    }
}

fn read(path: &Path, agent: AgentUser) -> Result<LoadedMap, UserMapError> {
    let real = trusted::check_file(path, agent)?;
    let failed = |source| UserMapError::Io {
        path: path.to_owned(),
        source,
    };
    let of = Version::of(&std::fs::metadata(&real).map_err(failed)?);
    let text = std::fs::read_to_string(&real).map_err(failed)?;
    let accounts = parse(&text).map_err(|errors| UserMapError::Malformed {
        path: path.to_owned(),
        mistakes: errors.problems().iter().map(ToString::to_string).collect(),
    })?;
    Ok(LoadedMap { of, accounts })
}

/// A principal that is listed twice is a mistake.
fn parse(text: &str) -> Result<BTreeMap<String, String>, ConfigErrors> {
    let check = |accounts: &BTreeMap<String, String>, problems: &mut Problems| {
        for (principal, account) in accounts {
            if account == "root" {
                problems.add(principal, "jobs never run as root");
            } else if account != DENIED && !is_account_name(account) {
                problems.add(
                    principal,
                    format!("{account:?} is not a valid account name"),
                );
            }
        }
    };
    lattice_config::load_named(Source::Text(text), check)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str) {
        let next = path.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(&next, path).unwrap();
    }

    fn account(name: &str) -> MapEntry {
        MapEntry::Account(name.to_owned())
    }

    #[test]
    fn changes_count_at_once_and_a_broken_list_leaves_the_former() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.yaml");
        write(&path, "# who is whom\nalice@example.org: alice\neve: '-'\n");
        let map = UserMap::open(&path, AgentUser::current()).unwrap();
        assert_eq!(map.find("alice@example.org"), account("alice"));
        assert_eq!(map.find("eve"), MapEntry::Refused);
        assert_eq!(map.find("bob"), MapEntry::Unlisted);
        write(&path, "bob: robert\n'*': '-'\n");
        assert_eq!(map.find("bob"), account("robert"));
        assert_eq!(map.find("alice@example.org"), MapEntry::Refused);
        write(&path, "bob: [robert]\n");
        assert_eq!(map.find("bob"), account("robert"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(map.find("bob"), account("robert"));
    }

    #[test]
    fn every_wrong_line_is_named_and_a_list_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.yaml");
        let error = || crate::with_causes(&UserMap::open(&path, AgentUser::current()).unwrap_err());
        assert!(error().contains("No such file"), "{}", error());
        write(&path, "a: -x\nb: root\nc: fine\nd: '1000'\n");
        let text = error();
        for part in ["a: \"-x\"", "b: jobs never run as root", "d: \"1000\""] {
            assert!(text.contains(part), "{text}");
        }
        write(&path, "a: -x\nb: [c, d]\n2: {e: f}\n");
        let text = error();
        for part in [
            "a: \"-x\"",
            "b: must be a text, not a list",
            "2: must be a text, not keys and values",
        ] {
            assert!(text.contains(part), "{text}");
        }
        write(&path, "a: b\na: c\n");
        assert!(error().contains("duplicate"), "{}", error());
        write(&path, "a: b\n");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(error().contains("can be written by others"), "{}", error());
    }
}
