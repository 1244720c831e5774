//! Tests of comparing records with a baseline.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn nic(firmware: &[&str]) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    let count = u32::try_from(firmware.len()).unwrap();
    record.require("nic.count", Reading::Present(count));
    for (slot, version) in firmware.iter().enumerate() {
        record.put(format!("nic.{slot}.firmware"), Reading::Present(*version));
        record.put(format!("nic.{slot}.driver"), Reading::Present("mlx5_core"));
    }
    record
}

fn exact(record: &ClassRecord) -> Expectation {
    Expectation::Exact {
        digest: record.state().digest().unwrap(),
        record: Box::new(record.clone()),
    }
}

fn constraint(key: &str, values: &[&str]) -> Constraint {
    Constraint {
        key: key.parse().unwrap(),
        any_of: values.iter().map(|v| Value::from(*v)).collect(),
        or_absent: false,
    }
}

fn rows_of(found: &[Deviation]) -> Vec<(&str, String, String, KeyVerdict)> {
    let tell = |d: &'_ Deviation| (d.expected.clone(), d.found.to_string(), d.verdict);
    found
        .iter()
        .map(|d| {
            let (expected, found, verdict) = tell(d);
            (d.key.as_str(), expected, found, verdict)
        })
        .collect()
}

#[test]
fn an_exact_record_names_the_key_that_differs() {
    let rule = exact(&nic(&["28.41", "28.41"]));
    assert_eq!(
        rule.verdict_for_record(&nic(&["28.41", "28.41"])),
        BaselineVerdict::Conforms
    );
    let found = rule.check(&nic(&["28.39", "28.41"]));
    let (expected, has) = ("28.41".to_owned(), "28.39".to_owned());
    assert_eq!(
        rows_of(&found),
        [("nic.0.firmware", expected, has, KeyVerdict::Differs)]
    );
}

#[test]
fn a_missing_device_is_its_count_and_not_every_key_behind_it() {
    let rule = exact(&nic(&["1", "2", "3"]));
    let found = rule.check(&nic(&["2", "3"]));
    assert_eq!(
        rows_of(&found),
        [(
            "nic.count",
            "3".to_owned(),
            "2".to_owned(),
            KeyVerdict::Differs
        )]
    );
}

#[test]
fn what_cannot_be_read_never_differs() {
    let rule = exact(&nic(&["28.41"]));
    let mut record = nic(&["28.41"]);
    record.put("nic.0.firmware", Reading::<&str>::denied("no permission"));
    let BaselineVerdict::Unknown { why } = rule.verdict_for_record(&record) else {
        panic!("it differs")
    };
    assert!(why.contains("nic.0.firmware: <denied"), "{why}");
    // In an unsettled class no reading counts, whether it matches or not.
    let partly = Expectation::Partial(vec![constraint("nic.*.firmware", &["28.41"])]);
    for rule in [&rule, &partly] {
        for firmware in ["28.41", "28.42"] {
            let record = nic(&[firmware]).unsettled("value changes with every reading");
            let standing = rule.verdict_for_record(&record);
            let BaselineVerdict::Unknown { why } = standing else {
                panic!("{standing:?}")
            };
            assert!(why.contains("value changes with every reading"), "{why}");
        }
    }
    // By gossip alone: the preimage omits unknown values.
    let digest = record.state().digest().unwrap();
    let mark = ClassMark::Complete { schema: 2, digest };
    let known = ClassRecord::decode(&record.encode()).unwrap();
    let at_hand = |asked: &Digest| (*asked == digest).then(|| known.clone());
    assert!(matches!(
        rule.verdict_for_mark(Some(&mark), None, &at_hand),
        BaselineVerdict::Unknown { .. }
    ));
    let nowhere = |_: &Digest| None;
    for mark in [
        None,
        Some(&ClassMark::Incomplete),
        Some(&ClassMark::Disabled),
        Some(&mark),
    ] {
        assert!(matches!(
            rule.verdict_for_mark(mark, None, &nowhere),
            BaselineVerdict::Unknown { .. }
        ));
    }
}

#[test]
fn an_equal_digest_is_not_opened() {
    let record = nic(&["28.41"]);
    let digest = record.state().digest().unwrap();
    let mark = ClassMark::Complete { schema: 2, digest };
    let never = |_: &Digest| -> Option<ClassRecord> { panic!("opened") };
    assert_eq!(
        exact(&record).verdict_for_mark(Some(&mark), None, &never),
        BaselineVerdict::Conforms
    );
}

#[test]
fn reports_other_schema_once() {
    let mut old = nic(&["28.41", "28.41"]);
    old.schema = 1;
    let found = exact(&old).check(&nic(&["28.39", "28.39"]));
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].key.as_str(), found[0].verdict),
        ("schema", KeyVerdict::Unknown)
    );
}

#[test]
fn another_registry_is_one_difference_and_not_one_for_each_setting() {
    let bios = |registry: &str, boost: &str, version: &str| {
        let mut record = ClassRecord::new(Class::Bios);
        record.put("bios.registry", Reading::Present(registry));
        record.put("bios.version", Reading::Present(version));
        record.put("bios.setting.ProcBoost", Reading::Present(boost));
        record.put("bios.setting.NumaPerSocket", Reading::Present(boost));
        record
    };
    let rule = exact(&bios("R1.4", "On", "2.1"));
    let keys =
        |found: &[Deviation]| -> Vec<String> { found.iter().map(|d| d.key.clone()).collect() };
    assert_eq!(
        keys(&rule.check(&bios("R1.5", "Enabled", "2.2"))),
        ["bios.registry", "bios.version"]
    );
    assert_eq!(
        keys(&rule.check(&bios("R1.4", "Off", "2.1"))),
        ["bios.setting.NumaPerSocket", "bios.setting.ProcBoost"]
    );
}

#[test]
fn a_partial_rule_speaks_of_its_keys_and_of_every_slot() {
    let rule = Expectation::Partial(vec![constraint("nic.*.firmware", &["28.41", "28.42"])]);
    assert_eq!(
        rule.verdict_for_record(&nic(&["28.41", "28.42"])),
        BaselineVerdict::Conforms
    );
    let found = rule.check(&nic(&["28.41", "28.39"]));
    assert_eq!(
        rows_of(&found),
        [(
            "nic.1.firmware",
            "28.41 or 28.42".to_owned(),
            "28.39".to_owned(),
            KeyVerdict::Differs
        )]
    );
    assert!(rule.covers("nic.7.firmware"));
    assert!(!rule.covers("nic.7.driver") && !rule.covers("nic.port.firmware"));
}

#[test]
fn a_slot_without_the_key_is_unknown_and_no_slot_at_all_is_a_difference() {
    let rule = Expectation::Partial(vec![constraint("nic.*.firmware", &["28.41"])]);
    let mut holey = nic(&["28.41", "28.41"]);
    holey.entries.remove("nic.1.firmware");
    let found = rule.check(&holey);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].key.as_str(), found[0].verdict),
        ("nic.1.firmware", KeyVerdict::Unknown)
    );
    let none = rule.check(&nic(&[]));
    assert_eq!(
        rows_of(&none),
        [(
            "nic.*.firmware",
            "28.41".to_owned(),
            "<absent>".to_owned(),
            KeyVerdict::Differs
        )]
    );
    let uncounted = rule.check(&ClassRecord::new(Class::Nic));
    assert_eq!(uncounted[0].verdict, KeyVerdict::Unknown);
}

#[test]
fn absence_is_a_difference_unless_it_is_allowed() {
    let mut record = nic(&["28.41"]);
    record.put("nic.0.expansion_rom", Reading::<&str>::Absent);
    let mut wanted = constraint("nic.*.expansion_rom", &["14.3"]);
    let standing =
        |c: &Constraint| Expectation::Partial(vec![c.clone()]).verdict_for_record(&record);
    assert!(matches!(standing(&wanted), BaselineVerdict::Differs(_)));
    wanted.or_absent = true;
    assert_eq!(standing(&wanted), BaselineVerdict::Conforms);
    assert_eq!(wanted.expected(), "14.3 or <absent>");
}

#[test]
fn a_number_and_its_digits_are_the_same() {
    let mut record = ClassRecord::new(Class::Bios);
    record.put("bios.version", Reading::Present("2"));
    record.put("bios.secure_boot", Reading::Present(true));
    let rule = |key: &str, value: Value| {
        Expectation::Partial(vec![Constraint {
            key: key.parse().unwrap(),
            any_of: vec![value],
            or_absent: false,
        }])
    };
    for (key, value) in [
        ("bios.version", Value::Number(2)),
        ("bios.secure_boot", Value::from("yes")),
        ("bios.secure_boot", Value::Flag(true)),
    ] {
        assert_eq!(
            rule(key, value).verdict_for_record(&record),
            BaselineVerdict::Conforms
        );
    }
}

#[test]
fn patterns_that_can_match_nothing_are_refused() {
    for bad in [
        "firmware",
        "nic",
        "nic..x",
        "nic.f*",
        "nic.*",
        "nik.0.firmware",
        "",
    ] {
        assert!(bad.parse::<Pattern>().is_err(), "{bad}");
    }
    let nested: Pattern = "nic.*.port.*.speed".parse().unwrap();
    assert!(nested.matches("nic.1.port.2.speed"));
    assert_eq!(nested.class(), Some(Class::Nic));
    let mut record = nic(&["1"]);
    record.put("nic.0.port.count", Reading::Present(2u32));
    let keys = nested.keys_in(&record);
    assert_eq!(
        keys.into_iter().collect::<Vec<_>>(),
        ["nic.0.port.0.speed", "nic.0.port.1.speed"]
    );
}
