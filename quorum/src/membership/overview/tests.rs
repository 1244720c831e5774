#![expect(clippy::unwrap_used, reason = "tests")]
use crate::membership::overview::*;
use lattice_quorum_types::{Revision, membership::Incarnation};

fn known(id: VoterId, votes: bool) -> KnownMember {
    KnownMember {
        id,
        addr: format!("10.0.0.{id}:7101"),
        votes,
    }
}

fn account(id: VoterId, last_log_index: u64, members: &[KnownMember]) -> MemberReport {
    MemberReport {
        id,
        cluster: "site".to_owned(),
        incarnation: Incarnation::FIRST,
        term: 3,
        leader: Some(1),
        last_log_index,
        applied_index: last_log_index,
        snapshot_index: 0,
        revision: Revision(last_log_index),
        last_contact_ms: (id != 1).then_some(30),
        blank: false,
        removed: false,
        members: members.to_vec(),
        membership_index: 5,
        changing: false,
        followers: Vec::new(),
        build: "1".to_owned(),
        data_format: 4,
        segments: SegmentCounts::default(),
    }
}

fn follower(id: VoterId, matched: u64, last_contact_ms: u64) -> Follower {
    Follower {
        id,
        matched: Some(matched),
        last_contact_ms: Some(last_contact_ms),
        fault: None,
    }
}

#[test]
fn one_table_shows_leader_and_lag() {
    let members = [known(1, true), known(2, true), known(3, true)];
    let mut leader = account(1, 2000, &members);
    leader.followers = vec![follower(2, 2000, 20), follower(3, 500, 90_000)];
    let own = account(2, 1998, &members);
    let answers = BTreeMap::from([
        (1, Ok(leader.clone())),
        (2, Ok(own.clone())),
        (3, Err("no reply within 700 ms".to_owned())),
    ]);
    let view = table(&own, &leader, answers);
    assert_eq!((view.leader, view.term, view.answered_by), (Some(1), 3, 2));
    assert_eq!((view.majority, view.reachable), (2, 2));
    let shown: Vec<_> = view
        .members
        .iter()
        .map(|m| {
            (
                m.id,
                m.role.as_str(),
                m.lag,
                m.last_contact_ms,
                m.fault.is_some(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (1, "leader", Some(0), None, false),
            (2, "voter", Some(2), Some(20), false),
            (3, "voter", Some(1500), Some(90_000), true),
        ]
    );
    let worst = view.warnings.first().unwrap();
    assert!(worst.contains("one more member"), "{worst}");
    let text = view.warnings.join("\n");
    assert!(text.contains("member 3: no reply within 700 ms"), "{text}");
    assert!(text.contains("member 3 is 1500 log entries"), "{text}");
}

#[test]
fn nothing_is_wrong_where_all_is_well_and_everything_without_a_majority() {
    let members = [known(1, true), known(2, true), known(3, true)];
    let leader = account(1, 10, &members);
    let all = (1..=3).map(|id| (id, Ok(account(id, 10, &members))));
    let view = table(&leader, &leader, all.collect());
    assert_eq!(view.warnings, Vec::<String>::new());
    let mut alone = account(2, 10, &members);
    alone.leader = None;
    let lost = || Err("no reply within 700 ms".to_owned());
    let answers = BTreeMap::from([(1, lost()), (2, Ok(alone.clone())), (3, lost())]);
    let view = table(&alone, &alone, answers);
    assert_eq!(view.leader, None);
    let worst = view.warnings.first().unwrap();
    assert!(worst.contains("no majority: 1 of 3"), "{worst}");
    assert!(view.members.iter().all(|m| m.lag.is_none()));
}

#[test]
fn what_is_left_of_another_incarnation_is_named() {
    let members = [known(1, true), known(2, true), known(3, true)];
    let restored = Incarnation {
        number: 2,
        origin: 7,
    };
    let mut leader = account(1, 10, &members);
    leader.incarnation = restored;
    let mut second = account(2, 10, &members);
    second.incarnation = restored;
    let old = account(3, 99, &members);
    let answers = BTreeMap::from([(1, Ok(leader.clone())), (2, Ok(second)), (3, Ok(old))]);
    let view = table(&leader, &leader, answers);
    assert_eq!((view.incarnation, view.reachable), (restored, 2));
    let fault = view.members[2].fault.as_deref().unwrap();
    assert!(fault.starts_with("belongs to incarnation 1 "), "{fault}");
    assert_eq!(view.members[2].lag, None);
}

#[test]
fn reports_learners_and_even_membership() {
    let members = [known(1, true), known(2, true), known(4, false)];
    let mut leader = account(1, 10, &members);
    leader.changing = true;
    let mut learner = account(4, 3, &members);
    learner.build = "2".to_owned();
    let second = account(2, 10, &members);
    let answers = BTreeMap::from([(1, Ok(leader.clone())), (2, Ok(second)), (4, Ok(learner))]);
    let text = table(&leader, &leader, answers).warnings.join("\n");
    for said in [
        "member 4 does not vote yet",
        "a membership change is incomplete",
        "2 voters tolerate no more failures than 1",
        "different builds: 1, 2",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}
