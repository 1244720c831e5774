//! Content of a digest: every key of every host, every file of a capture.
//!
//! `LATTICE_ALL_FILES=1` changes each file of the captures instead of every eighth one.

use crate::trials::{Test, tests};
use lattice_conformance::{Class, ClassMark, Inventory, Reading, Value};
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::capture::{GPU_REPORT, MANIFEST, Privacy, capture, host_of};
use lattice_hwprobe::{Host, NvmlSource, PROBES, probe_all};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

pub const TESTS: &[Test] = tests![
    every_key_is_part_of_its_class_alone,
    every_file_changes_what_its_keys_change,
    every_value_of_a_gpu_changes_gpu_alone,
    live_values_change_nothing,
    order_and_names_change_nothing,
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts")
}

fn host(name: &str) -> Host {
    let root = folder().join(name);
    let library = library_path().expect("the fake library is built with this test");
    let nvml = NvmlSource::child(std::env::current_exe().unwrap(), Some(&library))
        .with_env(DESCRIPTION_ENV, root.join("nvml.json"));
    Host::new(root, nvml)
}

/// Captures of one node of each kind: no driver is queried again.
fn captures() -> &'static BTreeMap<&'static str, (TempDir, Inventory)> {
    static CAPTURES: OnceLock<BTreeMap<&'static str, (TempDir, Inventory)>> = OnceLock::new();
    CAPTURES.get_or_init(|| {
        let capture_of = |name| {
            let out = TempDir::new().unwrap();
            capture(&host(name), out.path(), Privacy::Keep).unwrap();
            let inventory = probe(out.path());
            assert!(inventory.fingerprint().digest().is_some(), "{name}");
            (name, (out, inventory))
        };
        ["gpu001", "gpu101"].into_iter().map(capture_of).collect()
    })
}

fn probe(tree: &Path) -> Inventory {
    probe_all(&host_of(tree).unwrap())
}

fn changed_marks(before: &Inventory, after: &Inventory) -> BTreeSet<Class> {
    let (before, after) = (before.marks(), after.marks());
    Class::ALWAYS_PUBLISHED
        .into_iter()
        .filter(|class| before[class] != after[class])
        .collect()
}

/// Another value of the same kind.
fn other(value: &Value) -> Value {
    match value {
        Value::Flag(flag) => Value::Flag(!flag),
        Value::Number(number) => Value::Number(number.wrapping_add(1)),
        Value::Text(text) => Value::Text(format!("{text}x")),
        Value::List(items) => {
            let mut items = items.clone();
            items.push("x".to_owned());
            Value::List(items)
        }
    }
}

/// Possible changes of a known reading, each different from it.
fn others(reading: &Reading<Value>) -> Vec<Reading<Value>> {
    let states = [
        Reading::Absent,
        Reading::Unsupported,
        Reading::Present(Value::Number(0)),
    ];
    let mut all: Vec<_> = states
        .into_iter()
        .filter(|state| state != reading)
        .collect();
    if let Reading::Present(value) = reading {
        all.push(Reading::Present(other(value)));
    }
    all
}

fn every_key_is_part_of_its_class_alone() {
    let mut keys = BTreeSet::new();
    for (_, inventory) in captures().values() {
        let before = inventory.marks();
        for (class, record) in &inventory.records {
            for (key, reading) in record.entries.iter().filter(|(_, r)| r.is_known()) {
                for changed in others(reading) {
                    let mut after = inventory.clone();
                    let entries = &mut after.records.get_mut(class).unwrap().entries;
                    entries.insert(key.clone(), changed);
                    let only = BTreeSet::from([*class]);
                    assert_eq!(changed_marks(inventory, &after), only, "{key}");
                    assert_ne!(after.fingerprint(), inventory.fingerprint(), "{key}");
                    assert_eq!(inventory.marks(), before);
                }
                keys.insert(key.clone());
            }
        }
    }
    println!("{} keys, each part of exactly its class", keys.len());
    assert!(keys.len() > 700, "{}", keys.len());
}

/// A copy of a captured tree.
fn copy(tree: &Path) -> TempDir {
    let out = TempDir::new().unwrap();
    let copied = std::process::Command::new("cp")
        .args(["-a", "-T"])
        .args([tree, out.path()])
        .status();
    assert!(copied.unwrap().success());
    out
}

fn files(tree: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![tree.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// The same content with one letter or digit changed.
fn altered(content: &[u8], at: usize) -> Vec<u8> {
    let mut out = content.to_vec();
    let places: Vec<usize> = (0..out.len())
        .filter(|&at| out[at].is_ascii_alphanumeric())
        .collect();
    match places.get(at.checked_rem(places.len()).unwrap_or(0)) {
        Some(&place) => {
            out[place] = match out[place] {
                b'9' => b'8',
                b'z' | b'Z' => b'y',
                byte => byte + 1,
            };
        }
        None => out.extend_from_slice(b"1\n"),
    }
    out
}

fn known_keys(inventory: &Inventory) -> BTreeMap<(Class, String), Reading<Value>> {
    let records = inventory.records.iter();
    let all = records.flat_map(|(class, record)| {
        let entries = record.entries.iter().filter(|(_, r)| r.is_known());
        entries.map(|(key, reading)| ((*class, key.clone()), reading.clone()))
    });
    all.collect()
}

/// For any change of a file: a class with unchanged keys keeps its digest, and a class with changed keys gets another
/// one or none.
fn every_file_changes_what_its_keys_change() {
    let step = if std::env::var_os("LATTICE_ALL_FILES").is_some() {
        1
    } else {
        8
    };
    for (name, (tree, before)) in captures() {
        let copy = copy(tree.path());
        let mut covered = BTreeSet::new();
        let all = files(copy.path());
        let own = [MANIFEST, GPU_REPORT].map(|name| copy.path().join(name));
        let chosen = all.iter().filter(|file| !own.contains(file)).enumerate();
        let mut count = 0;
        for (number, file) in chosen.filter(|(number, _)| number % step == 0) {
            let content = fs::read(file).unwrap();
            fs::write(file, altered(&content, number)).unwrap();
            let after = probe(copy.path());
            fs::write(file, &content).unwrap();
            let (was, is) = (known_keys(before), known_keys(&after));
            let keys = was
                .keys()
                .chain(is.keys())
                .filter(|key| was.get(key) != is.get(key));
            let keys: BTreeSet<(Class, String)> = keys.cloned().collect();
            let by_keys: BTreeSet<Class> = keys.iter().map(|(class, _)| *class).collect();
            let shown = file.strip_prefix(copy.path()).unwrap().display();
            assert_eq!(changed_marks(before, &after), by_keys, "{shown}: {keys:?}");
            covered.extend(keys);
            count += 1;
        }
        println!(
            "{name}: {count} files changed {} of {} keys",
            covered.len(),
            known_keys(before).len()
        );
        assert_eq!(probe(copy.path()).marks(), before.marks());
    }
}

fn gpu_report(tree: &Path) -> Json {
    serde_json::from_slice(&fs::read(tree.join(GPU_REPORT)).unwrap()).unwrap()
}

fn gpu_digest(tree: &Path, report: &Json) -> ClassMark {
    fs::write(tree.join(GPU_REPORT), serde_json::to_vec(report).unwrap()).unwrap();
    let gpu = PROBES.iter().find(|probe| probe.name == "gpu").unwrap();
    gpu.run_on(&host_of(tree).unwrap()).record.state().mark()
}

/// A different value, if the driver returned one.
fn altered_json(value: &Json) -> Json {
    match value {
        Json::Bool(flag) => Json::Bool(!flag),
        Json::Number(number) => (number.as_i64().unwrap() + 1).into(),
        Json::String(text) => Json::String(format!("{text}1")),
        Json::Array(items) => items.iter().cloned().chain([Json::from("x")]).collect(),
        other => panic!("{other}"),
    }
}

fn every_value_of_a_gpu_changes_gpu_alone() {
    for (name, (tree, _)) in captures() {
        let copy = copy(tree.path());
        let report = gpu_report(copy.path());
        let before = gpu_digest(copy.path(), &report);
        assert!(before.digest().is_some());
        let devices = report["report"]["devices"]["present"].as_array().unwrap();
        let values = devices[1]["values"].as_object().unwrap();
        let mut changed = 0;
        for (key, reading) in values {
            let Some(value) = reading.get("present") else {
                continue;
            };
            let mut altered = report.clone();
            let place = &mut altered["report"]["devices"]["present"][1]["values"][key];
            *place = serde_json::json!({ "present": altered_json(value) });
            assert_ne!(gpu_digest(copy.path(), &altered), before, "{key}");
            changed += 1;
        }
        println!("{name}: {changed} values of a GPU");
        assert!(changed >= 15, "{name}: {changed}");
    }
}

/// Counters, temperatures, power draw: every momentary value of the driver.
fn live_values_change_nothing() {
    for (tree, before) in captures().values() {
        assert!(before.vitals.0.len() > 50, "{}", before.vitals.0.len());
        let copy = copy(tree.path());
        let mut report = gpu_report(copy.path());
        let mark = gpu_digest(copy.path(), &report);
        let mut changed = 0;
        let devices = report["report"]["devices"]["present"]
            .as_array_mut()
            .unwrap();
        for device in devices {
            for (_, reading) in device["vitals"].as_object_mut().unwrap() {
                if let Some(value) = reading.get("present").cloned() {
                    *reading = serde_json::json!({ "present": altered_json(&value) });
                    changed += 1;
                }
            }
        }
        assert!(changed > 20, "{changed}");
        assert_eq!(gpu_digest(copy.path(), &report), mark);
        for file in ["proc/loadavg", "proc/uptime", "proc/stat"] {
            fs::write(copy.path().join(file), "9.9 8.8 7.7 1/2 3\n").unwrap();
        }
        assert_eq!(probe(copy.path()).marks(), before.marks());
        // And in the record itself, for values that no capture can change.
        let mut after = before.clone();
        after.vitals.0.clear();
        after.power = None;
        after.resources = Default::default();
        after.identity = Default::default();
        assert_eq!(after.marks(), before.marks());
    }
}

/// The kernel's names from discovery, each with a replacement.
fn renaming(inventory: &Inventory, seed: usize) -> BTreeMap<String, String> {
    let nics = &inventory.identity.nics;
    let rdma: Vec<&String> = nics.iter().flat_map(|nic| &nic.rdma).collect();
    let mut shuffled = rdma.clone();
    shuffled.rotate_left(seed % rdma.len().max(1));
    let interfaces = nics.iter().flat_map(|nic| &nic.interfaces).enumerate();
    let interfaces =
        interfaces.map(|(number, name)| (name.clone(), format!("lan{}", number + seed)));
    let rdma = rdma.into_iter().cloned().zip(shuffled.into_iter().cloned());
    rdma.chain(interfaces).collect()
}

/// The tree written again, in another order and with other names.
fn rewritten(tree: &Path, names: &BTreeMap<String, String>, order: &[usize]) -> TempDir {
    let out = TempDir::new().unwrap();
    let rename = |path: &Path| -> PathBuf {
        let parts = path.iter().map(|part| part.to_str().unwrap());
        parts
            .map(|part| names.get(part).map_or(part, String::as_str))
            .collect()
    };
    let mut entries: Vec<PathBuf> = Vec::new();
    let mut todo = vec![tree.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            }
            entries.push(entry.path());
        }
    }
    entries.sort_by_key(|path| {
        let sum: usize = path
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .map(|b| usize::from(*b))
            .sum();
        order[sum % order.len()]
    });
    for entry in entries {
        let to = out.path().join(rename(entry.strip_prefix(tree).unwrap()));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let kind = fs::symlink_metadata(&entry).unwrap().file_type();
        if kind.is_symlink() {
            symlink(rename(&fs::read_link(&entry).unwrap()), to).unwrap();
        } else if kind.is_dir() {
            fs::create_dir_all(to).unwrap();
        } else {
            fs::copy(&entry, to).unwrap();
        }
    }
    out
}

/// Renames the interfaces in the kernel's report, which identifies them by name.
fn rename_report(tree: &Path, names: &BTreeMap<String, String>) {
    let path = tree.join("ethtool.json");
    let Ok(text) = fs::read(&path) else {
        return;
    };
    let mut json: Json = serde_json::from_slice(&text).unwrap();
    let interfaces = json["report"]["interfaces"].as_object_mut().unwrap();
    let renamed = std::mem::take(interfaces).into_iter();
    *interfaces = renamed
        .map(|(name, said)| (names.get(&name).cloned().unwrap_or(name), said))
        .collect();
    fs::write(path, serde_json::to_vec(&json).unwrap()).unwrap();
}

fn order_and_names_change_nothing() {
    let config = Config {
        cases: 3,
        failure_persistence: None,
        ..Config::default()
    };
    let strategy = (
        prop::collection::vec(any::<usize>(), 7),
        1_usize..7,
        any::<bool>(),
    );
    let mut runner = TestRunner::new(config);
    let result = runner.run(&strategy, |(order, seed, reversed)| {
        for (tree, before) in captures().values() {
            let names = renaming(before, seed);
            let other = rewritten(tree.path(), &names, &order);
            rename_report(other.path(), &names);
            let mut report = gpu_report(other.path());
            let devices = report["report"]["devices"]["present"]
                .as_array_mut()
                .unwrap();
            let by = seed % devices.len();
            devices.rotate_left(by);
            if reversed {
                devices.reverse();
            }
            fs::write(other.path().join(GPU_REPORT), report.to_string()).unwrap();
            let after = probe(other.path());
            prop_assert_eq!(after.marks(), before.marks());
            let (was, is) = (&before.identity.nics, &after.identity.nics);
            prop_assert!(
                was.iter()
                    .zip(is)
                    .any(|(was, is)| was.rdma != is.rdma || was.interfaces != is.interfaces)
            );
        }
        Ok(())
    });
    result.unwrap();
}
