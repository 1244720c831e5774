#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_quorum_types::{
    Command, Outcome, ProjectPath, UnixMillis,
    command::{Principal, Privilege, SCHEMA},
};

fn command(name: &str, bytes: usize) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: name.to_owned(),
            privilege: Privilege::Admin,
        },
        key: None,
        at: UnixMillis(1),
        fence: None,
        command: Command::CreateProject {
            path: ProjectPath::new("atlas").unwrap(),
            limits: None,
            admins: Vec::new(),
            description: "x".repeat(bytes),
        },
    }
}

fn names(batch: &[Proposal]) -> Vec<&str> {
    batch
        .iter()
        .flat_map(|p| &p.envelopes)
        .map(|e| e.principal.name.as_str())
        .collect()
}

fn applied(revision: u64) -> Result<Applied, Refusal> {
    Ok(Applied {
        revision: Revision(revision),
        outcome: Outcome::Done,
        events: Vec::new(),
    })
}

fn refusal() -> Refusal {
    let key = "k".to_owned();
    Refusal::KeyReused { key }
}

#[tokio::test]
async fn what_waits_becomes_one_batch_in_order_up_to_the_bounds() {
    let (proposals, mut queue) = channel();
    let mut held = None;
    let waiting: Vec<_> = (0..1500)
        .map(|i| {
            proposals
                .enqueue(vec![command(&format!("p{i}"), 0)])
                .unwrap()
        })
        .collect();
    let first = gather(&mut queue, &mut held).await.unwrap();
    let second = gather(&mut queue, &mut held).await.unwrap();
    assert_eq!(
        (first.len(), second.len()),
        (MAX_COMMANDS, 1500 - MAX_COMMANDS)
    );
    let expected: Vec<_> = (0..1500).map(|i| format!("p{i}")).collect();
    assert_eq!([names(&first), names(&second)].concat(), expected);
    drop(waiting);

    let waiting: Vec<_> = (0..6)
        .map(|_| proposals.enqueue(vec![command("big", 200 << 10)]).unwrap())
        .collect();
    for _ in 0..3 {
        assert_eq!(gather(&mut queue, &mut held).await.unwrap().len(), 2);
    }
    drop(waiting);
}

#[tokio::test]
async fn one_proposal_stays_together_even_when_it_is_too_large_for_a_batch() {
    let (proposals, mut queue) = channel();
    let mut held = None;
    let small = proposals.enqueue(vec![command("small", 0)]).unwrap();
    let large = (0..2000).map(|_| command("large", 0)).collect();
    let large = proposals.enqueue(large).unwrap();
    assert_eq!(gather(&mut queue, &mut held).await.unwrap().len(), 1);
    let batch = gather(&mut queue, &mut held).await.unwrap();
    assert_eq!((batch.len(), names(&batch).len()), (1, 2000));
    drop((small, large));
}

#[tokio::test]
async fn abandoned_request_is_not_proposed() {
    let (proposals, mut queue) = channel();
    let gone = proposals.enqueue(vec![command("gone", 0)]).unwrap();
    let here = proposals.enqueue(vec![command("here", 0)]).unwrap();
    drop(gone);
    let batch = gather(&mut queue, &mut None).await.unwrap();
    assert_eq!(names(&batch), ["here"]);
    drop(here);
}

#[tokio::test]
async fn a_full_queue_turns_proposers_away_until_there_is_room() {
    let (proposals, mut queue) = channel();
    let list = |n: usize| (0..n).map(|_| command("p", 0)).collect::<Vec<_>>();
    let waiting: Vec<_> = (0..MAX_WAITING / 512)
        .map(|_| proposals.enqueue(list(512)).unwrap())
        .collect();
    let refused = proposals.enqueue(list(1)).map(|_| ());
    assert_eq!(refused, Err(Unavailable::Busy));
    drop(gather(&mut queue, &mut None).await);
    let room = proposals.enqueue(list(512));
    assert!(room.is_ok());
    drop(waiting);
}

#[tokio::test]
async fn each_proposer_gets_its_own_results() {
    let (first, mine) = oneshot::channel();
    let (second, yours) = oneshot::channel();
    let judged = vec![
        vec![
            ValidatedCommand::Admitted(Revision(4)),
            ValidatedCommand::Refused(refusal()),
        ],
        vec![ValidatedCommand::Admitted(Revision(5))],
    ];
    let as_foreseen = answer(vec![first, second], judged, vec![applied(4), applied(5)]);
    assert!(as_foreseen);
    assert_eq!(mine.await.unwrap(), Ok(vec![applied(4), Err(refusal())]));
    assert_eq!(yours.await.unwrap(), Ok(vec![applied(5)]));
}

#[tokio::test]
async fn a_result_that_was_not_foreseen_is_noticed_and_still_answered() {
    for (found, foreseen) in [
        (applied(4), true),
        (applied(9), false),
        (Err(refusal()), false),
    ] {
        let (done, answered) = oneshot::channel();
        let judged = vec![vec![ValidatedCommand::Admitted(Revision(4))]];
        assert_eq!(answer(vec![done], judged, vec![found.clone()]), foreseen);
        assert_eq!(answered.await.unwrap(), Ok(vec![found]));
    }
}
