//! Real boards: the output of `nvidia-smi`, compared with the probe's results through the driver library's calls.
//! Prints every value; a wrong or invented value fails.
//!
//! The captures' text is parsed here. `fixtures/nvml/describe.py` creates the descriptions from which the fake library
//! answers. The two share no code.

use crate::support::smi::{Smi, rows};
use crate::trials::{Test, tests};
use lattice_conformance::{Class, Inventory, Reading, Value};
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::{Host, NvmlSource, PROBES};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Description and capture of each board.
const BOARDS: &[(&str, &str)] = &[
    ("h100", "h100-80gb-hbm3-590.48.01.nvidia-smi.txt"),
    ("rtx-4080-super", "rtx-4080-super-595.71.05.nvidia-smi.txt"),
    ("a100", "a100-sxm4-535.54.03.nvidia-smi-qx.xml"),
    ("rtx-3080", "rtx-3080-595.58.03.nvidia-smi-qx.xml"),
    ("tesla-t4", "tesla-t4-515.105.01.nvidia-smi-qx.xml"),
    ("quadro-p400", "quadro-p400-418.43.nvidia-smi-qx.xml"),
];

pub const TESTS: &[Test] = tests![
    every_value_of_every_board_is_found,
    eight_boards_have_twelve_links_each,
    known_values_by_hand,
    descriptions_are_what_the_captures_make,
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// Runs the GPU probe only, through a real child.
fn probe(board: &str) -> Inventory {
    let description = fixtures().join(format!("nvml/boards/{board}.json"));
    let library = library_path().expect("the fake library is built with this test");
    let program = std::env::current_exe().unwrap();
    let source = NvmlSource::child(program, Some(&library)).with_env(DESCRIPTION_ENV, description);
    let root = tempfile::tempdir().unwrap();
    let host = Host::new(root.path(), source);
    let probe = PROBES.iter().find(|probe| probe.name == "gpu").unwrap();
    let mut inventory = Inventory::default();
    inventory.add_result(probe.name, std::time::Duration::ZERO, (probe.run)(&host));
    inventory
}

/// Every GPU value in both planes.
fn found(inventory: &Inventory) -> BTreeMap<String, Reading<Value>> {
    let mut all = inventory.vitals.0.clone();
    all.extend(inventory.records[&Class::Gpu].entries.clone());
    all
}

/// Whether the key is the sum of retired pages over both causes, which no tool prints.
fn is_sum_of_retired(found: &BTreeMap<String, Reading<Value>>, key: &str) -> bool {
    let number = |key: &str| found.get(key)?.present()?.as_number();
    let of = |cause: &str| number(&key.replace(".total", cause));
    let sum = of(".single_bit").zip(of(".double_bit")).map(|(a, b)| a + b);
    key.ends_with(".retired_pages.total") && sum.is_some() && sum == number(key)
}

fn every_value_of_every_board_is_found() {
    let (mut equal, mut without, mut problems) = (0, 0, Vec::new());
    for (board, capture) in BOARDS {
        let text = std::fs::read_to_string(fixtures().join("captures").join(capture)).unwrap();
        let smi = Smi::parse(&text);
        let found = found(&probe(board));
        println!("\n{board}: {capture}");
        println!("  {:<42} {:<34} found", "key", "published");
        let mut known = BTreeSet::new();
        for (key, published, wanted) in rows(&smi) {
            let reading = found.get(&key).cloned().unwrap_or_default();
            known.insert(key.clone());
            let published = published.unwrap_or_else(|| "(not printed)".to_owned());
            println!("  {key:<42} {published:<34} {reading}");
            match wanted {
                Some(value) if reading == Reading::Present(value.clone()) => equal += 1,
                Some(value) => problems.push(format!(
                    "{board}: {key}: published {published} ({value}), found {reading}"
                )),
                None if reading == Reading::Unsupported => without += 1,
                None => problems.push(format!(
                    "{board}: {key}: published {published}, found {reading}"
                )),
            }
        }
        for (key, reading) in &found {
            let is_made_up = reading.present().is_some() && !known.contains(key);
            if is_made_up && !is_sum_of_retired(&found, key) {
                problems.push(format!("{board}: {key}: made up: {reading}"));
            }
        }
    }
    println!("\n{equal} values equal, {without} not available on both sides");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(equal > 250 && without > 100, "{equal} {without}");
}

/// Values copied from the captures by hand, as a check independent of the parser above.
fn known_values_by_hand() {
    let present = |board: &str, key: &str| found(&probe(board))[key].to_string();
    for (board, key, value) in [
        ("h100", "gpu.driver", "590.48.01"),
        ("h100", "gpu.0.vbios", "96.00.A5.00.01"),
        ("h100", "gpu.0.power.default", "700000"),
        ("h100", "gpu.0.power.min", "200000"),
        ("h100", "gpu.0.part_number", "692-2G520-0200-000"),
        ("h100", "gpu.0.nvlink.links", "18"),
        ("h100", "gpu.0.temperature_margin_limit.shutdown", "-8"),
        ("h100", "gpu.0.fabric.status", "success"),
        ("rtx-4080-super", "gpu.0.ecc", "<unsupported>"),
        ("rtx-4080-super", "gpu.0.part_number", "<unsupported>"),
        ("rtx-4080-super", "gpu.0.nvlink.links", "<unsupported>"),
        ("rtx-4080-super", "gpu.0.power.max", "400000"),
        ("a100", "gpu.0.mig", "yes"),
        ("a100", "gpu.0.inforom.ecc", "6.16"),
        ("tesla-t4", "gpu.0.retired_pages.pending", "no"),
        ("quadro-p400", "gpu.0.power.default", "<unsupported>"),
        ("quadro-p400", "gpu.0.power.draw", "<unsupported>"),
        ("quadro-p400", "gpu.0.gsp.firmware", "<unsupported>"),
    ] {
        assert_eq!(present(board, key), value, "{board} {key}");
    }
}

fn eight_boards_have_twelve_links_each() {
    let inventory = probe("a100-8-nvlink");
    let found = found(&inventory);
    for gpu in 0..8 {
        let links = found[&format!("gpu.{gpu}.nvlink.links")].to_string();
        let active = found[&format!("gpu.{gpu}.nvlink.active")].to_string();
        assert_eq!((links.as_str(), active.as_str()), ("12", "12"), "gpu {gpu}");
        let peers = inventory
            .topology
            .nvlinks
            .iter()
            .filter(|peer| peer.gpu == gpu);
        let peers: Vec<_> = peers.map(|peer| (peer.to.clone(), peer.links)).collect();
        // The capture does not contain the far ends.
        assert_eq!(peers, [(Reading::Unsupported, 12)]);
    }
}

fn descriptions_are_what_the_captures_make() {
    let script = fixtures().join("nvml/describe.py");
    match std::process::Command::new("python3")
        .arg(script)
        .arg("--check")
        .output()
    {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
        Err(error) => eprintln!("SKIPPED: descriptions are not made anew: python3: {error}"),
    }
}
