//! Retirement of connections made under earlier credentials, without interrupting calls or streams.
//!
//! After a renewal, new calls use a new connection, and running ones finish on the old connection. Without retirement,
//! every pair of processes would hold two connections for a third of a certificate's life. The renewed process
//! therefore sends `mesh.leave`, so that the other end starts nothing more on the old connection. The renewed process
//! closes the old connection once it has been idle for a while.

use super::{link::Link, state::Core};
use crate::{
    rpc::frame::{LEAVE, Status, read_frame, request_bytes},
    transport::close::CLOSE_RENEWED,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Interval between two idle checks of an old connection. Two idle checks in a row end the connection: by then, calls
/// that the other end started before it received `mesh.leave` have arrived.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Number of connections that are left at once; the rest follow one per `LEAVE_INTERVAL`. A control holds one
/// connection with every agent, and each connection it leaves is dialled again.
const LEAVE_BURST: u32 = 64;
const LEAVE_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout for the reply to `mesh.leave`. Without a reply, the old connection closes when a certificate expires.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl Core {
    /// Starts to leave `links`, which were made under earlier credentials.
    pub(crate) fn leave(self: &Arc<Self>, links: impl IntoIterator<Item = Link>) {
        for (n, link) in (0u32..).zip(links) {
            let wait = LEAVE_INTERVAL * n.saturating_sub(LEAVE_BURST);
            if wait.is_zero() {
                link.no_new_calls.store(true, Ordering::Relaxed);
            }
            let cancel = self.cancel.clone();
            let leaving = async move {
                tokio::time::sleep(wait).await;
                leave(link).await;
            };
            let leaving = async move { cancel.run_until_cancelled(leaving).await };
            self.tasks.spawn_on(leaving, &self.runtime);
        }
    }
}

async fn leave(link: Link) {
    link.no_new_calls.store(true, Ordering::Relaxed);
    let leave_call = async {
        let (mut send, mut recv) = link.connection.open_bi().await.ok()?;
        send.write_all(&request_bytes(LEAVE, &[])).await.ok()?;
        let _ = send.finish();
        match read_frame(&mut recv, 1024).await {
            Ok((Status::Item, _)) => Some(()),
            _ => None,
        }
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, leave_call).await {
        Ok(Some(())) => {}
        // The connection closes anyway when a certificate from its handshake expires.
        _ => return,
    }
    let mut idle_looks = 0;
    while idle_looks < 2 {
        tokio::select! {
            _ = link.connection.closed() => return,
            () = tokio::time::sleep(IDLE_CHECK_INTERVAL) => {}
        }
        idle_looks = if link.running_calls.is_idle() {
            idle_looks + 1
        } else {
            0
        };
    }
    link.connection
        .close(CLOSE_RENEWED.into(), b"replaced by a newer connection");
}
