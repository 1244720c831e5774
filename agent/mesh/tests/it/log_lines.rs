//! Log lines of refusals: bounded for strangers, and one line for a process that was revoked.

use crate::common::{trust::*, *};
use lattice_mesh::{ExpectedIdentity, Mesh, Role};
use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Number of lines with `words`.
    fn count(&self, words: &str) -> usize {
        let text = self.text();
        text.lines().filter(|line| line.contains(words)).count()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Captures the lines of this thread, on which the runtime of a test runs all tasks.
    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let to = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || to.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn refused_handshakes_of_one_source_are_one_line() {
    // With a single dispatcher, the thread of another test that logs first would decide on the interest in a call site,
    // and that thread has no dispatcher.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let log = Log::default();
    let _guard = log.capture();
    let (ours, theirs) = (authority("demo"), authority("demo"));
    let server = bind(&ours, Role::Quorum, "q1");
    server.serve(router()).unwrap();
    for _ in 0..5 {
        let own = credentials(&theirs, "demo", Role::Control, "c1");
        let stranger = bind_with(own, patient());
        let quorum = ExpectedIdentity::role(Role::Quorum);
        let refused = stranger.connect(server.local_addr(), quorum).await;
        assert!(refused.is_err());
    }
    let line = "mesh handshake refused";
    until("the first refusal is logged", || async {
        log.count(line) > 0
    })
    .await;
    assert_eq!(log.count(line), 1, "{}", log.text());
    assert_eq!(log.count("suppressed=0"), 1, "{}", log.text());
}

#[tokio::test]
async fn revoked_process_logs_once_how_to_enrol_again() {
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let log = Log::default();
    let authority = authority("demo");
    let own = credentials(&authority, "demo", Role::Quorum, "q1");
    let server = Mesh::bind(any_port(), own, patient()).unwrap();
    server.serve(router().with_trust_handlers(&server)).unwrap();
    let revoked = bind(&authority, Role::Agent, "gpu007");
    let bundle = signed(1, &authority, &[(&revoked.identity(), ahead(1))]);
    server.apply_bundle(&bundle).unwrap();
    let _guard = log.capture();
    let line = "certificate of this process is revoked";
    for _ in 0..3 {
        let quorum = ExpectedIdentity::role(Role::Quorum);
        let refused = revoked.connect(server.local_addr(), quorum).await;
        assert!(refused.is_err());
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(log.count(line), 1, "{}", log.text());
    let steps = "lattice admin token create --role agent --nodes gpu007 --replace";
    assert_eq!(log.count(steps), 1, "{}", log.text());
    // The bundle that arrives later names the same certificate.
    revoked.apply_bundle(&bundle).unwrap();
    assert_eq!(log.count(line), 1, "{}", log.text());
}
