#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::node::{HistorySettings, InventoryUnavailable, Limits, Publication};
use lattice_agent_rpc::GetHistory;
use lattice_conformance::history::{Entry, HistoryRecord};
use lattice_conformance::{Class, ClassMark};
use lattice_hwprobe::{NvmlSource, probe_all};
use lattice_mesh::SystemClock;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const NEVER: Duration = Duration::from_secs(3600);

/// Sets the kernel command line of the node in `root`.
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
        device_events: false,
    }
}

/// Dependencies with a history in `folder`, the trigger channel and the publication.
fn surroundings(folder: &Path) -> (ProberDependencies, mpsc::Sender<Cause>, SharedPublication) {
    let publication = Publication::new("n1".to_owned(), None);
    let publication = Arc::new(Mutex::new(publication));
    let (trigger, triggers) = mpsc::channel(1);
    let (history, _) = NodeHistory::open(HistorySettings {
        folder: folder.join("history"),
        limits: Limits::default(),
        new_id: 7,
    });
    let surroundings = ProberDependencies {
        clock: Arc::new(SystemClock),
        boot_id: "boot-1".to_owned(),
        history,
        seed: 1,
        triggers,
    };
    (surroundings, trigger, publication)
}

/// A running prober that has read once.
async fn running(settings: ProbeSettings) -> (NodeView, watch::Receiver<Announcement>, impl Drop) {
    let (surroundings, _, publication) = surroundings(settings.host.root.path());
    running_in(settings, surroundings, publication).await
}

async fn running_in(
    settings: ProbeSettings,
    surroundings: ProberDependencies,
    publication: SharedPublication,
) -> (NodeView, watch::Receiver<Announcement>, impl Drop) {
    let reader = Reader::new(probe_all);
    let prober = Prober::new(settings, reader, publication, surroundings);
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
    let (a, b) = tokio::join!(view.fresh(None), view.fresh(None));
    for answer in [a.unwrap(), b.unwrap()] {
        // The same buffer: a new read would measure other durations.
        assert_eq!(answer.as_ptr(), first.as_ptr());
    }
}

#[tokio::test]
async fn attributes_change_to_recent_request() {
    let mark = |bytes: &[u8]| {
        let read: Inventory = serde_json::from_slice(bytes).unwrap();
        read.marks()[&Class::Kernel]
    };
    // On a busy machine, the last read may be stale by the time of the request; then the test repeats with a longer
    // freshness.
    for fresh_for in [300, 3_000, 20_000].map(Duration::from_millis) {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), NEVER, fresh_for);
        let began = Instant::now();
        let (view, announcements, _running) = running(settings).await;
        let before = kernel(&announcements);
        write(folder.path(), "mitigations=off");
        let ada = || view.fresh(Some("ada".to_owned()));
        let routine = async { (view.fresh(None).await, began.elapsed()) };
        let ((routine, after), asked, also) = tokio::join!(routine, ada(), ada());
        if after >= fresh_for {
            continue;
        }
        assert_eq!(mark(&routine.unwrap()), before);
        let asked = asked.unwrap();
        assert_ne!(mark(&asked), before);
        // One read serves both requests.
        assert_eq!(asked.as_ptr(), also.unwrap().as_ptr());
        return;
    }
    panic!("nobody asked in time");
}

#[tokio::test]
async fn a_read_on_demand_is_made_when_the_last_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), NEVER, Duration::ZERO);
    let (view, _announcements, _running) = running(settings).await;
    let first = view.latest().await.unwrap();
    let second = view.fresh(None).await.unwrap();
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
        let bytes = view.fresh(None).await.unwrap();
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
    view.fresh(None).await.unwrap();
    assert_eq!(kernel(&announcements), before);
    let confirmed = announcements.wait_for(|now| now.marks[&Class::Kernel] != before);
    tokio::time::timeout(Duration::from_secs(30), confirmed)
        .await
        .unwrap()
        .unwrap();
}

/// Entries of the kernel class in the history, written or not.
async fn kernel_entries(history: &NodeHistory) -> Vec<Entry> {
    let wanted = GetHistory {
        since: 0,
        most: 100,
    };
    let page = history.page(wanted).await.unwrap();
    let mut all: Vec<HistoryRecord> = serde_json::from_slice(&page.entries).unwrap();
    let unwritten: Vec<HistoryRecord> = serde_json::from_slice(&page.unwritten).unwrap();
    all.extend(unwritten);
    let of_kernel = |record| match record {
        HistoryRecord::Entry(entry) if entry.class == Class::Kernel => Some(entry),
        _ => None,
    };
    all.into_iter().filter_map(of_kernel).collect()
}

#[tokio::test]
async fn attributes_change_to_requester() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), Duration::from_millis(50), Duration::ZERO);
    let (surroundings, _trigger, publication) = surroundings(folder.path());
    let history = surroundings.history.clone();
    let (view, mut announcements, _running) = running_in(settings, surroundings, publication).await;
    let before = kernel(&announcements);
    write(folder.path(), "mitigations=off");
    view.fresh(Some("alice".to_owned())).await.unwrap();
    let confirmed = announcements.wait_for(|now| now.marks[&Class::Kernel] != before);
    tokio::time::timeout(Duration::from_secs(30), confirmed)
        .await
        .unwrap()
        .unwrap();
    let entries = kernel_entries(&history).await;
    let who = "alice".to_owned();
    let causes: Vec<&Cause> = entries.iter().map(|entry| &entry.cause).collect();
    assert_eq!(causes, [&Cause::First, &Cause::Operator { who }]);
    assert!(
        entries[1]
            .changes
            .iter()
            .any(|change| change.key == "kernel.cmdline"),
        "{:?}",
        entries[1].changes
    );
}

#[tokio::test]
async fn a_trigger_has_the_node_read_at_once_and_is_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), Duration::from_millis(50), Duration::ZERO);
    let (surroundings, trigger, publication) = surroundings(folder.path());
    let history = surroundings.history.clone();
    let (_view, mut announcements, _running) =
        running_in(settings, surroundings, publication).await;
    let before = kernel(&announcements);
    write(folder.path(), "mitigations=off");
    let what = "pci add 0000:17:00.0".to_owned();
    let cause = Cause::DeviceEvent { what };
    trigger.send(cause.clone()).await.unwrap();
    let confirmed = announcements.wait_for(|now| now.marks[&Class::Kernel] != before);
    tokio::time::timeout(Duration::from_secs(30), confirmed)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(kernel_entries(&history).await[1].cause, cause);
}

#[tokio::test]
async fn reports_failed_read_without_retry_loop() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), NEVER, Duration::ZERO);
    let (surroundings, _trigger, publication) = surroundings(folder.path());
    let reads = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&reads);
    let reader = Reader::new(move |host| {
        // The second read fails.
        assert_ne!(counted.fetch_add(1, Ordering::Relaxed), 1, "made to fail");
        probe_all(host)
    });
    let prober = Prober::new(settings, reader, publication, surroundings);
    let view = prober.view();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(prober.run());
    let first = view.latest().await.unwrap();
    let failed = view.fresh(None).await;
    assert_eq!(failed, Err(InventoryUnavailable::Failed));
    assert_eq!(reads.load(Ordering::Relaxed), 2);
    let third = view.fresh(None).await.unwrap();
    assert_ne!(third.as_ptr(), first.as_ptr());
    assert_eq!(reads.load(Ordering::Relaxed), 3);
}
