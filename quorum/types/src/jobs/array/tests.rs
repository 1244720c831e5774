#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeSet;

fn read(text: &str) -> Result<ArraySpec, ArrayError> {
    text.parse()
}

#[test]
fn every_form_is_read_and_written_back() {
    for (text, written, count) in [
        ("0", "0", 1),
        ("0-99", "0-99", 100),
        ("0-99%10", "0-99%10", 100),
        ("1,3,5-7", "1,3,5-7", 5),
        ("0-15:4", "0-12:4", 4),
        ("7,1-2", "1,2,7", 3),
        ("0-99:2,1-99:2", "0-99", 100),
        ("0-98:2,51", "0-48:2,50-52,54-98:2", 51),
        ("0-10:20", "0", 1),
        ("0-10:99999999999", "0", 1),
        ("5-5", "5", 1),
        ("007-010", "7-10", 4),
        ("0-9999", "0-9999", 10_000),
        ("4000000", "4000000", 1),
        ("1-100000", "1-100000", 100_000),
        ("0-3%99999999999", "0-3%4294967295", 4),
    ] {
        let array = read(text).unwrap();
        assert_eq!(array.to_string(), written, "{text}");
        assert_eq!(array.indices().len(), count, "{text}");
        assert_eq!(read(written).unwrap(), array, "{text}");
    }
}

#[test]
fn what_is_no_array_is_refused_with_the_part_that_is_wrong() {
    for (text, why) in [
        ("", "the array has no index"),
        ("%5", "the array has no index"),
        (" 1", "spaces are not allowed"),
        ("1, 2", "spaces are not allowed"),
        ("1-2 %3", "spaces are not allowed"),
        ("a", "\"a\" is neither an index nor a range"),
        ("1,,2", "\"\" is neither"),
        ("1,", "\"\" is neither"),
        ("1-", "\"1-\" is neither"),
        ("-1", "\"-1\" is neither"),
        ("1-2-3", "\"1-2-3\" is neither"),
        ("1-4:", "\"1-4:\" is neither"),
        ("1-4:2:2", "\"1-4:2:2\" is neither"),
        ("+1", "\"+1\" is neither"),
        ("0x10", "\"0x10\" is neither"),
        ("1.5", "\"1.5\" is neither"),
        ("[0-3]", "\"[0-3]\" is neither"),
        ("5-1", "5-1 is descending"),
        ("0-15:0", "0-15:0 has a step of 0"),
        ("5:2", "5:2 has a step and one index only"),
        (
            "4000001",
            "index 4000001 is too high; the highest is 4000000",
        ),
        (
            "0-99999999999999999999",
            "index 99999999999999999999 is too high",
        ),
        ("0-100000", "more than 100000 elements"),
        ("0-60000,100000-160000", "more than 100000 elements"),
        ("1,2,1", "index 1 occurs twice"),
        ("0-10,0-10:5", "index 0 occurs twice"),
        ("1-5%", "not \"\""),
        ("1-5%x", "not \"x\""),
        ("1-5%-1", "not \"-1\""),
        ("1-5%2%3", "not \"2%3\""),
        ("1-5%0", "%0: no element would ever run"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn what_was_stored_is_checked_when_it_is_read() {
    for array in ["0-99%10", "1,3,5-7", "0-15:4"] {
        let array = read(array).unwrap();
        let bytes = postcard::to_allocvec(&array).unwrap();
        assert_eq!(postcard::from_bytes::<ArraySpec>(&bytes).unwrap(), array);
        let json = serde_json::to_string(&array).unwrap();
        assert_eq!(serde_json::from_str::<ArraySpec>(&json).unwrap(), array);
    }
    for (json, why) in [
        (r#"{"indices":[],"max_running":null}"#, "no index"),
        (r#"{"indices":[[0,1,1]],"max_running":0}"#, "%0"),
        (r#"{"indices":[[0,4000001,1]],"max_running":1}"#, "too high"),
        (r#"{"indices":[[0,100000,1]],"max_running":1}"#, "more than"),
        (r#"{"indices":[[1,0,1]],"max_running":1}"#, "valid run"),
        (r#"{"indices":[[0,1,0]],"max_running":1}"#, "valid run"),
        (r#"{"indices":[[0,3,2]],"max_running":1}"#, "valid run"),
        (
            r#"{"indices":[[0,4,2],[3,3,1]],"max_running":1}"#,
            "valid run",
        ),
    ] {
        let error = serde_json::from_str::<ArraySpec>(json).unwrap_err();
        assert!(error.to_string().contains(why), "{json}: {error}");
    }
    // Runs from another way of folding are accepted and refolded.
    let other: IndexSet = serde_json::from_str("[[0,0,1],[1,1,1],[2,2,1]]").unwrap();
    assert_eq!(other, IndexSet::range(0, 2, 1).unwrap());
}

/// Every edit refolds a bounded number of runs, so this test checks that the number of runs stays small.
#[test]
fn an_array_that_is_worked_off_stays_small() {
    let mut all = IndexSet::range(0, 99_999, 1).unwrap();
    for index in 0..100_000 {
        assert_eq!(all.pop_first(), Some(index));
        assert!(all.run_count() <= 2);
    }
    assert!(all.is_empty());
    // Two halves at once, from the ends, and every fourth.
    let mut strided = IndexSet::range(0, 399_996, 4).unwrap();
    for step in 0..50_000 {
        assert!(strided.remove(4 * step) && strided.remove(399_996 - 4 * step));
        assert!(strided.run_count() <= 2);
    }
    assert!(strided.is_empty());
    // The worst case: every other index of consecutive ones.
    let mut holes = IndexSet::range(0, 99_999, 1).unwrap();
    let mut most = 0;
    for index in (1..100_000).step_by(2) {
        assert!(holes.remove(index));
        most = most.max(holes.run_count());
    }
    assert_eq!((holes.run_count(), most), (1, 2));
    // All distances differ, so no two indices form a run.
    let squares: IndexSet = (0..2_000_u32).map(|n| n * n).collect();
    assert_eq!(squares.run_count(), 2_000);
    let mut left = squares;
    for n in 0..2_000 {
        assert_eq!(left.pop_first(), Some(n * n));
    }
}

#[test]
fn the_ends_of_what_numbers_can_be_are_indices_too() {
    let mut set: IndexSet = [u32::MAX, 0, u32::MAX - 1].into_iter().collect();
    assert!(set.insert(u32::MAX - 2) && !set.insert(u32::MAX));
    assert_eq!(set.to_string(), "0,4294967293-4294967295");
    let all = IndexSet::range(0, u32::MAX, 1).unwrap();
    assert_eq!(all.len(), 1 << 32);
    assert_eq!(all.difference(&set).to_string(), "1-4294967292");
    assert_eq!(all.intersection(&set), set);
    assert!(set.remove(u32::MAX) && set.remove(0));
    assert_eq!(set.to_string(), "4294967293,4294967294");
    assert_eq!(IndexSet::range(1, 0, 1), None);
    assert_eq!(IndexSet::range(0, 1, 0), None);
    assert_eq!(IndexSet::new().pop_first(), None);
}

/// Indices close together, so that runs of different steps meet.
fn indices() -> impl Strategy<Value = BTreeSet<u32>> {
    let run = (0..60_u32, 1..5_u32, 0..12_u32);
    let runs = vec(run, 0..5).prop_map(|runs| {
        let of = |(first, step, count)| (0..count).map(move |n| first + n * step);
        runs.into_iter().flat_map(of).collect::<Vec<u32>>()
    });
    (runs, vec(0..80_u32, 0..12))
        .prop_map(|(runs, others)| runs.into_iter().chain(others).collect())
}

fn fold(set: &BTreeSet<u32>) -> IndexSet {
    set.iter().copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn it_is_the_set_of_what_was_put_in_and_not_taken_out(
        begin in indices(),
        edits in vec((any::<bool>(), 0..90_u32), 0..60),
    ) {
        let (mut model, mut set) = (begin.clone(), fold(&begin));
        for (is_in, index) in edits {
            match is_in {
                true => prop_assert_eq!(set.insert(index), model.insert(index)),
                false => prop_assert_eq!(set.remove(index), model.remove(&index)),
            }
            // The same set has the same runs, independent of the order of edits.
            prop_assert_eq!(&set, &fold(&model));
            prop_assert_eq!(set.len(), model.len());
        }
        prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!((set.first(), set.last()), (model.first().copied(), model.last().copied()));
        for index in 0..95 {
            prop_assert_eq!(set.contains(index), model.contains(&index), "{}", index);
        }
    }

    #[test]
    fn two_sets_are_joined_as_sets_are(a in indices(), b in indices()) {
        let (x, y) = (fold(&a), fold(&b));
        prop_assert_eq!(x.union(&y), a.union(&b).copied().collect());
        prop_assert_eq!(x.intersection(&y), a.intersection(&b).copied().collect());
        prop_assert_eq!(x.difference(&y), a.difference(&b).copied().collect());
    }

    #[test]
    fn what_is_written_is_read_back(set in indices(), max_running in proptest::option::of(1..9_u32)) {
        prop_assume!(!set.is_empty());
        let array = ArraySpec::new(fold(&set), max_running).unwrap();
        prop_assert_eq!(read(&array.to_string()).unwrap(), array.clone());
        let bytes = postcard::to_allocvec(&array).unwrap();
        prop_assert_eq!(postcard::from_bytes::<ArraySpec>(&bytes).unwrap(), array);
    }

    #[test]
    fn no_text_is_too_strange(text in "[0-9a,:%\\- ]{0,24}") {
        if let Ok(array) = read(&text) {
            prop_assert_eq!(read(&array.to_string()).unwrap(), array);
        }
    }
}
