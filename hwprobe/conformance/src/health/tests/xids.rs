//! NVIDIA's catalogue by immediate action, repeated here: a number that leaves the table or changes its class is found.

use super::*;
use std::collections::BTreeMap;

/// Class, its numbers, severity, action, and whether the reason ends after a day.
type Row = (&'static str, &'static [u32], Severity, Action, bool);

const ROWS: &[Row] = &[
    (
        "application",
        &[
            8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84,
            85, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130,
            131, 132, 133, 134, 135, 139,
        ],
        Severity::Inform,
        Action::RestartApplication,
        true,
    ),
    (
        "contained_ecc",
        &[94],
        Severity::Degraded,
        Action::RestartApplication,
        true,
    ),
    (
        "reset",
        &[
            46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158,
        ],
        Severity::Faulty,
        Action::ResetGpu,
        false,
    ),
    (
        "off_the_bus",
        &[79],
        Severity::Faulty,
        Action::Reboot,
        false,
    ),
    (
        "restart_vm",
        &[151],
        Severity::Faulty,
        Action::Reboot,
        false,
    ),
    ("mechanics", &[54], Severity::Faulty, Action::Inspect, false),
    ("update", &[78], Severity::Faulty, Action::Update, false),
    ("uvm", &[159], Severity::Degraded, Action::Inspect, true),
    ("support", &[142], Severity::Faulty, Action::Inspect, false),
    (
        "nvlink",
        &[74, 144, 145, 146, 147, 148, 149, 150],
        Severity::Faulty,
        Action::Inspect,
        false,
    ),
    (
        "double_bit_ecc",
        &[48],
        Severity::Faulty,
        Action::ResetGpu,
        false,
    ),
    (
        "recovery_action",
        &[154],
        Severity::Degraded,
        Action::Inspect,
        false,
    ),
    (
        "follows_another",
        &[45],
        Severity::Inform,
        Action::None,
        true,
    ),
    (
        "power_smoothing_off",
        &[163],
        Severity::Inform,
        Action::Inspect,
        false,
    ),
    (
        "power_smoothing_on",
        &[162],
        Severity::Inform,
        Action::None,
        true,
    ),
    (
        "inform",
        &[
            37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 160, 161,
        ],
        Severity::Inform,
        Action::None,
        true,
    ),
];

#[test]
fn every_xid_of_the_catalogue_is_in_its_class_and_no_other_is() {
    let table = Table::shipped().unwrap();
    let of_table: BTreeMap<&str, Vec<u32>> = table
        .xids
        .iter()
        .map(|(name, class)| (name.as_str(), class.codes.iter().copied().collect()))
        .collect();
    let of_rows = ROWS.iter().map(|(name, codes, ..)| (*name, codes.to_vec()));
    assert_eq!(of_table, of_rows.collect());
    for (name, _, severity, action, ends) in ROWS {
        let class = &table.xids[*name];
        let found = (class.severity, class.action, class.counts_for_s);
        assert_eq!(
            found,
            (*severity, *action, ends.then_some(86_400)),
            "{name}"
        );
        assert!(!class.observe_only, "{name}");
    }
}

#[test]
fn what_dcgm_always_fails_on_takes_the_node_out_of_service() {
    for xid in [48, 74, 79, 95, 119, 120, 140] {
        let mut engine = engine();
        engine.event(0, "gpu.0", &EventCode::Xid(xid), "");
        let reasons = engine.report().reasons;
        assert!(reasons.iter().any(Reason::drains), "{xid}: {reasons:?}");
    }
}

/// Kernel lines of NVLink 5 without `NVRM: Xid (…): `, with the expected result: the evaluation of the severity that
/// the message names.
const NVLINK5: &[(u32, &str, Severity, Action)] = &[
    (
        145,
        "RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004 0x80000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        Severity::Inform,
        Action::None,
    ),
    (
        149,
        "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        Severity::Faulty,
        Action::Inspect,
    ),
    (
        144,
        "pid='<unknown>', name=<unknown>, SAW_MVB Non-fatal XC0 i0 Link 00 (0x00000001 0x00000001)",
        Severity::Inform,
        Action::None,
    ),
    // Without the word, the table decides.
    (150, "MSE_WATCHDOG", Severity::Faulty, Action::Inspect),
    (147, "", Severity::Faulty, Action::Inspect),
    // A milder class stays, and a number without a class is evaluated too.
    (13, "Nonfatal", Severity::Inform, Action::RestartApplication),
    (167, "PCIe fatal timeout", Severity::Faulty, Action::Inspect),
    (999, "Nonfatal", Severity::Inform, Action::None),
    // A process chooses its own name.
    (
        79,
        "pid=7, name=Nonfatal, GPU has fallen off the bus.",
        Severity::Faulty,
        Action::Reboot,
    ),
];

#[test]
fn the_severity_in_a_message_overrides_the_table() {
    for (xid, message, severity, action) in NVLINK5 {
        let mut engine = engine();
        engine.set_boot_id("b1");
        let code = EventCode::Xid(*xid);
        let reason = engine.event(0, "gpu.3", &code, message);
        assert_eq!(
            (reason.severity, reason.action),
            (*severity, *action),
            "{xid} {message}"
        );
        assert_eq!(engine.report().reasons, std::slice::from_ref(&reason));
        // Another agent evaluates the stored reason alike.
        let mut again = Engine::new(Table::shipped().unwrap(), engine.memory().clone());
        assert_eq!(again.report().reasons, [reason], "{message}");
        // A fatal event counts until the next boot, a non-fatal one for a day.
        again.observe(25 * HOUR, &Inventory::default());
        assert_eq!(
            again.report().reasons.len(),
            usize::from(*severity == Severity::Faulty)
        );
    }
}

#[test]
fn a_site_that_changes_an_xid_overrides_the_message() {
    let site = "version: x\nxids: { 145: { severity: degraded } }";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut engine = Engine::new(table, EngineState::default());
    for word in ["Nonfatal", "Fatal"] {
        let reason = engine.event(0, "gpu.3", &EventCode::Xid(145), word);
        assert_eq!(reason.severity, Severity::Degraded);
    }
    // Other numbers of its class are not changed.
    let reason = engine.event(0, "gpu.3", &EventCode::Xid(146), "Nonfatal");
    assert_eq!(reason.severity, Severity::Inform);
}

#[test]
fn a_recovered_error_hides_no_fatal_one() {
    let mut engine = engine();
    let code = EventCode::Xid(145);
    engine.event(0, "gpu.3", &code, "RLW_REMAP Nonfatal XC0");
    engine.event(SECOND, "gpu.3", &code, "RLW_REMAP Fatal XC0");
    engine.event(2 * SECOND, "gpu.3", &code, "RLW_CTRL Nonfatal XC0");
    // The driver's own event; the kernel log delivers its text later.
    engine.event(3 * SECOND, "gpu.3", &code, "");
    engine.add_message(3 * SECOND, "gpu.3", &code, "RLW_CTRL Nonfatal XC0");
    let reasons = engine.report().reasons;
    assert_eq!(reasons.len(), 1);
    assert!(reasons[0].drains());
    assert_eq!(reasons[0].count, 4);
    assert_eq!(reasons[0].evidence, "an NVLink failed: RLW_REMAP Fatal XC0");
    // The errors of another GPU are separate.
    let other = engine.event(4 * SECOND, "gpu.4", &code, "RLW_CTRL Nonfatal XC0");
    assert!(!other.drains());
    assert_eq!(engine.clear("gpu.xid.145", Some("gpu.3")), 1);
    assert_eq!(engine.report().worst, Some(Severity::Inform));
}

#[test]
fn a_late_kernel_line_corrects_the_drivers_own_event() {
    let mut engine = engine();
    let code = EventCode::Xid(145);
    engine.event(10 * SECOND, "gpu.3", &code, "");
    assert!(engine.report().reasons[0].drains());
    // The line of an earlier event, of another GPU, and of no event change nothing.
    engine.add_message(HOUR, "gpu.3", &code, "Nonfatal");
    engine.add_message(10 * SECOND, "gpu.4", &code, "Nonfatal");
    engine.add_message(10 * SECOND, "gpu.3", &EventCode::Xid(146), "Nonfatal");
    engine.add_message(10 * SECOND, "gpu.3", &code, "");
    assert!(engine.report().reasons[0].drains());
    engine.add_message(11 * SECOND, "gpu.3", &code, "RLW_REMAP Nonfatal XC0");
    let reasons = engine.report().reasons;
    assert_eq!(
        (reasons[0].severity, reasons[0].count),
        (Severity::Inform, 1)
    );
    assert_eq!(
        reasons[0].evidence,
        "an NVLink failed: RLW_REMAP Nonfatal XC0"
    );
    // The worse line of a second event in the same moment.
    engine.add_message(12 * SECOND, "gpu.3", &code, "RLW_REMAP Fatal XC0");
    assert!(engine.report().reasons[0].drains());
    // So does the recovery action.
    let code = EventCode::Xid(154);
    engine.event(0, "gpu.5", &code, "");
    let text = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)";
    engine.add_message(SECOND, "gpu.5", &code, text);
    let reasons = engine.report().reasons;
    let reason = reasons.iter().find(|reason| reason.entity == "gpu.5");
    assert_eq!(reason.unwrap().action, Action::ResetGpu);
}

#[test]
fn no_description_contains_the_separator_of_a_message() {
    let table = Table::shipped().unwrap();
    let numbered = table.xids.values().chain(table.sxids.values());
    let named = table.events.values().map(|class| &class.about);
    for about in numbered.map(|class| &class.about).chain(named) {
        assert!(!about.contains(": "), "{about}");
    }
}

#[test]
fn power_smoothing_drains_nothing_and_ends_when_it_is_back() {
    let mut engine = engine();
    engine.event(0, "gpu.1", &EventCode::Xid(163), "");
    assert_eq!(engine.report().worst, Some(Severity::Inform));
    assert!(!engine.report().reasons[0].drains());
    engine.observe(50 * HOUR, &Inventory::default());
    assert_eq!(codes(&engine), ["gpu.xid.163 gpu.1"]);
    engine.event(51 * HOUR, "gpu.2", &EventCode::Xid(162), "");
    assert_eq!(codes(&engine), ["gpu.xid.162 gpu.2", "gpu.xid.163 gpu.1"]);
    engine.event(52 * HOUR, "gpu.1", &EventCode::Xid(162), "");
    assert_eq!(codes(&engine), ["gpu.xid.162 gpu.1", "gpu.xid.162 gpu.2"]);
}

#[test]
fn a_fatal_error_of_an_nvswitch_takes_the_node_out_of_service() {
    const SWITCH: &str = "0000:06:00.0";
    let mut engine = engine();
    engine.set_boot_id("b1");
    for (number, action) in [
        (20034, Action::ResetGpu),
        (22003, Action::Reboot),
        (1, Action::ResetGpu),
    ] {
        let code = EventCode::Sxid(number);
        let reason = engine.event(0, SWITCH, &code, "Fatal, Link 48 LTSSM Fault Up");
        assert_eq!(
            (reason.severity, reason.action),
            (Severity::Faulty, action),
            "{number}"
        );
        assert_eq!(reason.code, format!("nvswitch.sxid.{number}"));
        assert!(reason.drains());
    }
    engine.observe(400 * HOUR, &Inventory::default());
    assert_eq!(engine.report().reasons.len(), 3);
    // A site changes one number.
    let site = "version: x\nsxids: { 20034: { severity: inform, action: none, counts_for_s: 60 } }";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut calm = Engine::new(table, engine.memory().clone());
    let of = |engine: &Engine, number: u32| {
        let reasons = engine.report().reasons.into_iter();
        let code = format!("nvswitch.sxid.{number}");
        reasons
            .filter(|reason| reason.code == code)
            .map(|reason| reason.severity)
            .next()
    };
    assert_eq!(of(&calm, 20034), Some(Severity::Inform));
    assert_eq!(of(&calm, 22003), Some(Severity::Faulty));
    calm.set_boot_id("b2");
    assert_eq!(codes(&calm), Vec::<String>::new());
}
