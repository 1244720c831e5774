//! Full disk of a member: the member reports it and ends, and the others continue. With free space the member returns
//! with all data.

use super::{PROGRAM, all_there_whoever_leads, others};
use lattice_tests::{
    disk::Disk,
    members::{IDS, Members, caught_up, led},
    recorder::{Recorder, prepare},
};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_stops_only_its_member() {
    let mut members = Members::prepare(PROGRAM, "snapshot_every: 300\n");
    let mut disks = Vec::new();
    for id in IDS {
        let Some(disk) = Disk::mount(&members.data(id)) else {
            return;
        };
        disks.push(disk);
    }
    members.start_all();
    let client = members.client("c1");
    prepare(&client, &[]).await;
    led(&client, &IDS).await;
    let recorder = Recorder::start(&client, "disk", 8);
    for leads in [false, true] {
        recorder.writes(200).await;
        let (leader, _) = led(&client, &IDS).await;
        let full = match leads {
            true => leader,
            false => others(leader)[0],
        };
        let disk = &disks[full as usize - 1];
        disk.fill();
        let begun = Instant::now();
        let (code, said) = members.ends(full).await;
        let took = begun.elapsed();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("this member cannot continue"), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        led(&client, &others(full)).await;
        recorder.writes(100).await;

        // Without free space the member does not return, or only briefly.
        disk.free();
        members.member(full).start();
        caught_up(&client, full).await;
        println!(
            "{}: ended {} ms after its disk was full; back",
            if leads { "the leader" } else { "a follower" },
            took.as_millis()
        );
    }
    let acknowledged = recorder.stop().await;
    all_there_whoever_leads(&mut members, &client, &acknowledged).await;
    // Processes end before the disk that they write to is unmounted.
    members.kill_all();
}
