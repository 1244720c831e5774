//! A BMC over HTTPS gives the same results as its recording, resource by resource and as a whole.

use crate::http_support::{assert_polite, client, recorded, settings, simulated};
use lattice_conformance::Reading;
use lattice_redfish::recorded::load;
use lattice_redfish::{
    Breadth, Documents, Interpretation, Scope, Selector, interpret, read_by_route,
};
use std::path::Path;

/// Reads the recording alone; a missing resource is absent.
fn read_recorded(machine: &str, scope: &Scope) -> Interpretation {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures/redfish");
    let recorded = load(&captures.join(format!("{machine}.tar.gz"))).unwrap();
    let mut documents = Documents::default();
    loop {
        let interpretation = interpret(&documents, scope);
        if interpretation.wanted.is_empty() {
            return interpretation;
        }
        for path in interpretation.wanted {
            let reading = recorded.get(&path).cloned().unwrap_or(Reading::Absent);
            documents.0.insert(path, reading);
        }
    }
}

#[tokio::test]
async fn served_recordings_match_files() {
    for machine in [
        "cray-ex235a-mi250x",
        "cray-ex235n-a100",
        "gigabyte-h262-ami",
        "hpe-dl325-ilo5",
        "hpe-dl380a-gen11-ilo6",
        "supermicro-x10sdv",
    ] {
        let bmc = simulated(recorded(machine));
        let bmc = bmc.tls().unwrap().start().await.unwrap();
        let client = client(&bmc, settings());
        let scope = Scope {
            systems: Selector::Every,
            breadth: Breadth::Everything,
        };
        let look = client.read(&scope).await;
        let said = read_recorded(machine, &scope);
        assert_eq!(look.interpretation.report, said.report, "{machine}");
        // Again by the power route, with a request or two per node.
        for node in &look.interpretation.report.nodes {
            bmc.clear_counters();
            let power = client.read_power(&node.route).await;
            assert_eq!(power.power, node.power, "{machine} {}", node.system.id);
            assert!(power.wanted.is_empty());
            let requests = bmc.counters().requests;
            assert!(requests <= 3, "{machine}: {requests} requests");
            assert!(!read_by_route(&look.documents, &node.route).is_stale);
        }
        client.close().await;
        assert_polite(&bmc);
        assert_eq!(bmc.counters().sessions, 0, "{machine}");
    }
}
