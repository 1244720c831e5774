//! `lattice admin quorum restore` on the backup of a running cluster: the consequences, then the steps.

use crate::common::Sandbox;
use serde_json::Value;

/// Takes a backup while the allocation `running` holds a node, and reads the plan of a restore from it.
pub fn check(sandbox: &Sandbox, running: &str) {
    let file = sandbox.path("cluster.backup");
    let file = file.to_str().unwrap();
    let taken = sandbox.lattice(&["admin", "quorum", "backup", file]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let restore = |more: &[&str]| {
        let mut args = vec!["admin", "quorum", "restore", file];
        args.extend(more);
        sandbox.lattice(&args)
    };
    // Standard input is not a terminal.
    let unconfirmed = restore(&[]);
    assert_eq!(unconfirmed.code, Some(1), "{unconfirmed:?}");
    assert!(unconfirmed.stderr.contains("--yes"), "{unconfirmed:?}");
    let list = &unconfirmed.stdout;
    let (user, steps) = (format!("{running} of "), "To restore it into new machines");
    assert!(
        list.contains("What happens to work that runs now"),
        "{list}"
    );
    assert!(list.contains(&user) && !list.contains(steps), "{list}");
    let confirmed = restore(&["--yes"]);
    assert_eq!(confirmed.code, Some(0), "{confirmed:?}");
    assert!(confirmed.stdout.starts_with(list), "{confirmed:?}");
    assert!(confirmed.stdout.contains(steps), "{confirmed:?}");

    let plan = restore(&["-o", "json"]).json();
    let held = plan["running"].as_array().unwrap().iter();
    let mut numbers = held.map(|one| one["id"].as_u64().unwrap().to_string());
    assert!(numbers.any(|number| number == running), "{plan}");
    let lines = |field: &str| -> Vec<String> {
        let list = plan[field].as_array().unwrap().iter();
        list.map(|line| line.as_str().unwrap().to_owned()).collect()
    };
    // The document has what the text has.
    for line in [lines("lost_changes"), lines("consequences"), lines("steps")].concat() {
        assert!(confirmed.stdout.contains(&line), "{line}\n{confirmed:?}");
    }
    for field in [
        "cluster",
        "revision",
        "last_allocation",
        "next_allocation",
        "waiting",
    ] {
        assert_ne!(plan[field], Value::Null, "{field}");
    }
    let csv = restore(&["-o", "csv"]).stdout;
    assert!(csv.contains(",running,waiting"), "{csv}");
}
