//! Processors: model, topology and caches. Microcode is firmware and belongs to the BIOS class.

use super::ProbeResult;
use crate::{Host, Root};
use lattice_conformance::{Class, ClassRecord, Reading, Value, Vitals, text};
use std::collections::{BTreeMap, BTreeSet};

/// Processor flags that placement may use.
const FEATURES: &[&str] = &[
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "sve",
    "sve2",
    "bf16",
    "i8mm",
];

const CPUS: &str = "/sys/devices/system/cpu";

/// Parsed `/proc/cpuinfo`, of x86 or Arm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// The lines of each processor, by name.
    processors: Vec<BTreeMap<String, String>>,
}

impl CpuInfo {
    /// Parses the text of `/proc/cpuinfo`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut processors: Vec<BTreeMap<String, String>> = Vec::new();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let name = name.trim();
            if name == "processor" {
                processors.push(BTreeMap::new());
            }
            // Lines before the first processor describe none. Those of a trailing hardware block (Arm) go to the last
            // processor, where no key reads them.
            if let Some(current) = processors.last_mut() {
                current.insert(name.to_owned(), text::collapse(value));
            }
        }
        Self { processors }
    }

    /// The value common to all processors; if they differ, each value with its count.
    fn common(&self, names: &[&str]) -> Reading<Value> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for processor in &self.processors {
            let value = names.iter().find_map(|name| processor.get(*name));
            *counts.entry(value.map_or("", String::as_str)).or_default() += 1;
        }
        match counts.len() {
            0 => Reading::Absent,
            1 => match counts.into_keys().next() {
                Some("") | None => Reading::Absent,
                Some(value) => Reading::Present(text::number_or_text(value.to_owned())),
            },
            _ => Reading::Present(Value::List(
                counts
                    .into_iter()
                    .map(|(value, count)| format!("{count} x {value}"))
                    .collect(),
            )),
        }
    }

    /// The sorted flags that every processor has.
    fn flags(&self) -> Reading<BTreeSet<String>> {
        let mut shared: Option<BTreeSet<&str>> = None;
        for processor in &self.processors {
            let line = processor.get("flags").or_else(|| processor.get("Features"));
            let flags: BTreeSet<&str> = line.map_or("", String::as_str).split(' ').collect();
            shared = Some(match shared {
                Some(shared) => shared.intersection(&flags).copied().collect(),
                None => flags,
            });
        }
        match shared {
            Some(flags) if !flags.is_empty() && !flags.contains("") => {
                Reading::Present(flags.into_iter().map(str::to_owned).collect())
            }
            _ => Reading::Absent,
        }
    }

    fn threads(&self) -> Reading<u32> {
        match u32::try_from(self.processors.len()) {
            Ok(0) | Err(_) => Reading::Absent,
            Ok(count) => Reading::Present(count),
        }
    }

    /// Numbers of distinct packages and `(package, core)` pairs, if the text contains them.
    fn socket_and_core_counts(&self) -> Option<(u32, u32)> {
        let mut packages = BTreeSet::new();
        let mut cores = BTreeSet::new();
        for processor in &self.processors {
            let package = processor.get("physical id")?;
            packages.insert(package);
            cores.insert((package, processor.get("core id")?));
        }
        let count = |length: usize| u32::try_from(length).ok();
        (!cores.is_empty()).then_some((count(packages.len())?, count(cores.len())?))
    }
}

/// Reads model, topology, caches, thermal throttling and usage.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Cpu);
    let root = &host.root;
    let info = root.text("/proc/cpuinfo").map(|text| CpuInfo::parse(&text));
    let record = &mut probed.record;
    let common = |names: &[&str]| info.as_ref().and_then(|info| info.common(names));
    record.require("cpu.vendor", common(&["vendor_id", "CPU implementer"]));
    record.require("cpu.model_name", common(&["model name"]));
    record.require("cpu.family", common(&["cpu family", "CPU architecture"]));
    record.require("cpu.model", common(&["model", "CPU part"]));
    record.require("cpu.stepping", common(&["stepping", "CPU revision"]));
    record.put("cpu.variant", common(&["CPU variant"]));
    record.put("cpu.address_sizes", common(&["address sizes"]));
    let flags = info.as_ref().and_then(CpuInfo::flags);
    record.put(
        "cpu.flags",
        flags
            .as_ref()
            .map(|flags| Value::List(flags.iter().cloned().collect())),
    );

    let online = root.line(format!("{CPUS}/online"));
    let listed = online.as_ref().and_then(|list| text::list_length(list));
    let threads = match listed {
        // Without the list, `/proc/cpuinfo` has one block per online thread.
        Reading::Absent => info.as_ref().and_then(CpuInfo::threads),
        listed => listed,
    };
    let shape = info.as_ref().and_then(|info| {
        info.socket_and_core_counts()
            .map_or_else(|| topology(root), Reading::Present)
    });
    record.require("cpu.sockets", shape.as_ref().map(|(sockets, _)| *sockets));
    record.require("cpu.cores", shape.as_ref().map(|(_, cores)| *cores));
    record.require("cpu.threads", threads.clone());
    record.put("cpu.online", online);
    record.put("cpu.dies", dies(root));
    caches(root, record);
    throttling(root, &mut probed.vitals);
    super::usage::processors(host, &mut probed.vitals);

    probed.resources.sockets = shape.as_ref().map(|(sockets, _)| *sockets);
    probed.resources.cores = shape.map(|(_, cores)| cores);
    probed.resources.threads = threads;
    let has = |name: &&&str| flags.present().is_some_and(|flags| flags.contains(**name));
    let features = FEATURES.iter().filter(has);
    probed.resources.features = features.map(|&name| name.to_owned()).collect();
    probed
}

/// The folders `cpu0`, `cpu1`, … in sysfs.
fn processors(root: &Root) -> Reading<Vec<String>> {
    root.list(CPUS).map(|mut names| {
        names.retain(|name| {
            let number = name.strip_prefix("cpu").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        names
    })
}

/// Number of distinct `(package, die)` pairs; absent if the kernel does not provide `die_id`.
fn dies(root: &Root) -> Reading<u32> {
    processors(root).and_then(|names| {
        let mut dies = BTreeSet::new();
        for name in names {
            let read = |file: &str| root.line(format!("{CPUS}/{name}/topology/{file}"));
            match (read("physical_package_id"), read("die_id")) {
                (Reading::Present(package), Reading::Present(die)) => {
                    dies.insert((package, die));
                }
                (Reading::Absent, _) | (_, Reading::Absent) => {}
                (unknown, _) => return unknown.map(|_| 0),
            }
        }
        match u32::try_from(dies.len()) {
            Ok(0) | Err(_) => Reading::Absent,
            Ok(count) => Reading::Present(count),
        }
    })
}

/// Number of thermal throttling events since boot: the sum of `core_throttle_count` over cores, and the maximum of
/// `package_throttle_count`, which each processor repeats. The threads of a core count the same events, so the maximum
/// of them counts. Machine checks have no counter in sysfs; memory errors appear in the counters of the memory
/// controllers.
fn throttling(root: &Root, vitals: &mut Vitals) {
    let names = processors(root);
    let mut by_core: BTreeMap<(String, String), Reading<u64>> = BTreeMap::new();
    let mut package: Reading<u64> = Reading::Absent;
    for name in names.present().into_iter().flatten() {
        let read = |file: &str| {
            let path = format!("{CPUS}/{name}/thermal_throttle/{file}");
            root.line(path).and_then(|count| text::unsigned(&count))
        };
        let topology = |file: &str| root.line(format!("{CPUS}/{name}/topology/{file}"));
        let core = match (topology("physical_package_id"), topology("core_id")) {
            (Reading::Present(package), Reading::Present(core)) => (package, core),
            // A processor of an unknown core counts by itself.
            _ => (name.clone(), String::new()),
        };
        let other_threads = by_core.remove(&core).unwrap_or(Reading::Absent);
        let count = combined_count(other_threads, read("core_throttle_count"), u64::max);
        by_core.insert(core, count);
        package = combined_count(package, read("package_throttle_count"), u64::max);
    }
    let cores = by_core.into_values().fold(Reading::Absent, |sum, count| {
        combined_count(sum, count, u64::saturating_add)
    });
    vitals.put("cpu.throttle.cores", cores.map(Value::amount));
    vitals.put("cpu.throttle.package", package.map(Value::amount));
}

/// Combines two counts; if one is unknown, so is the result.
fn combined_count(a: Reading<u64>, b: Reading<u64>, join: fn(u64, u64) -> u64) -> Reading<u64> {
    match (a, b) {
        (Reading::Present(a), Reading::Present(b)) => Reading::Present(join(a, b)),
        (Reading::Absent | Reading::Unsupported, b) => b,
        (a, Reading::Absent | Reading::Unsupported) => a,
        (Reading::Present(_), unknown) => unknown,
        (unknown, _) => unknown,
    }
}

/// Packages and cores from sysfs, for processors without them in `/proc/cpuinfo` (Arm).
fn topology(root: &Root) -> Reading<(u32, u32)> {
    let mut packages = BTreeSet::new();
    let mut cores = BTreeSet::new();
    let names = processors(root);
    for name in names.present().into_iter().flatten() {
        let read = |file: &str| root.line(format!("{CPUS}/{name}/topology/{file}"));
        match (read("physical_package_id"), read("core_id")) {
            (Reading::Present(package), Reading::Present(core)) => {
                packages.insert(package.clone());
                cores.insert((package, core));
            }
            // An offline processor has no topology.
            (Reading::Absent, _) | (_, Reading::Absent) => {}
            (unknown, _) => return unknown.map(|_| (0, 0)),
        }
    }
    if cores.is_empty() {
        return names.and_then(|_| Reading::Absent);
    }
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    Reading::Present((count(packages.len()), count(cores.len())))
}

/// Reads the caches of the first processor.
fn caches(root: &Root, record: &mut ClassRecord) {
    let dir = format!("{CPUS}/cpu0/cache");
    for index in root.list(&dir).present().into_iter().flatten() {
        if !index.starts_with("index") {
            continue;
        }
        let read = |file: &str| root.line(format!("{dir}/{index}/{file}"));
        let (Reading::Present(level), Reading::Present(kind)) = (read("level"), read("type"))
        else {
            continue;
        };
        let kind = match kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        record.put(
            format!("cpu.cache.l{level}{kind}"),
            read("size").and_then(|size| kibibytes(&size)),
        );
        // Number of threads per cache, which determines the cache domains of a socket.
        record.put(
            format!("cpu.cache.l{level}{kind}.threads"),
            read("shared_cpu_list").and_then(|list| text::list_length(&list)),
        );
    }
}

/// Parses `1024K` as bytes.
fn kibibytes(size: &str) -> Reading<Value> {
    let Some(number) = size.strip_suffix('K') else {
        return Reading::failed(format!("\"{size}\" is not a valid cache size"));
    };
    text::unsigned(number).map(|number| Value::amount(number.saturating_mul(1024)))
}
