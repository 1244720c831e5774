//! CXL memory: expanders by PCI address, and the regions built from them.

use crate::{Root, pci};
use lattice_conformance::{ProbeResult, Reading, Value, text};

const DEVICES: &str = "/sys/bus/cxl/devices";

pub(super) fn keys(root: &Root, probed: &mut ProbeResult) {
    let names = root.list(DEVICES);
    let numbered = |prefix: &str| {
        names.as_ref().map(|names| {
            let found = names.iter().filter(|name| {
                let number = name.strip_prefix(prefix).unwrap_or_default();
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            });
            found
                .map(|name| format!("{DEVICES}/{name}"))
                .collect::<Vec<_>>()
        })
    };
    expanders(root, numbered("mem"), probed);
    regions(root, numbered("region"), probed);
}

fn expanders(root: &Root, found: Reading<Vec<String>>, probed: &mut ProbeResult) {
    let sorted = found.map(|mut dirs| {
        dirs.sort_by_key(|dir| {
            let path = root.resolve(dir).unwrap_or_default();
            let address = pci::address_in(&path.to_string_lossy()).and_then(pci::address_sort_key);
            (address.unwrap_or((u64::MAX, u64::MAX)), dir.clone())
        });
        dirs
    });
    let record = &mut probed.record;
    record.put(
        "memory.cxl.count",
        sorted.as_ref().map(|dirs| count(dirs.len())),
    );
    for (slot, dir) in sorted.present().into_iter().flatten().enumerate() {
        let key = |name: &str| format!("memory.cxl.{slot}.{name}");
        record.put(key("ram"), hex(root, &format!("{dir}/ram/size")));
        record.put(key("persistent"), hex(root, &format!("{dir}/pmem/size")));
        record.put(
            key("firmware"),
            root.firmware(format!("{dir}/firmware_version")),
        );
    }
}

/// Reads the regions, sorted by content: their numbers depend on the order of creation.
fn regions(root: &Root, found: Reading<Vec<String>>, probed: &mut ProbeResult) {
    const FILES: [(&str, &str); 4] = [
        ("mode", "mode"),
        ("size", "size"),
        ("ways", "interleave_ways"),
        ("granularity", "interleave_granularity"),
    ];
    let sorted = found.map(|dirs| {
        let mut regions: Vec<Vec<(&str, Reading<Value>)>> = dirs
            .iter()
            .map(|dir| {
                let files = FILES.iter().map(|(name, file)| {
                    let path = format!("{dir}/{file}");
                    let value = match *name {
                        "size" => hex(root, &path),
                        _ => root.line(path).map(text::number_or_text),
                    };
                    (*name, value)
                });
                files.collect()
            })
            .collect();
        regions.sort();
        regions
    });
    let record = &mut probed.record;
    let total = sorted.as_ref().map(|regions| count(regions.len()));
    record.put("memory.cxl.region.count", total);
    for (slot, region) in sorted.present().into_iter().flatten().enumerate() {
        for (name, value) in region {
            record.put(format!("memory.cxl.region.{slot}.{name}"), value.clone());
        }
    }
}

fn hex(root: &Root, path: &str) -> Reading<Value> {
    root.line(path).and_then(|raw| text::hex_number(&raw))
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
