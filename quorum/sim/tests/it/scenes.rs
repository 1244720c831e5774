//! Sequences of events that random runs seldom meet. `planted.rs` shows that each finds its bug.

use lattice_quorum_sim::{Report, Scenario};

fn plays(scene: Scenario, seed: u64) -> Report {
    let report = scene.play(seed, false);
    let last = &report.last_lines[report.last_lines.len().saturating_sub(40)..];
    assert!(
        report.violations.is_empty(),
        "{scene:?} under seed {seed}: {:#?}\n{}",
        report.violations,
        last.join("\n")
    );
    report
}

/// Plays the scene with a power cut at each disk operation, until the cut no longer falls within it.
fn at_each_operation(scene: impl Fn(u64) -> Scenario) {
    // Concurrent tasks of a member may end in either order, depending on the seed.
    for seed in 0..2 {
        let mut met = 0;
        let whole = loop {
            let report = plays(scene(met + 1), seed);
            if !report.counts.contains_key("cut half way") {
                break report;
            }
            met += 1;
            assert!(met < 200, "it never came to an end");
        };
        println!("seed {seed}: the power went at each of {met} operations");
        assert!(met > 5, "only {met} operations");
        assert!(whole.counters.installed > 0, "no snapshot was sent");
    }
}

#[test]
fn old_leader_with_lost_disk_peer_serves_nothing_stale() {
    for leads in [false, true] {
        let report = plays(Scenario::OldLeaderWithLostDisk { leads }, 0);
        let refused = report.counts.get("not answered").copied().unwrap_or(0);
        assert!(refused > 50, "{:?}", report.counts);
    }
}

#[test]
fn a_member_brought_up_to_date_half_way_stays_blank() {
    let killed = plays(Scenario::LostDiskHalfCaughtUp { cut_at: None }, 0);
    assert_eq!(
        killed.counts.get("cut half way"),
        Some(&1),
        "{:?}",
        killed.counts
    );
    at_each_operation(|nth| Scenario::LostDiskHalfCaughtUp { cut_at: Some(nth) });
}

#[test]
fn power_loss_during_snapshot_restarts_transfer() {
    at_each_operation(|cut_at| Scenario::SnapshotCutShort { cut_at });
}

#[test]
fn one_scene_is_one_run() {
    let scene = Scenario::OldLeaderWithLostDisk { leads: false };
    assert_eq!(plays(scene, 0).trace, plays(scene, 0).trace);
}
