//! Test support: authority, credentials and endpoints of a cluster on loopback.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support"
)]

pub mod raw;
pub mod renewal;
pub mod resuming;
pub mod trust;

use futures::future::BoxFuture;
use lattice_mesh::{
    Authority, Clock, Credentials, EnrolRefused, EnrolRequest, Enroller, HandlerFailed, Issued,
    Mesh, MeshConfig, Role, Router, Rpc, StreamRpc, SystemClock, Validity,
};
use lattice_quorum_types::UnixMillis;
use serde::{Deserialize, Serialize};
use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

pub const DAY: Duration = Duration::from_secs(86_400);
/// Timeout longer than any operation in these tests takes on a busy machine.
pub const SHORT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Echo {
    pub text: String,
}
impl Rpc for Echo {
    const METHOD: &'static str = "test.echo";
    const CALLERS: &'static [Role] = &[Role::Agent, Role::Control];
    type Reply = String;
}

/// RPC that no endpoint serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unserved;
impl Rpc for Unserved {
    const METHOD: &'static str = "test.unserved";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Reply = ();
}

/// RPC without an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hang;
impl Rpc for Hang {
    const METHOD: &'static str = "test.hang";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Reply = ();
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Break {
    pub panic: bool,
}
impl Rpc for Break {
    const METHOD: &'static str = "test.break";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Reply = ();
}

/// RPC with the name of [`Echo`] and another body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EchoOfAnotherVersion {
    pub number: u64,
}
impl Rpc for EchoOfAnotherVersion {
    const METHOD: &'static str = "test.echo";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Reply = String;
}

/// Counts from 0 to `until`, or without end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Count {
    pub until: Option<u64>,
}
impl StreamRpc for Count {
    const METHOD: &'static str = "test.count";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Item = u64;
}

/// Clock that tests set.
#[derive(Debug, Default)]
pub struct SetClock(pub AtomicU64);
impl Clock for SetClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
}

pub fn today() -> Validity {
    Validity::from_now(SystemClock.now(), DAY)
}

pub fn authority(cluster: &str) -> Authority {
    Authority::create(cluster, today()).unwrap()
}

pub fn credentials(authority: &Authority, cluster: &str, role: Role, id: &str) -> Credentials {
    Credentials::issued_now(authority, cluster, role, id, DAY).unwrap()
}

pub fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn bind(authority: &Authority, role: Role, id: &str) -> Mesh {
    bind_with(credentials(authority, "demo", role, id), patient())
}

/// Configuration with a long connect timeout: the dialled endpoint may be slow on a busy machine.
pub fn patient() -> MeshConfig {
    MeshConfig {
        connect_timeout: SHORT,
        ..MeshConfig::default()
    }
}

/// Returns an address that no other endpoint of this process uses, so that a released port stays free.
pub fn own_port() -> SocketAddr {
    static TAKEN: AtomicU8 = AtomicU8::new(1);
    let n = TAKEN.fetch_add(1, Ordering::SeqCst);
    SocketAddr::from(([127, 7, 0, n], 0))
}

pub fn bind_with(credentials: Credentials, config: MeshConfig) -> Mesh {
    Mesh::bind(any_port(), credentials, config).unwrap()
}

pub fn router() -> Router {
    Router::new()
        .rpc(|caller, echo: Echo| async move {
            Ok(format!("{} from {}", echo.text, caller.identity.id()))
        })
        .rpc(|_, _: Hang| async move { std::future::pending::<Result<(), HandlerFailed>>().await })
        .rpc(|_, request: Break| async move {
            if request.panic {
                panic!("asked to");
            }
            Err(HandlerFailed::new("asked to"))
        })
        .stream(|_, count: Count, items| async move {
            for n in 0..count.until.unwrap_or(u64::MAX) {
                items.send(&n).await?;
            }
            Ok(())
        })
}

/// Starts a quorum member that serves [`router`].
pub fn serving(authority: &Authority) -> Mesh {
    let mesh = bind(authority, Role::Quorum, "q1");
    mesh.serve(router()).unwrap();
    mesh
}

/// Waits until `probe` holds, with a limit: for states that other tasks produce.
pub async fn until<F: Future<Output = bool>>(what: &str, probe: impl FnMut() -> F) {
    until_within(SHORT, what, probe).await;
}

pub async fn until_within<F: Future<Output = bool>>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) {
    let wait = async {
        while !probe().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(limit, wait).await.expect(what);
}

pub fn echo(text: &str) -> Echo {
    Echo {
        text: text.to_owned(),
    }
}

pub fn arc_clock(ms: u64) -> Arc<SetClock> {
    Arc::new(SetClock(AtomicU64::new(ms)))
}

/// Enroller that refuses every enrolment.
pub struct RefusingEnroller;
impl Enroller for RefusingEnroller {
    fn enrol(&self, _: EnrolRequest, _: SocketAddr) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
        Box::pin(async { Err(EnrolRefused::TokenRefused) })
    }
}
