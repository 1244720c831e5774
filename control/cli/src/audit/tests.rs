#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_quorum_types::{
    Revision, UnixMillis,
    audit::AuditAction,
    command::{Power, Principal},
};

fn written(count: u64) -> Vec<AuditEntry> {
    let mut all: Vec<AuditEntry> = Vec::new();
    for n in 1..=count {
        let by = Principal {
            name: "root".to_owned(),
            power: Power::Admin,
        };
        let id = format!("{n:012}");
        let action = AuditAction::TokenRevoked { id };
        let (revision, at) = (Revision(n * 3), UnixMillis(1_700_000_000_000 + n));
        let entry = AuditEntry::following(all.last(), revision, at, by, action);
        all.push(entry);
    }
    all
}

/// What `verify --file` says to these lines.
async fn verdict(lines: &[String]) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines.join("\n")).unwrap();
    let args = VerifyArgs {
        file: Some(file.path().to_owned()),
        with_cluster: false,
    };
    verify(&args, None).await.map_err(|failure| failure.text)
}

fn export(entries: &[AuditEntry]) -> Vec<String> {
    let line = |entry| serde_json::to_string(&AuditView::from(entry)).unwrap();
    entries.iter().map(line).collect()
}

#[tokio::test]
async fn an_export_holds_whole_in_part_and_as_a_list() {
    let lines = export(&written(5));
    verdict(&lines).await.unwrap();
    verdict(&lines[2..]).await.unwrap();
    verdict(&[]).await.unwrap();
    let list = format!("[{}]", lines.join(","));
    verdict(&[list]).await.unwrap();
}

#[tokio::test]
async fn what_was_done_to_an_export_is_named_with_its_number() {
    let lines = export(&written(5));
    let without = |n: usize| {
        let mut left = lines.clone();
        left.remove(n);
        left
    };
    let mut moved = lines.clone();
    moved.swap(1, 2);
    let mut doubled = lines.clone();
    doubled.insert(2, lines[1].clone());
    let changed = |from: &str, to: &str| {
        let mut changed = lines.clone();
        assert!(changed[2].contains(from), "{}", changed[2]);
        changed[2] = changed[2].replace(from, to);
        changed
    };
    let both = |id: &str| changed("000000000003", id);
    for (lines, wanted) in [
        (without(2), "entry 3 is missing"),
        (moved, "entry 2 is missing"),
        (doubled, "entry 2 stands where entry 3 belongs"),
        (both("000000000009"), "entry 3 does not follow entry 2"),
        (changed("\"root\"", "\"eve\""), "entry 3 does not follow"),
        (
            changed("withdrew", "made"),
            "entry 3 is not as it was written",
        ),
        (changed("\"number\":3", "\"number\":three"), "line 3"),
        (
            changed("\"by\"", "\"extra\":1,\"by\""),
            "unknown field `extra`",
        ),
    ] {
        let said = verdict(&lines).await.unwrap_err();
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let gone: Vec<_> = [&lines[..1], &lines[3..]].concat();
    let said = verdict(&gone).await.unwrap_err();
    assert!(said.contains("entries 2 to 3 are missing"), "{said}");
}

#[test]
fn a_rewritten_or_shortened_audit_shows_beside_an_export() {
    let all = written(5);
    let chain = |entries: &[AuditEntry]| Chain {
        all: entries.to_vec(),
    };
    compare(&chain(&all[1..4]), &chain(&all)).unwrap();
    let cut = compare(&chain(&all), &chain(&all[..3])).unwrap_err();
    assert!(cut.text.contains("ends with entry 3"), "{}", cut.text);
    let mut rewritten = written(5);
    rewritten[1].by.name = "eve".to_owned();
    let other = compare(&chain(&all), &chain(&rewritten)).unwrap_err();
    assert!(other.text.contains("entry 2 is another"), "{}", other.text);
}
