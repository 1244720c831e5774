#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

fn seen(source: GpuEventSource, at_ms: u64, gpu: &str, xid: u32) -> EventReport {
    let detail = match source {
        GpuEventSource::Nvml => "",
        _ => "pid=4711, name=python",
    };
    EventReport {
        at_ms,
        address: gpu.to_owned(),
        code: EventCode::Xid(xid),
        source,
        detail: detail.to_owned(),
        kernel_seq: (source == GpuEventSource::KernelLog).then_some(at_ms),
    }
}

const ONE: &str = "0000:5d:00.0";
const OTHER: &str = "0000:9b:00.0";

#[test]
fn what_both_sources_tell_is_one_event() {
    let mut log = GpuEventLog::new(100);
    assert_eq!(
        log.record(seen(GpuEventSource::KernelLog, 1_000, ONE, 79)),
        RecordOutcome::New(1)
    );
    assert_eq!(
        log.record(seen(GpuEventSource::Nvml, 1_040, ONE, 79)),
        RecordOutcome::Confirms(1)
    );
    let event = log.get(1).unwrap();
    assert_eq!((event.at_ms, event.source), (1_000, GpuEventSource::Both));
    // In the other order, the text of the kernel line is added, and the earlier time is kept.
    assert_eq!(
        log.record(seen(GpuEventSource::Nvml, 5_000, OTHER, 48)),
        RecordOutcome::New(2)
    );
    assert_eq!(
        log.record(seen(GpuEventSource::KernelLog, 4_990, OTHER, 48)),
        RecordOutcome::Confirms(2)
    );
    let event = log.get(2).unwrap();
    assert_eq!(
        (event.at_ms, event.detail.as_str()),
        (4_990, "pid=4711, name=python")
    );
    assert_eq!(event.kernel_seq, Some(4_990));
}

#[test]
fn repeats_pair_one_by_one_across_sources() {
    let mut log = GpuEventLog::new(100);
    for at_ms in [100, 200, 300] {
        log.record(seen(GpuEventSource::KernelLog, at_ms, ONE, 63));
    }
    assert_eq!(log.last_seq(), 3);
    for (at_ms, seq) in [(310, 1), (320, 2), (330, 3)] {
        let met = log.record(seen(GpuEventSource::Nvml, at_ms, ONE, 63));
        assert_eq!(met, RecordOutcome::Confirms(seq));
    }
    // A fourth report by one source alone is a new event.
    assert_eq!(
        log.record(seen(GpuEventSource::Nvml, 340, ONE, 63)),
        RecordOutcome::New(4)
    );
}

#[test]
fn another_gpu_another_number_and_another_time_are_other_events() {
    let mut log = GpuEventLog::new(100);
    log.record(seen(GpuEventSource::KernelLog, 1_000, ONE, 45));
    for other in [
        seen(GpuEventSource::Nvml, 1_000, OTHER, 45),
        // Not merged with the event before it.
        seen(GpuEventSource::Nvml, 1_000, ONE, 62),
        seen(GpuEventSource::Nvml, 1_001 + MERGE_WINDOW_MS, ONE, 45),
    ] {
        assert!(matches!(log.record(other), RecordOutcome::New(_)));
    }
    let alone = log.since(0).filter(|e| e.source != GpuEventSource::Both);
    let alone: Vec<u64> = alone.map(|event| event.seq).collect();
    assert_eq!(alone, [1, 2, 3, 4]);
}

#[test]
fn a_full_log_forgets_the_oldest_and_numbers_go_on() {
    let mut log = GpuEventLog::new(3);
    for at in 1..=10 {
        log.record(seen(GpuEventSource::Nvml, at * 60_000, ONE, 13));
    }
    let kept: Vec<u64> = log.since(5).map(|event| event.seq).collect();
    assert_eq!(kept, [8, 9, 10]);
    assert_eq!(log.get(8).unwrap().at_ms, 480_000);
    assert_eq!((log.get(7), log.get(11)), (None, None));
}
