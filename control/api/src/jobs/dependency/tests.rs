#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use proptest::{collection::vec, prelude::*};

fn read(text: &str) -> Result<Dependencies, DependencyError> {
    text.parse()
}

fn after(condition: Condition, id: u64, index: Option<u32>) -> AllocationDependency {
    AllocationDependency {
        condition,
        on: JobRef { id, index },
    }
}

#[test]
fn every_part_is_one_condition_on_one_or_more() {
    let all = read("afterok:12:13,afternotok:14_7,afterany:15,aftercorr:16,singleton").unwrap();
    assert_eq!(
        all.after,
        [
            after(Condition::Success, 12, None),
            after(Condition::Success, 13, None),
            after(Condition::Failure, 14, Some(7)),
            after(Condition::Any, 15, None),
            after(Condition::Corresponding, 16, None),
        ]
    );
    assert!(all.singleton);
    assert!(!read("afterok:1").unwrap().singleton);
    assert!(read("singleton").unwrap().after.is_empty());
}

#[test]
fn what_is_read_is_written_back() {
    for (text, back) in [
        ("afterok:12:13,afternotok:14", "afterok:12:13,afternotok:14"),
        ("afterok:12,afterok:13", "afterok:12:13"),
        ("AfterOK:0012", "afterok:12"),
        ("singleton,afterany:3_0", "afterany:3_0,singleton"),
        // Duplicates have no effect.
        (
            "afterok:12:12,afterany:12,afterok:12",
            "afterok:12,afterany:12",
        ),
        ("singleton,singleton", "singleton"),
        (
            "afterok:18446744073709551615",
            "afterok:18446744073709551615",
        ),
    ] {
        assert_eq!(read(text).unwrap().to_string(), back, "{text}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_its_name() {
    for (text, why) in [
        ("", "a dependency is empty"),
        ("afterok:1,", "a dependency is empty"),
        (":1", "a dependency is empty"),
        ("afterok:1, afterok:2", "the list contains a space"),
        (
            "afterok:1?afterok:2",
            "'?' (any one dependency is enough) is not supported",
        ),
        ("afterok:1?", "'?' (any one dependency is enough)"),
        (
            "after:1",
            "after is not supported: an allocation can wait for an end only",
        ),
        ("after:1+5", "after is not supported"),
        (
            "afterburstbuffer:1",
            "afterburstbuffer is not supported: burst buffers are",
        ),
        (
            "expand:1",
            "expand is not supported: an allocation cannot be expanded",
        ),
        (
            "beforeok:1",
            "\"beforeok\" is not a valid dependency type; valid are afterok",
        ),
        ("12", "\"12\" is not a valid dependency type"),
        (
            "afterok",
            "afterok names no allocation; write it like afterok:12 or",
        ),
        ("afterany:", "afterany names no allocation"),
        ("singleton:12", "write singleton alone"),
        ("afterok:1:", "\"\" is not a valid allocation"),
        (
            "afterok:x",
            "\"x\" is not a valid allocation; write its number, as 12",
        ),
        ("afterok:0", "\"0\" is not a valid allocation"),
        ("afterok:-1", "\"-1\" is not a valid allocation"),
        ("afterok:1+5", "\"1+5\" is not a valid allocation"),
        ("afterok:1_", "\"1_\" is not a valid allocation"),
        ("afterok:1_2_3", "\"1_2_3\" is not a valid allocation"),
        ("afterok:1_*", "\"1_*\" is not a valid allocation"),
        ("afterok:1_[2-3]", "\"1_[2-3]\" is not a valid allocation"),
        (
            "afterok:1_4000001",
            "\"1_4000001\" is not a valid allocation",
        ),
        ("afterok:18446744073709551616", "is not a valid allocation"),
        (
            "aftercorr:12_7",
            "name the array, aftercorr:12, or write afterok:12_7",
        ),
        (
            "afterok:12,afternotok:12",
            "12 cannot both complete and fail",
        ),
        (
            "afternotok:9,aftercorr:9",
            "9 cannot both complete and fail",
        ),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let many = |count: u64| {
        let numbers: Vec<String> = (1..=count).map(|id| id.to_string()).collect();
        format!("afterok:{}", numbers.join(":"))
    };
    assert_eq!(read(&many(1000)).unwrap().after.len(), 1000);
    assert_eq!(read(&many(1001)), Err(DependencyError::TooMany));
}

proptest! {
    #[test]
    fn any_of_them_is_read_back(
        parts in vec((0..4_usize, 1..40_u64, proptest::option::of(0..5_u32)), 1..12),
        singleton: bool,
    ) {
        let mut all = Dependencies { after: Vec::new(), singleton };
        for (kind, id, index) in parts {
            let condition = DEPENDENCY_TYPES[kind].1;
            let index = index.filter(|_| condition != Condition::Corresponding);
            let on = JobRef { id, index };
            if all.after.iter().all(|after| after.on != on) {
                all.after.push(AllocationDependency { condition, on });
            }
        }
        prop_assert_eq!(read(&all.to_string()).unwrap(), all);
    }

    #[test]
    fn no_text_is_too_strange(text in "[a-z0-9:,_?+ ]{0,30}") {
        if let Ok(all) = read(&text) {
            prop_assert_eq!(read(&all.to_string()).unwrap(), all);
        }
    }
}
