//! Prints a summary of each system in every recorded BMC tree.
//!
//! `cargo run -p lattice-redfish --example trees [TREE]`: with the name of a tree, prints the complete report of that
//! tree only.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "an example over files of the repository"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use lattice_conformance::{ClassRecord, ClassState, Milliwatts, Reading, Value};
use lattice_redfish::NodeReport;

fn main() {
    let only = std::env::args().nth(1);
    for (name, _, _) in support::TREES {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let tree = support::tree(name);
        let (report, took) = support::read(&tree, &support::everything());
        println!("{name}: {took} resources of {}", tree.0.len());
        if let Some(why) = &report.unselected {
            println!("  {why}");
        }
        for node in &report.nodes {
            print_summary(node);
            if only.is_some() {
                print_details(node);
            }
        }
    }
}

fn print_summary(node: &NodeReport) {
    let watts = |reading: &Reading<Milliwatts>| reading.to_string();
    let power = &node.power;
    println!("  {}:", node.system.id);
    println!(
        "    bios {}  settings {}",
        node.bios.get("bios.redfish.version"),
        count(&node.bios.get("bios.setting.names"))
    );
    println!(
        "    bmc {}  inventory {}",
        node.bmc.get("bmc.firmware"),
        count(&node.bmc.get("bmc.inventory.names"))
    );
    println!(
        "    draw {}  limit {}  state {}  range {} to {}  exception {}",
        watts(&power.draw),
        watts(&power.limit),
        power.limit_state,
        watts(&power.limit_min),
        watts(&power.limit_max),
        power.exception_action
    );
    println!(
        "    source {}  classes bmc {} bios {}",
        power.source,
        state(&node.bmc),
        state(&node.bios)
    );
    for finding in &node.findings {
        println!("    {}: {}", finding.code, finding.detail);
    }
}

fn count(names: &Reading<Value>) -> String {
    match names {
        Reading::Present(Value::List(names)) => names.len().to_string(),
        other => other.to_string(),
    }
}

fn state(record: &ClassRecord) -> String {
    match record.state() {
        ClassState::Complete { digest, .. } => digest.short(),
        ClassState::Incomplete { missing } => format!("incomplete {missing:?}"),
        ClassState::Disabled { why } => why,
    }
}

fn print_details(node: &NodeReport) {
    println!("    {:?}", node.system);
    println!("    {:?}", node.route);
    for record in [&node.bmc, &node.bios] {
        for (key, reading) in &record.entries {
            println!("    {key} = {reading}");
        }
    }
    for (key, reading) in &node.vitals.0 {
        println!("    {key} = {reading}");
    }
}
