#![expect(clippy::unwrap_used, reason = "tests")]
use super::files::parse_line;
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

/// Timeout for programs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn program(folder: &Path, text: &str) -> PathBuf {
    let (source, path) = (folder.join("text"), folder.join("getent"));
    let text = format!("#!/bin/sh\necho x >> {}/asked\n{text}\n", folder.display());
    std::fs::write(&source, text).unwrap();
    // Copied by another process: a child that this process forks meanwhile would hold the file open for writing.
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
async fn name_service_resolves_standard_accounts_only() {
    let accounts = match Path::new(GETENT).exists() {
        true => Accounts::from_getent(GETENT, PATIENCE),
        false => Accounts::system(),
    };
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
    let accounts = Accounts::from_getent(getent, PATIENCE);
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
    // Long enough for the program to start.
    let deadline = Duration::from_secs(3);
    let accounts = Accounts::from_getent(getent, deadline);
    let began = Instant::now();
    for _ in 0..5 {
        let answer = accounts.by_name("alice").await;
        assert!(
            matches!(answer, Err(LookupError::Deadline { .. })),
            "{answer:?}"
        );
    }
    assert!(began.elapsed() < deadline * 5, "{:?}", began.elapsed());
    assert_eq!(asked(folder.path()), 1);
}

#[tokio::test]
async fn rejects_answer_for_other_user() {
    let folder = tempfile::tempdir().unwrap();
    let getent = program(folder.path(), "echo 'bob:*:1001:1001::/:/bin/sh'");
    let accounts = Accounts::from_getent(getent, PATIENCE);
    let error = accounts.by_name("Bob").await.unwrap_err();
    assert!(error.to_string().contains("executor.user_map"), "{error}");
    let error = accounts.by_uid(7).await.unwrap_err();
    assert!(matches!(error, LookupError::Failed { .. }));
}
