//! Simulated member: the product's daemon on a simulated disk and network. The daemon is restarted after each end, as
//! systemd does, except when it refuses to start.

use crate::{
    disk::Power,
    observer::MemberObserver,
    simulated_run::{CLUSTER, SimulatedRun},
};
use lattice_mesh::{Identity, Role};
use lattice_quorum::{App, Edges, Platform, Settings, StartError, Workers};
use lattice_quorum_types::{VoterId, membership::MemberStatus};
use parking_lot::Mutex;
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};

/// An order to a member.
pub enum Order {
    /// Cut the power: unsynced data is kept, lost or torn.
    CutPower,
    /// Lose the disk: the member restarts with an empty one.
    LoseDisk,
    /// SIGKILL: written data reaches the disk.
    Kill,
    /// SIGTERM.
    Stop,
    /// Cut the power at the nth operation of the disk.
    CutPowerAt(u64),
    /// Make the next sync fail.
    FailSync,
    /// Report the member's status and log positions.
    Report(oneshot::Sender<MemberReport>),
    /// Report the last applied log index and a digest of the state.
    Digest(oneshot::Sender<(u64, [u8; 32])>),
}

/// Status and log positions of a member.
#[derive(Debug, Clone)]
pub struct MemberReport {
    /// Status, as the member itself reports it.
    pub status: MemberStatus,
    /// Index of the last applied log entry.
    pub applied: u64,
    /// Index of the last log entry in the newest snapshot.
    pub snapshot: u64,
}

/// Handle for orders to a member.
#[derive(Clone)]
pub struct Handle {
    /// Number of the member.
    pub id: VoterId,
    orders: mpsc::UnboundedSender<Order>,
}

impl Handle {
    /// Sends an order.
    pub fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }
    /// Index of the last applied log entry and a digest of the state; `None` while the member is down.
    pub async fn digest(&self) -> Option<(u64, [u8; 32])> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::Digest(answer));
        answered.await.ok()
    }
    /// Status and log positions of the member; `None` while the member is down.
    pub async fn report(&self) -> Option<MemberReport> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::Report(answer));
        answered.await.ok()
    }
}

/// Starts a member.
pub fn run(world: Arc<SimulatedRun>, nth: usize) -> Handle {
    let (orders, queue) = mpsc::unbounded_channel();
    let id = world.members[nth].0;
    tokio::spawn(run_with_restarts(world, nth, queue));
    Handle { id, orders }
}

/// Reason for the end of a member process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    PowerCut,
    DiskLost,
    Killed,
    Stopped,
    /// The daemon could not continue, for example after a disk failure.
    Failed,
    /// The daemon refused to start although the power was on. It is not restarted.
    Refused,
}

async fn run_with_restarts(
    world: Arc<SimulatedRun>,
    nth: usize,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let (id, addr) = world.members[nth];
    let mut rng = lattice_rng::Rng::new(world.seed, &format!("lives {id}"));
    loop {
        let (mounted, power) = world.disks[nth].mount();
        let identity = Identity::new(CLUSTER, Role::Quorum, id.to_string());
        let Ok(identity) = identity else { return };
        let port = world.network.join(addr, identity);
        let ground = {
            let disk = world.disks[nth].clone();
            let observer = MemberObserver {
                world: world.clone(),
                id,
                power: power.clone(),
                at: Mutex::new(None),
            };
            Platform {
                files: Arc::new(mounted),
                workers: Workers::Inline(Arc::new(move || disk.pause())),
                election_offset_ms: Some(rng.range(0, 50)),
                observer: Some(Arc::new(observer)),
                segment_bounds: world.segment_bounds,
            }
        };
        let mut settings = Settings::new(CLUSTER, id, addr, PathBuf::from(format!("/m{id}")));
        settings.members = world.members.iter().copied().collect();
        settings.snapshot_every = world.snapshot_every;
        settings.mesh.wire = Some(port);
        let edges = Edges {
            credentials: SimulatedRun::of_member(id),
            authority: None,
            clock: world.clocks[nth].clone(),
        };
        let starting = async {
            let mut app = App::bind_on(ground, settings, edges).await?;
            app.start(Vec::new()).await?;
            Ok::<_, StartError>(app)
        };
        let started = tokio::select! {
            biased;
            () = power.gone() => None,
            started = starting => Some(started),
        };
        let (app, end) = match started {
            None => (None, End::PowerCut),
            Some(Err(_)) if !power.is_on() => (None, End::PowerCut),
            Some(Err(error)) => {
                world.violation(format!("member {id} does not start: {error}"));
                (None, End::Refused)
            }
            Some(Ok(app)) => {
                world.trace(|| format!("m{id} up"));
                let end = serve(&world, &app, &power, &mut orders).await;
                (Some(app), end)
            }
        };
        world.trace(|| format!("m{id} down: {end:?}"));
        if end == End::Refused {
            return;
        }
        match (end, app) {
            (End::Stopped, Some(app)) => {
                app.stop().await;
                power.cut();
                world.network.leave(addr);
                world.disks[nth].apply_process_end();
            }
            (end, app) => {
                world.network.leave(addr);
                power.cut();
                let is_power = match end {
                    End::PowerCut => true,
                    // The state of the disk after a failed sync is not known.
                    End::Failed => rng.chance(500),
                    _ => false,
                };
                match is_power {
                    _ if end == End::DiskLost => world.disks[nth].wipe(),
                    true => world.disks[nth].apply_power_cut(),
                    false => world.disks[nth].apply_process_end(),
                }
                // Messages that the ended process still sends reach no endpoint.
                if let Some(app) = app {
                    tokio::spawn(app.stop());
                }
            }
        }
        // The absence is short, as of a restarted daemon, or longer, as of a failed host.
        let away_ms = match rng.chance(400) {
            true => rng.range(1, 60),
            false => rng.range(60, 4000),
        };
        let until = Instant::now() + Duration::from_millis(away_ms);
        while Instant::now() < until && !world.faults_ended.load(Relaxed) {
            sleep(Duration::from_millis(5)).await;
            while let Ok(_dropped) = orders.try_recv() {}
        }
    }
}

async fn serve(
    world: &SimulatedRun,
    app: &App,
    power: &Power,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) -> End {
    let mut failed = std::pin::pin!(app.failed());
    loop {
        let order = tokio::select! {
            biased;
            () = power.gone() => return End::PowerCut,
            reason = &mut failed => {
                world.trace(|| format!("{app:?} failed: {reason}"));
                return End::Failed;
            }
            order = orders.recv() => order,
        };
        match order {
            None => return End::Killed,
            Some(Order::CutPower) => return End::PowerCut,
            Some(Order::LoseDisk) => return End::DiskLost,
            Some(Order::Kill) => return End::Killed,
            Some(Order::Stop) => return End::Stopped,
            Some(Order::CutPowerAt(nth)) => power.cut_at(nth),
            Some(Order::FailSync) => power.fail_sync(),
            Some(Order::Report(answer)) => {
                if let (Some(status), Some(account)) = (app.status(), app.account()) {
                    let _ = answer.send(MemberReport {
                        status,
                        applied: app.with_state(|applied, _| applied),
                        snapshot: account.snapshot_index,
                    });
                }
            }
            Some(Order::Digest(answer)) => {
                let _ = answer.send(app.with_state(|applied, state| (applied, state.digest())));
            }
        }
    }
}
