//! Capture of a node with GPUs.

use super::*;
use crate::trials::{Test, tests};

pub const TESTS: &[Test] = tests![a_capture_has_the_gpus,];

pub(crate) fn a_capture_has_the_gpus() {
    let tree = tree();
    let mut driver = driver();
    for gpu in &mut driver.gpus {
        gpu.platform = Some(Field::Value(fake::Platform {
            chassis_serial: "CHASSIS-17".into(),
            slot: 3,
            tray: 1,
            host: 0,
            peer_type: 2,
            module: 5,
        }));
        gpu.fabric = Some(Field::Value(fake::Fabric {
            cluster_uuid: "01234567-89ab-cdef-0123-456789abcdef".into(),
            clique_id: 3,
            state: fake::FabricState::Completed,
            status: None,
            health_mask: 0,
            health_summary: 1,
        }));
    }
    let host = host(&tree, &driver);
    let place = &probe_all(&host).topology.places[1];
    assert_eq!(
        place.chassis_serial,
        Reading::Present("CHASSIS-17".to_owned())
    );
    assert_eq!(
        (place.slot.clone(), place.module.clone()),
        (Reading::Present(3), Reading::Present(5))
    );
    let out = tempfile::TempDir::new().unwrap();
    capture(&host, out.path(), Privacy::Mask).unwrap();
    let recorded = NvmlSource::Recorded(out.path().join(GPU_REPORT));
    let again = probe_all(&Host::new(out.path(), recorded));
    assert_eq!(again.marks(), probe_all(&host).marks());
    assert!(!format!("{:?}", again.identity).contains("GPU-first"));
    let record = std::fs::read_to_string(out.path().join(GPU_REPORT)).unwrap();
    for name in ["GPU-second", "CHASSIS-17", "0123456789abcdef"] {
        assert!(!record.contains(name), "{name}");
    }
}
