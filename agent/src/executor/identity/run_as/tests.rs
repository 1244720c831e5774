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
    Accounts::from_file(path)
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
async fn root_agent_runs_as_submitter_never_root() {
    let folder = tempfile::tempdir().unwrap();
    let rules = rules(0, passwd(folder.path()));
    let chosen = rules.choose("alice").await.unwrap();
    assert_eq!(chosen.become_user.unwrap().uid, 1000);
    assert!(
        reason(&rules, "root")
            .await
            .contains("jobs never run as root")
    );
    assert!(reason(&rules, "staff").await.contains("gid 0"));
    assert!(reason(&rules, "daemon").await.contains("system account"));
    assert!(reason(&rules, "bob").await.contains("no local account bob"));
    assert!(
        reason(&rules, "-s alice")
            .await
            .contains("not a valid account name")
    );
    assert!(
        reason(&rules, "1000")
            .await
            .contains("not a valid account name")
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
    assert!(
        reason(&rules, "alice")
            .await
            .contains("refuses jobs of this user on this node")
    );
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
    let accounts = Accounts::from_getent("/nonexistent/getent", std::time::Duration::from_secs(3));
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
            .contains("jobs never run as root")
    );
    assert!(reason(&fixed(1000, 0), "alice").await.contains("gid 0"));
    for ids in [fixed(u32::MAX, 1000), fixed(1000, u32::MAX)] {
        assert!(reason(&ids, "alice").await.contains("is not a valid id"));
    }
    assert!(
        reason(&fixed(33, 33), "alice")
            .await
            .contains("system account")
    );
}

#[tokio::test]
async fn unprivileged_agent_runs_as_itself_on_request() {
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
            .contains("jobs never run as root")
    );
}
