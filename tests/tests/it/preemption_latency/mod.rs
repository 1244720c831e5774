//! Preemption latency: a job of a higher class waits for a node with a victim that first writes a checkpoint of known
//! length. The test measures the time from the submit until the job's process runs, and the part of it beyond the
//! checkpoint. Prints a table of medians; `LATTICE_OUTPUT=json` prints one object.
//!
//! `LATTICE_WRITE_MS` lists the checkpoint lengths, `LATTICE_ROUNDS` is the number of rounds for each.

mod round;

use lattice_quorum_types::{
    Command, Envelope, VclusterName,
    command::{Principal, Privilege, SCHEMA},
    scheduler::{CheckpointPatch, PreemptionPatch, SchedulerPatch, SettingPatch},
    vcluster::VclusterPatch,
};
use lattice_tests::{
    programs, service,
    site::{Plan, Site},
};
use round::{Round, play};
use serde_json::json;
use std::time::Duration;

const NODE: &str = "m01";
/// Settings with immediate preemption, also for very short jobs.
fn settings() -> SchedulerPatch {
    SchedulerPatch {
        preemption: PreemptionPatch {
            patience_ms: SettingPatch::Set(0),
            near_completion_ms: SettingPatch::Set(0),
            thrash_interval_ms: SettingPatch::Set(0),
            ..PreemptionPatch::default()
        },
        checkpoint: CheckpointPatch {
            timeout_ms: SettingPatch::Set(60_000),
            ..CheckpointPatch::default()
        },
        ..SchedulerPatch::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_higher_class_starts_when_the_checkpoint_of_a_lower_one_is_written() {
    let given = |name: &str, otherwise: &str| std::env::var(name).unwrap_or(otherwise.to_owned());
    let lengths = given("LATTICE_WRITE_MS", "0 1000");
    let lengths = lengths.split_whitespace().map(|ms| ms.parse().unwrap());
    let rounds: usize = given("LATTICE_ROUNDS", "1").parse().unwrap();
    let site = Site::found(programs!(), &Plan::with_agents([NODE])).await;
    let folder = site.path("rounds");
    std::fs::create_dir(&folder).unwrap();
    lattice_tests::open_to_others(&folder);
    makes_room(&site).await;
    let mut rows = Vec::new();
    for length in lengths.map(Duration::from_millis) {
        let mut of_length = Vec::new();
        for _ in 0..rounds {
            of_length.push(play(&site, length).await);
        }
        rows.push((length, of_length));
    }
    print(&rows);
    site.leaves_nothing().await;
}

/// Sends an administrator's command to the quorum, for settings without another interface.
async fn makes_room(site: &Site) {
    let envelope = Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "ada".to_owned(),
            privilege: Privilege::Admin,
        },
        key: None,
        at: service::now(),
        fence: None,
        command: Command::SetScheduler {
            vcluster: VclusterName::new("default").unwrap(),
            change: Box::new(VclusterPatch::default()),
            settings: Box::new(settings()),
            expected_version: None,
        },
    };
    site.observer().propose(envelope).await.unwrap();
}

/// Title of a column, with its value of a round.
type Column = (&'static str, fn(&Round) -> Duration);

fn print(rows: &[(Duration, Vec<Round>)]) {
    let columns: [Column; 6] = [
        ("submit to process", |round| round.runs),
        ("checkpoint", Round::length),
        ("ours", Round::ours),
        ("asked after", |round| round.begun),
        ("written to process", |round| round.runs - round.written),
        ("alone", |round| round.alone),
    ];
    let median = |of: &[Round], what: fn(&Round) -> Duration| {
        let mut all: Vec<Duration> = of.iter().map(what).collect();
        all.sort();
        all[all.len() / 2].as_millis()
    };
    if std::env::var("LATTICE_OUTPUT").is_ok_and(|format| format == "json") {
        let row = |(length, of): &(Duration, Vec<Round>)| {
            let values = columns.iter();
            let values: serde_json::Map<_, _> = values
                .map(|(name, what)| ((*name).to_owned(), json!(median(of, *what))))
                .collect();
            json!({"write_ms": length.as_millis(), "rounds": of.len(), "median_ms": values})
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        return println!("{}", json!({ "making_room": rows }));
    }
    let names: Vec<String> = columns
        .iter()
        .map(|(name, _)| format!("{name:>20}"))
        .collect();
    println!("{:>10} {:>7}{}", "write ms", "rounds", names.concat());
    for (length, of) in rows {
        let values: Vec<String> = columns
            .iter()
            .map(|(_, what)| format!("{:>20}", median(of, *what)))
            .collect();
        println!(
            "{:>10} {:>7}{}",
            length.as_millis(),
            of.len(),
            values.concat()
        );
    }
}
