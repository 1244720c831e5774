#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_hwprobe::{Class, ClassMark, NvmlSource};
use std::path::{Path, PathBuf};

const NEVER: Duration = Duration::from_secs(3600);

/// A node whose kernel has all that is required.
fn write(root: &Path, command_line: &str) {
    std::fs::write(root.join("proc/cmdline"), format!("{command_line}\n")).unwrap();
}

fn settings(root: &Path, confirm_after: Duration, fresh_for: Duration) -> ProbeSettings {
    let from: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts/gpu101");
    let copied = std::process::Command::new("cp")
        .args(["-a", "-T"])
        .args([&from, root])
        .status();
    assert!(copied.unwrap().success());
    write(root, "quiet");
    ProbeSettings {
        host: Host::new(root, NvmlSource::Disabled),
        interval: NEVER,
        confirm_after,
        fresh_for,
    }
}

/// A running prober that has read once.
async fn running(settings: ProbeSettings) -> (NodeView, watch::Receiver<Announcement>, impl Drop) {
    let prober = Prober::new(settings, Publication::new("n1".to_owned(), None));
    let (view, mut announcements) = (prober.view(), prober.announcements());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(prober.run());
    let read = announcements.wait_for(|now| now.document.is_some());
    read.await.unwrap();
    (view, announcements, tasks)
}

fn kernel(announcements: &watch::Receiver<Announcement>) -> ClassMark {
    announcements.borrow().marks[&Class::Kernel]
}

#[tokio::test]
async fn a_read_on_demand_is_shared_while_it_is_fresh() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), NEVER, NEVER);
    let (view, _announcements, _running) = running(settings).await;
    let first = view.latest().await.unwrap();
    let (a, b) = tokio::join!(view.fresh(), view.fresh());
    for answer in [a.unwrap(), b.unwrap()] {
        // The very same bytes: each read measures its own durations into new ones.
        assert_eq!(answer.as_ptr(), first.as_ptr());
    }
}

#[tokio::test]
async fn a_read_on_demand_is_made_when_the_last_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), NEVER, Duration::ZERO);
    let (view, _announcements, _running) = running(settings).await;
    let first = view.latest().await.unwrap();
    let second = view.fresh().await.unwrap();
    assert_ne!(second.as_ptr(), first.as_ptr());
    assert_eq!(view.latest().await.unwrap(), second);
}

#[tokio::test]
async fn asking_again_and_again_confirms_no_change_before_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), NEVER, Duration::ZERO);
    let (view, announcements, _running) = running(settings).await;
    let before = kernel(&announcements);
    write(folder.path(), "mitigations=off");
    for _ in 0..3 {
        let bytes = view.fresh().await.unwrap();
        let read: Inventory = serde_json::from_slice(&bytes).unwrap();
        assert_ne!(read.marks()[&Class::Kernel], before);
    }
    assert_eq!(kernel(&announcements), before);
}

#[tokio::test]
async fn a_change_seen_on_demand_is_confirmed_at_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), Duration::from_millis(200), Duration::ZERO);
    let (view, mut announcements, _running) = running(settings).await;
    let before = kernel(&announcements);
    write(folder.path(), "mitigations=off");
    view.fresh().await.unwrap();
    assert_eq!(kernel(&announcements), before);
    let confirmed = announcements.wait_for(|now| now.marks[&Class::Kernel] != before);
    tokio::time::timeout(Duration::from_secs(20), confirmed)
        .await
        .unwrap()
        .unwrap();
}
