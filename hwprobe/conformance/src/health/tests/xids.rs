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
