//! One planted bug for each invariant: the simulation finds it within some seeds, and names the violation.

use lattice_quorum_sim::{Bug, Plan, Scenario, plant, run};

/// Number of seeds within which each bug must be found.
const SEEDS: u64 = 200;

/// Runs seeds until there is a violation, and checks that it is the expected one.
fn found(what: &str, plan: impl Fn(u64) -> Plan, says: &[&str]) {
    for seed in 0..SEEDS {
        let report = run(&plan(seed));
        if let Some(violation) = report.violations.first() {
            let short: String = violation.chars().take(300).collect();
            println!("{what}: seed {seed}: {short}");
            assert!(says.iter().any(|s| violation.contains(s)), "{violation}");
            return;
        }
    }
    panic!("{what} was not found in {SEEDS} seeds");
}

fn planted(bug: Bug, says: &[&str]) {
    let plan = |seed| Plan {
        planted: Some(bug),
        ..Plan::of(seed)
    };
    found(&format!("{bug:?}"), plan, says);
}

#[test]
fn a_limit_that_is_not_asked_at_assignment() {
    planted(Bug::LimitsUnchecked, &["above its limit"]);
}

#[test]
fn a_node_that_two_hold() {
    planted(
        Bug::NodesTaken,
        &["is held by", "recorded holder", "runs on"],
    );
}

#[test]
fn a_key_that_is_forgotten() {
    planted(
        Bug::KeysForgotten,
        &["took effect twice", "was acknowledged with"],
    );
}

#[test]
fn an_audit_entry_that_is_dropped() {
    planted(Bug::AuditDropped, &["the audit is"]);
}

#[test]
fn a_member_that_differs() {
    planted(
        Bug::NotDeterministic,
        &[
            "differ",
            "another answer",
            "is at entry",
            "not a valid chain",
        ],
    );
}

#[test]
fn a_leader_that_leads_on_after_a_restart() {
    let plan = |seed| Plan {
        outages: true,
        planted: Some(Bug::LeadsOn),
        ..Plan::of(seed)
    };
    let says = ["a read showed", "not linearizable", "applied nowhere"];
    found("LeadsOn", plan, &says);
}

#[test]
fn an_event_that_a_watch_misses() {
    planted(Bug::EventsLost, &["watch at"]);
}

#[test]
fn a_read_that_is_stale() {
    planted(Bug::ReadsUnchecked, &["not linearizable", "a read showed"]);
}

/// Plays scenes with a bug until there is a violation, and checks that it is the expected one.
fn shown(bug: Bug, scenes: impl IntoIterator<Item = Scenario> + Clone, says: &[&str]) {
    let played = (0..2).flat_map(|seed| scenes.clone().into_iter().map(move |scene| (seed, scene)));
    for (seed, scene) in played {
        plant(Some(bug));
        let report = scene.play(seed, false);
        plant(None);
        if let Some(violation) = report.violations.first() {
            let short: String = violation.chars().take(300).collect();
            println!("{bug:?}: {scene:?} under seed {seed}: {short}");
            assert!(says.iter().any(|s| violation.contains(s)), "{violation}");
            return;
        }
    }
    panic!("no scene shows {bug:?}");
}

#[test]
fn a_member_that_lost_its_disk_and_follows_an_old_leader() {
    for leads in [false, true] {
        let scene = Scenario::OldLeaderWithLostDisk { leads };
        shown(Bug::AnyLeaderFollowed, [scene], &["answered a read with"]);
    }
}

#[test]
fn a_member_that_forgets_that_it_lost_its_disk() {
    let cuts = std::iter::once(None).chain((1..60).map(Some));
    let scenes = cuts.map(|cut_at| Scenario::LostDiskHalfCaughtUp { cut_at });
    // The member votes for a candidate that lacks acknowledged writes.
    let says = ["was made twice", "another command", "answered a read with"];
    shown(Bug::BlankForgotten, scenes, &says);
}

#[test]
fn a_snapshot_that_is_on_the_disk_too_late() {
    let scenes = (1..60).map(|cut_at| Scenario::SnapshotCutShort { cut_at });
    shown(Bug::SnapshotNotKept, scenes, &["does not start"]);
}

/// A write that is acknowledged before it is on the disk is lost at a power cut.
#[test]
fn a_disk_that_does_not_sync() {
    let plan = |seed| Plan {
        disk_ignores_syncs: true,
        ..Plan::of(seed)
    };
    let says = [
        "another command",
        "does not start",
        "all members end at",
        "applied nowhere",
        "took effect twice",
        "differ",
        "a read showed",
        "not linearizable",
        "a panic",
        "did not heal",
    ];
    found("a disk that does not sync", plan, &says);
}
