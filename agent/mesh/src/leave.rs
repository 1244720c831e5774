//! Leaving a connection that was made under earlier credentials, without cutting anything short.
//!
//! A renewal makes a new connection for what is new, and what runs on the old one goes on. Were the
//! old one left alone, everyone would have two connections with everyone for a third of a
//! certificate's life. So who has renewed tells the other end to begin nothing more on it
//! (`mesh.leave`), and closes it when nothing has run on it for a while.

use crate::{
    endpoint::{CLOSE_RENEWED, Core, Link},
    wire::{LEAVE, Status, read_frame, request_bytes},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Between two looks at whether something runs. Nothing at two looks in a row is the end: what
/// the other end began before it was told has arrived by then.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// So many connections are left at once, and then one more each time: a control has one with
/// every agent, and each that is left is dialled anew.
const AT_ONCE: u32 = 64;
const THEN_EVERY: Duration = Duration::from_millis(10);
/// The other end answers within this time, or is of a version that knows no leaving.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Counts what runs on a connection: our calls and streams, and those we answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses(Arc<AtomicUsize>);

/// One thing that runs.
#[derive(Debug)]
pub(crate) struct Use(Arc<AtomicUsize>);

impl Uses {
    pub(crate) fn begin(&self) -> Use {
        self.0.fetch_add(1, Ordering::AcqRel);
        Use(self.0.clone())
    }

    fn none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Core {
    /// Begins to leave connections that are not of the present generation.
    pub(crate) fn leave(self: &Arc<Self>, links: impl IntoIterator<Item = Link>) {
        for (n, link) in (0u32..).zip(links) {
            let wait = THEN_EVERY * n.saturating_sub(AT_ONCE);
            if wait.is_zero() {
                link.distrusted.store(true, Ordering::Relaxed);
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
    link.distrusted.store(true, Ordering::Relaxed);
    let told = async {
        let (mut send, mut recv) = link.connection.open_bi().await.ok()?;
        send.write_all(&request_bytes(LEAVE, &[])).await.ok()?;
        let _ = send.finish();
        match read_frame(&mut recv, 1024).await {
            Ok((Status::Item, _)) => Some(()),
            _ => None,
        }
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, told).await {
        Ok(Some(())) => {}
        // It closes by itself when the certificate ends.
        _ => return,
    }
    let mut idle_looks = 0;
    while idle_looks < 2 {
        tokio::select! {
            _ = link.connection.closed() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        idle_looks = if link.uses.none() { idle_looks + 1 } else { 0 };
    }
    link.connection
        .close(CLOSE_RENEWED.into(), b"replaced by a newer connection");
}
