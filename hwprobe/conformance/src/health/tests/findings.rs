//! Findings of probes: each has exactly one check.

use super::*;
use crate::FindingCode;

#[test]
fn every_finding_of_every_probe_is_judged_by_exactly_one_check() {
    let table = Table::shipped().unwrap();
    for code in FindingCode::ALL {
        let checks = table.checks.iter();
        let judges = checks.filter(|(_, check)| check.findings().any(|name| name == code.name()));
        let judges: Vec<&String> = judges.map(|(code, _)| code).collect();
        assert_eq!(judges.len(), 1, "{}: {judges:?}", code.name());
        assert_eq!(FindingCode::from_name(code.name()), Some(code));
    }
}

#[test]
fn what_waits_for_a_reboot_or_an_operator_is_no_fault_of_the_node() {
    for code in [
        FindingCode::NicConfigPending,
        FindingCode::NicRebootPending,
        FindingCode::BiosRebootPending,
        FindingCode::BiosSettingsPending,
        FindingCode::BiosVersionMismatch,
        FindingCode::BmcNotAvailable,
        FindingCode::PowerMeterAmbiguous,
    ] {
        let mut engine = engine();
        let mut seen = seen(&[("nic.1.config.pending", number(3))]);
        seen.findings.push(Finding::new(code, "seen"));
        engine.observe(0, &seen);
        let report = engine.report();
        assert_eq!(report.worst, Some(Severity::Inform), "{code:?}: {report:?}");
        assert!(report.reasons.iter().all(|reason| !reason.drains()));
    }
}

#[test]
fn a_sites_check_of_a_finding_ends_with_it_whatever_its_name() {
    let site = "
version: x
checks:
  ours.gone: { about: a, finding: gpu_lost, severity: degraded, action: inspect }
";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut engine = Engine::new(table, EngineState::default());
    let mut fine = Inventory::default();
    let record = crate::ClassRecord::new(Class::Gpu);
    fine.records.insert(Class::Gpu, record);
    let mut lost = fine.clone();
    lost.findings
        .push(Finding::new(FindingCode::GpuLost, "gpu 3"));
    engine.observe(0, &lost);
    assert_eq!(codes(&engine), ["gpu.gone gpu", "ours.gone gpu"]);
    engine.observe(SECOND, &fine);
    assert_eq!(codes(&engine), Vec::<String>::new());
    let unknown = site.replace("gpu_lost", "gpu_lsot");
    let error = Table::shipped().unwrap().with_site(&unknown).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("checks.ours.gone: unknown finding \"gpu_lsot\" (known: "),
        "{text}"
    );
}
