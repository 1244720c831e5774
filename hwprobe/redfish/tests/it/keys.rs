//! Every key of a BMC has a row in the key table, and every row of a BMC has a key.

use crate::support::{TREES, read, tree};
use lattice_conformance::{
    health::Table,
    keys::{KeyNeed, ROWS, row_of},
};
use lattice_redfish::{Breadth, Scope, Selector};
use std::collections::BTreeSet;

#[test]
fn every_key_of_a_bmc_has_a_row_and_every_row_a_key() {
    let scope = Scope {
        systems: Selector::Every,
        breadth: Breadth::Everything,
    };
    let mut seen = BTreeSet::new();
    for (name, _, _) in TREES {
        let (report, _) = read(&tree(name), &scope);
        for record in report.nodes.iter().flat_map(|node| [&node.bmc, &node.bios]) {
            for key in record.entries.keys() {
                let row = row_of(key).unwrap_or_else(|| panic!("{name}: no row describes {key}"));
                assert_eq!(row.class(), Ok(record.class), "{key}");
                // The system's own firmware provides settings too, which may be optional there.
                let is_required = record.required.contains(key);
                let is_shared = !row.source.eq("Redfish");
                assert!(
                    is_shared || (row.need == KeyNeed::Required) == is_required,
                    "{key}"
                );
                seen.insert(row.pattern);
            }
        }
    }
    let of_bmc = ROWS.iter().filter(|row| row.source.contains("Redfish"));
    for row in of_bmc {
        assert!(seen.contains(row.pattern), "no BMC tells {}", row.pattern);
    }
    assert!(seen.contains("bios.setting.<name>"));
    let row = row_of("bmc.firmware").expect("a row");
    assert_eq!(row.meaning, "the BMC's firmware");
}

#[test]
fn every_bmc_check_uses_a_provided_key() {
    let scope = Scope {
        systems: Selector::Every,
        breadth: Breadth::Everything,
    };
    let mut provided = BTreeSet::new();
    for (name, _, _) in TREES {
        let (report, _) = read(&tree(name), &scope);
        let vitals = report.nodes.iter().flat_map(|node| node.vitals.0.keys());
        provided.extend(vitals.cloned());
    }
    let table = Table::shipped().expect("a table");
    let keys = table.checks.values().filter_map(|check| check.key.as_ref());
    let of_bmc: Vec<_> = keys.filter(|key| key.first_segment() == "bmc").collect();
    assert_eq!(of_bmc.len(), 5);
    for key in of_bmc {
        let is_provided = provided.iter().any(|name| key.matches(name).is_some());
        assert!(is_provided, "no BMC tells {key}");
    }
}
