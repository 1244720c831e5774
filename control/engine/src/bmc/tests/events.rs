//! BMC events, read by control together with the other values.

use super::*;
use crate::history::{EventContent, HistoryItem, Listing, ReportedBmcEvent};
use lattice_redfish::{BmcEventKind, BmcEventSeverity};
use serde_json::json;

const MANAGER: &str = "/redfish/v1/Managers/iDRAC.Embedded.1";
const IML: &str = "/redfish/v1/Systems/1/LogServices/IML/Entries";
const TASKS: &str = "/redfish/v1/TaskService/Tasks";

/// The BMC of the demo, from a complete folder.
fn xe9680() -> Tree {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bmc/xe9680");
    Tree::load(&folder).unwrap()
}

async fn started(tree: Tree) -> (FakeBmc, tempfile::TempDir, PathBuf) {
    let bmc = FakeBmc::builder(tree).steady().start().await.unwrap();
    let folder = folder();
    let entry = format!("url: '{}', nodes: gpu001", bmc.url());
    let path = file(folder.path(), &[entry]);
    (bmc, folder, path)
}

impl BmcFixture {
    /// Events of the BMC, oldest first.
    async fn deeds(&self) -> Vec<ReportedBmcEvent> {
        let items = self
            .history
            .list("gpu001".to_owned(), Listing::default(), 1_000);
        let items = items.await.unwrap().into_iter().rev();
        let of = |item| match item {
            HistoryItem::Event(happened) => match happened.what {
                EventContent::Bmc(did) => Some(*did),
                _ => None,
            },
            HistoryItem::Change(_) => None,
        };
        items.filter_map(of).collect()
    }

    async fn until_deeds(&self, count: usize) -> Vec<ReportedBmcEvent> {
        let ends_at = Instant::now() + Duration::from_secs(60);
        loop {
            let deeds = self.deeds().await;
            if deeds.len() >= count {
                return deeds;
            }
            assert!(Instant::now() < ends_at, "{count} deeds: {deeds:#?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for `count` more complete readings.
    async fn looks(&self, count: usize) {
        let at = |r: &Readings| r.parts(&id("gpu001")).map(|parts| parts.read_at);
        // Parts exist before the first reading.
        self.until("its parts", |r| at(r)).await;
        for _ in 0..count {
            let before = at(&self.readings);
            let later = |r: &Readings| (at(r) > before).then_some(());
            self.until("another look", later).await;
        }
    }
}

/// An entry of HPE's log in the format of that BMC.
fn entry(id: u32, severity: &str, message: &str) -> serde_json::Value {
    json!({
        "@odata.id": format!("{IML}/{id}"), "@odata.type": "#LogEntry.v1_1_0.LogEntry",
        "Id": id.to_string(), "EntryType": "Oem", "Severity": severity, "Message": message,
    })
}

#[tokio::test]
async fn flash_task_joins_change_once() {
    let (bmc, folder, path) = started(xe9680()).await;
    let plan = || BmcPlan::load(&path).unwrap();
    let kept = || kept_in(folder.path());
    let fixture = BmcFixture::with(plan(), kept().await);
    fixture.until_entries("gpu001", 1).await;
    fixture.looks(1).await;
    assert_eq!(fixture.deeds().await, [], "nothing was done yet");
    assert!(bmc.flash(MANAGER, "/FirmwareVersion", "7.10.50.00"));
    let deeds = fixture.until_deeds(1).await;
    let written_entries = fixture.until_entries("gpu001", 2).await;
    assert_eq!(change(&written_entries[1]).1, "7.10.50.00");
    let BmcEventKind::Task {
        name,
        state,
        started_at,
    } = &deeds[0].deed.of
    else {
        panic!("{deeds:#?}");
    };
    assert_eq!(name, "Firmware Update: iDRAC.Embedded.1 to 7.10.50.00");
    assert_eq!(state, "completed");
    assert!(started_at.is_some() && *started_at <= deeds[0].deed.at);
    assert_eq!(deeds[0].plausible_time(), deeds[0].deed.at);
    assert!(deeds[0].deed.at <= Some(deeds[0].read_at));
    drop(fixture.end().await);

    // The next run reads the list again from its beginning, and stores no event twice.
    let fixture = BmcFixture::with(plan(), kept().await);
    fixture.looks(3).await;
    assert_eq!(fixture.deeds().await.len(), 1);
    assert!(bmc.counters().in_flight_max <= 1);
}

#[tokio::test]
async fn a_look_at_which_nothing_is_new_costs_one_or_two_requests_more() {
    let (bmc, _folder, path) = started(tree("hpe-dl325-ilo5")).await;
    let fixture = BmcFixture::start(BmcPlan::load(&path).unwrap());
    fixture.looks(2).await;
    bmc.clear_counters();
    fixture.looks(4).await;
    let log = bmc.counters().log;
    let asked = |part: &str| log.iter().filter(|line| line.contains(part)).count();
    let looks = log
        .iter()
        .filter(|line| line.ends_with("/UpdateService"))
        .count();
    let (tasks, logs) = (asked("/TaskService"), asked("/Managers/1/LogServices"));
    let security = asked("/LogServices/SL");
    assert!((4..=6).contains(&looks), "{looks}: {log:#?}");
    assert!(tasks <= looks + 1, "{tasks} of tasks in {looks} looks");
    assert!(
        logs + security <= looks + 1,
        "{logs} and {security} in {looks} looks"
    );
}

#[tokio::test]
async fn reports_new_entries_regardless_of_clock() {
    let (bmc, _folder, path) = started(tree("hpe-dl325-ilo5")).await;
    let fixture = BmcFixture::start(BmcPlan::load(&path).unwrap());
    fixture.looks(2).await;
    // Hundreds of entries that are years old are not reported.
    assert_eq!(fixture.deeds().await, []);
    assert!(bmc.add(IML, entry(900, "Critical", "Uncorrectable memory error")));
    assert!(bmc.add(IML, entry(901, "OK", "Server power restored")));
    let mut flashed = entry(902, "OK", "Firmware flashed (iLO 5 2.72)");
    flashed["Created"] = json!("1970-01-01T00:03:12Z");
    assert!(bmc.add(IML, flashed));
    let deeds = fixture.until_deeds(2).await;
    assert_eq!(deeds.len(), 2, "{deeds:#?}");
    assert_eq!(deeds[0].deed.severity, BmcEventSeverity::Critical);
    assert_eq!((deeds[0].deed.at, deeds[1].deed.at), (None, Some(192_000)));
    assert_eq!(deeds[1].plausible_time(), None);

    let (bmc, _folder, path) = started(tree("supermicro-x10sdv")).await;
    for list in [
        "/redfish/v1/TaskService",
        "/redfish/v1/Systems/1/LogServices*",
    ] {
        bmc.break_path(list, Fault::NotFound);
    }
    let fixture = BmcFixture::start(BmcPlan::load(&path).unwrap());
    fixture.looks(3).await;
    assert_eq!(fixture.deeds().await, []);
    let parts = fixture.readings.parts(&id("gpu001")).unwrap();
    assert_eq!(parts.reasons, [], "that is normal");
}

#[tokio::test]
async fn lists_that_are_broken_huge_or_cyclic_cost_only_themselves() {
    let (bmc, _folder, path) = started(tree("hpe-dl325-ilo5")).await;
    let fixture = BmcFixture::start(BmcPlan::load(&path).unwrap());
    fixture.looks(2).await;
    bmc.break_path(TASKS, Fault::BrokenJson);
    bmc.break_path(
        "/redfish/v1/Managers/1/LogServices/IEL/Entries",
        Fault::Huge { bytes: 100 << 20 },
    );
    bmc.break_path(
        "/redfish/v1/Systems/1/LogServices/SL/Entries",
        Fault::CyclicLinks,
    );
    let flash = json!("iLO 5 v9.99");
    assert!(bmc.set("/redfish/v1/Managers/1", "/FirmwareVersion", flash.clone()));
    let inventory = "/redfish/v1/UpdateService/FirmwareInventory/1";
    let _ = bmc.set(inventory, "/Version", flash);
    assert!(bmc.add(IML, entry(900, "Warning", "a fan is slow")));
    let deeds = fixture.until_deeds(1).await;
    assert_eq!(deeds[0].deed.message, "a fan is slow");
    fixture.until_entries("gpu001", 2).await;
    let power = fixture.readings.power(&id("gpu001")).unwrap();
    assert!(power.power.draw.is_known(), "{power:?}");
    // Lists that answer again are read again.
    bmc.clear_faults();
    let of_manager = "/redfish/v1/Managers/1/LogServices/IEL/Entries";
    assert!(bmc.add(of_manager, entry(901, "Critical", "iLO: flash is worn out")));
    let deeds = fixture.until_deeds(2).await;
    assert_eq!(
        deeds[1].deed.message, "iLO: flash is worn out",
        "{deeds:#?}"
    );
}
