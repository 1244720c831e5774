//! Software RAID (`md`): geometry as conformance, state as vitals.

use super::{count, number};
use crate::Root;
use lattice_conformance::{ProbeResult, Reading};

const BLOCK: &str = "/sys/block";

pub(super) fn keys(root: &Root, probed: &mut ProbeResult) {
    let names = root.list(BLOCK);
    let found = names.present().into_iter().flatten();
    let arrays = found.filter(|name| {
        let number = name.strip_prefix("md").unwrap_or_default();
        !number.is_empty() && root.exists(format!("{BLOCK}/{name}/md"))
    });
    // Array numbers are assigned at assembly; equal nodes share the geometry.
    let mut shaped: Vec<(Vec<String>, String)> = arrays
        .map(|name| {
            let dir = format!("{BLOCK}/{name}/md");
            let files = ["level", "raid_disks", "chunk_size", "metadata_version"];
            let shape = files.map(|file| root.line(format!("{dir}/{file}")).to_string());
            (shape.to_vec(), dir)
        })
        .collect();
    shaped.sort();
    let record = &mut probed.record;
    record.put("storage.raid.count", names.map(|_| count(shaped.len())));
    for (slot, (_, dir)) in shaped.iter().enumerate() {
        let key = |name: &str| format!("storage.raid.{slot}.{name}");
        let line = |file: &str| root.line(format!("{dir}/{file}"));
        record.put(key("level"), line("level"));
        record.put(key("chunk"), number(root, &format!("{dir}/chunk_size")));
        record.put(key("members"), number(root, &format!("{dir}/raid_disks")));
        record.put(key("metadata"), line("metadata_version"));
        let vitals = &mut probed.vitals;
        vitals.put(key("state"), line("array_state"));
        vitals.put(
            key("degraded"),
            match number(root, &format!("{dir}/degraded")) {
                // Levels without redundancy have no such file.
                Reading::Absent => Reading::Unsupported,
                degraded => degraded,
            },
        );
        vitals.put(key("sync"), line("sync_action"));
    }
}
