//! Recorded trees with arbitrary parts removed, replaced or changed in type: no panic, a bounded number of requests,
//! and no number or version that is not in the tree.
//!
//! `LATTICE_FUZZ_CASES=100000 cargo test -p lattice-redfish --test it fuzz::` runs more cases.

use crate::support::{TREES, cases, deed_route, deeds, everything, fetched, read, tree};
use lattice_conformance::{LimitState, Milliwatts, Reading, text};
use lattice_redfish::{
    BmcEventsRead, Documents, FetchedEventDocuments, ResourcePath, read_by_route,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One change: the document, the place in it (as a walk), and the new value.
#[derive(Clone, Debug)]
struct Change {
    document: usize,
    way: Vec<u16>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Drop,
    Into(Value),
    Link,
    Silence(u8),
    Copy(u16),
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|flag| json!(flag)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        Just(json!(0)),
        Just(json!("")),
        Just(json!("N/A")),
        "[ -~]{0,40}".prop_map(|text| json!(text)),
        Just(json!("é\u{0}\u{1F525}".repeat(4000))),
        Just(json!([])),
        Just(json!({})),
        Just(json!({"@odata.id": "/redfish/v1"})),
        Just(json!([{"@odata.id": "/redfish/v1/Systems"}])),
        Just(json!(vec![0; 5000])),
        Just(nested(100)),
    ]
}

/// A value nested as deeply as a parser accepts.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, at| {
        if at % 2 == 0 {
            json!([inner])
        } else {
            json!({"Members": inner})
        }
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    let what = prop_oneof![
        2 => Just(What::Drop),
        4 => any_value().prop_map(What::Into),
        1 => Just(What::Link),
        1 => (0_u8..5).prop_map(What::Silence),
        1 => any::<u16>().prop_map(What::Copy),
    ];
    let way = proptest::collection::vec(any::<u16>(), 1..6);
    (any::<u16>(), way, what).prop_map(|(document, way, what)| Change {
        document: document.into(),
        way,
        what,
    })
}

/// The value at the end of a walk, which descends as far as possible.
fn walk<'a>(value: &'a mut Value, way: &[u16]) -> Option<&'a mut Value> {
    let Some((step, rest)) = way.split_first() else {
        return Some(value);
    };
    let pick = |count: usize| (count > 0).then(|| usize::from(*step) % count);
    match value {
        Value::Object(all) => {
            let at = pick(all.len())?;
            walk(all.values_mut().nth(at)?, rest)
        }
        Value::Array(all) => {
            let at = pick(all.len())?;
            walk(all.get_mut(at)?, rest)
        }
        leaf => Some(leaf),
    }
}

fn drop_at(value: &mut Value, step: u16) {
    match value {
        Value::Object(all) if !all.is_empty() => {
            let at = usize::from(step) % all.len();
            if let Some(name) = all.keys().nth(at).cloned() {
                all.remove(&name);
            }
        }
        Value::Array(all) if !all.is_empty() => {
            all.remove(usize::from(step) % all.len());
        }
        other => *other = Value::Null,
    }
}

fn apply(documents: &mut Documents, change: &Change) {
    let paths: Vec<ResourcePath> = documents.0.keys().cloned().collect();
    let path = &paths[change.document % paths.len()];
    let picked = |at: u16| &paths[usize::from(at) % paths.len()];
    match &change.what {
        What::Silence(kind) => {
            let silent = match kind {
                0 => Reading::Absent,
                1 => Reading::denied("403"),
                2 => Reading::failed("500"),
                3 => Reading::Timeout { after_ms: 1 },
                _ => Reading::Unsupported,
            };
            documents.0.insert(path.clone(), silent);
            return;
        }
        What::Copy(other) => {
            if let Some(reading) = documents.get(picked(*other)).cloned() {
                documents.0.insert(path.clone(), reading);
            }
            return;
        }
        _ => {}
    }
    let target = json!({"@odata.id": picked(change.way[0]).as_str()});
    let Some(Reading::Present(value)) = documents.0.get_mut(path) else {
        return;
    };
    let Some(place) = walk(value, &change.way) else {
        return;
    };
    match &change.what {
        What::Drop => drop_at(place, change.way[0]),
        What::Into(new) => *place = new.clone(),
        _ => *place = target,
    }
}

/// Every number and every text in the documents.
#[derive(Default)]
struct DocumentValues {
    milliwatts: BTreeSet<u64>,
    texts: BTreeSet<String>,
}

impl DocumentValues {
    fn take(&mut self, value: &Value) {
        match value {
            Value::Number(number) => {
                let watts = number.as_f64().and_then(Milliwatts::from_watts);
                self.milliwatts.extend(watts.map(|watts| watts.0));
            }
            Value::String(string) => {
                self.texts.insert(text::collapse(string));
            }
            Value::Array(all) => all.iter().for_each(|value| self.take(value)),
            Value::Object(all) => all.values().for_each(|value| self.take(value)),
            _ => {}
        }
    }
}

fn check(documents: &Documents) -> Result<(), TestCaseError> {
    let (report, took) = read(documents, &everything());
    prop_assert!(took <= 512, "{} requests", took);
    let mut held = DocumentValues::default();
    for reading in documents.0.values() {
        reading
            .present()
            .into_iter()
            .for_each(|value| held.take(value));
    }
    for node in &report.nodes {
        let power = &node.power;
        for (what, watts) in [
            ("draw", &power.draw),
            ("limit", &power.limit),
            ("min", &power.limit_min),
            ("max", &power.limit_max),
        ] {
            let is_held = watts
                .present()
                .is_none_or(|watts| held.milliwatts.contains(&watts.0));
            prop_assert!(is_held, "{} of {} W is nowhere in the tree", what, watts);
        }
        let is_set = power.limit_state == LimitState::Set;
        prop_assert_eq!(power.limit.present().is_some(), is_set);
        for (record, key) in [
            (&node.bmc, "bmc.firmware"),
            (&node.bmc, "bmc.model"),
            (&node.bios, "bios.redfish.version"),
        ] {
            let record_reading = record.get(key);
            let record_reading = record_reading.present().and_then(|value| value.as_text());
            let is_held =
                record_reading.is_none_or(|record_reading| held.texts.contains(record_reading));
            prop_assert!(
                is_held,
                "{}: {:?} is nowhere in the tree",
                key,
                record_reading
            );
        }
        // Results can be encoded, hashed and decoded.
        for record in [&node.bmc, &node.bios] {
            let known = record.encode();
            let back = lattice_conformance::ClassRecord::decode(&known);
            prop_assert!(back.is_ok_and(|back| back.encode() == known));
        }
        let routed = read_by_route(documents, &node.route);
        prop_assert!(routed.wanted.len() <= 512);
    }
    check_deeds(documents)
}

/// BMC events are bounded and reproducible, whatever the lists contain.
fn check_deeds(documents: &Documents) -> Result<(), TestCaseError> {
    let (route, took) = deed_route(documents);
    prop_assert!(took <= 512, "{} requests to find", took);
    let (read, took) = deeds(documents, &route, &FetchedEventDocuments::default());
    prop_assert!(took <= 200, "{} requests to read", took);
    prop_assert!(read.events.len() <= 8 * 256 + 32);
    for deed in &read.events {
        prop_assert!(deed.message.chars().count() <= 300);
        prop_assert!(!deed.message.chars().any(char::is_control));
        let json = serde_json::to_vec(deed).map(|json| json.len());
        prop_assert!(json.is_ok_and(|bytes| bytes < 8 << 10));
    }
    let (again, _) = deeds(documents, &route, &read.seen);
    let identities = |read: &BmcEventsRead| read.events.iter().map(|deed| deed.identity).collect();
    let (first, again): (BTreeSet<u64>, BTreeSet<u64>) = (identities(&read), identities(&again));
    prop_assert!(again.is_subset(&first));
    Ok(())
}

/// The documents of one pass, with those of the BMC's events.
fn with_deeds(tree: &Documents) -> Documents {
    let mut documents = fetched(tree, &everything());
    let is_of_deeds = |path: &&ResourcePath| {
        let path = path.as_str();
        path.contains("/LogServices") || path.contains("/TaskService")
    };
    for path in tree.0.keys().filter(is_of_deeds) {
        documents.0.insert(path.clone(), tree.0[path].clone());
    }
    documents
}

#[test]
fn no_tree_breaks_the_reader() {
    let trees: Vec<(&str, Documents)> = TREES
        .iter()
        .map(|(name, _, _)| (*name, with_deeds(&tree(name))))
        .collect();
    let config = Config {
        // Failures print their input, so a regression file next to the sources adds nothing.
        failure_persistence: None,
        ..Config::with_cases(cases(256))
    };
    let changes = proptest::collection::vec(any_change(), 1..12);
    let any = (0..trees.len(), changes);
    let run = TestRunner::new(config).run(&any, |(at, changes)| {
        let mut documents = trees[at].1.clone();
        changes
            .iter()
            .for_each(|change| apply(&mut documents, change));
        check(&documents)
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}
