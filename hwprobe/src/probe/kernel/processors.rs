//! Processor settings of the kernel: clocks, frequencies, idle states, isolated CPUs, SMT, mitigations.

use crate::Root;
use lattice_conformance::{ClassRecord, Reading, Value};
use std::collections::BTreeMap;

/// Reads clocks, power states, isolated CPUs, SMT and mitigations.
pub(super) fn keys(root: &Root, record: &mut ClassRecord) {
    let system = "/sys/devices/system";
    let plain = [
        (
            "kernel.clocksource",
            "clocksource/clocksource0/current_clocksource",
        ),
        ("kernel.smt", "cpu/smt/control"),
        ("kernel.cpufreq.boost", "cpu/cpufreq/boost"),
        ("kernel.intel_pstate.status", "cpu/intel_pstate/status"),
        ("kernel.intel_pstate.no_turbo", "cpu/intel_pstate/no_turbo"),
        ("kernel.amd_pstate.status", "cpu/amd_pstate/status"),
        ("kernel.cpuidle.driver", "cpu/cpuidle/current_driver"),
        ("kernel.cpuidle.governor", "cpu/cpuidle/current_governor_ro"),
    ];
    for (key, path) in plain {
        record.put(key, root.line(format!("{system}/{path}")));
    }
    for (key, file) in [
        ("isolated_cpus", "isolated"),
        ("nohz_full_cpus", "nohz_full"),
    ] {
        // The kernel writes an empty list if there is no such processor.
        let list = match root.line(format!("{system}/cpu/{file}")) {
            Reading::Unsupported => Reading::Absent,
            Reading::Present(list) if list == "(null)" => Reading::Absent,
            other => other,
        };
        record.put(format!("kernel.{key}"), list);
    }
    let policies = policies(root);
    for (key, file) in [
        ("driver", "scaling_driver"),
        ("governor", "scaling_governor"),
        ("preference", "energy_performance_preference"),
    ] {
        let reading = common_value(root, &policies, file);
        record.put(format!("kernel.cpufreq.{key}"), reading);
    }
    record.put("kernel.cpuidle.states", idle_states(root));
    let dir = format!("{system}/cpu/vulnerabilities");
    for name in root.list(&dir).present().into_iter().flatten() {
        record.put(
            format!("kernel.mitigation.{name}"),
            root.line(format!("{dir}/{name}")),
        );
    }
}

/// The folders with frequency settings: one per group of processors that share them.
fn policies(root: &Root) -> Reading<Vec<String>> {
    let cpus = "/sys/devices/system/cpu";
    let shared = format!("{cpus}/cpufreq");
    let found = root.list(&shared).map(|names| {
        let policies = names.iter().filter(|name| name.starts_with("policy"));
        policies
            .map(|name| format!("{shared}/{name}"))
            .collect::<Vec<_>>()
    });
    match found {
        Reading::Present(found) if !found.is_empty() => Reading::Present(found),
        Reading::Present(_) | Reading::Absent => root.list(cpus).map(|names| {
            let numbered = names.iter().filter(|name| {
                let number = name.strip_prefix("cpu").unwrap_or_default();
                number.starts_with(|c: char| c.is_ascii_digit())
            });
            numbered
                .map(|name| format!("{cpus}/{name}/cpufreq"))
                .collect()
        }),
        unknown => unknown,
    }
}

/// The value common to all folders; if they differ, each value with its count.
fn common_value(root: &Root, folders: &Reading<Vec<String>>, file: &str) -> Reading<Value> {
    folders.as_ref().and_then(|folders| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for folder in folders {
            match root.line(format!("{folder}/{file}")) {
                Reading::Present(value) => *counts.entry(value).or_default() += 1,
                // An offline processor has no folder.
                Reading::Absent | Reading::Unsupported => {}
                unknown => return unknown.map(Value::Text),
            }
        }
        match counts.len() {
            0 => Reading::Absent,
            1 => counts.into_keys().next().map_or(Reading::Absent, |value| {
                Reading::Present(Value::Text(value))
            }),
            _ => {
                let each = counts
                    .into_iter()
                    .map(|(value, count)| format!("{count} x {value}"));
                Reading::Present(Value::List(each.collect()))
            }
        }
    })
}

/// Names of the idle states that the first processor may enter, in the kernel's order. Latencies are omitted, because
/// some platforms measure them at boot.
fn idle_states(root: &Root) -> Reading<Value> {
    let dir = "/sys/devices/system/cpu/cpu0/cpuidle";
    root.list(dir).and_then(|mut states| {
        states.retain(|state| state.starts_with("state"));
        states.sort_by_key(|state| (state.len(), state.clone()));
        let mut names = Vec::new();
        for state in states {
            let disabled = root.line(format!("{dir}/{state}/disable"));
            match root.line(format!("{dir}/{state}/name")) {
                Reading::Present(name) if disabled != Reading::Present("1".to_owned()) => {
                    names.push(name);
                }
                Reading::Present(_) | Reading::Absent | Reading::Unsupported => {}
                unknown => return unknown.map(Value::Text),
            }
        }
        Reading::Present(Value::List(names))
    })
}
