//! Account selection: the local account that a rank runs as.

#[cfg(test)]
mod tests;

use super::accounts::{Accounts, LookupError, is_account_name};
use super::ids::{AgentUser, Ids, NO_ID};
use super::user_map::{MapEntry, UserMap};
use crate::attempt::LocalUser;
use lattice_agent_rpc::LaunchRefused;
use std::sync::Arc;

/// Rules that map a submitter to a local account.
#[derive(Debug, Clone)]
pub struct RunAs {
    /// User of the agent: only root can switch to another account.
    pub agent: AgentUser,
    /// Account that runs every job; `None`: the account of the submitter.
    pub fixed: Option<Ids>,
    /// Whether an agent that is not root may run jobs as its own user.
    pub allow_same_user: bool,
    /// Lowest uid that a rank may switch to: lower uids belong to the system.
    pub min_uid: u32,
    /// The site's map from principals to accounts. A principal that is not in the map runs jobs as the account of the
    /// same name.
    pub map: Option<Arc<UserMap>>,
    /// Source of local accounts.
    pub accounts: Accounts,
}

/// Result of the account selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobAccount {
    /// Account that the rank switches to; `None`: it stays the agent's user.
    pub become_user: Option<LocalUser>,
    /// Account that supplies name, home and shell for the environment.
    pub account: LocalUser,
}

/// Reason that no account is available for a submitter.
enum NoAccount {
    /// The rules reject the submitter.
    Refused(String),
    /// The account lookup failed.
    Unknown(LookupError),
}

impl From<LookupError> for NoAccount {
    fn from(error: LookupError) -> Self {
        Self::Unknown(error)
    }
}

impl RunAs {
    /// Selects the account for jobs of `user`. Queries the name services, which may take up to their timeout.
    pub async fn choose(&self, user: &str) -> Result<JobAccount, LaunchRefused> {
        let chosen = if self.agent.uid == 0 {
            self.select_account(user).await
        } else {
            self.select_agent_account().await
        };
        chosen.map_err(|why| match why {
            NoAccount::Refused(reason) => LaunchRefused::UserNotAllowed {
                user: user.to_owned(),
                reason,
            },
            // Another node may succeed: the fault is not the user's.
            NoAccount::Unknown(error) => LaunchRefused::JournalFailed {
                reason: format!("the account of {user} cannot be looked up: {error}"),
            },
        })
    }

    async fn select_account(&self, user: &str) -> Result<JobAccount, NoAccount> {
        let account = match self.fixed {
            Some(ids) => self.fixed_account(ids).await?,
            None => self.own_account(user).await?,
        };
        if account.uid == 0 || account.gid == 0 {
            return Err(NoAccount::Refused(format!(
                "the job would run as {} (uid {}, gid {}), but jobs never run as root",
                account.name, account.uid, account.gid
            )));
        }
        if account.uid == NO_ID || account.gid == NO_ID {
            return Err(NoAccount::Refused(format!(
                "{} has uid {} and gid {}; {NO_ID} is not a valid id: the kernel interprets it \
                 as \"do not change\"",
                account.name, account.uid, account.gid
            )));
        }
        if account.uid < self.min_uid {
            return Err(NoAccount::Refused(format!(
                "the job would run as {} (uid {}), a system account: executor.min_uid is {}",
                account.name, account.uid, self.min_uid
            )));
        }
        Ok(JobAccount {
            become_user: Some(account.clone()),
            account,
        })
    }

    async fn select_agent_account(&self) -> Result<JobAccount, NoAccount> {
        let uid = self.agent.uid;
        if !self.allow_same_user {
            return Err(NoAccount::Refused(format!(
                "the agent runs as uid {uid} and cannot become another user; start it as root, or \
                 set executor.allow_same_user to run work as uid {uid}"
            )));
        }
        if let Some(fixed) = self.fixed.filter(|fixed| fixed.uid != uid) {
            return Err(NoAccount::Refused(format!(
                "executor.run_as is uid {}, but the agent runs as uid {uid} and cannot become \
                 another user; start it as root",
                fixed.uid
            )));
        }
        // Only for name, home and shell: without a name service, the uid is still valid.
        let found = self.accounts.by_uid(uid).await.unwrap_or(None);
        Ok(JobAccount {
            become_user: None,
            account: found.unwrap_or_else(|| nameless(uid, self.agent.gid)),
        })
    }

    async fn fixed_account(&self, Ids { uid, gid }: Ids) -> Result<LocalUser, NoAccount> {
        let found = self.accounts.by_uid(uid).await?;
        let account = found.unwrap_or_else(|| nameless(uid, gid));
        Ok(LocalUser { gid, ..account })
    }

    async fn own_account(&self, user: &str) -> Result<LocalUser, NoAccount> {
        let name = match self.mapped(user).await {
            Some((_, MapEntry::Account(name))) => name,
            Some((map, MapEntry::Refused)) => {
                let map = map.path().display();
                let text = format!("{map} refuses jobs of this user on this node");
                return Err(NoAccount::Refused(text));
            }
            Some((_, MapEntry::Unlisted)) | None if is_account_name(user) => user.to_owned(),
            Some((_, MapEntry::Unlisted)) | None => {
                let text = "the principal is not a valid account name; map it to an account in \
                            executor.user_map";
                return Err(NoAccount::Refused(text.to_owned()));
            }
        };
        self.accounts.by_name(&name).await?.ok_or_else(|| {
            NoAccount::Refused(format!(
                "there is no local account {name}; add one to {}, map the user to another in \
                 executor.user_map, or set executor.run_as",
                self.accounts.source_name()
            ))
        })
    }

    async fn mapped(&self, user: &str) -> Option<(Arc<UserMap>, MapEntry)> {
        let map = self.map.clone()?;
        let (at, user) = (map.clone(), user.to_owned());
        let found = tokio::task::spawn_blocking(move || at.find(&user)).await;
        // The lookup task failed: treated as a refusal.
        Some((map, found.unwrap_or(MapEntry::Refused)))
    }
}

fn nameless(uid: u32, gid: u32) -> LocalUser {
    LocalUser {
        name: uid.to_string(),
        uid,
        gid,
        groups: Vec::new(),
        home: "/".into(),
        shell: "/bin/sh".into(),
    }
}
