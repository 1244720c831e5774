//! Processors: model, microcode, shape and caches.

use super::Probed;
use crate::{Class, ClassRecord, Host, Reading, Root, Value, text};
use std::collections::{BTreeMap, BTreeSet};

/// Processor flags that placement may ask for.
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

/// What `/proc/cpuinfo` says, on x86 and on Arm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// One map of lines per processor.
    processors: Vec<BTreeMap<String, String>>,
}

impl CpuInfo {
    /// Reads the text of `/proc/cpuinfo`.
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
            // Lines before the first processor, or of a trailing hardware block, are
            // not about one processor.
            if let Some(current) = processors.last_mut() {
                current.insert(name.to_owned(), text::collapse(value));
            }
        }
        Self { processors }
    }

    /// The value all processors share; where they differ, each value with its count.
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

    /// Distinct `(package, core)` pairs, where the text has them.
    fn shape(&self) -> Option<(u32, u32)> {
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

/// Model, microcode, shape, caches.
#[must_use]
pub fn probe(host: &Host) -> Probed {
    let mut probed = Probed::new(Class::Cpu);
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
    record.put("cpu.microcode", common(&["microcode"]));
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
        // Without the list, `/proc/cpuinfo` has one block per thread online.
        Reading::Absent => info.as_ref().and_then(CpuInfo::threads),
        listed => listed,
    };
    let shape = info.as_ref().and_then(|info| {
        info.shape()
            .map_or_else(|| topology(root), Reading::Present)
    });
    record.require("cpu.sockets", shape.as_ref().map(|(sockets, _)| *sockets));
    record.require("cpu.cores", shape.as_ref().map(|(_, cores)| *cores));
    record.require("cpu.threads", threads.clone());
    record.put("cpu.online", online);
    caches(root, record);

    probed.facts.sockets = shape.as_ref().map(|(sockets, _)| *sockets);
    probed.facts.cores = shape.map(|(_, cores)| cores);
    probed.facts.threads = threads;
    let has = |name: &&&str| flags.present().is_some_and(|flags| flags.contains(**name));
    let features = FEATURES.iter().filter(has);
    probed.facts.features = features.map(|&name| name.to_owned()).collect();
    probed
}

/// Packages and cores from sysfs, for processors whose `/proc/cpuinfo` lacks them (Arm).
fn topology(root: &Root) -> Reading<(u32, u32)> {
    let mut packages = BTreeSet::new();
    let mut cores = BTreeSet::new();
    let names = root.list(CPUS);
    for name in names.present().into_iter().flatten() {
        let number = name.strip_prefix("cpu").unwrap_or_default();
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
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

/// The caches of the first processor.
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
    }
}

/// `1024K` in bytes.
fn kibibytes(size: &str) -> Reading<Value> {
    let Some(number) = size.strip_suffix('K') else {
        return Reading::failed(format!("\"{size}\" is no cache size"));
    };
    text::unsigned(number).map(|number| Value::amount(number.saturating_mul(1024)))
}
