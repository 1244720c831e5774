//! Notices on standard error about waits: what a command waits for, once the wait is longer than 2 s.
//!
//! One thread watches the requests of the command's client, so that every request of every command is covered. Streams
//! are read through [`next_item`], and any other wait is awaited through [`noticed`].

use crate::terminal;
use futures::{Stream, StreamExt as _};
use lattice_client::{Client, PendingRequest};
use std::{
    pin::pin,
    thread,
    time::{Duration, Instant},
};

/// Wait before the first notice.
const FIRST_NOTICE: Duration = Duration::from_secs(2);
/// Time between two further notices about one wait.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two checks of the pending requests.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Times of the notices about one wait.
#[derive(Debug, Clone, Copy)]
pub struct NoticeTimes {
    since: Instant,
    due_at: Instant,
}

impl NoticeTimes {
    /// Creates the times for a wait that began at `since`.
    pub fn new(since: Instant) -> Self {
        Self {
            since,
            due_at: since + FIRST_NOTICE,
        }
    }

    /// Returns the time until the next notice.
    fn until_due(&self, now: Instant) -> Duration {
        self.due_at.saturating_duration_since(now)
    }

    /// Returns the length of the wait if a notice is due now.
    fn take_due(&mut self, now: Instant) -> Option<Duration> {
        if now < self.due_at {
            return None;
        }
        self.due_at = now + NOTICE_INTERVAL;
        Some(now.saturating_duration_since(self.since))
    }

    /// Returns the notice if one is due at `now`. `what` describes what is waited for.
    fn due(&mut self, now: Instant, what: impl Fn() -> String) -> Option<String> {
        let waited = self.take_due(now)?;
        Some(format!("waiting for {} ({} s)", what(), waited.as_secs()))
    }

    /// Prints the notice if one is due. `what` describes what is waited for.
    pub fn print_due(&mut self, what: impl Fn() -> String) {
        if let Some(notice) = self.due(Instant::now(), what) {
            terminal::message!("{notice}");
        }
    }
}

/// Describes the answer that a request waits for.
fn awaited(method: &str, path: &str) -> String {
    let path = path.strip_prefix("/api/v1/").unwrap_or(path);
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match (method, segments.as_slice()) {
        ("POST", ["allocations"] | ["dags"]) => "the quorum to accept the submit".to_owned(),
        ("POST", ["nodes", node, "undrain"]) => {
            format!("the checks before {node} returns to service")
        }
        ("POST", ["nodes", node, "reprobe"]) => format!("{node} to probe its hardware"),
        ("POST", ["quorum", "backup"]) => "the quorum to begin the backup".to_owned(),
        ("GET", ["quorum"]) => "the quorum members to report their state".to_owned(),
        ("GET", _) => "the answer".to_owned(),
        _ => "the quorum to commit the change".to_owned(),
    }
}

/// Returns the notice about a request that has waited for `waited`.
fn notice(server: &str, request: &PendingRequest, waited: Duration) -> String {
    format!(
        "waiting for {} ({} {} at {server}, {} s)",
        awaited(&request.method, &request.path),
        request.method,
        request.path,
        waited.as_secs()
    )
}

/// Notices about the pending requests of a client: at most one at a time, about the oldest.
#[derive(Debug, Default)]
struct RequestNotices {
    /// Number of the request, and the times of its notices.
    current: Option<(u64, NoticeTimes)>,
}

impl RequestNotices {
    /// Returns the notice that is due at `now` while `oldest` is the oldest pending request.
    fn due(
        &mut self,
        server: &str,
        oldest: Option<&PendingRequest>,
        now: Instant,
    ) -> Option<String> {
        let Some(oldest) = oldest else {
            self.current = None;
            return None;
        };
        let mut times = match self.current {
            Some((number, times)) if number == oldest.number => times,
            _ => NoticeTimes::new(oldest.since),
        };
        let waited = times.take_due(now);
        self.current = Some((oldest.number, times));
        Some(notice(server, oldest, waited?))
    }
}

/// Starts the thread that prints notices about the requests of `client` and its clones. The thread ends with the
/// process.
pub fn watch_requests(client: &Client) {
    let (client, server) = (client.clone(), client.url().origin().ascii_serialization());
    let watch = move || {
        let mut notices = RequestNotices::default();
        loop {
            thread::sleep(CHECK_INTERVAL);
            let oldest = client.oldest_pending();
            if let Some(notice) = notices.due(&server, oldest.as_ref(), Instant::now()) {
                terminal::message!("{notice}");
            }
        }
    };
    // Without the thread only the notices are missing.
    let _ = thread::Builder::new()
        .name("wait-notices".to_owned())
        .spawn(watch);
}

/// Returns the next item of a stream. Prints notices at `times`: `what` describes what is waited for.
pub async fn next_item<S: Stream + Unpin>(
    items: &mut S,
    times: &mut NoticeTimes,
    what: impl Fn() -> String,
) -> Option<S::Item> {
    noticed(items.next(), times, what).await
}

/// Returns the result of a wait. Prints notices at `times`: `what` describes what is waited for.
pub async fn noticed<F: Future>(
    wait: F,
    times: &mut NoticeTimes,
    what: impl Fn() -> String,
) -> F::Output {
    let mut wait = pin!(wait);
    loop {
        times.print_due(&what);
        let until_due = times.until_due(Instant::now());
        if let Ok(done) = tokio::time::timeout(until_due, wait.as_mut()).await {
            return done;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn request(number: u64, since: Instant) -> PendingRequest {
        PendingRequest {
            number,
            method: "POST".to_owned(),
            path: "/api/v1/allocations".to_owned(),
            since,
        }
    }

    #[test]
    fn awaited_answers_are_named() {
        for (method, path, text) in [
            (
                "POST",
                "/api/v1/allocations",
                "the quorum to accept the submit",
            ),
            ("POST", "/api/v1/dags", "the quorum to accept the submit"),
            (
                "POST",
                "/api/v1/nodes/gpu007/undrain",
                "the checks before gpu007 returns to service",
            ),
            (
                "POST",
                "/api/v1/nodes/gpu007/reprobe",
                "gpu007 to probe its hardware",
            ),
            (
                "POST",
                "/api/v1/quorum/backup",
                "the quorum to begin the backup",
            ),
            ("GET", "/api/v1/nodes", "the answer"),
            ("GET", "/healthz", "the answer"),
            (
                "DELETE",
                "/api/v1/allocations/7",
                "the quorum to commit the change",
            ),
        ] {
            assert_eq!(awaited(method, path), text);
        }
    }

    #[test]
    fn notices_follow_the_oldest_request() {
        let start = Instant::now();
        let (mut notices, first) = (RequestNotices::default(), request(1, start));
        let due = |notices: &mut RequestNotices, oldest: Option<&PendingRequest>, seconds: u32| {
            notices.due("https://c1:8443", oldest, start + seconds * SECOND)
        };
        assert_eq!(due(&mut notices, None, 0), None);
        assert_eq!(due(&mut notices, Some(&first), 1), None);
        assert_eq!(
            due(&mut notices, Some(&first), 2).unwrap(),
            "waiting for the quorum to accept the submit (POST /api/v1/allocations at https://c1:8443, 2 s)"
        );
        assert_eq!(due(&mut notices, Some(&first), 3), None);
        assert!(
            due(&mut notices, Some(&first), 12)
                .unwrap()
                .ends_with("12 s)")
        );
        assert_eq!(due(&mut notices, None, 13), None);
        // Each request has its own wait: many short requests are no long one.
        let second = request(2, start + 13 * SECOND);
        assert_eq!(due(&mut notices, Some(&second), 14), None);
        assert!(
            due(&mut notices, Some(&second), 15)
                .unwrap()
                .ends_with("2 s)")
        );
    }

    #[test]
    fn steps_with_the_same_times_are_one_wait() {
        let start = Instant::now();
        let mut times = NoticeTimes::new(start);
        let jobs = || "the jobs to end".to_owned();
        assert_eq!(times.due(start + SECOND, jobs), None);
        let first = times.due(start + 2 * SECOND, jobs);
        assert_eq!(first.unwrap(), "waiting for the jobs to end (2 s)");
        let agents = || "24 agents to stop".to_owned();
        assert_eq!(times.due(start + 11 * SECOND, agents), None);
        let second = times.due(start + 12 * SECOND, agents);
        assert_eq!(second.unwrap(), "waiting for 24 agents to stop (12 s)");
    }

    #[tokio::test]
    async fn items_of_a_stream_pass_at_once() {
        let mut items = futures::stream::iter([1, 2]);
        let mut times = NoticeTimes::new(Instant::now());
        let what = || "the rest".to_owned();
        assert_eq!(next_item(&mut items, &mut times, what).await, Some(1));
        assert_eq!(next_item(&mut items, &mut times, what).await, Some(2));
        assert_eq!(next_item(&mut items, &mut times, what).await, None);
    }
}
