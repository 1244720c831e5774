//! Kills: SIGKILL of each member in turn, and of all at once.

use super::{PROGRAM, all_there_whoever_leads, others};
use lattice_tests::{
    members::{IDS, Members, caught_up, led},
    recorder::{Recorder, prepare},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_member_is_killed_in_turn_and_then_all_at_once() {
    let mut members = Members::prepare(PROGRAM, "snapshot_every: 300\n");
    members.start_all();
    let client = members.client("c1");
    prepare(&client, &[]).await;
    led(&client, &IDS).await;
    let recorder = Recorder::start(&client, "kills", 16);
    for id in IDS {
        recorder.writes(300).await;
        members.member(id).kill();
        led(&client, &others(id)).await;
        recorder.writes(100).await;
        members.member(id).start();
        caught_up(&client, id).await;
    }
    for _ in 0..2 {
        recorder.writes(200).await;
        members.kill_all();
        members.start_all();
        led(&client, &IDS).await;
    }
    recorder.writes(100).await;
    let acknowledged = recorder.stop().await;
    all_there_whoever_leads(&mut members, &client, &acknowledged).await;
    println!("{} records acknowledged, all there", acknowledged.len());
}
