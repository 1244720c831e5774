//! Orders of events that chance seldom meets. `tests/planted.rs` shows that each finds what it is for.

use lattice_quorum_sim::{Report, Scene};

fn plays(scene: Scene) -> Report {
    let report = scene.play(false);
    let last = &report.last_lines[report.last_lines.len().saturating_sub(40)..];
    assert!(
        report.violations.is_empty(),
        "{scene:?}: {:#?}\n{}",
        report.violations,
        last.join("\n")
    );
    report
}

/// Until the power no longer goes in the middle of it.
fn at_each_operation(scene: impl Fn(u64) -> Scene) {
    let (mut cut_at, mut met) = (1, 0);
    loop {
        let report = plays(scene(cut_at));
        match report.counts.get("cut half way") {
            Some(_) => met += 1,
            None => break,
        }
        cut_at += 1;
        assert!(cut_at < 200, "it never came to an end");
    }
    println!("the power went at each of {met} operations");
    assert!(met > 5, "only {met} operations");
}

#[test]
fn an_old_leader_beside_a_member_that_lost_its_disk_answers_nothing_old() {
    for leads in [false, true] {
        let report = plays(Scene::OldLeaderBesideBlank { leads });
        let refused = report.counts.get("not answered").copied().unwrap_or(0);
        assert!(refused > 50, "{:?}", report.counts);
    }
}

#[test]
fn a_member_brought_up_to_date_half_way_stays_blank() {
    at_each_operation(|cut_at| Scene::BlankHalfWay { cut_at });
}

#[test]
fn a_member_whose_power_goes_while_it_is_sent_a_snapshot_starts_again() {
    at_each_operation(|cut_at| Scene::SnapshotCutShort { cut_at });
}

#[test]
fn one_scene_is_one_run() {
    let scene = Scene::OldLeaderBesideBlank { leads: false };
    assert_eq!(plays(scene).trace, plays(scene).trace);
}
