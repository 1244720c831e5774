//! Audit log with real processes: query, export, offline verification, and detection of changes, also after a member
//! was killed.

use lattice_api::AllocationRequest;
use lattice_tests::{
    site::{Plan, Site},
    wait::until,
};
use serde_json::Value;
use std::{fs, process::Command};

/// Runs `lattice` on a machine without access to the cluster.
fn elsewhere(site: &Site, args: &[&str]) -> (i32, String) {
    let done = Command::new(lattice_tests::programs!().cli)
        .args(args)
        .env_clear()
        .env("HOME", site.path("nowhere"))
        .env("COLUMNS", "100")
        .current_dir(site.path("."))
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    (done.status.code().unwrap(), said)
}

fn words(found: &Value) -> Vec<(String, String)> {
    let entries = found.as_array().unwrap().iter();
    let word = |entry: &Value| {
        let by = entry["by"].as_str().unwrap().to_owned();
        let action = entry["action"].as_object().unwrap();
        (by, action.keys().next().unwrap().clone())
    };
    entries.map(word).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auditor_is_answered_and_a_forger_found_out() {
    let mut plan = Plan::with_agents(["n1", "n2"]);
    plan.voters = 3;
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    let ada = |action: &str| ("ada".to_owned(), action.to_owned());
    site.lattice(&["node", "drain", "n1", "--reason", "fan 3 is loud"]);
    site.lattice(&["node", "undrain", "n1"]);
    site.lattice(&["node", "drain", "n2", "--reason", "firmware"]);

    // Actions on this node.
    let ask = [
        "audit",
        "query",
        "--node",
        "n1",
        "--action",
        "drained,undrained",
    ];
    let found = site.lattice_json(&ask);
    assert_eq!(words(&found), [ada("drained"), ada("undrained")]);
    let none = [&ask[..], &["--until", "1d"]].concat();
    assert_eq!(site.lattice_json(&none), serde_json::json!([]));
    let by = site.lattice_json(&["audit", "query", "--user", "ada", "--limit", "1"]);
    assert_eq!(words(&by), [ada("drained")], "the newest");
    println!("{}", site.lattice(&["audit", "query", "--limit", "8"]));

    // Entries of a sensitive allocation that never had a node, by its own user.
    let request = AllocationRequest {
        sensitive: true,
        hold: true,
        ..site.request(Some("n2"), "true")
    };
    let id = site.submit_request(&request).await.to_string();
    site.lattice(&["release", &id]);
    site.lattice(&["hold", &id]);
    site.lattice(&["cancel", &id]);
    let whats = |found: &Value| {
        let entries = found.as_array().unwrap().iter();
        let what = |entry: &Value| {
            assert_eq!(entry["by"], "ada");
            let asked = &entry["action"]["sensitive_asked"];
            asked["what"].as_str().unwrap().to_owned()
        };
        entries.map(what).collect::<Vec<_>>()
    };
    let asked = ["audit", "query", "--action", "sensitive_asked"];
    let all = ["submit", "release", "hold", "cancel"];
    // The audit records the requested nodes with the submit.
    for (subject, expected) in [
        (["--allocation", &id], &all[..]),
        (["--node", "n2"], &all[..1]),
        (["--user", "ada"], &all[..]),
    ] {
        let found = site.lattice_json(&[&asked[..], &subject].concat());
        assert_eq!(whats(&found), expected, "{subject:?}");
    }

    // An export is verified offline.
    println!("{}", site.lattice(&["audit", "export", "first.jsonl"]));
    let again = site.cli(&["audit", "export", "first.jsonl"]);
    assert_eq!(again.status.code(), Some(1), "an export replaces nothing");
    let verify = ["audit", "verify", "first.jsonl", "--ca", "ca/ca.pem"];
    let (code, said) = elsewhere(&site, &verify);
    println!("{said}");
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("signed by") || said.contains("quorum/"),
        "{said}"
    );
    let (code, said) = elsewhere(&site, &["audit", "verify", "first.jsonl"]);
    assert!(code == 2 && said.contains("--ca"), "{code}: {said}");

    // A changed export: verification names the entry.
    let text = fs::read_to_string(site.path("first.jsonl")).unwrap();
    let line = text
        .lines()
        .position(|line| line.contains("fan 3 is loud"))
        .unwrap();
    fs::write(
        site.path("forged.jsonl"),
        text.replace("fan 3 is loud", "routine work!"),
    )
    .unwrap();
    let (code, said) = elsewhere(
        &site,
        &["audit", "verify", "forged.jsonl", "--ca", "ca/ca.pem"],
    );
    println!("{said}");
    assert!(
        code == 1 && said.contains(&format!("entry {line} ")),
        "{code}: {said}"
    );

    // A member is killed, most often the leader: its signatures remain valid, and the next leader signs new entries.
    site.quorum[0].kill();
    let drain = ["node", "drain", "n1", "--reason", "for the night"];
    until("the others write on", || site.cli(&drain).status.success()).await;
    until("and sign", || {
        let verified = site.cli(&["audit", "verify", "--against", "first.jsonl"]);
        verified.status.success()
    })
    .await;
    site.lattice(&[
        "audit",
        "export",
        "second.jsonl",
        "--after",
        &line.to_string(),
    ]);
    let later = [
        "audit",
        "verify",
        "second.jsonl",
        "--ca",
        "ca/ca.pem",
        "--against",
        "first.jsonl",
    ];
    let (code, said) = elsewhere(&site, &later);
    println!("{said}");
    assert_eq!(code, 0, "{said}");
    // A truncated export: verification against the complete one detects the loss.
    let less = [
        "audit",
        "verify",
        "first.jsonl",
        "--ca",
        "ca/ca.pem",
        "--against",
        "second.jsonl",
    ];
    let (code, said) = elsewhere(&site, &less);
    println!("{said}");
    assert!(code == 1 && said.contains("is missing"), "{code}: {said}");
    site.quorum[0].start();
}
