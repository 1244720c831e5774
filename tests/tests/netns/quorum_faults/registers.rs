//! Linearizability: an independent checker (`todc-utils`, after Wing, Gong and Lowe) checks histories of registers.
//! Many clients write and read them while members are killed and stopped.
//!
//! A register is the drain reason of one service for a node.

use super::{PROGRAM, others};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Command, NodeId,
    view::{Answer, Query},
};
use lattice_tests::{
    members::{IDS, Members, caught_up, led},
    recorder::{admin, prepare, settle},
    wait::PATIENCE,
};
use rustix::process::Signal;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use todc_utils::{
    linearizability::{
        WGLChecker,
        history::{Action, History},
    },
    specifications::register::{RegisterOperation, RegisterSpecification},
};

const REGISTERS: usize = 6;
/// Number of processes per register; the checker's work grows with the square of the history.
const PROCESSES: usize = 3;
/// Pause between two operations of one process.
const PAUSE: Duration = Duration::from_millis(40);
/// Pause of a leader that is long enough for an election.
const STOPPED: Duration = Duration::from_millis(2500);

type Operation = RegisterOperation<String>;
type Checker = WGLChecker<RegisterSpecification<String>>;

/// Calls and responses in order of time: a call is recorded before it is sent, a response after its arrival.
type CallHistory = Arc<Mutex<Vec<(usize, Action<Operation>)>>>;

fn register(n: usize) -> NodeId {
    NodeId::new(format!("r{n}")).unwrap()
}

async fn write(client: &QuorumClient, node: &NodeId, value: &str) {
    let drain = Command::Drain {
        node: node.clone(),
        reason: Some(value.to_owned()),
        expected: None,
    };
    settle(client, admin(value, drain)).await.unwrap();
}

async fn read(client: &QuorumClient, node: &NodeId) -> String {
    let begun = Instant::now();
    loop {
        match client.read(Query::Hot).await {
            Ok(Answer::Hot(hot)) => {
                let node = hot.nodes.into_iter().find(|found| found.id == *node);
                let drain = node.unwrap().drain.into_iter().next();
                return drain.map_or(String::new(), |drain| drain.reason);
            }
            Err(ClientError::Unavailable { .. }) if begun.elapsed() < PATIENCE => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Alternates between writing a unique value and reading.
async fn run(
    client: QuorumClient,
    n: usize,
    process: usize,
    noted: CallHistory,
    stop: Arc<AtomicBool>,
) {
    let node = register(n);
    for round in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let note = |action| noted.lock().unwrap().push((process, action));
        if (round + process as u64).is_multiple_of(2) {
            let value = format!("r{n}-p{process}-{round}");
            let operation = RegisterOperation::Write(value.clone());
            note(Action::Call(operation.clone()));
            write(&client, &node, &value).await;
            note(Action::Response(operation));
        } else {
            note(Action::Call(RegisterOperation::Read(None)));
            let value = read(&client, &node).await;
            note(Action::Response(RegisterOperation::Read(Some(value))));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Injects each kind of fault once.
async fn faults(members: &mut Members, client: &QuorumClient) {
    let (leader, _) = led(client, &IDS).await;
    members.member(leader).kill();
    led(client, &others(leader)).await;
    members.member(leader).start();
    caught_up(client, leader).await;

    let (leader, _) = led(client, &IDS).await;
    members.member(leader).signal(Signal::STOP);
    tokio::time::sleep(STOPPED).await;
    members.member(leader).signal(Signal::CONT);
    caught_up(client, leader).await;

    let (leader, _) = led(client, &IDS).await;
    members.member(others(leader)[0]).kill();
    tokio::time::sleep(Duration::from_secs(1)).await;
    members.member(others(leader)[0]).start();
    caught_up(client, others(leader)[0]).await;

    members.kill_all();
    members.start_all();
    led(client, &IDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn register_histories_are_linearizable_under_faults() {
    let mut members = Members::prepare(PROGRAM, "snapshot_every: 200\n");
    members.start_all();
    let client = members.client("c1");
    let nodes: Vec<_> = (0..REGISTERS).map(register).collect();
    prepare(&client, &nodes).await;
    led(&client, &IDS).await;
    let stop = Arc::new(AtomicBool::new(false));
    // The clients belong to different services, and each finds the leader by itself.
    let clients: Vec<_> = (0..PROCESSES)
        .map(|process| members.client(&format!("p{process}")))
        .collect();
    let (mut histories, mut running) = (Vec::new(), Vec::new());
    for n in 0..REGISTERS {
        let noted = CallHistory::default();
        histories.push(noted.clone());
        for (process, client) in clients.iter().enumerate() {
            let (noted, stop) = (noted.clone(), stop.clone());
            running.push(tokio::spawn(run(client.clone(), n, process, noted, stop)));
        }
    }
    for _ in 0..2 {
        faults(&mut members, &client).await;
    }
    stop.store(true, Ordering::Relaxed);
    for process in running {
        process.await.unwrap();
    }
    let mut operations = 0;
    for noted in histories {
        let actions = noted.lock().unwrap().clone();
        operations += actions.len() / 2;
        let history = History::from_actions(actions.clone());
        assert!(Checker::is_linearizable(history), "{actions:#?}");
        // Checks the checker: it must reject a last read of a value that was never written.
        let mut stale = actions;
        let last_read = stale.iter_mut().rev().find_map(|(_, action)| match action {
            Action::Response(RegisterOperation::Read(value)) => Some(value),
            _ => None,
        });
        *last_read.unwrap() = Some(String::new());
        assert!(!Checker::is_linearizable(History::from_actions(stale)));
    }
    println!("{operations} operations on {REGISTERS} registers, linearizable");
}
