//! Submits per second with many registered nodes and many pending allocations, on real daemons: three members, one
//! control, the SDK over TLS. Prints a table; `LATTICE_OUTPUT=json` prints one object.
//!
//! `LATTICE_NODES` and `LATTICE_PENDING` are the numbers of nodes and pending allocations, `LATTICE_SUBMITS` the number
//! of timed submits, and `LATTICE_WRITERS` the number of concurrent submits.

use futures::{StreamExt as _, stream};
use lattice_api::AllocationRequest;
use lattice_client::SubmitOptions;
use lattice_mesh::{Clock as _, SystemClock};
use lattice_quorum_types::{
    Command, Envelope, NodeId, VclusterName,
    command::{Principal, Privilege, SCHEMA},
};
use lattice_tests::{
    programs,
    site::{PROJECT, Plan, Site},
    wait::eventually,
};
use serde_json::json;
use std::{
    fs,
    time::{Duration, Instant},
};

/// Unit of the kernel's processor times: USER_HZ is 100 on every Linux.
const TICK_MS: u64 = 10;

fn number(name: &str, otherwise: usize) -> usize {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submits_are_taken_while_many_wait() {
    let nodes = number("LATTICE_NODES", 50);
    let pending = number("LATTICE_PENDING", 200);
    let submits = number("LATTICE_SUBMITS", 200);
    let writers = number("LATTICE_WRITERS", 64);
    let plan = Plan {
        voters: 3,
        controls: 1,
        ..Plan::default()
    };
    let site = Site::found(programs!(), &plan).await;
    register(&site, nodes).await;
    submit(&site, pending, writers).await;
    let waits = async |count: usize| {
        let hot = site.observer().hot().await?;
        (hot.allocations.len() == count && hot.nodes.len() == nodes).then_some(())
    };
    eventually("all wait", || waits(pending)).await;

    let costs = || -> Vec<u64> { processes(&site).map(|(_, pid)| cpu_ms(pid)).collect() };
    let before = costs();
    let begun = Instant::now();
    let mut took = submit(&site, submits, writers).await;
    let all = begun.elapsed();
    let after = costs();
    eventually("all wait", || waits(pending + submits)).await;

    took.sort_unstable();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    let rate = submits as f64 / all.as_secs_f64();
    let names: Vec<_> = processes(&site).map(|(name, _)| name).collect();
    let used = after.iter().zip(&before).map(|(after, before)| {
        // Microseconds of processor time per submit.
        (after - before) as f64 * 1e3 / submits as f64
    });
    let used: Vec<(String, f64)> = names.into_iter().zip(used).collect();
    match std::env::var("LATTICE_OUTPUT").as_deref() {
        Ok("json") => {
            let used: serde_json::Map<_, _> = used
                .into_iter()
                .map(|(name, us)| (name, us.into()))
                .collect();
            println!(
                "{}",
                json!({"nodes": nodes, "pending": pending, "submits": submits, "writers": writers,
                    "per_second": rate, "p50_ms": at(0.5), "p99_ms": at(0.99), "cpu_us_each": used})
            );
        }
        _ => {
            println!("{nodes} nodes, {pending} pending, {submits} submits, {writers} at a time");
            println!("{rate:.0}/s, p50 {:.1} ms, p99 {:.1} ms", at(0.5), at(0.99));
            for (name, us) in used {
                println!("{name:>12} {us:>8.0} us of processor time each");
            }
        }
    }
}

/// Registers nodes without agents, so all submitted allocations wait for them.
async fn register(site: &Site, nodes: usize) {
    let observer = site.observer();
    let registers = (1..=nodes).map(|n| {
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "root".to_owned(),
                privilege: Privilege::Admin,
            },
            key: None,
            at: SystemClock.now(),
            fence: None,
            command: Command::RegisterNode {
                node: NodeId::new(format!("n{n:05}")).unwrap(),
                vcluster: VclusterName::new("default").unwrap(),
            },
        };
        let observer = &observer;
        async move { observer.propose(envelope).await.unwrap() }
    });
    let mut registers = stream::iter(registers).buffer_unordered(64);
    while registers.next().await.is_some() {}
}

/// Submits allocations and returns the latency of each.
async fn submit(site: &Site, count: usize, writers: usize) -> Vec<Duration> {
    let request = AllocationRequest {
        project: PROJECT.to_owned(),
        nodes: 1,
        script: Some("#!/bin/sh\\nexec ./train\\n".to_owned()),
        walltime: Some("4h".to_owned()),
        ..AllocationRequest::default()
    };
    let submits = (0..count).map(|_| {
        let (api, request) = (site.api().clone(), &request);
        async move {
            let begun = Instant::now();
            let submitted = api.submit(request, SubmitOptions::default()).await;
            assert!(submitted.unwrap().id.is_some());
            begun.elapsed()
        }
    });
    stream::iter(submits)
        .buffer_unordered(writers)
        .collect()
        .await
}

fn processes(site: &Site) -> impl Iterator<Item = (String, u32)> {
    let daemons = site.quorum.iter().chain(&site.controls);
    let daemons = daemons.map(|daemon| (daemon.name().to_owned(), daemon.pid()));
    daemons.chain([("who submits".to_owned(), std::process::id())])
}

fn cpu_ms(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // After the name, which may contain blanks, utime and stime are the 12th and the 13th field.
    let behind = stat.rsplit_once(')').unwrap().1;
    let times = behind.split_whitespace().skip(11).take(2);
    times
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum::<u64>()
        * TICK_MS
}
