//! Control client: sends the executor's reports.

use crate::executor::{Control, NotReported};
use futures::future::BoxFuture;
use lattice_agent_rpc::{Report, ReportAnswer};
use lattice_mesh::{ExpectedIdentity, Mesh, Peer, Role};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Timeout of one report to one control: a commit takes milliseconds, an election one or two seconds.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients of all configured controls. A report goes first to the control that answered last.
#[derive(Debug)]
pub(crate) struct Controls {
    peers: Vec<Peer>,
    preferred: AtomicUsize,
}

impl Controls {
    pub(crate) fn new(mesh: &Mesh, addrs: &[SocketAddr]) -> Self {
        let peers = addrs
            .iter()
            .map(|addr| mesh.peer(*addr, ExpectedIdentity::role(Role::Control)));
        Self {
            peers: peers.collect(),
            preferred: AtomicUsize::new(0),
        }
    }

    async fn send_report(&self, report: Report) -> Result<ReportAnswer, NotReported> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut reason = "no control is configured".to_owned();
        for turn in 0..self.peers.len() {
            let n = (first + turn) % self.peers.len();
            let Some(peer) = self.peers.get(n) else {
                continue;
            };
            match peer.call(&report, REPORT_TIMEOUT).await {
                Ok(Ok(answer)) => {
                    self.preferred.store(n, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(unavailable)) => reason = unavailable.to_string(),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(NotReported { reason })
    }
}

impl Control for Controls {
    fn report(&self, report: Report) -> BoxFuture<'_, Result<ReportAnswer, NotReported>> {
        Box::pin(self.send_report(report))
    }
}
