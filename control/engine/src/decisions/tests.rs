//! Rotation, compression and deletion of files, and reading while they are written.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::{cut::RecordCut, *};
use lattice_placement::{
    NodeFacts, NodeView, Planner,
    record::{PlacedAllocation, RECORD_FORMAT},
};
use lattice_quorum_types::{AllocationState, NodeId, event::AllocationChange};
use std::fs;

fn begin(at: u64) -> Line {
    Line::Begin {
        format: RECORD_FORMAT,
        cluster: "c".to_owned(),
        control: "c1".to_owned(),
        version: "1".to_owned(),
        at: UnixMillis(at),
    }
}

fn view(nodes: usize) -> ClusterView {
    let node = |n: usize| {
        let node = NodeView {
            version: 1,
            in_service: true,
            promised: false,
            holder: None,
            owner: None,
            borrowed: false,
            facts: NodeFacts::default(),
        };
        (NodeId::new(format!("n{n:04}")).unwrap(), node)
    };
    ClusterView {
        nodes: (0..nodes).map(node).collect(),
        ..ClusterView::default()
    }
}

fn plan(decisions: &Decisions, name: &str, at: u64, delta: Option<Delta>) {
    let vcluster = VclusterName::new(name).unwrap();
    let mut planner = Planner::new(view(200));
    let plan = planner.plan(UnixMillis(at));
    let planned = Planned {
        vcluster: &vcluster,
        at: UnixMillis(at),
        epoch: 7,
        policy: Policy::default(),
        delta,
        promised: BTreeMap::new(),
    };
    decisions.planned(planned, planner.view(), &plan);
}

fn lines(decisions: &Decisions, since: u64) -> Vec<Line> {
    let mut since = decisions.since(UnixMillis(since)).unwrap();
    let mut lines = Vec::new();
    loop {
        let piece = since.next(1000).unwrap();
        if piece.is_empty() {
            return lines;
        }
        assert!(piece.ends_with(b"\n"));
        let text = String::from_utf8(piece).unwrap();
        lines.extend(
            text.lines()
                .map(|line| serde_json::from_str::<Line>(line).unwrap()),
        );
    }
}

fn kinds(lines: &[Line]) -> String {
    let kind = |line: &Line| match line {
        Line::Begin { .. } => 'B',
        Line::View { .. } => 'V',
        Line::Cycle(cycle) if cycle.delta.is_some() => 'd',
        Line::Cycle(_) => 'c',
        Line::Outcome { .. } => 'o',
        Line::Allocation(_) => 'a',
        Line::RefusedSubmit { .. } => 'r',
    };
    lines.iter().map(kind).collect()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("decisions")).unwrap();
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn schedulers_start_with_full_view() {
    let folder = tempfile::tempdir().unwrap();
    let decisions = Decisions::open(Some(folder.path()), 1 << 20, begin(1)).unwrap();
    plan(&decisions, "a", 10, None);
    plan(&decisions, "a", 20, Some(Delta::default()));
    plan(&decisions, "b", 30, Some(Delta::default()));
    decisions.refused_submit(UnixMillis(31), "eve", "no".to_owned());
    // A new planner is recorded with its view.
    plan(&decisions, "a", 40, None);
    let written = lines(&decisions, 0);
    assert_eq!(kinds(&written), "BVcdVcrVc");
    let Line::Cycle(cycle) = &written[2] else {
        panic!("{written:?}")
    };
    assert_eq!((cycle.at, cycle.epoch), (UnixMillis(10), 7));
}

#[test]
fn full_files_are_packed_and_the_oldest_go() {
    let folder = tempfile::tempdir().unwrap();
    let keep = 60_000;
    let decisions = Decisions::open(Some(folder.path()), keep, begin(1)).unwrap();
    for at in 0..200 {
        plan(&decisions, "a", at, Some(Delta::default()));
    }
    let names = files(folder.path());
    let (present, packed) = names.split_last().unwrap();
    assert!(present.ends_with(".jsonl"), "{names:?}");
    assert!(
        !packed.is_empty() && packed.iter().all(|name| name.ends_with(".jsonl.zst")),
        "{names:?}"
    );
    let size = |name: &String| {
        fs::metadata(folder.path().join("decisions").join(name))
            .unwrap()
            .len()
    };
    let total: u64 = packed.iter().map(size).sum();
    assert!(total <= keep, "{total}");
    let written = kinds(&lines(&decisions, 0));
    // Each file can be read by itself.
    assert!(
        written
            .split('B')
            .skip(1)
            .all(|of_one| of_one.starts_with("Vc")),
        "{written}"
    );
    assert!(written.matches('B').count() > 1, "{written}");
}

/// The file of a killed process is read, except an incomplete line at its end.
#[test]
fn what_a_killed_process_left_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let decisions = Decisions::open(Some(folder.path()), 1 << 20, begin(1_000)).unwrap();
    plan(&decisions, "a", 1_001, None);
    drop(decisions);
    let left = folder.path().join("decisions/0000000001.jsonl");
    let mut text = fs::read(&left).unwrap();
    text.extend_from_slice(b"{\"cycle\":{\"vclu");
    fs::write(&left, text).unwrap();
    let decisions = Decisions::open(Some(folder.path()), 1 << 20, begin(2_000)).unwrap();
    plan(&decisions, "a", 2_001, None);
    assert_eq!(
        files(folder.path()),
        ["0000000001.jsonl.zst", "0000000002.jsonl"]
    );
    assert_eq!(kinds(&lines(&decisions, 0)), "BVcBVc");
    // The view at the requested time, and what follows.
    assert_eq!(kinds(&lines(&decisions, 1_500)), "BVBVc");
    assert_eq!(kinds(&lines(&decisions, 2_500)), "BV");
}

/// The record begins at the requested time, with the views that result from all earlier changes.
#[test]
fn record_starts_at_requested_time() {
    let folder = tempfile::tempdir().unwrap();
    let decisions = Decisions::open(Some(folder.path()), 1 << 20, begin(1)).unwrap();
    let node_removed = Delta {
        nodes: BTreeMap::from([(NodeId::new("n0000").unwrap(), None)]),
        ..Delta::default()
    };
    plan(&decisions, "a", 10, None);
    plan(&decisions, "a", 20, Some(node_removed));
    plan(&decisions, "b", 30, None);
    decisions.refused_submit(UnixMillis(31), "eve", "no".to_owned());
    plan(&decisions, "a", 40, Some(Delta::default()));
    assert_eq!(kinds(&lines(&decisions, 0)), "BVcdVcrd");
    for (since, expected) in [
        (1, "BVcdVcrd"),
        (15, "BVdVcrd"),
        (31, "BVVrd"),
        (35, "BVVd"),
        (41, "BVV"),
    ] {
        let cut = lines(&decisions, since);
        assert_eq!(kinds(&cut), expected, "since {since}");
        assert!(cut.iter().all(|line| line.at() >= UnixMillis(since)));
        assert_eq!(cut[0].at(), UnixMillis(since));
    }
    let cut = lines(&decisions, 35);
    let Line::View { vcluster, view, .. } = &cut[1] else {
        panic!("{cut:?}")
    };
    assert_eq!((vcluster.as_str(), view.nodes.len()), ("a", 199));
}

/// An outcome after the start may belong to a plan before it.
#[test]
fn outcomes_of_earlier_plans_are_left_out() {
    let vcluster = VclusterName::new("a").unwrap();
    let cycle = |at, ids: &[u64]| {
        let placed = ids.iter().map(|id| PlacedAllocation {
            id: AllocationId(*id),
            nodes: vec![NodeId::new("n0").unwrap()],
            backfilled: false,
        });
        Line::Cycle(Box::new(Cycle {
            vcluster: vcluster.clone(),
            at: UnixMillis(at),
            epoch: 1,
            policy: Policy::default(),
            delta: Some(Box::default()),
            promised: BTreeMap::new(),
            placed: placed.collect(),
            reserved: Vec::new(),
        }))
    };
    let outcome = |planned_at, id| Line::Outcome {
        vcluster: vcluster.clone(),
        planned_at: UnixMillis(planned_at),
        id: AllocationId(id),
        outcome: Outcome::Assigned {
            revision: Revision(1),
        },
    };
    let changed = ChangedAllocation {
        id: AllocationId(1),
        change: AllocationChange::Assigned,
        at: UnixMillis(22),
        revision: Revision(1),
        state: AllocationState::Starting,
        attempt: 1,
        vcluster: vcluster.clone(),
        asks: None,
        nodes: Vec::new(),
        started_at: None,
        ended_at: None,
    };
    let view = Line::View {
        vcluster: vcluster.clone(),
        at: UnixMillis(5),
        view: Box::default(),
    };
    let all = [
        begin(1),
        view,
        cycle(10, &[1, 2]),
        outcome(10, 1),
        // The start, at 20, precedes the answer about allocation 2.
        Line::Allocation(Box::new(changed)),
        outcome(10, 2),
        cycle(30, &[3]),
        outcome(30, 3),
    ];
    let (mut cut, mut text) = (RecordCut::new(UnixMillis(20)), Vec::new());
    for line in &all {
        let mut line = serde_json::to_vec(line).unwrap();
        line.push(b'\n');
        cut.line(&line, &mut text).unwrap();
    }
    cut.finish(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let kept: Vec<Line> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(kinds(&kept), "BVado");
}

/// A requested time selects the file by the time at which that file began.
#[test]
fn later_files_begin_at_their_own_time() {
    let folder = tempfile::tempdir().unwrap();
    let decisions = Decisions::open(Some(folder.path()), 30_000, begin(1)).unwrap();
    for at in 10..14 {
        plan(&decisions, "a", at, Some(Delta::default()));
    }
    let begun: Vec<u64> = lines(&decisions, 0)
        .iter()
        .filter(|line| matches!(line, Line::Begin { .. }))
        .map(|line| line.at().0)
        .collect();
    assert!(begun.len() > 1 && begun.is_sorted(), "{begun:?}");
    assert!(begun.iter().skip(1).all(|at| *at >= 10), "{begun:?}");
    let last = lines(&decisions, *begun.last().unwrap());
    assert_eq!(last[0].at().0, *begun.last().unwrap());
}

#[test]
fn nothing_is_kept_without_a_folder_or_where_nothing_may_be() {
    let folder = tempfile::tempdir().unwrap();
    for (folder, keep) in [(None, 1 << 20), (Some(folder.path()), 0)] {
        let decisions = Decisions::open(folder, keep, begin(1)).unwrap();
        assert!(!decisions.is_enabled());
        plan(&decisions, "a", 1, None);
        assert!(matches!(
            decisions.since(UnixMillis(0)),
            Err(DecisionsError::NotKept)
        ));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A full disk blocks no scheduler, and later records are readable.
#[test]
fn unwritable_record_blocks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let decisions = Decisions::open(Some(folder.path()), 30_000, begin(1)).unwrap();
    fs::remove_dir_all(folder.path().join("decisions")).unwrap();
    for at in 0..5 {
        plan(&decisions, "a", at, Some(Delta::default()));
    }
    fs::create_dir(folder.path().join("decisions")).unwrap();
    for at in 5..9 {
        plan(&decisions, "a", at, Some(Delta::default()));
    }
    let written = kinds(&lines(&decisions, 0));
    assert!(written.starts_with("BV"), "{written}");
}
