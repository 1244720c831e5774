//! Kernel: release, command line, and the settings that change how jobs run.

mod processors;

use super::ProbeResult;
use crate::cmdline::{mask_host, matches};
use crate::{Host, HostIdentifiers, Root};
use data_encoding::HEXLOWER;
use lattice_conformance::{Class, ClassRecord, Reading, Value, text};
use std::collections::BTreeSet;

/// Modules loaded on demand by programs: an idle node and a node after use would differ. Such a module is recorded only
/// if its full name is listed. The first CUDA program loads `nvidia_uvm`. `nvidia_drm` and `nvidia_modeset` are loaded
/// with the driver or not at all, and `nvidia_peermem` if an operator configured it.
const LOADED_ON_DEMAND: &[&str] = &["nvidia_uvm"];

/// Module parameters that describe this boot or this node, or hold a secret, and are not configuration. Lustre's
/// `networks` and `ip2nets` contain interface names and addresses.
const VOLATILE_PARAMETERS: &[&str] = &[
    "debug",
    "dump_debug",
    "networks",
    "ip2nets",
    "*key*",
    "*secret*",
    "*passw*",
    "*token*",
];

/// Reads release, command line and settings.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Kernel);
    let root = &host.root;
    // With read limits of their own: the identifiers must not use up those of the kernel's values.
    let own = HostIdentifiers::read(&root.bounded());
    let record = &mut probed.record;
    record.require("kernel.osrelease", root.line("/proc/sys/kernel/osrelease"));
    record.put("kernel.arch", root.line("/proc/sys/kernel/arch"));
    record.put(
        "kernel.build_id",
        root.bytes("/sys/kernel/notes").and_then(|n| build_id(&n)),
    );
    record.require(
        "kernel.cmdline",
        root.text("/proc/cmdline")
            .map(|line| Value::from(mask_host(&line, &host.masked_arguments, &own))),
    );
    for sysctl in &host.sysctls {
        let key = format!("kernel.sysctl.{}", sysctl.replace('/', "."));
        let path = format!("/proc/sys/{sysctl}");
        put_chosen_text(root, key, &path, text::number_or_text, record);
    }
    huge_pages(root, record);
    processors::keys(root, record);
    security(root, record);
    modules(root, &host.modules, &own, record);
    // Set by a driver, a warning or an oops since boot.
    let tainted = root.line("/proc/sys/kernel/tainted");
    probed
        .vitals
        .put("kernel.tainted", tainted.map(text::number_or_text));
    probed.identity.hostname = root.line("/proc/sys/kernel/hostname");
    probed.identity.boot_id = root.line("/proc/sys/kernel/random/boot_id");
    probed
}

/// Reads configured huge pages (not their use), transparent ones, and the merging of equal pages (KSM).
fn huge_pages(root: &Root, record: &mut ClassRecord) {
    let thp = "/sys/kernel/mm/transparent_hugepage";
    for file in ["enabled", "defrag", "shmem_enabled"] {
        let reading = root.line(format!("{thp}/{file}"));
        record.put(
            format!("kernel.thp.{file}"),
            reading.and_then(|line| text::selected_word(&line)),
        );
    }
    record.put(
        "kernel.ksm",
        root.line("/sys/kernel/mm/ksm/run")
            .map(text::number_or_text),
    );
    let sizes = root.list("/sys/kernel/mm/hugepages");
    for size in sizes.present().into_iter().flatten() {
        let Some(short) = size.strip_prefix("hugepages-") else {
            continue;
        };
        let path = format!("/sys/kernel/mm/hugepages/{size}/nr_hugepages");
        record.put(
            format!("kernel.hugepages.{short}"),
            root.line(path).map(text::number_or_text),
        );
    }
}

/// Reads IOMMU, security modules, lockdown and control groups.
fn security(root: &Root, record: &mut ClassRecord) {
    record.put("kernel.iommu", iommu(root));
    record.put("kernel.lsm", root.line("/sys/kernel/security/lsm"));
    let lockdown = root.line("/sys/kernel/security/lockdown");
    record.put(
        "kernel.lockdown",
        lockdown.and_then(|line| text::selected_word(&line)),
    );
    record.put(
        "kernel.selinux",
        root.line("/sys/fs/selinux/enforce")
            .map(|enforce| match enforce.as_str() {
                "1" => "enforcing",
                _ => "permissive",
            }),
    );
    record.put(
        "kernel.apparmor",
        root.line("/sys/module/apparmor/parameters/enabled"),
    );
    let unified = root.exists("/sys/fs/cgroup/cgroup.controllers");
    let cgroup = match (unified, root.exists("/sys/fs/cgroup")) {
        (true, _) => Reading::Present(Value::Number(2)),
        (false, true) => Reading::Present(Value::Number(1)),
        (false, false) => Reading::Absent,
    };
    record.put("kernel.cgroup_version", cgroup);
}

/// The kinds of IOMMU domains (`DMA`, `DMA-FQ`, `identity`), sorted; absent without IOMMU.
fn iommu(root: &Root) -> Reading<Value> {
    let dir = "/sys/kernel/iommu_groups";
    root.list(dir).and_then(|groups| {
        if groups.is_empty() {
            return Reading::Absent;
        }
        let mut kinds = BTreeSet::new();
        for group in &groups {
            match root.line(format!("{dir}/{group}/type")) {
                Reading::Present(kind) => {
                    kinds.insert(kind);
                }
                Reading::Absent | Reading::Unsupported => {}
                unknown => return unknown.map(Value::Text),
            }
        }
        if kinds.is_empty() {
            Reading::Unsupported
        } else {
            Reading::Present(Value::List(kinds.into_iter().collect()))
        }
    })
}

fn modules(root: &Root, wanted: &[String], own: &HostIdentifiers, record: &mut ClassRecord) {
    let loaded = root.list("/sys/module").map(|mut names| {
        let counts = |pattern: &String, name: &str| match LOADED_ON_DEMAND.contains(&name) {
            true => pattern == name,
            false => matches(pattern, name),
        };
        names.retain(|name| wanted.iter().any(|pattern| counts(pattern, name)));
        names
    });
    // With the list of names, a module missing from it is absent, not unknown.
    record.put("kernel.module.names", loaded.clone());
    for name in loaded.present().into_iter().flatten() {
        let dir = format!("/sys/module/{name}");
        for file in ["version", "srcversion"] {
            record.put(
                format!("kernel.module.{name}.{file}"),
                root.line(format!("{dir}/{file}")),
            );
        }
        let parameters = root.list(format!("{dir}/parameters"));
        for parameter in parameters.present().into_iter().flatten() {
            if !VOLATILE_PARAMETERS
                .iter()
                .any(|pattern| matches(pattern, parameter))
            {
                let key = format!("kernel.module.{name}.parameter.{parameter}");
                let path = format!("{dir}/parameters/{parameter}");
                let value = |text: String| text::number_or_text(own.mask(&text));
                put_chosen_text(root, key, &path, value, record);
            }
        }
    }
}

/// Sets an optional key to a text that an administrator chose. Bytes that are not UTF-8 leave the class incomplete. A
/// file that cannot be read does not: some parameters can only be written.
fn put_chosen_text(
    root: &Root,
    key: String,
    path: &str,
    value: impl FnOnce(String) -> Value,
    record: &mut ClassRecord,
) {
    let reading = root.line(path).map(value);
    match matches!(reading, Reading::Failed { .. }) && root.is_undecodable(path) {
        true => record.require(key, reading),
        false => record.put(key, reading),
    }
}

/// The GNU build id (note type 3 of owner `GNU`) among ELF notes.
#[must_use]
pub fn build_id(notes: &[u8]) -> Reading<String> {
    let word = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = notes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    let padded = |length: usize| length.checked_add(3).map(|padded| padded & !3);
    let mut at: usize = 0;
    while let (Some(name_size), Some(size), Some(kind)) = (word(at), word(at + 4), word(at + 8)) {
        let name_at = at + 12;
        let Some(data_at) = padded(name_size).and_then(|size| name_at.checked_add(size)) else {
            break;
        };
        let Some(end) = data_at.checked_add(size) else {
            break;
        };
        let (name, data) = (
            notes.get(name_at..name_at + name_size),
            notes.get(data_at..end),
        );
        if let (Some(b"GNU\0"), Some(data), 3) = (name, data, kind) {
            return Reading::Present(HEXLOWER.encode(data));
        }
        let Some(next) = padded(size).and_then(|size| data_at.checked_add(size)) else {
            break;
        };
        at = next;
    }
    Reading::Absent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::defaults::MODULES;

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let mut notes = Vec::new();
        let mut note = |name: &[u8], kind: u32, data: &[u8]| {
            for word in [name.len() as u32, data.len() as u32, kind] {
                notes.extend_from_slice(&word.to_ne_bytes());
            }
            for part in [name, data] {
                notes.extend_from_slice(part);
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
        };
        note(b"Xen\0", 3, &[9; 5]);
        note(b"Linux\0", 0x101, &[1]);
        note(b"GNU\0", 3, &[0xab, 0xcd, 0x01]);
        assert_eq!(build_id(&notes), Reading::Present("abcd01".to_owned()));
        for end in 0..notes.len() - 1 {
            assert_eq!(build_id(&notes[..end]), Reading::Absent);
        }
        assert_eq!(build_id(&[0xff; 40]), Reading::Absent);
    }

    #[test]
    fn modules_of_first_program_are_ignored_unless_listed() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let loaded = |wanted: &[&str], names: &[&str]| {
            let module = folder.path().join("sys/module");
            let _ = std::fs::remove_dir_all(&module);
            for name in names {
                let made = std::fs::create_dir_all(module.join(name));
                assert!(made.is_ok(), "{made:?}");
            }
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            let mut record = ClassRecord::new(Class::Kernel);
            let root = Root::new(folder.path());
            let own = HostIdentifiers::read(&root);
            modules(&root, &wanted, &own, &mut record);
            record
        };
        let idle = loaded(MODULES, &["nvidia", "nvidia_drm", "nvidia_peermem"]);
        let used = loaded(
            MODULES,
            &["nvidia", "nvidia_drm", "nvidia_peermem", "nvidia_uvm"],
        );
        assert_eq!(idle, used);
        assert!(
            idle.entries
                .contains_key("kernel.module.nvidia_peermem.version")
        );
        let named = loaded(&["nvidia_uvm"], &["nvidia", "nvidia_uvm"]);
        assert!(
            named
                .entries
                .contains_key("kernel.module.nvidia_uvm.version")
        );
    }
}
