#![expect(clippy::unwrap_used, reason = "tests")]
use super::super::{
    file::{KnownAuthority, Writer},
    site::{TestCluster, append_entries, chain},
};
use super::*;
use lattice_api::text;
use lattice_quorum_types::audit::{AuditAction, AuditEntry, Hex};
use serde_json::Value;
use std::fs;

/// Nine entries: four, a signed head, three, and a signed head that covers eight.
fn signed(site: &TestCluster) -> Vec<AuditEntry> {
    let mut all = chain(4);
    site.sign(&mut all, 1);
    all.extend(append_entries(&all, 3));
    site.sign(&mut all, 2);
    all
}

/// Returns the file as the product writes it.
fn exported(site: &TestCluster, before: &[AuditEntry], all: &[AuditEntry]) -> String {
    let start = before.last().map_or((0, [0; 32]), |e| (e.number, e.hash));
    let known = KnownAuthority {
        pin: site.pin(),
        certificate: x509::to_pem(site.authority.certificate()),
    };
    let at = text::time(lattice_quorum_types::UnixMillis(1_790_000_060_000));
    let header = Header::new(site.cluster.clone(), at, start, vec![known]);
    let (mut writer, mut text) = Writer::begin(&header, start).unwrap();
    for entry in all {
        text.push_str(&writer.entry(entry).unwrap());
    }
    text.push_str(&writer.end().unwrap());
    text
}

fn args(file: &Path, site: &TestCluster) -> VerifyArgs {
    VerifyArgs {
        file: Some(file.to_owned()),
        against: None,
        ca: Vec::new(),
        pin: vec![site.pin()],
        cluster: None,
        chain_only: false,
    }
}

/// Returns the result of `lattice audit verify FILE`.
fn verdict(text: &str, site: &TestCluster) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let said = offline(&args(file.path(), site), Format::Table);
    said.map_err(|failure| {
        assert_eq!(failure.code, 1, "{}", failure.text);
        failure.text
    })
}

#[test]
fn an_export_holds_whole_and_from_the_middle() {
    let site = TestCluster::new("site");
    let all = signed(&site);
    verdict(&exported(&site, &[], &all), &site).unwrap();
    verdict(&exported(&site, &all[..6], &all[6..]), &site).unwrap();
    let said = verdict(&exported(&site, &all[..8], &all[8..]), &site).unwrap_err();
    assert!(said.contains("no entry is signed"), "{said}");
}

#[test]
fn trust_anchor_is_required() {
    let site = TestCluster::new("site");
    let folder = tempfile::tempdir().unwrap();
    let (file, ca) = (folder.path().join("a.jsonl"), folder.path().join("ca.pem"));
    fs::write(&file, exported(&site, &[], &signed(&site))).unwrap();
    let ask = |change: &dyn Fn(&mut VerifyArgs)| {
        let mut asked = args(&file, &site);
        asked.pin.clear();
        change(&mut asked);
        offline(&asked, Format::Json)
    };
    let said = ask(&|_| {}).unwrap_err();
    assert!(said.code == 2 && said.text.contains("--ca"), "{said:?}");
    ask(&|a| a.chain_only = true).unwrap();
    fs::write(&ca, x509::to_pem(site.authority.certificate())).unwrap();
    ask(&|a| a.ca = vec![ca.clone()]).unwrap();
    let other = TestCluster::new("site");
    fs::write(&ca, x509::to_pem(other.authority.certificate())).unwrap();
    let said = ask(&|a| a.ca = vec![ca.clone()]).unwrap_err();
    assert!(
        said.text.contains("entry 5 is a signed head under"),
        "{said:?}"
    );
    let said = ask(&|a| a.pin = vec!["12".to_owned()]).unwrap_err();
    assert_eq!(said.code, 2, "{said:?}");
    let said = ask(&|a| {
        a.pin = vec![site.pin()];
        a.cluster = Some("other".to_owned());
    });
    let said = said.unwrap_err();
    assert!(
        said.text.contains("is of cluster site, not of other"),
        "{said:?}"
    );
}

/// Collects the paths of all values except lists and objects.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            leaves(value, &format!("{at}/{key}"), found);
        }),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| {
            leaves(value, &format!("{at}/{i}"), found);
        }),
        _ => found.push(at.to_owned()),
    }
}

/// Returns a different value of the same type.
fn altered(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let (head, last) = text.split_at(text.len().saturating_sub(1));
            let last = if last == "1" { "2" } else { "1" };
            Value::String(format!("{head}{last}"))
        }
        Value::Number(n) => Value::from(n.as_u64().unwrap() + 1),
        Value::Bool(b) => Value::Bool(!b),
        other => panic!("{other}"),
    }
}

/// Every line of a file is changed in each of its values, removed, doubled, moved, or made the last one.
#[test]
fn every_change_of_a_file_is_found() {
    let site = TestCluster::new("site");
    let text = exported(&site, &[], &signed(&site));
    verdict(&text, &site).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let joined = |lines: &[&str]| format!("{}\n", lines.join("\n"));
    let mut changes = 0;
    for (i, line) in lines.iter().enumerate() {
        let (is_entry, number) = ((1..lines.len() - 1).contains(&i), i);
        let mut found = Vec::new();
        let value: Value = serde_json::from_str(line).unwrap();
        leaves(&value, "", &mut found);
        for leaf in found {
            let old = value.pointer(&leaf).unwrap();
            let (from, to) = (old.to_string(), altered(old).to_string());
            let (_, key) = leaf.rsplit_once('/').unwrap();
            let (from, to) = match key.parse::<usize>() {
                Ok(_) => (from, to),
                Err(_) => (format!("\"{key}\":{from}"), format!("\"{key}\":{to}")),
            };
            let changed = line.replacen(&from, &to, 1);
            assert_ne!(changed, *line, "{leaf}");
            let mut all = lines.clone();
            all[i] = &changed;
            let said = verdict(&joined(&all), &site).unwrap_err();
            let named = said.contains(&format!("entry {number} "))
                || said.contains(&format!("entry {} ", number + 1))
                // The changed value is the entry number itself.
                || said.contains(&format!("entry {number} is missing"));
            assert!(named || !is_entry, "{leaf} of line {i}: {said}");
            changes += 1;
        }
        let mut removed = lines.clone();
        removed.remove(i);
        let mut doubled = lines.clone();
        doubled.insert(i, line);
        let mut spaced = lines.clone();
        let with_space = line.replacen(':', ": ", 1);
        spaced[i] = &with_space;
        for all in [&removed, &doubled, &spaced] {
            let said = verdict(&joined(all), &site).unwrap_err();
            let named = said.contains("entry ");
            assert!(named || !is_entry, "line {i}: {said}");
        }
        if i + 1 < lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(i, i + 1);
            verdict(&joined(&swapped), &site).unwrap_err();
            let cut = verdict(&joined(&lines[..=i]), &site).unwrap_err();
            let behind = format!("after entry {i}:");
            assert!(cut.contains("truncated") && cut.contains(&behind), "{cut}");
        }
        let half = &text[..text.find(line).unwrap() + line.len() / 2];
        verdict(half, &site).unwrap_err();
    }
    assert!(changes > 100, "{changes}");
    verdict(&format!("{text}{{}}\n"), &site).unwrap_err();
    verdict("", &site).unwrap_err();
}

/// An attacker without a key rewrites the file, including digest and hashes.
#[test]
fn a_forger_without_a_key_gets_no_further_than_behind_the_last_checkpoint() {
    let site = TestCluster::new("site");
    let all = signed(&site);
    let again = |all: &[AuditEntry]| {
        let mut made: Vec<AuditEntry> = Vec::new();
        for e in all.iter().cloned() {
            made.push(AuditEntry::following(
                made.last(),
                e.revision,
                e.at,
                e.by,
                e.action,
            ));
        }
        exported(&site, &[], &made)
    };
    for i in 0..8 {
        let mut forged = all.clone();
        forged[i].by.name = "eve".to_owned();
        let said = verdict(&again(&forged), &site).unwrap_err();
        let first = if i < 4 { 5 } else { 9 };
        assert!(
            said.contains(&format!("entry {first} is not a valid signed head")),
            "{i}: {said}"
        );
        let mut removed = all.clone();
        removed.remove(i);
        verdict(&again(&removed), &site).unwrap_err();
        let mut doubled = all.clone();
        doubled.insert(i, all[i].clone());
        // Nothing after entry 8 is covered: an inserted entry is found only with the next signed head.
        assert_eq!(verdict(&again(&doubled), &site).is_ok(), i == 7, "{i}");
    }
    // An invalid signature.
    let mut unsigned = all.clone();
    if let AuditAction::SignedHead { signature, .. } = &mut unsigned[8].action {
        *signature = Hex(vec![0; 70].into());
    }
    let said = verdict(&again(&unsigned), &site).unwrap_err();
    assert!(
        said.contains("entry 9 is not a valid signed head"),
        "{said}"
    );
    // A shortened file with a valid last line is found by a comparison with a longer export.
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    fs::write(&whole, exported(&site, &[], &all)).unwrap();
    fs::write(&cut, exported(&site, &[], &all[..7])).unwrap();
    let mut asked = args(&cut, &site);
    offline(&asked, Format::Table).unwrap();
    asked.against = Some(whole.clone());
    let said = offline(&asked, Format::Table).unwrap_err().text;
    assert!(
        said.contains("entry 8 is missing") && said.contains("to entry 9"),
        "{said}"
    );
    let mut asked = args(&whole, &site);
    asked.against = Some(cut.clone());
    offline(&asked, Format::Table).unwrap();
    // The comparison also finds a rewritten history, even if its author holds the keys.
    let mut anew = chain(4);
    anew[2].by.name = "eve".to_owned();
    let mut rewritten: Vec<AuditEntry> = Vec::new();
    for e in anew {
        rewritten.push(AuditEntry::following(
            rewritten.last(),
            e.revision,
            e.at,
            e.by,
            e.action,
        ));
    }
    site.sign(&mut rewritten, 1);
    rewritten.extend(append_entries(&rewritten, 6));
    site.sign(&mut rewritten, 1);
    fs::write(&cut, exported(&site, &[], &rewritten)).unwrap();
    let mut asked = args(&cut, &site);
    offline(&asked, Format::Table).unwrap();
    asked.against = Some(whole);
    let said = offline(&asked, Format::Table).unwrap_err().text;
    assert!(
        said.contains("entry 3 differs from the one that was exported"),
        "{said}"
    );
}

#[test]
fn prints_findings_as_rows() {
    let site = TestCluster::new("site");
    let mut all = signed(&site);
    all.extend(append_entries(&all, 2));
    let mut checker = Checker::new(Some("site".to_owned()), (0, [0; 32]));
    all.iter()
        .try_for_each(|entry| checker.verify_entry(entry))
        .unwrap();
    let hash = Hex::from(checker.last().1).to_string();
    let rows_of = |report: &Report| {
        let rows = rows(report).into_iter().map(|row| row.join(": "));
        rows.collect::<Vec<_>>().join("\n")
    };
    let chain = rows_of(&checker.chain_report());
    let report = checker.finish(&BTreeSet::from([site.pin()])).unwrap();
    let pin = site.pin();
    assert_eq!(
        rows_of(&report),
        format!(
            "cluster: site\n\
             entries: 1 to 11 (11)\n\
             written: 2026-09-21T14:13:20Z to 2026-09-21T14:13:30Z\n\
             last hash: {hash}\n\
             signed heads: 2: quorum/1 (1), quorum/2 (1)\n\
             authority: {pin}\n\
             covered: 1 to 8, signed 2026-09-21T14:13:27Z\n\
             not covered: 9 to 11 (3): until the next signed head"
        )
    );
    let unsigned = "signed: not verified: without signatures, a writer of the complete log could have forged it";
    assert!(chain.ends_with(unsigned), "{chain}");
}

/// Every later version must verify the first export that was written. `LATTICE_BLESS=1` creates it if it is missing.
#[test]
fn an_export_of_long_ago_still_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/audit/v1");
    let (file, ca) = (folder.join("export.jsonl"), folder.join("ca.pem"));
    if std::env::var_os("LATTICE_BLESS").is_some() && !file.exists() {
        let site = TestCluster::new("site");
        fs::create_dir_all(&folder).unwrap();
        fs::write(&file, exported(&site, &[], &signed(&site))).unwrap();
        fs::write(&ca, x509::to_pem(site.authority.certificate())).unwrap();
    }
    let asked = VerifyArgs {
        file: Some(file),
        against: None,
        ca: vec![ca],
        pin: Vec::new(),
        cluster: Some("site".to_owned()),
        chain_only: false,
    };
    offline(&asked, Format::Table).unwrap();
}
