//! Usage of the running host, read with `sysinfo`: load, memory, swap, and the cost of the agent.
//!
//! Live values only: none of them is part of a digest. A captured tree has no such values, because it is not the
//! running host. The cost of the agent is read only in an isolated probing process, which is a child of the agent.
//!
//! `sysinfo` reports zero for memory that it cannot read. Total memory, and the memory of a process, are never zero on
//! a running host: if one of them is zero, the reading has failed.
//!
//! `../../0005-usage-by-sysinfo.md` lists the values that are not read with `sysinfo`, with the reasons.

use crate::Host;
use lattice_conformance::{Reading, Value, Vitals};
use std::path::Path;
use sysinfo::{LoadAvg, MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

fn is_running(host: &Host) -> bool {
    host.root.path() == Path::new("/")
}

/// Memory and swap of the host, and resident memory of the agent, in bytes.
pub(super) fn memory(host: &Host, vitals: &mut Vitals) {
    if !is_running(host) {
        return;
    }
    let system = with_memory();
    let known =
        |bytes: fn(&System) -> u64| system.as_ref().map(|system| Value::amount(bytes(system)));
    vitals.put("memory.available", known(System::available_memory));
    vitals.put("memory.swap.size", known(System::total_swap));
    vitals.put("memory.swap.used", known(System::used_swap));
    if host.is_isolated {
        let kind = ProcessRefreshKind::nothing().with_memory();
        let resident = of_agent(kind, sysinfo::Process::memory);
        vitals.put("agent.memory.resident", resident);
    }
}

/// Load of the host in hundredths, and processor time of the agent since its start in milliseconds.
pub(super) fn processors(host: &Host, vitals: &mut Vitals) {
    if !is_running(host) {
        return;
    }
    let load = match System::load_average() {
        Ok(load) => Reading::Present(load),
        Err(error) => Reading::failed(error.to_string()),
    };
    let hundredths = |of: fn(&LoadAvg) -> f64| {
        let load = load.as_ref().map(|load| (of(load) * 100.0).round() as u64);
        load.map(Value::amount)
    };
    vitals.put("cpu.load_hundredths.1m", hundredths(|load| load.one));
    vitals.put("cpu.load_hundredths.5m", hundredths(|load| load.five));
    vitals.put("cpu.load_hundredths.15m", hundredths(|load| load.fifteen));
    if host.is_isolated {
        let kind = ProcessRefreshKind::nothing().with_memory().with_cpu();
        let spent = of_agent(kind, sysinfo::Process::accumulated_cpu_time);
        vitals.put("agent.cpu_ms", spent);
    }
}

fn with_memory() -> Reading<System> {
    let mut system = match System::new() {
        Ok(system) => system,
        Err(error) => return Reading::failed(error.to_string()),
    };
    system.refresh_memory_specifics(MemoryRefreshKind::everything());
    match system.total_memory() {
        0 => Reading::failed("/proc/meminfo has no MemTotal"),
        _ => Reading::Present(system),
    }
}

/// A value of the agent, which is the parent of this probing process.
fn of_agent(kind: ProcessRefreshKind, value: impl Fn(&sysinfo::Process) -> u64) -> Reading<Value> {
    let Some(parent) = rustix::process::getppid() else {
        return Reading::failed("the agent is in another pid namespace");
    };
    let parent = Pid::from_u32(parent.as_raw_nonzero().get().unsigned_abs());
    let mut system = match System::new() {
        Ok(system) => system,
        Err(error) => return Reading::failed(error.to_string()),
    };
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[parent]), false, kind);
    let process = system.process(parent);
    // A process that runs has memory.
    match process.filter(|process| process.memory() > 0) {
        None => Reading::failed(format!("/proc/{parent} cannot be read")),
        Some(process) => Reading::Present(Value::amount(value(process))),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "tests")]

    use super::*;
    use crate::NvmlSource;

    fn read(root: &Path, is_isolated: bool) -> Vitals {
        let host = Host {
            is_isolated,
            ..Host::new(root, NvmlSource::Disabled)
        };
        let mut vitals = Vitals::default();
        memory(&host, &mut vitals);
        processors(&host, &mut vitals);
        vitals
    }

    #[test]
    fn running_host_has_each_value() {
        let vitals = read(Path::new("/"), true);
        let number = |key: &str| match vitals.get(key) {
            Reading::Present(Value::Number(number)) => number,
            other => panic!("{key}: {other}"),
        };
        assert_eq!(vitals.0.len(), 8, "{:?}", vitals.0.keys());
        assert!(number("memory.available") > 0);
        assert!(number("memory.swap.used") <= number("memory.swap.size"));
        for span in ["1m", "5m", "15m"] {
            let load = number(&format!("cpu.load_hundredths.{span}"));
            assert!((0..1_000_000).contains(&load), "{span}: {load}");
        }
        // The parent of this test is the process that runs the tests.
        assert!(number("agent.memory.resident") > 100_000);
        let cpu_ms = number("agent.cpu_ms");
        assert!((0..86_400_000).contains(&cpu_ms), "{cpu_ms}");
    }

    #[test]
    fn agent_is_unknown_outside_the_process_of_a_probe() {
        let vitals = read(Path::new("/"), false);
        assert_eq!(vitals.0.len(), 6);
        assert!(vitals.0.keys().all(|key| !key.starts_with("agent.")));
    }

    #[test]
    fn captured_tree_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path(), true), Vitals::default());
    }
}
