#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::node::triggers::{KernelNotice, NoticeRecorder};
use crate::node::{HistorySettings, Limits};
use lattice_agent_rpc::GetHistory;
use lattice_conformance::{
    health::{Action, Severity},
    history::{Event, ReasonChange},
};
use lattice_hwprobe::kernel::{
    net::devlink_events::{DevlinkAction, DevlinkEvent},
    uevent::Uevent,
};
use lattice_quorum_types::UnixMillis;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const MINUTE: u64 = 60_000;
const NOW: u64 = 1_795_000_000_000;

/// Clock that stands still until a test moves it.
#[derive(Clone)]
struct Hand(Arc<AtomicU64>);

impl Clock for Hand {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::Relaxed))
    }
}

impl Hand {
    fn forward(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

fn open(folder: &Path, boot: &str, hand: &Hand) -> (NodeEvents, NodeHistory) {
    let (history, restored) = NodeHistory::open(HistorySettings {
        folder: folder.join("history"),
        limits: Limits::default(),
        new_id: 5,
    });
    let mut publication = Publication::new("n1".to_owned(), None);
    let newest = publication.resume(restored);
    let shared = Arc::new(Mutex::new(publication));
    let clock = Arc::new(hand.clone());
    let events = NodeEvents::new(shared, history.clone(), clock, boot.to_owned(), &newest);
    (events, history)
}

fn xid(gpu: u32, number: u32, severity: Severity) -> EventKind {
    EventKind::GpuEvent {
        gpu: format!("gpu.{gpu}"),
        address: format!("0000:{gpu:02x}:00.0"),
        code: format!("gpu.xid.{number}"),
        source: "nvml".to_owned(),
        detail: String::new(),
        severity,
        action: Action::None,
    }
}

async fn written(history: &NodeHistory) -> Vec<(String, u32)> {
    let all = written_since(history, &mut 0).await;
    let of = |event: Event| (event.event.key(), event.count);
    all.into_iter().map(of).collect()
}

/// Events after `since`, which advances to the last of them.
async fn written_since(history: &NodeHistory, since: &mut u64) -> Vec<Event> {
    history.write().await;
    let mut all = Vec::new();
    loop {
        let wanted = GetHistory {
            since: *since,
            most: 1000,
        };
        let page = history.page(wanted).await.unwrap();
        let records: Vec<HistoryRecord> = serde_json::from_slice(&page.entries).unwrap();
        all.extend(records.into_iter().map(|record| match record {
            HistoryRecord::Event(event) => event,
            other => unreachable!("{other:?}"),
        }));
        *since = page.next;
        if page.next == page.last {
            return all;
        }
    }
}

#[tokio::test]
async fn records_starts_and_boots() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    for boot in ["b1", "b1", "b2", "b2"] {
        let (events, history) = open(folder.path(), boot, &hand);
        events.record_start("0.1.0", None);
        history.write().await;
    }
    let (_, history) = open(folder.path(), "b2", &hand);
    let kinds: Vec<String> = written(&history)
        .await
        .into_iter()
        .map(|(k, _)| k)
        .collect();
    assert_eq!(kinds, ["agent", "agent", "boot", "agent", "agent"]);
}

#[tokio::test]
async fn an_agent_that_restarts_again_and_again_does_not_fill_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    for _ in 0..100 {
        let (events, history) = open(folder.path(), "b1", &hand);
        events.record_start("0.1.0", None);
        history.write().await;
        hand.forward(5_000);
    }
    let (_, history) = open(folder.path(), "b1", &hand);
    assert_eq!(written(&history).await.len(), 12, "in less than an hour");
}

#[tokio::test]
async fn many_xids_fold_into_few_lines() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    let (events, history) = open(folder.path(), "b1", &hand);
    for n in 0..5_000 {
        events.record_now(xid(n % 8, 13, Severity::Inform));
        if n == 2_500 {
            events.record_now(xid(3, 79, Severity::Faulty));
        }
    }
    let first = written(&history).await;
    assert_eq!(first.len(), 9, "{first:?}");
    assert!(first.contains(&("xid 0000:03:00.0 gpu.xid.79".to_owned(), 1)));
    hand.forward(10 * MINUTE);
    events.write_due();
    let all = written(&history).await;
    assert_eq!(all.len(), 17);
    let counted: u32 = all.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, 5_001, "none is lost");
}

#[tokio::test]
async fn what_was_counted_is_written_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    let (events, history) = open(folder.path(), "b1", &hand);
    for _ in 0..7 {
        events.record_now(xid(1, 31, Severity::Degraded));
    }
    events.record_stop("0.1.0");
    let written = written(&history).await;
    let counts: Vec<u32> = written.iter().map(|(_, n)| *n).collect();
    assert_eq!(counts, [1, 1, 6]);
    assert_eq!(written[1].0, "agent stopped");
}

#[tokio::test]
async fn week_of_events_keeps_journal_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    let (events, history) = open(folder.path(), "b1", &hand);
    let (mut lines, mut counted, mut since) = (0, 0, 0);
    let all = |event: &Event| u64::from(event.count) + u64::from(event.left_out);
    for minute in 0..7 * 24 * 60 {
        for gpu in 0..8 {
            events.record_now(xid(gpu, 13 + minute % 40, Severity::Inform));
            events.record_now(xid(gpu, 79, Severity::Faulty));
            lines += 2;
        }
        events.write_due();
        hand.forward(MINUTE);
        if minute % 60 == 0 {
            let new = written_since(&history, &mut since).await;
            counted += new.iter().map(all).sum::<u64>();
        }
    }
    let rest = written_since(&history, &mut since).await;
    counted += rest.iter().map(all).sum::<u64>();
    // The number of harmless kinds exceeds the limit for merging. Another fault is written nevertheless, and so is
    // every event of another kind.
    let module = "nvidia".to_owned();
    let cleared = EventKind::Cleared {
        by: "ada".to_owned(),
        code: "gpu.xid.79".to_owned(),
        entity: None,
        reasons: 8,
    };
    let others = [
        xid(3, 48, Severity::Faulty),
        cleared,
        EventKind::Driver { module },
    ];
    for other in &others {
        events.record_now(other.clone());
        lines += 1;
    }
    let new = written_since(&history, &mut since).await;
    counted += new.iter().map(all).sum::<u64>();
    let new: Vec<EventKind> = new.into_iter().map(|event| event.event).collect();
    assert_eq!(new, others);
    // Merged events are written once the node is quiet.
    for _ in 0..24 * 6 {
        hand.forward(10 * MINUTE);
        events.write_due();
    }
    let rest = written_since(&history, &mut since).await;
    counted += rest.iter().map(all).sum::<u64>();
    assert_eq!(counted, lines);
    let all = written(&history).await;
    let bound = usize::try_from(Limits::default().events).unwrap();
    assert!(all.len() <= bound, "{}", all.len());
    assert!(all.len() > bound / 2, "{}", all.len());
}

fn nvlink(severity: Severity, turn: ReasonChange) -> EventKind {
    EventKind::Health {
        turn,
        code: "gpu.nvlink.errors".to_owned(),
        entity: "gpu.3".to_owned(),
        evidence: String::new(),
        severity,
        action: Action::None,
        observe_only: false,
    }
}

#[tokio::test]
async fn a_reason_that_turned_often_and_turns_faulty_is_written_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    let (events, history) = open(folder.path(), "b1", &hand);
    for _ in 0..3 {
        events.record_now(nvlink(Severity::Degraded, ReasonChange::Began));
        events.record_now(nvlink(Severity::Degraded, ReasonChange::Ended));
    }
    let mut since = 0;
    let turns = written_since(&history, &mut since).await;
    assert_eq!(turns.len(), 4, "the others are counted");
    let worse = nvlink(Severity::Faulty, ReasonChange::Changed);
    events.record_now(worse.clone());
    let new = written_since(&history, &mut since).await;
    let new: Vec<EventKind> = new.into_iter().map(|event| event.event).collect();
    assert_eq!(new, [worse]);
}

fn kernel_notice(action: &str, path: &str, subsystem: &str) -> KernelNotice {
    let message = format!("{action}@{path}\0SUBSYSTEM={subsystem}\0");
    KernelNotice::Event(Uevent::parse(message.as_bytes()).unwrap())
}

#[tokio::test]
async fn records_module_load_with_devices() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    let (events, history) = open(folder.path(), "b1", &hand);
    let mut hearing = NoticeRecorder::new(events);
    hearing.record_notice(kernel_notice("add", "/module/nvidia", "module"), 0);
    hearing.record_notice(kernel_notice("add", "/module/nvidia_uvm", "module"), 10);
    let gpu = "/devices/pci0000:00/0000:17:00.0";
    hearing.record_notice(kernel_notice("remove", gpu, "pci"), 20);
    hearing.record_notice(
        kernel_notice("add", "/devices/virtual/net/veth7", "net"),
        30,
    );
    let written_events = written(&history).await;
    let written_events: Vec<&str> = written_events.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(
        written_events,
        [
            "driver nvidia",
            "driver nvidia_uvm",
            "device pci remove 0000:17:00.0"
        ]
    );
}

#[tokio::test]
async fn a_flash_update_and_the_parameters_of_a_driver_are_device_events() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    let (events, history) = open(folder.path(), "b1", &hand);
    let mut hearing = NoticeRecorder::new(events);
    let notice_of = |action| {
        KernelNotice::Devlink(DevlinkEvent {
            action,
            bus: "pci".to_owned(),
            device: "0000:5e:00.0".to_owned(),
        })
    };
    for n in 0..20 {
        hearing.record_notice(notice_of(DevlinkAction::Parameter), n);
    }
    hearing.record_notice(notice_of(DevlinkAction::FlashEnd), 30);
    let written_events = written(&history).await;
    let mut names: Vec<&str> = written_events.iter().map(|(key, _)| key.as_str()).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "device devlink param pci/0000:5e:00.0",
            "device devlink flash pci/0000:5e:00.0"
        ]
    );
}

#[tokio::test]
async fn device_storm_keeps_hourly_room() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    let (events, history) = open(folder.path(), "b1", &hand);
    let mut hearing = NoticeRecorder::new(events.clone());
    for n in 0..1_000 {
        let function = format!("/devices/pci0000:00/0000:17:{n:02x}.0");
        hearing.record_notice(kernel_notice("change", &function, "pci"), n);
    }
    hearing.record_notice(KernelNotice::Lost, 1_000);
    let others = "device others";
    let written_events = written(&history).await;
    let first = "device pci change 0000:17:00.0".to_owned();
    assert_eq!(written_events.first(), Some(&(first, 1)));
    assert!(written_events.len() < 20, "{}", written_events.len());
    let lost = "device too many events to receive".to_owned();
    assert_eq!(written_events.last(), Some(&(lost, 1)));
    hand.forward(10 * MINUTE);
    events.write_due();
    let written_events = written(&history).await;
    assert_eq!(
        written_events.iter().map(|(_, count)| count).sum::<u32>(),
        1_001
    );
    let rest = written_events.iter().filter(|(key, _)| key == others);
    let most = rest.map(|(_, count)| *count).max().unwrap();
    assert!(most > 900, "{most}");
    let later = kernel_notice("remove", "/devices/pci0000:00/0000:18:00.0", "pci");
    NoticeRecorder::new(events).record_notice(later, 0);
    let removed = "device pci remove 0000:18:00.0".to_owned();
    assert_eq!(written(&history).await.last(), Some(&(removed, 1)));
}

#[tokio::test]
async fn writes_pending_events_once_journal_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand(Arc::new(AtomicU64::new(NOW)));
    let (events, history) = open(folder.path(), "b1", &hand);
    events.record_start("0.1.0", None);
    history.write().await;
    let (place, away) = (folder.path().join("history"), folder.path().join("away"));
    std::fs::rename(&place, &away).unwrap();
    std::fs::write(&place, "not a folder").unwrap();

    let (events, history) = open(folder.path(), "b1", &hand);
    let (trigger, mut triggers) = mpsc::channel(1);
    events.resume_when_readable(trigger);
    events.record_start("0.2.0", None);
    history.write().await;
    assert!(triggers.try_recv().is_err());
    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&away, &place).unwrap();
    let written = written_since(&history, &mut 0).await;
    let pairs: Vec<(u64, &EventKind)> = written.iter().map(|e| (e.seq, &e.event)).collect();
    let version = |version: &str| EventKind::Agent {
        version: version.to_owned(),
    };
    assert_eq!(pairs, [(1, &version("0.1.0")), (2, &version("0.2.0"))]);
    assert_eq!(triggers.try_recv(), Ok(Cause::AgentStart));
    // Later events continue from that number.
    events.record_now(xid(1, 79, Severity::Faulty));
    assert_eq!(written_since(&history, &mut 2).await[0].seq, 3);
}
