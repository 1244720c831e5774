#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::tasks::testing::{self, KEY, id};
use lattice_quorum_types::UnixMillis;

const EVERY: Duration = Duration::from_secs(30);

/// One allocation, running on `a` and only assigned on `b`; `c` is free.
fn view(state: AllocationState, generation: u64) -> View {
    let rank = |node: &str, phase| Rank {
        boot: Some("b1".to_owned()),
        node: id(node),
        phase,
    };
    let at = UnixMillis(10);
    let ranks = vec![
        rank("a", RankPhase::Running { at }),
        rank("b", RankPhase::Assigned),
    ];
    let entry = |name| {
        let mut entry = testing::entry(name);
        entry.gossip = Some(testing::seen(generation));
        entry.boot = Some("b1".to_owned());
        entry
    };
    let mut free = entry("c");
    if let Some(record) = &mut free.record {
        record.holder = None;
    }
    testing::view_of(
        [entry("a"), entry("b"), free],
        testing::allocation(state, ranks),
    )
}

/// The view after `change` to the node `a`.
fn with(change: impl FnOnce(&mut NodeEntry)) -> View {
    let mut view = view(AllocationState::Running, 1);
    let entry = Arc::make_mut(&mut view.nodes).get_mut(&id("a"));
    change(Arc::make_mut(entry.unwrap()));
    view
}

#[test]
fn only_ranks_that_run_are_looked_for() {
    let expected = RunningAttempts::from([(id("a"), BTreeSet::from([KEY]))]);
    assert_eq!(running(&view(AllocationState::Running, 1)), expected);
    assert_eq!(running(&view(AllocationState::Starting, 1)), expected);
    assert!(running(&view(AllocationState::Stopping, 1)).is_empty());
}

#[test]
fn a_rank_of_another_boot_is_not_looked_for() {
    let rebooted = with(|entry| entry.boot = Some("b2".to_owned()));
    assert!(running(&rebooted).is_empty());
}

/// Names of the agents queried now if every agent was queried `ago` before.
fn asks(view: &View, asked_in: &View, ago: Duration) -> Vec<String> {
    let now = Instant::now() + EVERY * 2;
    let asked = |entry: &Arc<NodeEntry>| {
        let next = now - ago + EVERY;
        let mark = AgentMark::of(entry);
        (entry.id.clone(), NextQuery { mark, next })
    };
    let asked = asked_in.nodes.values().map(asked).collect();
    let due = due(view, &running(view), &asked, now);
    due.into_iter().map(|(node, _)| node.to_string()).collect()
}

#[test]
fn every_agent_is_asked_now_and_then() {
    let same = view(AllocationState::Running, 1);
    let nobody = View::default();
    assert_eq!(asks(&same, &nobody, Duration::ZERO), ["a", "b", "c"]);
    assert_eq!(asks(&same, &same, Duration::ZERO), [""; 0]);
    assert_eq!(asks(&same, &same, EVERY), ["a", "b", "c"]);
}

#[test]
fn an_agent_is_asked_at_once_when_it_or_its_holder_is_another_one() {
    let before = view(AllocationState::Running, 1);
    let restarted = view(AllocationState::Running, 2);
    assert_eq!(asks(&restarted, &before, Duration::ZERO), ["a", "b", "c"]);
    let rebooted = with(|entry| entry.boot = Some("b2".to_owned()));
    assert_eq!(asks(&rebooted, &before, Duration::ZERO), ["a"]);
    let taken = with(|entry| {
        if let Some(record) = &mut entry.record {
            record.holder = None;
        }
    });
    assert_eq!(asks(&taken, &before, Duration::ZERO), ["a"]);
}

#[test]
fn a_silent_agent_is_asked_only_about_what_it_should_run() {
    let silent = |view: &View| {
        let mut view = view.clone();
        for entry in Arc::make_mut(&mut view.nodes).values_mut() {
            Arc::make_mut(entry).liveness = Liveness::Suspect;
        }
        view
    };
    let view = silent(&view(AllocationState::Running, 1));
    assert_eq!(asks(&view, &view, EVERY), ["a"]);
    assert_eq!(asks(&view, &View::default(), EVERY), ["a"]);
}

#[test]
fn ended_orphans_do_not_count_towards_the_limit() {
    let key = |attempt| AttemptKey { attempt, ..KEY };
    let (examined, node) = (ExaminedOrphans::default(), id("a"));
    let all: Vec<AttemptKey> = (1..=100).map(key).collect();
    assert_eq!(examined.due(&node, &all), all[..16]);
    for settled in &all[..60] {
        examined.insert(&node, *settled);
    }
    // Four more are within the limit of 64.
    assert_eq!(examined.due(&node, &all), all[60..64]);
    for settled in &all[60..64] {
        examined.insert(&node, *settled);
    }
    assert!(examined.due(&node, &all).is_empty());
    assert_eq!(examined.due(&id("b"), &all[99..]), all[99..]);
    examined.retain(&node, &all[63..]);
    assert_eq!(examined.due(&node, &all[63..]), all[64..80]);
    examined.retain(&node, &[]);
    assert!(examined.0.lock().is_empty());
}
