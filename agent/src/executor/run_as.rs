//! Whose processes a rank's are.

use super::accounts::Accounts;
use crate::attempt::LocalUser;
use lattice_quorum_types::wire::LaunchRefused;

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

impl RunAs {
    /// The account for `user`'s work, or why there is none.
    pub fn choose(&self, user: &str) -> Result<Chosen, LaunchRefused> {
        let refuse = |reason: String| LaunchRefused::UserNotAllowed {
            user: user.to_owned(),
            reason,
        };
        if self.agent.uid != 0 {
            return self.same_user().map_err(refuse);
        }
        let account = self.account(user).map_err(refuse)?;
        if account.uid == 0 || account.gid == 0 {
            return Err(refuse(format!(
                "it would run as {} (uid {}, gid {}), and no work runs as root",
                account.name, account.uid, account.gid
            )));
        }
        if account.uid < self.min_uid {
            return Err(refuse(format!(
                "it would run as {} (uid {}), a system account: uids below {} run no work",
                account.name, account.uid, self.min_uid
            )));
        }
        Ok(Chosen {
            become_user: Some(account.clone()),
            account,
        })
    }

    fn same_user(&self) -> Result<Chosen, String> {
        let uid = self.agent.uid;
        if !self.allow_same_user {
            return Err(format!(
                "the agent runs as uid {uid} and cannot become another user; start it as root, or \
                 set executor.allow_same_user to run work as uid {uid}"
            ));
        }
        if let Some(fixed) = self.fixed.filter(|fixed| fixed.uid != uid) {
            return Err(format!(
                "executor.run_as is uid {}, but the agent runs as uid {uid} and cannot become \
                 another user; start it as root",
                fixed.uid
            ));
        }
        let found = self.accounts.by_uid(uid).map_err(|e| self.unread(&e))?;
        Ok(Chosen {
            become_user: None,
            account: found.unwrap_or_else(|| nameless(uid, self.agent.gid)),
        })
    }

    fn account(&self, user: &str) -> Result<LocalUser, String> {
        let Some(Ids { uid, gid }) = self.fixed else {
            let found = self.accounts.by_name(user).map_err(|e| self.unread(&e))?;
            return found.ok_or_else(|| {
                format!(
                    "there is no local account of that name; add one to {} or set executor.run_as",
                    self.accounts.path().display()
                )
            });
        };
        let found = self.accounts.by_uid(uid).map_err(|e| self.unread(&e))?;
        let account = found.unwrap_or_else(|| nameless(uid, gid));
        Ok(LocalUser { gid, ..account })
    }

    fn unread(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.accounts.path().display())
    }
}

fn nameless(uid: u32, gid: u32) -> LocalUser {
    LocalUser {
        name: uid.to_string(),
        uid,
        gid,
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
        Accounts::at(path)
    }

    fn rules(uid: u32, accounts: Accounts) -> RunAs {
        RunAs {
            agent: AgentUser { uid, gid: uid },
            fixed: None,
            allow_same_user: false,
            min_uid: 1000,
            accounts,
        }
    }

    fn reason(rules: &RunAs, user: &str) -> String {
        match rules.choose(user) {
            Err(LaunchRefused::UserNotAllowed { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_root_agent_becomes_the_submitters_account_but_never_root_or_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let rules = rules(0, passwd(folder.path()));
        let chosen = rules.choose("alice").unwrap();
        assert_eq!(chosen.become_user.unwrap().uid, 1000);
        assert!(reason(&rules, "root").contains("no work runs as root"));
        assert!(reason(&rules, "staff").contains("gid 0"));
        assert!(reason(&rules, "daemon").contains("system account"));
        assert!(reason(&rules, "bob").contains("no local account"));
    }

    #[test]
    fn a_fixed_account_serves_everybody_and_is_held_to_the_same_rules() {
        let folder = tempfile::tempdir().unwrap();
        let fixed = |uid, gid| RunAs {
            fixed: Some(Ids { uid, gid }),
            ..rules(0, passwd(folder.path()))
        };
        let chosen = fixed(65534, 65534).choose("whoever").unwrap();
        assert_eq!(chosen.become_user.unwrap().uid, 65534);
        assert_eq!(chosen.account.home, Path::new("/"));
        assert!(reason(&fixed(0, 0), "alice").contains("no work runs as root"));
        assert!(reason(&fixed(1000, 0), "alice").contains("gid 0"));
        assert!(reason(&fixed(33, 33), "alice").contains("system account"));
    }

    #[test]
    fn an_agent_that_is_not_root_runs_work_as_itself_only_when_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut rules = rules(1000, passwd(folder.path()));
        assert!(reason(&rules, "bob").contains("executor.allow_same_user"));
        rules.allow_same_user = true;
        let chosen = rules.choose("bob").unwrap();
        assert_eq!(chosen.become_user, None);
        assert_eq!(chosen.account.name, "alice");
        rules.fixed = Some(Ids {
            uid: 65534,
            gid: 65534,
        });
        assert!(reason(&rules, "bob").contains("start it as root"));
    }

    #[test]
    fn allowing_the_same_user_never_lets_root_run_work() {
        let folder = tempfile::tempdir().unwrap();
        let mut rules = rules(0, passwd(folder.path()));
        rules.allow_same_user = true;
        assert!(reason(&rules, "root").contains("no work runs as root"));
    }
}
