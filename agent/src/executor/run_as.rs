//! Whose processes a rank's are.

use super::accounts::{Accounts, LookupError, is_account_name};
use super::user_map::{Mapped, UserMap};
use crate::attempt::LocalUser;
use lattice_quorum_types::wire::LaunchRefused;
use std::sync::Arc;

/// What the kernel takes for "do not change this id".
const NO_ID: u32 = u32::MAX;

/// A uid and gid to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// User.
    pub uid: u32,
    /// Primary group; there are no others.
    pub gid: u32,
}

/// Who the agent itself is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentUser {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

impl Ids {
    /// Whether the kernel can be told to become them.
    pub(crate) fn are_real(self) -> bool {
        self.uid != NO_ID && self.gid != NO_ID
    }
}

impl AgentUser {
    /// This process.
    pub fn current() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::path::Path;

    fn passwd(folder: &Path) -> Accounts {
        let path = folder.join("passwd");
        let text = "root:x:0:0::/root:/bin/bash\ndaemon:x:1:1::/:/bin/sh\n\
                    alice:x:1000:1000::/home/alice:/bin/bash\nstaff:x:1001:0::/:/bin/sh\n";
        std::fs::write(&path, text).unwrap();
        let groups = "root:x:0:alice\nvideo:x:44:bob,alice\nalice:x:1000:alice\n";
        std::fs::write(folder.join("group"), groups).unwrap();
        Accounts::at(path)
    }

    fn rules(uid: u32, accounts: Accounts) -> RunAs {
        RunAs {
            agent: AgentUser { uid, gid: uid },
            fixed: None,
            allow_same_user: false,
            min_uid: 1000,
            map: None,
            accounts,
        }
    }

    async fn reason(rules: &RunAs, user: &str) -> String {
        match rules.choose(user).await {
            Err(LaunchRefused::UserNotAllowed { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_root_agent_becomes_the_submitters_account_but_never_root_or_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let rules = rules(0, passwd(folder.path()));
        let chosen = rules.choose("alice").await.unwrap();
        assert_eq!(chosen.become_user.unwrap().uid, 1000);
        assert!(
            reason(&rules, "root")
                .await
                .contains("no work runs as root")
        );
        assert!(reason(&rules, "staff").await.contains("gid 0"));
        assert!(reason(&rules, "daemon").await.contains("system account"));
        assert!(reason(&rules, "bob").await.contains("no local account bob"));
        assert!(
            reason(&rules, "-s alice")
                .await
                .contains("no name of a local account")
        );
        assert!(
            reason(&rules, "1000")
                .await
                .contains("no name of a local account")
        );
    }

    #[tokio::test]
    async fn the_sites_list_comes_before_the_name_and_is_held_to_the_same_rules() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.yaml");
        let text = "'alice at home': alice\nalice: '-'\nbob: daemon\ncarol: staff\n";
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let map = UserMap::open(&path, AgentUser::current()).unwrap();
        let rules = RunAs {
            map: Some(Arc::new(map)),
            ..rules(0, passwd(folder.path()))
        };
        let chosen = rules.choose("alice at home").await.unwrap();
        assert_eq!(chosen.account.name, "alice");
        assert_eq!(chosen.account.groups, [44]);
        assert!(reason(&rules, "alice").await.contains("runs nothing here"));
        assert!(reason(&rules, "bob").await.contains("system account"));
        assert!(reason(&rules, "carol").await.contains("gid 0"));
        assert!(
            reason(&rules, "dave")
                .await
                .contains("no local account dave")
        );
    }

    #[tokio::test]
    async fn an_account_that_cannot_be_looked_up_is_no_fault_of_the_users() {
        let accounts = Accounts::asked_of("/nonexistent/getent", std::time::Duration::from_secs(3));
        let refused = rules(0, accounts).choose("alice").await.unwrap_err();
        assert!(
            matches!(refused, LaunchRefused::JournalFailed { .. }),
            "{refused:?}"
        );
        assert!(
            refused.to_string().contains("cannot be looked up"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn a_fixed_account_serves_everybody_and_is_held_to_the_same_rules() {
        let folder = tempfile::tempdir().unwrap();
        let fixed = |uid, gid| RunAs {
            fixed: Some(Ids { uid, gid }),
            ..rules(0, passwd(folder.path()))
        };
        let chosen = fixed(65534, 65534).choose("whoever").await.unwrap();
        assert_eq!(chosen.become_user.unwrap().uid, 65534);
        assert_eq!(chosen.account.home, Path::new("/"));
        assert!(
            reason(&fixed(0, 0), "alice")
                .await
                .contains("no work runs as root")
        );
        assert!(reason(&fixed(1000, 0), "alice").await.contains("gid 0"));
        for ids in [fixed(u32::MAX, 1000), fixed(1000, u32::MAX)] {
            assert!(reason(&ids, "alice").await.contains("nobody's"));
        }
        assert!(
            reason(&fixed(33, 33), "alice")
                .await
                .contains("system account")
        );
    }

    #[tokio::test]
    async fn an_agent_that_is_not_root_runs_work_as_itself_only_when_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut rules = rules(1000, passwd(folder.path()));
        assert!(
            reason(&rules, "bob")
                .await
                .contains("executor.allow_same_user")
        );
        rules.allow_same_user = true;
        let chosen = rules.choose("bob").await.unwrap();
        assert_eq!(chosen.become_user, None);
        assert_eq!(chosen.account.name, "alice");
        rules.fixed = Some(Ids {
            uid: 65534,
            gid: 65534,
        });
        assert!(reason(&rules, "bob").await.contains("start it as root"));
    }

    #[tokio::test]
    async fn allowing_the_same_user_never_lets_root_run_work() {
        let folder = tempfile::tempdir().unwrap();
        let mut rules = rules(0, passwd(folder.path()));
        rules.allow_same_user = true;
        assert!(
            reason(&rules, "root")
                .await
                .contains("no work runs as root")
        );
    }
}
