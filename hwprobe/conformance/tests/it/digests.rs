//! The canonical encoding, digests, differences, debouncing and fingerprints.

use lattice_conformance::{
    Class, ClassMark, ClassRecord, ClassState, Debounce, Digest, Fingerprint, KeyVerdict,
    PreimageError, Publication, Reading, Value, diff, fingerprint, verify,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn record(entries: &[(&str, Reading<Value>)]) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    for (key, reading) in entries {
        record.require(*key, reading.clone());
    }
    record
}

fn text(value: &str) -> Reading<Value> {
    Reading::Present(value.into())
}

fn timeout() -> Reading<Value> {
    Reading::Timeout { after_ms: 5 }
}

fn digest_of(record: &ClassRecord) -> Digest {
    record.state().digest().expect("complete")
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Flag),
        any::<i64>().prop_map(Value::Number),
        ".{0,12}".prop_map(Value::Text),
        prop::collection::vec(".{0,6}", 0..4).prop_map(Value::List),
    ]
}

fn any_reading() -> impl Strategy<Value = Reading<Value>> {
    prop_oneof![
        6 => any_value().prop_map(Reading::Present),
        1 => Just(Reading::Absent),
        1 => Just(Reading::Unsupported),
        1 => ".{0,8}".prop_map(Reading::denied),
        1 => ".{0,8}".prop_map(Reading::failed),
        1 => any::<u64>().prop_map(|after_ms| Reading::Timeout { after_ms }),
        1 => ".{0,8}".prop_map(Reading::disabled),
    ]
}

fn any_record() -> impl Strategy<Value = ClassRecord> {
    let entries = prop::collection::btree_map("[a-z.0-9]{0,8}", any_reading(), 0..8);
    (0..Class::ALL.len(), any::<u16>(), entries).prop_map(|(class, schema, entries)| {
        let mut record = ClassRecord::new(Class::ALL[class]);
        record.schema = schema;
        record.entries = entries;
        record
    })
}

fn known(record: &ClassRecord) -> ClassRecord {
    let mut known = record.clone();
    known.entries.retain(|_, reading| reading.is_known());
    known
}

proptest! {
    #[test]
    fn what_is_published_was_read_twice_and_is_gone_when_nothing_is(
        reads in prop::collection::vec(0_u8..5, 1..60),
    ) {
        let reads: Vec<ClassMark> = reads
            .into_iter()
            .map(|byte| if byte == 0 { ClassMark::Incomplete } else { mark(byte) })
            .collect();
        let mut debounce = Debounce::default();
        let (mut soon, mut unlike) = (0, 0);
        for (at, read) in reads.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| reads[at]);
            let is_complete = read.digest().is_some();
            soon = match debounce.observe(*read) {
                Publication::Confirm => soon + 1,
                _ => 0,
            };
            // The number of quick confirming reads is bounded.
            prop_assert!(soon <= 5, "{:?}", &reads[..=at]);
            let was_complete = before.is_some_and(|before| before.digest().is_some());
            unlike = match is_complete && was_complete && before != Some(*read) {
                true => unlike + 1,
                false => 0,
            };
            if unlike > 4 || !is_complete {
                prop_assert_eq!(debounce.published(), Some(ClassMark::Incomplete));
            }
            // Two equal reads determine a class, whatever was before.
            if is_complete && before == Some(*read) {
                prop_assert_eq!(debounce.published(), Some(*read));
            }
        }
    }

    #[test]
    fn decoding_gives_back_exactly_what_is_known(record in any_record()) {
        let bytes = record.encode();
        prop_assert_eq!(ClassRecord::decode(&bytes), Ok(known(&record)));
    }

    #[test]
    fn two_records_share_bytes_only_if_all_they_know_is_equal(
        left in any_record(),
        right in any_record(),
    ) {
        prop_assert_eq!(left.encode() == right.encode(), known(&left) == known(&right));
    }

    #[test]
    fn bytes_that_decode_are_the_bytes_that_encode(
        record in any_record(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = record.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(decoded) = ClassRecord::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
        }
    }

    #[test]
    fn any_prefix_is_refused(record in any_record(), at in any::<prop::sample::Index>()) {
        let bytes = record.encode();
        let at = at.index(bytes.len());
        prop_assert!(ClassRecord::decode(&bytes[..at]).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut framed = b"LCR1\x03\0\0\0nic\x01\0".to_vec();
        framed.extend(&bytes);
        let _ = ClassRecord::decode(&bytes);
        let _ = ClassRecord::decode(&framed);
    }

    #[test]
    fn the_order_of_reading_does_not_matter(
        entries in prop::collection::btree_map("[a-z]{1,4}", any_reading(), 1..8),
        seed in any::<prop::sample::Index>(),
    ) {
        let forward: Vec<_> = entries.into_iter().collect();
        let mut rotated = forward.clone();
        rotated.rotate_left(seed.index(forward.len()));
        let build = |entries: &[(String, Reading<Value>)]| {
            let mut record = ClassRecord::new(Class::Nic);
            for (key, reading) in entries {
                record.put(key.clone(), reading.clone());
            }
            record
        };
        prop_assert_eq!(build(&forward).encode(), build(&rotated).encode());
    }

    #[test]
    fn marks_survive_their_text(bytes in any::<[u8; 32]>(), schema in any::<u16>()) {
        let mark = ClassMark::Complete { schema, digest: Digest(bytes) };
        prop_assert_eq!(mark.to_string().parse(), Ok(mark));
    }
}

#[test]
fn joined_strings_that_would_collide_do_not() {
    let one = record(&[("a", Reading::Present(Value::List(vec!["x y".into()])))]);
    let two = record(&[(
        "a",
        Reading::Present(Value::List(vec!["x".into(), "y".into()])),
    )]);
    assert_ne!(digest_of(&one), digest_of(&two));
    let absent = record(&[("a", Reading::Absent)]);
    let unsupported = record(&[("a", Reading::Unsupported)]);
    let zero = record(&[("a", Reading::Present(Value::Number(0)))]);
    let empty = record(&[("a", text(""))]);
    let digests = [&absent, &unsupported, &zero, &empty].map(digest_of);
    for (index, digest) in digests.iter().enumerate() {
        assert!(!digests[index + 1..].contains(digest));
    }
}

#[test]
fn class_and_schema_are_part_of_the_digest() {
    let nic = record(&[("count", text("1"))]);
    let mut gpu = nic.clone();
    gpu.class = Class::Gpu;
    let mut next = nic.clone();
    next.schema += 1;
    assert_ne!(digest_of(&nic), digest_of(&gpu));
    assert_ne!(digest_of(&nic), digest_of(&next));
}

#[test]
fn the_encoding_is_pinned() {
    // A change here is a change of every digest in the field: raise the schema instead. The schema is part of the
    // pinned value.
    let mut record = record(&[
        ("nic.0.firmware", text("28.41.1000")),
        ("nic.count", Reading::Present(Value::Number(1))),
        ("nic.x", Reading::Absent),
    ]);
    record.schema = 1;
    assert_eq!(
        digest_of(&record).to_string(),
        PINNED,
        "{:?}",
        record.encode()
    );
}
const PINNED: &str = "23a2d0bc2d05fd3979ff2635055b5cff129e74b4a34c4c42ca1ead01bf6e9477";

#[test]
fn a_preimage_is_accepted_for_its_own_digest_only() {
    let record = record(&[("nic.0.firmware", text("28.41.1000"))]);
    let (digest, bytes) = (digest_of(&record), record.encode());
    assert_eq!(verify(&digest, &bytes).unwrap().entries, record.entries);
    let other = Digest([7; 32]);
    assert!(matches!(
        verify(&other, &bytes),
        Err(PreimageError::OtherDigest { expected, .. }) if expected == other
    ));
    let mut forged = bytes.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert!(verify(&digest, &forged).is_err());
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(
        verify(&digest, &longer),
        Err(PreimageError::Trailing { extra: 1 })
    );
}

#[test]
fn a_required_key_that_is_unknown_leaves_no_digest() {
    for unknown in [
        timeout(),
        Reading::denied("no"),
        Reading::failed("broken"),
        Reading::disabled("off"),
    ] {
        let record = record(&[
            ("nic.count", text("1")),
            ("nic.0.firmware", unknown.clone()),
        ]);
        assert_eq!(
            record.state(),
            ClassState::Incomplete {
                missing: BTreeMap::from([("nic.0.firmware".to_owned(), unknown)])
            }
        );
    }
    let mut lost = record(&[("nic.count", text("1"))]);
    lost.entries.clear();
    assert!(matches!(lost.state(), ClassState::Incomplete { .. }));
}

#[test]
fn late_optional_key_prevents_digest() {
    let with = |reading: Reading<Value>| {
        let mut record = record(&[("nic.count", text("1"))]);
        record.put("nic.0.board_id", reading);
        record
    };
    let without = digest_of(&record(&[("nic.count", text("1"))]));
    // Two reads of one node, one of them late, never have two digests.
    assert_ne!(digest_of(&with(text("MT_1"))), without);
    assert_eq!(
        with(timeout()).state(),
        ClassState::Incomplete {
            missing: BTreeMap::from([("nic.0.board_id".to_owned(), timeout())])
        }
    );
    for unknown in [
        Reading::denied("no"),
        Reading::failed("EINVAL, each time"),
        Reading::disabled("off"),
    ] {
        assert_eq!(digest_of(&with(unknown)), without);
    }
    // A value that arrives later counts.
    let mut incomplete = with(timeout());
    incomplete.put("nic.0.board_id", text("MT_1"));
    assert_eq!(digest_of(&incomplete), digest_of(&with(text("MT_1"))));
}

#[test]
fn unknown_is_neither_equal_nor_a_difference() {
    let left = record(&[("a", timeout()), ("b", text("1")), ("c", text("1"))]);
    let right = record(&[("a", timeout()), ("b", text("2")), ("c", text("1"))]);
    let differences: Vec<_> = diff(&left, &right)
        .into_iter()
        .map(|difference| (difference.key, difference.verdict))
        .collect();
    assert_eq!(
        differences,
        [
            ("a".to_owned(), KeyVerdict::Unknown),
            ("b".to_owned(), KeyVerdict::Differs)
        ]
    );
}

#[test]
fn missing_key_is_unknown_unless_counted() {
    let one = Reading::Present(Value::Number(1));
    let two = Reading::Present(Value::Number(2));
    let left = record(&[
        ("nic.count", one),
        ("nic.0.firmware", text("1")),
        ("nic.0.board_id", text("MT_1")),
    ]);
    let right = record(&[
        ("nic.count", two),
        ("nic.0.firmware", text("1")),
        ("nic.1.firmware", text("1")),
    ]);
    let verdicts: BTreeMap<String, KeyVerdict> = diff(&left, &right)
        .into_iter()
        .map(|difference| (difference.key, difference.verdict))
        .collect();
    assert_eq!(
        verdicts,
        BTreeMap::from([
            ("nic.0.board_id".to_owned(), KeyVerdict::Unknown),
            ("nic.1.firmware".to_owned(), KeyVerdict::Differs),
            ("nic.count".to_owned(), KeyVerdict::Differs),
        ])
    );
}

#[test]
fn disabled_classes_and_other_schemas_are_never_equal() {
    let off = ClassRecord::disabled(Class::Bmc, "not probed by this agent");
    let differences = diff(&off, &off);
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].verdict, KeyVerdict::Unknown);
    let left = record(&[("a", text("1"))]);
    let mut right = left.clone();
    right.schema += 1;
    let differences = diff(&left, &right);
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].verdict, KeyVerdict::Unknown);
}

fn mark(byte: u8) -> ClassMark {
    ClassMark::Complete {
        schema: 1,
        digest: Digest([byte; 32]),
    }
}

#[test]
fn a_fingerprint_needs_every_class_it_covers() {
    let mut marks = BTreeMap::from([(Class::Gpu, mark(1)), (Class::Nic, mark(2))]);
    let complete = fingerprint(&marks);
    assert!(matches!(&complete, Fingerprint::Complete { classes, .. }
        if *classes == [Class::Gpu, Class::Nic]));
    marks.insert(Class::Bmc, ClassMark::Disabled);
    assert_eq!(fingerprint(&marks), complete);
    marks.insert(Class::Cpu, ClassMark::Incomplete);
    assert_eq!(
        fingerprint(&marks),
        Fingerprint::Unknown {
            incomplete: vec![Class::Cpu]
        }
    );
    let swapped = BTreeMap::from([(Class::Gpu, mark(2)), (Class::Nic, mark(1))]);
    assert_ne!(fingerprint(&swapped), complete);
    let none = BTreeMap::from([(Class::Gpu, ClassMark::Disabled)]);
    assert_eq!(fingerprint(&none), Fingerprint::Empty);
}

#[test]
fn a_change_is_published_after_two_equal_reads() {
    let mut debounce = Debounce::default();
    let published = |mark, revision| Publication::Publish { mark, revision };
    assert_eq!(debounce.observe(mark(1)), published(mark(1), 1));
    assert_eq!(debounce.observe(mark(1)), Publication::Unchanged);
    assert_eq!(debounce.observe(mark(2)), Publication::Confirm);
    assert_eq!(debounce.observe(mark(3)), Publication::Confirm);
    assert_eq!(debounce.observe(mark(2)), Publication::Confirm);
    assert_eq!(debounce.published(), Some(mark(1)));
    assert_eq!(debounce.observe(mark(2)), published(mark(2), 2));
    assert_eq!(debounce.observe(mark(9)), Publication::Confirm);
    assert_eq!(debounce.observe(mark(2)), Publication::Unchanged);
    assert_eq!(debounce.observe(mark(9)), Publication::Confirm);
}

#[test]
fn a_class_that_never_reads_the_same_twice_is_incomplete_until_it_does() {
    let mut debounce = Debounce::default();
    debounce.observe(mark(1));
    for byte in [2, 3, 2, 3] {
        assert_eq!(debounce.observe(mark(byte)), Publication::Confirm);
    }
    let gone = Publication::Publish {
        mark: ClassMark::Incomplete,
        revision: 2,
    };
    assert_eq!(debounce.observe(mark(2)), gone);
    // No confirming read is requested from then on: the class is read like any incomplete class, even after a read
    // equals the published mark once.
    for byte in [3, 1, 3, 1] {
        assert_eq!(debounce.observe(mark(byte)), Publication::Unstable);
        assert!(!debounce.is_waiting());
    }
    assert_eq!(
        debounce.observe(mark(1)),
        Publication::Publish {
            mark: mark(1),
            revision: 3
        }
    );
    assert_eq!(debounce.observe(mark(2)), Publication::Confirm);
    // A class that alternates between the published mark and another one is unsettled too.
    for byte in [1, 2, 1] {
        debounce.observe(mark(byte));
    }
    debounce.observe(mark(2));
    assert_eq!(debounce.published(), Some(ClassMark::Incomplete));
    // A disabled class stays disabled.
    debounce.observe(ClassMark::Disabled);
    assert_eq!(debounce.published(), Some(ClassMark::Disabled));
}

#[test]
fn unknown_is_published_at_once_and_keeps_the_last_complete_digest() {
    let mut debounce = Debounce::default();
    debounce.observe(mark(1));
    let incomplete = ClassMark::Incomplete;
    assert!(matches!(
        debounce.observe(incomplete),
        Publication::Publish { .. }
    ));
    assert_eq!(debounce.published(), Some(incomplete));
    assert_eq!(debounce.last_complete(), Some(Digest([1; 32])));
    // A return to the previous digest needs no confirmation; another digest does.
    assert!(matches!(
        debounce.clone().observe(mark(1)),
        Publication::Publish { .. }
    ));
    assert_eq!(debounce.observe(mark(2)), Publication::Confirm);
    assert!(matches!(
        debounce.observe(mark(2)),
        Publication::Publish { revision: 3, .. }
    ));
}

#[test]
fn the_seven_states_stay_distinct_on_screen_and_in_json() {
    let all: [Reading<Value>; 7] = [
        text("absent"),
        Reading::Absent,
        Reading::Unsupported,
        Reading::denied("x"),
        Reading::failed("x"),
        timeout(),
        Reading::disabled("x"),
    ];
    for (index, left) in all.iter().enumerate() {
        for right in &all[index + 1..] {
            assert_ne!(left, right);
            assert_ne!(left.to_string(), right.to_string());
            assert_ne!(
                serde_json::to_string(left).unwrap(),
                serde_json::to_string(right).unwrap()
            );
        }
    }
}
