//! XIDs from the driver's events and from the kernel log, through a real child and the fake driver library.
//!
//! This program is the child that it starts: `main` becomes the child if called with the child's arguments.

use crate::trials::{Test, tests};
use lattice_conformance::{
    Reading, ReadingState,
    driver_events::{AmdEvent, EventCode, GpuEvent, GpuEventSource, Mlx5Event},
};
use lattice_fake_nvml::{
    Control, DESCRIPTION_ENV, Driver, Fault, Field, Gpu, GpuRef, Pci, Xid, library_path,
};
use lattice_hwprobe::gpu_driver::{NvmlSource, WATCH_SUBCOMMAND};
use lattice_hwprobe::gpu_events::{GpuEventSources, GpuEventWatch, KernelLog};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const TESTS: &[Test] = tests![
    events_arrive_with_the_address,
    both_sources_make_one_event,
    clocks_that_drifted_apart_make_no_second_event,
    a_silent_driver_is_a_timeout,
    a_killed_listener_is_started_again,
    what_cannot_be_had_is_a_state,
    a_gpu_without_events_is_left_out,
    amds_driver_tells_through_the_kernels_log,
];

/// Longer than any step here takes; a test that reaches this timeout has failed.
const LONG: Duration = Duration::from_secs(90);

fn gpu(bus: u32) -> Gpu {
    Gpu {
        name: Some(Field::Value("NVIDIA H100 80GB HBM3".to_owned())),
        event_types: Some(0xff0f.into()),
        pci: Some(Field::Value(Pci {
            bus_id: format!("00000000:{bus:02X}:00.0"),
            device_id: "0x233010DE".to_owned(),
            subsystem_id: "0x16C110DE".to_owned(),
        })),
        ..Gpu::default()
    }
}

/// Two GPUs, their control file and a kernel log.
struct GpuFixture {
    folder: TempDir,
    asked: Control,
}

impl GpuFixture {
    fn new() -> Self {
        let fixture = Self {
            folder: TempDir::new().unwrap(),
            asked: Control::default(),
        };
        fixture.describe(vec![gpu(0x19), gpu(0x5d)]);
        std::fs::write(fixture.kmsg(), "6,1,10,-;Linux version 6.8\n").unwrap();
        fixture
    }

    fn describe(&self, gpus: Vec<Gpu>) {
        let driver = Driver {
            control: Some(self.folder.path().join("control.json")),
            gpus,
            ..Driver::default()
        };
        let text = serde_json::to_vec(&driver).unwrap();
        std::fs::write(self.folder.path().join("nvml.json"), text).unwrap();
    }

    fn kmsg(&self) -> PathBuf {
        self.folder.path().join("kmsg")
    }

    fn source(&self) -> NvmlSource {
        let library = library_path().expect("the fake library is built with this test");
        let description = self.folder.path().join("nvml.json");
        NvmlSource::child(std::env::current_exe().unwrap(), Some(&library))
            .with_env(DESCRIPTION_ENV, description)
    }

    fn watch(&self, nvml: NvmlSource) -> GpuEventWatch {
        GpuEventWatch::start(GpuEventSources {
            nvml,
            kernel_log: KernelLog::Device(self.kmsg()),
            max_events: 100,
        })
    }

    /// The driver raises an XID.
    fn raise(&mut self, gpu: usize, xid: u64) {
        self.asked.xids.push(Xid {
            gpu: GpuRef::Index(gpu),
            xid,
        });
        self.write();
    }

    fn write(&self) {
        let path = self.folder.path().join("control.json");
        self.asked.write(&path).unwrap();
    }

    /// The kernel writes a line now.
    fn log(&self, text: &str) {
        let up = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicRaw);
        self.log_at(up.tv_sec * 1_000_000 + up.tv_nsec / 1_000, text);
    }

    /// The kernel writes a line with this time since boot.
    fn log_at(&self, stamp_us: i64, text: &str) {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(self.kmsg())
            .unwrap();
        write!(file, "4,2,{stamp_us},-;{text}\n SUBSYSTEM=pci\n").unwrap();
    }
}

/// Polls until the watch is in the wanted state.
fn until(watch: &mut GpuEventWatch, is_so: impl Fn(&GpuEventWatch) -> bool) -> Vec<GpuEvent> {
    let ends_at = Instant::now() + LONG;
    let mut events = Vec::new();
    while !is_so(watch) {
        assert!(Instant::now() < ends_at, "{watch:?}");
        events.extend(watch.poll(Duration::from_millis(20)));
    }
    events
}

fn is_listening(watch: &GpuEventWatch) -> bool {
    watch.nvml().present().is_some()
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.unwrap().as_millis()).unwrap()
}

fn events_arrive_with_the_address() {
    let mut fixture = GpuFixture::new();
    // Raised before the listener started: the driver does not report it again.
    fixture.raise(0, 13);
    let mut watch = fixture.watch(fixture.source());
    until(&mut watch, is_listening);
    let all = ["0000:19:00.0", "0000:5d:00.0"].map(str::to_owned).to_vec();
    assert_eq!(*watch.nvml(), Reading::Present(all));
    let from = now_ms();
    fixture.raise(1, 79);
    // The lost GPU no longer returns its address.
    fixture.asked.faults.push(Fault {
        call: Some("nvmlDeviceGetPciInfo_v3".to_owned()),
        ..Fault::lost(GpuRef::Index(1))
    });
    fixture.write();
    fixture.raise(1, 79);
    fixture.raise(0, 48);
    let events = until(&mut watch, |watch| watch.log().last_seq() == 3);
    let rows: Vec<(u64, &str, EventCode)> = events
        .iter()
        .map(|event| (event.seq, event.address.as_str(), event.code))
        .collect();
    let expected = [
        (1, "0000:5d:00.0", EventCode::Xid(79)),
        (2, "0000:5d:00.0", EventCode::Xid(79)),
        (3, "0000:19:00.0", EventCode::Xid(48)),
    ];
    assert_eq!(rows, expected);
    for event in &events {
        assert_eq!(event.source, GpuEventSource::Nvml);
        assert!((from..=now_ms()).contains(&event.at_ms), "{event:?}");
    }
}

fn both_sources_make_one_event() {
    let mut fixture = GpuFixture::new();
    let mut watch = fixture.watch(fixture.source());
    until(&mut watch, |watch| {
        is_listening(watch) && watch.kernel_log().present().is_some()
    });
    fixture.log("NVRM: Xid (PCI:0000:5d:00): 79, pid=42, GPU has fallen off the bus.");
    fixture.raise(1, 79);
    fixture.log("NVRM: Xid (PCI:0000:19:00): 62, 1f2e 3d4c");
    fixture.log("nvidia: module license 'NVIDIA' taints kernel.");
    until(&mut watch, |watch| {
        let log = watch.log();
        log.last_seq() == 2
            && log
                .since(0)
                .any(|event| event.source == GpuEventSource::Both)
    });
    let log: Vec<_> = watch.log().since(0).collect();
    let of = |xid| {
        *log.iter()
            .find(|event| event.code == EventCode::Xid(xid))
            .unwrap()
    };
    assert_eq!(of(79).source, GpuEventSource::Both);
    assert_eq!(of(79).detail, "pid=42, GPU has fallen off the bus.");
    // The library did not report this event.
    assert_eq!(of(62).source, GpuEventSource::KernelLog);
    assert_eq!(of(62).address, "0000:19:00.0");
    assert!(of(62).at_ms.abs_diff(now_ms()) < 60_000, "{:?}", of(62));
}

fn clocks_that_drifted_apart_make_no_second_event() {
    let mut fixture = GpuFixture::new();
    // Logged before the watch started, and dated by its stamp.
    fixture.log_at(0, "NVRM: Xid (PCI:0000:19:00): 62, at boot");
    let mut watch = fixture.watch(fixture.source());
    let old = until(&mut watch, |watch| {
        is_listening(watch) && watch.log().last_seq() == 1
    });
    assert!(old[0].at_ms < now_ms(), "{old:?}");
    // Until the end of the log was reached once, new lines are dated by their stamp too.
    let mut last = 1;
    loop {
        last += 1;
        fixture.log_at(
            0,
            &format!("NVRM: Xid (PCI:0000:19:00): {}, a mark", 100 + last),
        );
        until(&mut watch, |watch| watch.log().last_seq() == last);
        let mark = watch.log().get(last).unwrap();
        if mark.at_ms.abs_diff(now_ms()) < 10_000 {
            break;
        }
        assert!(last < 20, "stamps are believed for ever: {mark:?}");
    }
    fixture.raise(1, 79);
    last += 1;
    until(&mut watch, |watch| watch.log().last_seq() == last);
    assert_eq!(watch.confirmed(), []);
    let from = now_ms();
    fixture.log_at(1, "NVRM: Xid (PCI:0000:5d:00): 79, pid=42, off the bus");
    until(&mut watch, |watch| {
        let event = watch.log().get(last);
        watch.log().last_seq() > last
            || event.is_some_and(|event| event.source == GpuEventSource::Both)
    });
    assert_eq!(watch.log().last_seq(), last, "{:?}", watch.log());
    let event = watch.log().get(last).cloned().unwrap();
    assert!(event.at_ms.abs_diff(from) < 10_000, "{event:?}");
    assert_eq!(event.kernel_seq, Some(2));
    assert_eq!(watch.confirmed(), [event]);
    assert_eq!(watch.confirmed(), []);
}

fn a_silent_driver_is_a_timeout() {
    let mut fixture = GpuFixture::new();
    fixture.asked.faults = vec![Fault::hanging("nvmlEventSetWait_v2")];
    fixture.write();
    let mut watch = fixture.watch(fixture.source().with_deadline(Duration::from_millis(600)));
    until(&mut watch, |watch| {
        watch.nvml().state() == ReadingState::Timeout
    });
    assert_eq!(*watch.nvml(), Reading::Timeout { after_ms: 600 });
    // The other source continues meanwhile.
    fixture.log("NVRM: Xid (PCI:0000:5d:00): 119, Timeout after 6s of waiting for RPC response");
    let events = until(&mut watch, |watch| watch.log().last_seq() == 1);
    assert_eq!(events[0].code, EventCode::Xid(119));
    // The driver is listened to again as soon as it answers.
    fixture.asked.faults.clear();
    fixture.write();
    until(&mut watch, is_listening);
}

/// The listening children of this process that use the driver of `fixture`.
fn listeners(fixture: &GpuFixture) -> Vec<i32> {
    let own = std::process::id().to_string();
    let description = fixture.folder.path().join("nvml.json");
    let variable = format!("{DESCRIPTION_ENV}={}", description.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let read = |file: &str| {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let stat = read("stat");
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        if parent == Some(own.as_str())
            && read("cmdline").contains(WATCH_SUBCOMMAND)
            && read("environ").split('\0').any(|one| one == variable)
        {
            found.push(pid);
        }
    }
    found
}

fn a_killed_listener_is_started_again() {
    let mut fixture = GpuFixture::new();
    let mut watch = fixture.watch(fixture.source());
    until(&mut watch, is_listening);
    let first = listeners(&fixture);
    assert_eq!(first.len(), 1);
    let pid = rustix::process::Pid::from_raw(first[0]).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until(&mut watch, |watch| {
        watch.nvml().state() == ReadingState::Failed
    });
    until(&mut watch, is_listening);
    fixture.raise(0, 95);
    let events = until(&mut watch, |watch| watch.log().last_seq() == 1);
    assert_eq!(events[0].code, EventCode::Xid(95));
    assert_ne!(listeners(&fixture), first);
    drop(watch);
    assert_eq!(listeners(&fixture), Vec::<i32>::new());
}

fn what_cannot_be_had_is_a_state() {
    let fixture = GpuFixture::new();
    let none = std::path::Path::new("/nonexistent/libnvidia-ml.so.1");
    let program = std::env::current_exe().unwrap();
    let mut watch = GpuEventWatch::start(GpuEventSources {
        nvml: NvmlSource::child(program, Some(none)),
        kernel_log: KernelLog::Device(fixture.folder.path().join("none")),
        max_events: 100,
    });
    until(&mut watch, |watch| {
        watch.nvml().state() == ReadingState::Failed
            && watch.kernel_log().state() == ReadingState::Absent
    });
    let mut silent = GpuEventWatch::start(GpuEventSources {
        nvml: NvmlSource::Disabled,
        kernel_log: KernelLog::Disabled,
        max_events: 100,
    });
    assert!(silent.poll(Duration::from_millis(1)).is_empty());
    assert_eq!(silent.nvml().state(), ReadingState::Disabled);
    assert_eq!(silent.kernel_log().state(), ReadingState::Disabled);
}

/// A node with AMD GPUs has no library to listen to, and receives events from the kernel log only.
fn amds_driver_tells_through_the_kernels_log() {
    let fixture = GpuFixture::new();
    let mut watch = fixture.watch(NvmlSource::Disabled);
    until(&mut watch, |watch| {
        watch.kernel_log().state() == ReadingState::Present
    });
    fixture.log("amdgpu 0000:c1:00.0: amdgpu: 1 correctable hardware errors detected in umc block");
    fixture.log("amdgpu 0000:c1:00.0: {7}poison is consumed by client 12, kick off gpu reset flow");
    fixture.log("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!");
    fixture.log("amdgpu 0000:c1:00.0: amdgpu: GPU reset(1) succeeded!");
    let events = until(&mut watch, |watch| watch.log().last_seq() == 3);
    let codes: Vec<EventCode> = events.iter().map(|event| event.code).collect();
    let expected = [AmdEvent::Poison, AmdEvent::ResetBegun, AmdEvent::ResetDone];
    assert_eq!(codes, expected.map(EventCode::Amd));
    for event in &events {
        assert_eq!(event.address, "0000:c1:00.0");
        assert_eq!(event.source, GpuEventSource::KernelLog);
    }
    fixture.log("mlx5_core 0000:5e:00.0: poll_health:739:(pid 0): Fatal error 3 detected");
    let events = until(&mut watch, |watch| watch.log().last_seq() == 4);
    let last = events.last().unwrap();
    assert_eq!(last.code, EventCode::Mlx5(Mlx5Event::Fatal));
    assert_eq!(last.address, "0000:5e:00.0");
    fixture.log("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 12028, Non-fatal, Link 32 PRIV error");
    fixture.log("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up");
    let events = until(&mut watch, |watch| watch.log().last_seq() == 5);
    let last = events.last().unwrap();
    assert_eq!(last.code, EventCode::Sxid(20034));
    assert_eq!(last.address, "0000:06:00.0");
}

fn a_gpu_without_events_is_left_out() {
    let mut fixture = GpuFixture::new();
    let mut without = gpu(0x19);
    without.event_types = None;
    fixture.describe(vec![without, gpu(0x5d)]);
    let mut watch = fixture.watch(fixture.source());
    until(&mut watch, is_listening);
    let only = vec!["0000:5d:00.0".to_owned()];
    assert_eq!(*watch.nvml(), Reading::Present(only));
    fixture.raise(1, 94);
    let events = until(&mut watch, |watch| watch.log().last_seq() == 1);
    assert_eq!(events[0].address, "0000:5d:00.0");
}
