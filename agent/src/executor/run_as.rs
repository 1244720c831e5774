//! Whose processes a rank's are.

#[cfg(test)]
mod tests;

use super::accounts::{Accounts, LookupError, is_account_name};
use super::ids::{AgentUser, Ids, NO_ID};
use super::user_map::{Mapped, UserMap};
use crate::attempt::LocalUser;
use lattice_quorum_types::wire::LaunchRefused;
use std::sync::Arc;

/// The rules by which a submitter becomes a local account.
#[derive(Debug, Clone)]
pub struct RunAs {
    /// Who the agent is: only root can become somebody else.
    pub agent: AgentUser,
    /// Everybody's work runs as this account. `None`: as the account of the submitter's name.
    pub fixed: Option<Ids>,
    /// A non-root agent may run work, as itself.
    pub allow_same_user: bool,
    /// Lower uids belong to the system and never run work.
    pub min_uid: u32,
    /// The site's list of who is whom; without one, a submitter's name is the account's.
    pub map: Option<Arc<UserMap>>,
    /// Where accounts are looked up.
    pub accounts: Accounts,
}

/// A decision: whom to become, and the account to tell the job of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// `None`: stay who the agent is.
    pub become_user: Option<LocalUser>,
    /// Name, home and shell for the environment.
    pub account: LocalUser,
}

/// Why there is no account for somebody's work.
enum NoAccount {
    /// By the rules.
    Refused(String),
    /// It cannot be told.
    Unknown(LookupError),
}

impl From<LookupError> for NoAccount {
    fn from(error: LookupError) -> Self {
        Self::Unknown(error)
    }
}

impl RunAs {
    /// The account for `user`'s work, or why there is none. Asks the name services, which may
    /// take them their deadline.
    pub async fn choose(&self, user: &str) -> Result<Chosen, LaunchRefused> {
        let chosen = if self.agent.uid == 0 {
            self.other_user(user).await
        } else {
            self.same_user().await
        };
        chosen.map_err(|why| match why {
            NoAccount::Refused(reason) => LaunchRefused::UserNotAllowed {
                user: user.to_owned(),
                reason,
            },
            // Another node may know: nothing is wrong with the user.
            NoAccount::Unknown(error) => LaunchRefused::JournalFailed {
                reason: format!("the account of {user} cannot be looked up: {error}"),
            },
        })
    }

    async fn other_user(&self, user: &str) -> Result<Chosen, NoAccount> {
        let account = match self.fixed {
            Some(ids) => self.fixed_account(ids).await?,
            None => self.own_account(user).await?,
        };
        if account.uid == 0 || account.gid == 0 {
            return Err(NoAccount::Refused(format!(
                "it would run as {} (uid {}, gid {}), and no work runs as root",
                account.name, account.uid, account.gid
            )));
        }
        if account.uid == NO_ID || account.gid == NO_ID {
            return Err(NoAccount::Refused(format!(
                "{} has uid {} and gid {}, and {NO_ID} is nobody's: the kernel takes it for \
                 \"stay who you are\"",
                account.name, account.uid, account.gid
            )));
        }
        if account.uid < self.min_uid {
            return Err(NoAccount::Refused(format!(
                "it would run as {} (uid {}), a system account: uids below {} run no work",
                account.name, account.uid, self.min_uid
            )));
        }
        Ok(Chosen {
            become_user: Some(account.clone()),
            account,
        })
    }

    async fn same_user(&self) -> Result<Chosen, NoAccount> {
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
        // Only for its home and shell: without a name service there still is a uid.
        let found = self.accounts.by_uid(uid).await.unwrap_or(None);
        Ok(Chosen {
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
            Some((_, Mapped::Account(name))) => name,
            Some((map, Mapped::Refused)) => {
                let map = map.path().display();
                let text = format!("{map} says that it runs nothing here");
                return Err(NoAccount::Refused(text));
            }
            Some((_, Mapped::Unsaid)) | None if is_account_name(user) => user.to_owned(),
            Some((_, Mapped::Unsaid)) | None => {
                let text = "that is no name of a local account; map it in executor.user_map";
                return Err(NoAccount::Refused(text.to_owned()));
            }
        };
        self.accounts.by_name(&name).await?.ok_or_else(|| {
            NoAccount::Refused(format!(
                "there is no local account {name}; add one to {}, map the user to another in \
                 executor.user_map, or set executor.run_as",
                self.accounts.place()
            ))
        })
    }

    async fn mapped(&self, user: &str) -> Option<(Arc<UserMap>, Mapped)> {
        let map = self.map.clone()?;
        let (at, user) = (map.clone(), user.to_owned());
        let found = tokio::task::spawn_blocking(move || at.find(&user)).await;
        // It was not told: as if the list refused it.
        Some((map, found.unwrap_or(Mapped::Refused)))
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
