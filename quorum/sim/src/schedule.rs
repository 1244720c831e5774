//! Fault schedule, determined by the seed.

use crate::{
    member::{Handle, Order},
    network::LinkConditions,
    simulated_run::SimulatedRun,
};
use lattice_rng::Rng;
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::sleep;

/// Largest clock error, milliseconds. All jumps of a run together must stay below the lifetime of idempotency keys, one
/// day.
const MAX_CLOCK_ERROR_MS: u64 = 20 * 60 * 1000;

/// Injects faults one after the other until the simulated time `until`.
pub async fn run(world: Arc<SimulatedRun>, members: Vec<Handle>, until: Duration, outages: bool) {
    let mut rng = Rng::new(world.seed, "faults");
    // In some seeds, outages are the only faults.
    let outages = outages || rng.chance(100);
    while world.elapsed() < until && !world.is_broken() {
        sleep(Duration::from_millis(rng.range(30, 1200))).await;
        let fault = match outages {
            true => outage(&world, &members, &mut rng),
            false => inject_fault(&world, &members, &mut rng),
        };
        world.count(&format!("fault {fault}"));
        world.trace(|| fault.to_owned());
    }
    end_faults(&world);
}

/// Ends all faults.
pub fn end_faults(world: &SimulatedRun) {
    world.trace(|| "faults stop".to_owned());
    world.network.restore_links();
    world.network.set_conditions(LinkConditions::HEALTHY);
    for disk in &world.disks {
        disk.set_pace(200, 1500);
    }
    for clock in &world.clocks {
        clock.set_error_ms(0);
    }
    world.faults_ended.store(true, Relaxed);
}

/// Injects an outage: a power cut of all members, a kill of the leader, or a change between a slow and a healthy
/// network.
fn outage(world: &SimulatedRun, members: &[Handle], rng: &mut Rng) -> &'static str {
    match rng.below(10) {
        0..5 => {
            members.iter().for_each(|m| m.order(Order::CutPower));
            "power cut everywhere"
        }
        5..7 => {
            let leads = |member: &&Handle| Some(member.id) == world.leader();
            let leader = members.iter().find(leads);
            leader.into_iter().for_each(|m| m.order(Order::Kill));
            "killed"
        }
        7..9 => {
            world.network.set_conditions(LinkConditions {
                min_us: 3_000,
                max_us: rng.range(5_000, 40_000),
                ..LinkConditions::HEALTHY
            });
            "network slow"
        }
        _ => {
            world.network.set_conditions(LinkConditions::HEALTHY);
            "network fair again"
        }
    }
}

fn inject_fault(world: &SimulatedRun, members: &[Handle], rng: &mut Rng) -> &'static str {
    let addrs: Vec<SocketAddr> = world.members.iter().map(|(_, addr)| *addr).collect();
    let network = &world.network;
    let victim = rng.below(members.len());
    // Faults of the leader are the most relevant ones.
    let leader = world.leader().map(|id| id as usize - 1);
    let victim = leader.filter(|_| rng.chance(400)).unwrap_or(victim);
    let Some(member) = members.get(victim) else {
        return "none";
    };
    match rng.below(100) {
        0..14 => {
            network.restore_links();
            "links mended"
        }
        14..24 => {
            let side: Vec<bool> = addrs.iter().map(|_| rng.chance(500)).collect();
            for (a, in_a) in addrs.iter().zip(&side) {
                for (b, in_b) in addrs.iter().zip(&side) {
                    if in_a != in_b {
                        network.cut(*a, *b);
                    }
                }
            }
            "partition"
        }
        24..32 => {
            for other in addrs.iter().filter(|other| **other != addrs[victim]) {
                network.cut(addrs[victim], *other);
                network.cut(*other, addrs[victim]);
            }
            "member cut off"
        }
        32..40 => {
            for other in addrs.iter().filter(|other| **other != addrs[victim]) {
                match rng.chance(500) {
                    true => network.cut(addrs[victim], *other),
                    false => network.cut(*other, addrs[victim]),
                }
            }
            "member cut off one way"
        }
        40..44 => {
            let other = rng.below(addrs.len());
            network.cut(addrs[victim], addrs[other]);
            "link cut one way"
        }
        44..52 => {
            member.order(Order::CutPower);
            "power cut"
        }
        52..68 => {
            member.order(Order::CutPowerAt(rng.range(1, 60)));
            "power cut at a write"
        }
        68..71 => {
            member.order(Order::Kill);
            "killed"
        }
        71 => match world.try_lose_disk(member.id) {
            true => {
                member.order(Order::LoseDisk);
                "disk lost"
            }
            false => "none",
        },
        72 => {
            members
                .iter()
                .for_each(|member| member.order(Order::CutPower));
            "power cut everywhere"
        }
        73..75 => {
            member.order(Order::Stop);
            "stopped in order"
        }
        75..78 => {
            member.order(Order::FailSync);
            "sync failed"
        }
        78..84 => {
            match rng.chance(500) {
                true => world.disks[victim].set_pace(5_000, 400_000),
                false => world.disks[victim].set_pace(100, 30_000),
            }
            "disk slow"
        }
        84..87 => {
            world.disks[victim].set_pace(200, 1500);
            "disk quick again"
        }
        87..92 => {
            let clock = rng.below(world.clocks.len());
            let ms = rng.range(0, MAX_CLOCK_ERROR_MS) as i64;
            let ms = if rng.chance(500) { ms } else { -ms };
            world.clocks[clock].set_error_ms(ms);
            "clock jumped"
        }
        92..97 => {
            network.set_conditions(LinkConditions {
                min_us: 100,
                max_us: rng.range(1_000, 120_000),
                late: rng.range(0, 200),
                duplicated: rng.range(0, 150),
                lost: rng.range(0, 150),
            });
            "network bad"
        }
        _ => {
            network.set_conditions(LinkConditions::HEALTHY);
            "network fair again"
        }
    }
}
