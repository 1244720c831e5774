#![expect(clippy::unwrap_used, reason = "tests")]
use super::HealthSummary;
use super::state::{State, StoredHealth};
use lattice_conformance::{
    Class, ClassRecord, FindingCode, GpuIdentity, Inventory, NicIdentity, ProbeOutcome,
    ProbeStatus, Reading, Vitals,
    driver_events::{AmdEvent, EventCode, GpuEvent, GpuEventSource, Mlx5Event},
    health::{Severity, Table},
};

const GPU: &str = "0000:41:00.0";
const PENDING: &str = "gpu.1.remapped_rows.pending";
const NOW: u64 = 1_000_000_000;

fn state(stored: StoredHealth, boot: &str, now_ms: u64) -> State {
    State::new(Table::shipped().unwrap(), stored, boot, now_ms)
}

fn xid(at_ms: u64, xid: u32) -> GpuEvent {
    GpuEvent {
        seq: 1,
        at_ms,
        address: GPU.to_owned(),
        code: EventCode::Xid(xid),
        source: GpuEventSource::KernelLog,
        detail: "GPU has fallen off the bus.".to_owned(),
        kernel_seq: Some(at_ms),
    }
}

/// Read with this outcome of the GPU probe, and this state of a row remap (`None`: unknown).
fn read(outcome: ProbeStatus, pending: Option<bool>) -> Inventory {
    let mut seen = Inventory::default();
    seen.records
        .insert(Class::Gpu, ClassRecord::new(Class::Gpu));
    seen.identity.gpus = vec![GpuIdentity {
        slot: 1,
        address: Reading::Present(GPU.to_owned()),
        ..GpuIdentity::default()
    }];
    let mut vitals = Vitals::default();
    let reading = pending.map_or(Reading::Timeout { after_ms: 1 }, Reading::Present);
    vitals.put(PENDING, reading);
    seen.vitals = vitals;
    seen.probes = vec![ProbeOutcome {
        name: "gpu".to_owned(),
        class: Class::Gpu,
        duration_us: 1,
        outcome,
        keys: 1,
        unknown: 0,
        loss: None,
        why: None,
    }];
    seen
}

fn entities(state: &State) -> Vec<(String, String)> {
    let reasons = state.report().reasons.into_iter();
    reasons.map(|r| (r.code, r.entity)).collect()
}

fn pair(code: &str, entity: &str) -> (String, String) {
    (code.to_owned(), entity.to_owned())
}

#[test]
fn an_xid_before_the_first_read_waits_until_its_gpu_has_a_name() {
    let mut state = state(StoredHealth::default(), "b1", NOW);
    state.event(&xid(NOW - 5, 79));
    assert_eq!(entities(&state), []);
    state.observe(NOW + 1, &read(ProbeStatus::Complete, Some(false)));
    assert_eq!(entities(&state), [pair("gpu.xid.79", "gpu.1")]);
    assert_eq!(state.summary().worst, Some(Severity::Faulty));
}

#[test]
fn repeated_kernel_message_is_one_occurrence() {
    let mut first = state(StoredHealth::default(), "b1", NOW);
    first.observe(NOW, &read(ProbeStatus::Complete, Some(false)));
    first.event(&xid(NOW + 5, 79));
    let mut second = state(first.stored(), "b1", NOW + 60_000);
    let again = |at_ms| GpuEvent {
        at_ms,
        ..xid(NOW + 5, 79)
    };
    // The clock was set by half a minute meanwhile, and with it the timestamps of the log.
    second.event(&again(NOW + 30_005));
    assert_eq!(second.report().reasons[0].count, 1);
    assert_eq!(second.clear(NOW, "ada", ("gpu.xid.79", Some("gpu.0"))), 0);
    assert_eq!(second.clear(NOW, "ada", ("gpu.xid.79", None)), 1);
    let mut third = state(second.stored(), "b1", NOW + 90_000);
    third.event(&again(NOW + 60_005));
    assert_eq!(entities(&third), []);
    // Events count also if they happened while no agent ran.
    third.event(&xid(NOW + 70_000, 79));
    assert_eq!(entities(&third), [pair("gpu.xid.79", "gpu.1")]);
    third.event(&xid(NOW + 90_001, 79));
    assert_eq!(third.report().reasons[0].count, 2);
    let booted = state(third.stored(), "b2", NOW + 99_000);
    assert_eq!(entities(&booted), []);
}

#[test]
fn merges_driver_and_kernel_occurrence() {
    let by_driver = |at_ms| GpuEvent {
        source: GpuEventSource::Nvml,
        kernel_seq: None,
        ..xid(at_ms, 79)
    };
    let mut first = state(StoredHealth::default(), "b1", NOW);
    first.observe(NOW, &read(ProbeStatus::Complete, Some(false)));
    first.event(&by_driver(NOW + 5));
    let urgent = first.present_faults();
    // The log reports the event later: not a new event, but the state must be written.
    first.record_confirmation(&xid(NOW + 5, 79));
    assert_ne!(first.present_faults(), urgent);
    assert_eq!(first.report().reasons[0].count, 1);
    assert_eq!(first.clear(NOW, "ada", ("gpu.xid.79", None)), 1);
    let mut second = state(first.stored(), "b1", NOW + 60_000);
    second.event(&GpuEvent {
        at_ms: NOW + 50_000,
        ..xid(NOW + 5, 79)
    });
    assert_eq!(entities(&second), [], "it has the same number");
    // If only the next agent receives the log record, the time identifies the event.
    second.event(&by_driver(NOW + 70_000));
    assert_eq!(second.clear(NOW, "ada", ("gpu.xid.79", None)), 1);
    let mut third = state(second.stored(), "b1", NOW + 90_000);
    third.event(&xid(NOW + 71_000, 79));
    assert_eq!(entities(&third), []);
    third.event(&xid(NOW + 85_000, 79));
    assert_eq!(entities(&third), [pair("gpu.xid.79", "gpu.1")]);
}

/// An NVLink error that the hardware has corrected, in the kernel's log.
fn recovered(at_ms: u64) -> GpuEvent {
    GpuEvent {
        detail: "RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004 0x80000000)".to_owned(),
        ..xid(at_ms, 145)
    }
}

#[test]
fn a_recovered_nvlink_error_keeps_the_node_in_service() {
    let mut state = state(StoredHealth::default(), "b1", NOW);
    state.observe(NOW, &read(ProbeStatus::Complete, Some(false)));
    state.event(&recovered(NOW + 5));
    assert_eq!(state.summary().worst, Some(Severity::Inform));
    state.event(&GpuEvent {
        detail: "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)".to_owned(),
        ..xid(NOW + 6, 149)
    });
    assert_eq!(state.summary().worst, Some(Severity::Faulty));
}

#[test]
fn a_late_kernel_line_corrects_the_severity_of_a_driver_event() {
    let by_driver = GpuEvent {
        source: GpuEventSource::Nvml,
        detail: String::new(),
        kernel_seq: None,
        ..recovered(NOW + 5)
    };
    let mut first = state(StoredHealth::default(), "b1", NOW);
    first.observe(NOW, &read(ProbeStatus::Complete, Some(false)));
    first.event(&by_driver);
    assert_eq!(first.summary().worst, Some(Severity::Faulty));
    first.take_pending_events();
    let stored = first.stored();
    first.record_confirmation(&GpuEvent {
        seq: by_driver.seq,
        source: GpuEventSource::Both,
        ..recovered(NOW + 5)
    });
    assert_eq!(first.summary().worst, Some(Severity::Inform));
    assert_eq!(first.report().reasons[0].count, 1);
    // The change is in the history.
    assert_eq!(first.take_pending_events().len(), 1);
    // The agent may restart before the log reports the event.
    let mut second = state(stored, "b1", NOW + 60_000);
    assert_eq!(second.summary().worst, Some(Severity::Faulty));
    second.event(&recovered(NOW + 6));
    assert_eq!(second.summary().worst, Some(Severity::Inform));
    assert_eq!(second.report().reasons[0].count, 1);
}

#[test]
fn a_fatal_error_of_an_nvswitch_is_of_the_switch() {
    const SWITCH: &str = "0000:06:00.0";
    let mut state = state(StoredHealth::default(), "b1", NOW);
    state.observe(NOW, &read(ProbeStatus::Complete, Some(false)));
    let fatal = GpuEvent {
        address: SWITCH.to_owned(),
        code: EventCode::Sxid(20034),
        detail: "Fatal, Link 48 LTSSM Fault Up".to_owned(),
        ..xid(NOW + 5, 79)
    };
    state.event(&fatal);
    state.event(&fatal);
    assert_eq!(entities(&state), [pair("nvswitch.sxid.20034", SWITCH)]);
    assert_eq!(state.report().reasons[0].count, 1);
    assert_eq!(state.summary().worst, Some(Severity::Faulty));
    // The restarted agent reads the line again.
    let mut again = self::state(state.stored(), "b1", NOW + 60_000);
    assert_eq!(again.clear(NOW, "ada", ("nvswitch.sxid.20034", None)), 1);
    again.event(&fatal);
    assert_eq!(entities(&again), []);
}

#[test]
fn lost_gpu_keeps_its_fault_and_clears_others() {
    const BEHIND: &str = "0000:82:00.0";
    let seen = |all: &[&str], pending: bool| {
        let mut seen = read(ProbeStatus::Complete, None);
        let gpu = |(slot, address): (u32, &&str)| GpuIdentity {
            slot,
            address: Reading::Present((*address).to_owned()),
            ..GpuIdentity::default()
        };
        seen.identity.gpus = (0..).zip(all).map(gpu).collect();
        let last = all.len() - 1;
        seen.vitals = Vitals::default();
        let key = format!("gpu.{last}.remapped_rows.pending");
        seen.vitals.put(key, Reading::Present(pending));
        seen
    };
    let mut first = state(StoredHealth::default(), "b1", NOW);
    first.observe(NOW, &seen(&[GPU, BEHIND], true));
    assert_eq!(entities(&first), [pair("gpu.row_remap.pending", "gpu.1")]);
    // The other GPU falls off the bus; the rest moves up, and the fault of the missing GPU ends.
    first.observe(NOW + 1, &seen(&[BEHIND], false));
    assert_eq!(entities(&first), []);
    first.event(&xid(NOW + 2, 79));
    let mut second = state(first.stored(), "b1", NOW + 10);
    second.observe(NOW + 11, &seen(&[BEHIND], false));
    second.event(&GpuEvent {
        address: BEHIND.to_owned(),
        ..xid(NOW + 12, 48)
    });
    let mut named = entities(&second);
    named.sort();
    let expected = [pair("gpu.xid.48", "gpu.1"), pair("gpu.xid.79", "gpu.0")];
    assert_eq!(named, expected);
    // The next boot assigns names again.
    let mut booted = state(second.stored(), "b2", NOW + 20);
    booted.observe(NOW + 21, &seen(&[BEHIND], true));
    assert_eq!(entities(&booted), [pair("gpu.row_remap.pending", "gpu.0")]);
}

#[test]
fn a_gpu_that_is_gone_keeps_its_name() {
    let mut state = state(StoredHealth::default(), "b1", NOW);
    state.observe(NOW, &read(ProbeStatus::Complete, Some(false)));
    let mut gone = read(ProbeStatus::Complete, None);
    gone.identity.gpus.clear();
    state.observe(NOW + 1, &gone);
    state.event(&xid(NOW + 2, 79));
    assert_eq!(entities(&state), [pair("gpu.xid.79", "gpu.1")]);
}

#[test]
fn an_event_of_amds_driver_is_of_the_gpu_as_its_live_values_are_named() {
    let mut state = state(StoredHealth::default(), "b1", NOW);
    state.observe(NOW, &read(ProbeStatus::Complete, None));
    let reset = GpuEvent {
        code: EventCode::Amd(AmdEvent::ResetBegun),
        detail: "GPU reset begin!".to_owned(),
        ..xid(NOW + 1, 79)
    };
    state.event(&reset);
    assert_eq!(entities(&state), [pair("gpu.amd.reset_begun", "gpu.amd.1")]);
    assert_eq!(state.summary().worst, Some(Severity::Faulty));
    let done = EventCode::Amd(AmdEvent::ResetDone);
    state.event(&GpuEvent {
        code: done,
        ..xid(NOW + 2, 79)
    });
    assert_eq!(entities(&state), [pair("gpu.amd.reset_done", "gpu.amd.1")]);
    assert_eq!(state.summary().worst, Some(Severity::Inform));
}

#[test]
fn an_event_of_a_nic_stays_that_of_the_nic_when_another_takes_its_slot() {
    const NIC: &str = "0000:5e:00.0";
    let mut seen = read(ProbeStatus::Complete, None);
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.count", Reading::Present(1_u32));
    record.require("nic.0.driver", Reading::Present("mlx5_core"));
    seen.records.insert(Class::Nic, record);
    seen.identity.nics = vec![NicIdentity {
        address: Reading::Present(NIC.to_owned()),
        ..NicIdentity::default()
    }];
    let of_nic = |at_ms, event| GpuEvent {
        address: NIC.to_owned(),
        code: EventCode::Mlx5(event),
        detail: "Fatal error 3 detected".to_owned(),
        ..xid(at_ms, 79)
    };
    let mut state = state(StoredHealth::default(), "b1", NOW);
    assert!(!state.summary().has_mlx5);
    // Before the first read, the device of the event is unknown.
    state.event(&of_nic(NOW + 1, Mlx5Event::Fatal));
    assert!(entities(&state).is_empty());
    state.observe(NOW + 2, &seen);
    assert!(state.summary().has_mlx5);
    assert_eq!(entities(&state), [pair("nic.mlx5.fatal", NIC)]);
    let evidence = &state.report().reasons[0].evidence;
    assert!(
        evidence.ends_with(": nic.0: Fatal error 3 detected"),
        "{evidence}"
    );
    assert_eq!(state.summary().worst, Some(Severity::Faulty));
    // The log repeats the event to each new reader.
    state.event(&of_nic(NOW + 1, Mlx5Event::Fatal));
    assert_eq!(state.report().reasons[0].count, 1);
    // The NIC falls off the bus, and another NIC takes its slot.
    seen.identity.nics[0].address = Reading::Present("0000:86:00.0".to_owned());
    state.observe(NOW + 3, &seen);
    assert!(entities(&state).contains(&pair("nic.mlx5.fatal", NIC)));
    state.event(&of_nic(NOW + 4, Mlx5Event::Recovered));
    let left = entities(&state);
    assert!(left.contains(&pair("nic.mlx5.recovered", NIC)), "{left:?}");
    assert!(!left.contains(&pair("nic.mlx5.fatal", NIC)), "{left:?}");
}

#[test]
fn reports_silent_probe_once() {
    let mut state = state(StoredHealth::default(), "b1", NOW);
    assert!(!state.observe(NOW, &read(ProbeStatus::Complete, Some(true))));
    assert!(state.observe(NOW + 1, &read(ProbeStatus::Hung, None)));
    assert!(!state.observe(NOW + 2, &read(ProbeStatus::Hung, None)));
    let said = state.summary();
    assert_eq!(
        said.codes,
        ["gpu.row_remap.pending"],
        "not cleared by silence"
    );
    assert_eq!(said.probe_reasons(&[]), ["probe.gpu.hung"]);
    // A newer pass overrides the announcement.
    assert!(state.observe(NOW + 3, &read(ProbeStatus::Complete, Some(false))));
    let announced = ["probe.gpu.hung".to_owned(), "probe.bios.failed".to_owned()];
    let said = state.summary();
    assert_eq!(said.probe_reasons(&announced), ["probe.bios.failed"]);
    assert!(said.codes.is_empty());
}

#[test]
fn reports_incomplete_probe_once() {
    let mut state = state(StoredHealth::default(), "b1", NOW);
    assert!(!state.observe(NOW, &read(ProbeStatus::Complete, Some(false))));
    assert!(state.observe(NOW + 1, &read(ProbeStatus::Incomplete, Some(false))));
    assert!(!state.observe(NOW + 2, &read(ProbeStatus::Incomplete, Some(false))));
    assert!(state.summary().probe_reasons(&[]).is_empty(), "it answered");
    assert!(state.observe(NOW + 3, &read(ProbeStatus::Complete, Some(false))));
    assert!(!state.observe(NOW + 4, &read(ProbeStatus::Complete, Some(false))));
}

/// Complete read of the GPU class with this device count.
fn counted(count: Reading<u32>) -> Inventory {
    let mut record = ClassRecord::new(Class::Gpu);
    record.require("gpu.driver", Reading::Present("570.1"));
    record.require("gpu.count", count);
    let outcome = ProbeStatus::from(&record);
    let mut seen = read(outcome, None);
    seen.identity.gpus.clear();
    seen.records.insert(Class::Gpu, record);
    seen
}

#[test]
fn unknown_presence_sees_nothing() {
    let mut state = state(StoredHealth::default(), "b1", NOW);
    let blind = |state: &State| state.summary().probe_failures(&[Class::Gpu, Class::Nic]);
    // After a reboot the driver is missing; the GPUs are present.
    state.observe(NOW, &counted(Reading::failed("8 on the bus, no driver")));
    assert_eq!(
        blind(&state),
        ["gpu.count: <failed: 8 on the bus, no driver>"]
    );
    assert!(state.report().reasons.is_empty(), "nothing speaks for it");
    // GPUs of another vendor have a separate count.
    let mut other = counted(Reading::Absent);
    let record = other.records.get_mut(&Class::Gpu).unwrap();
    let why = "8 AMD GPUs on the bus are not bound: no driver";
    record.require("gpu.amd.count", Reading::<u32>::failed(why));
    state.observe(NOW, &other);
    assert_eq!(blind(&state), [format!("gpu.amd.count: <failed: {why}>")]);
    // Neither a node without GPUs nor a node with an unreadable value is blind.
    state.observe(NOW + 1, &counted(Reading::Absent));
    assert_eq!(blind(&state), Vec::<String>::new());
    let mut short = counted(Reading::Present(1));
    let record = short.records.get_mut(&Class::Gpu).unwrap();
    record.require("gpu.0.vbios", Reading::<&str>::failed("no answer"));
    short.probes[0].outcome = ProbeStatus::Incomplete;
    state.observe(NOW + 2, &short);
    assert_eq!(blind(&state), Vec::<String>::new());
    // A class without a count is blind if all its keys are unknown.
    let mut cpu = ClassRecord::new(Class::Cpu);
    for key in ["cpu.vendor", "cpu.model"] {
        cpu.require(key, Reading::<&str>::denied("no permission"));
    }
    let mut seen = read(ProbeStatus::Incomplete, None);
    seen.probes[0].class = Class::Cpu;
    seen.probes[0].name = "cpu".to_owned();
    seen.records.insert(Class::Cpu, cpu.clone());
    state.observe(NOW + 4, &seen);
    let blind = state.summary().probe_failures(&[Class::Cpu]);
    assert_eq!(blind.len(), 1, "{blind:?}");
    cpu.require("cpu.vendor", Reading::Present("GenuineIntel"));
    seen.records.insert(Class::Cpu, cpu);
    state.observe(NOW + 5, &seen);
    assert!(state.summary().probe_failures(&[Class::Cpu]).is_empty());
}

#[test]
fn a_string_that_cannot_be_decoded_makes_no_node_unusable() {
    let mut memory = ClassRecord::new(Class::Memory);
    memory.require("memory.numa.count", Reading::Present(2_u32));
    let why = r#"SMBIOS string 2: not UTF-8: "Hyn\xeex""#;
    let failed = Reading::<&str>::failed(why);
    memory.require_if_failed("memory.dimm.0.manufacturer", failed);
    let mut seen = read(ProbeStatus::from(&memory), None);
    assert_eq!(seen.probes[0].outcome, ProbeStatus::Incomplete);
    seen.probes[0].class = Class::Memory;
    seen.probes[0].name = "memory".to_owned();
    seen.records.insert(Class::Memory, memory);
    let mut state = state(StoredHealth::default(), "b1", NOW);
    state.observe(NOW, &seen);
    assert_eq!(state.summary().probe_failures(&[Class::Memory]), [""; 0]);
    assert_eq!(state.summary().worst, None);
}

#[test]
fn observe_only_reason_is_not_published() {
    let site = "version: s1\nchecks: {gpu.row_remap.pending: {observe_only: true}}\n";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut state = State::new(table, StoredHealth::default(), "b1", NOW);
    state.observe(NOW, &read(ProbeStatus::Complete, Some(true)));
    let expected = HealthSummary {
        enabled: true,
        has_gpus: true,
        evaluated_findings: state.summary().evaluated_findings,
        probes: state.summary().probes,
        ..HealthSummary::default()
    };
    assert_eq!(state.summary(), expected);
    assert_eq!(entities(&state), [pair("gpu.row_remap.pending", "gpu.1")]);
}

#[test]
fn only_what_must_not_be_lost_is_urgent() {
    let mut state = state(StoredHealth::default(), "b1", NOW);
    let before = state.present_faults();
    state.observe(NOW, &read(ProbeStatus::Complete, Some(true)));
    let found = state.present_faults();
    assert_ne!(before, found);
    state.observe(NOW + 60_000, &read(ProbeStatus::Complete, Some(true)));
    assert_eq!(state.present_faults(), found);
    assert_eq!(state.report().reasons[0].count, 2);
}

/// Read that found NICs at these addresses.
fn nics(addresses: &[&str]) -> Inventory {
    let mut record = ClassRecord::new(Class::Nic);
    record.require(
        "nic.count",
        Reading::Present(u32::try_from(addresses.len()).unwrap()),
    );
    let mut seen = Inventory::default();
    seen.records.insert(Class::Nic, record);
    let nic = |(slot, address): (usize, &&str)| NicIdentity {
        slot: u32::try_from(slot).unwrap(),
        address: Reading::Present((*address).to_owned()),
        ..NicIdentity::default()
    };
    seen.identity.nics = addresses.iter().enumerate().map(nic).collect();
    seen
}

#[test]
fn missing_nic_reason_survives_boot_until_cleared() {
    let mut first = state(StoredHealth::default(), "b1", NOW);
    first.observe(NOW, &nics(&["0000:1a:00.0", "0000:3b:00.0"]));
    assert_eq!(entities(&first), []);
    // A reboot does not bring the NIC back, and a new agent remembers it.
    let mut second = state(first.stored(), "b2", NOW + 1_000);
    second.observe(NOW + 2_000, &nics(&["0000:1a:00.0"]));
    assert_eq!(entities(&second), [("nic.missing".into(), "nic".into())]);
    let reason = second.report().reasons.remove(0);
    assert_eq!(reason.evidence, "nic.1 was at 0000:3b:00.0 and is gone");
    assert_eq!(reason.severity, Severity::Faulty);
    assert_eq!(second.clear(NOW + 3_000, "ada", ("nic.missing", None)), 1);
    second.observe(NOW + 4_000, &nics(&["0000:1a:00.0"]));
    assert_eq!(entities(&second), [], "it was taken out on purpose");
}

#[test]
fn omits_findings_that_a_check_covers() {
    let said = state(StoredHealth::default(), "b1", NOW).summary();
    for code in FindingCode::ALL {
        assert!(
            said.evaluated_findings.contains(code.name()),
            "{}",
            code.name()
        );
    }
}
