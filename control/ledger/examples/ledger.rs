//! Cost of a usage ledger: reads a year of allocations, queries them, and adds them again record by record.
//!
//! `cargo run --profile dist -p lattice-ledger --example ledger -- [ALLOCATIONS]`
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "an example, which measures time"
)]

use lattice_ledger::{Ledger, UsageScope};
use lattice_quorum_types::{
    AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    usage_record::{AccountedAllocation, UsagePeriod, UsageRecord, UsageRecordKind},
};
use lattice_rng::Mmix;
use std::time::Instant;

const DAY: u64 = 86_400_000;
const NODES: u64 = 10_000;
const TENANTS: u64 = 200;
const USERS: u64 = 2_000;

fn facts(allocations: u64) -> Vec<UsageRecord> {
    let mut random = Mmix::new(1);
    let nodes: Vec<NodeId> = (0..NODES)
        .map(|n| NodeId::new(format!("gpu{n:05}")).unwrap())
        .collect();
    let mut kinds = Vec::new();
    for id in 1..=allocations {
        let from = UnixMillis(id * 365 * DAY / allocations);
        let until = from.after(60_000 + random.below(12 * 3_600_000));
        let tenant = random.below(TENANTS);
        // Each user belongs to few projects.
        let user = tenant * (USERS / TENANTS) + random.below(USERS / TENANTS);
        let work = AccountedAllocation {
            allocation: AllocationId(id),
            attempt: 1,
            user: format!("user{user:04}"),
            project: ProjectPath::new(format!("t{tenant:03}/p{}", random.below(10))).unwrap(),
            vcluster: VclusterName::new("batch").unwrap(),
            sensitive: false,
        };
        let first = random.below(NODES - 16);
        let count = 1 << random.below(5);
        let on: Vec<NodeId> = nodes[first as usize..(first + count) as usize].to_vec();
        kinds.push((
            from,
            UsageRecordKind::Started {
                work: work.clone(),
                nodes: on.clone(),
                walltime_ms: None,
            },
        ));
        let uses = vec![UsagePeriod {
            nodes: on,
            from,
            until,
        }];
        kinds.push((
            until,
            UsageRecordKind::Completed {
                work,
                state: AllocationState::Completed,
                cause: None,
                started_at: Some(from),
                uses,
                node_ms: 0,
            },
        ));
    }
    kinds.sort_by_key(|(at, _)| *at);
    let numbered = (1..).zip(kinds);
    let fact = |(number, (at, kind))| UsageRecord {
        number,
        revision: Revision(number),
        ordinal: 0,
        at,
        kind,
    };
    numbered.map(fact).collect()
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4_096.0 / f64::from(1 << 20)
}

fn quantiles(mut took: Vec<f64>) -> (f64, f64, f64) {
    took.sort_by(f64::total_cmp);
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    (at(0.5), at(0.99), at(1.0))
}

fn main() {
    let allocations = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let made = facts(allocations);
    let before = resident_mib();
    let mut ledger = Ledger::new(
        UnixMillis(0),
        Vec::new(),
        made.len() as u64,
        made[made.len() - 1].at,
    );
    let begun = Instant::now();
    made.iter().for_each(|fact| ledger.add_ended(fact));
    let read = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    ledger.compute_curves();
    let drawn = begun.elapsed().as_secs_f64();
    let held = resident_mib() - before;
    println!("allocations                  {allocations}");
    println!("initial read                 {read:.2} s");
    println!("curves recomputed            {drawn:.2} s");
    println!(
        "memory                       {held:.0} MiB, {:.0} B per allocation",
        held * f64::from(1 << 20) / allocations as f64
    );

    let now = made[made.len() - 1].at;
    let mut random = Mmix::new(7);
    for (name, days) in [("tenant, 90 days", 90), ("tenant, 365 days", 365)] {
        let took = (0..20_000).map(|_| {
            let tenant = ProjectPath::new(format!("t{:03}", random.below(TENANTS))).unwrap();
            let from = UnixMillis(now.0.saturating_sub(days * DAY));
            let begun = Instant::now();
            let used = ledger.usage(UsageScope::Tenant(&tenant), from, now);
            let took = begun.elapsed().as_secs_f64() * 1e6;
            assert!(used.work.node_ms > 0);
            took
        });
        let (p50, p99, most) = quantiles(took.collect());
        println!("{name:<28} p50 {p50:.1} us, p99 {p99:.1} us, most {most:.0} us");
    }
    let took = (0..20_000).map(|_| {
        let user = format!("user{:04}", random.below(USERS));
        let from = UnixMillis(now.0.saturating_sub(90 * DAY));
        let begun = Instant::now();
        let used = ledger.usage_by_tenant(&user, from, now);
        let took = begun.elapsed().as_secs_f64() * 1e6;
        assert!(used.len() <= 1);
        took
    });
    let (p50, p99, most) = quantiles(took.collect());
    println!("user, 90 days                p50 {p50:.1} us, p99 {p99:.1} us, most {most:.0} us");
    let took = (0..200).map(|_| {
        let begun = Instant::now();
        let totals = ledger.totals(UnixMillis(now.0 - 30 * DAY), now);
        let took = begun.elapsed().as_secs_f64() * 1e6;
        assert!(!totals.is_empty());
        took
    });
    let (p50, p99, most) = quantiles(took.collect());
    println!("every project, a month       p50 {p50:.0} us, p99 {p99:.0} us, most {most:.0} us");

    let mut live = Ledger::new(UnixMillis(0), Vec::new(), 0, UnixMillis(0));
    live.compute_curves();
    let begun = Instant::now();
    made.iter().for_each(|fact| live.add(fact));
    let noted = begun.elapsed().as_secs_f64();
    println!(
        "added one by one             {:.0} records/s",
        made.len() as f64 / noted
    );
}
