#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

#[test]
fn a_mode_is_read_as_it_is_printed_and_a_wrong_one_is_told_the_right_ones() {
    for mode in CheckpointMode::ALL {
        assert_eq!(mode.as_str().parse(), Ok(mode));
        let json = serde_json::to_value(mode).unwrap();
        assert_eq!(json, mode.as_str());
    }
    let error = "usr1".parse::<CheckpointMode>().unwrap_err().to_string();
    assert!(
        error.contains("\"usr1\"") && error.contains("shared_memory"),
        "{error}"
    );
}

#[test]
fn a_directory_is_an_absolute_path_or_a_url_where_no_files_are_needed() {
    use CheckpointMode::{Callback, SharedMemory, Signal};
    let check = |directory: &str, mode| check_directory(directory, mode).map_err(|e| e.to_string());
    for mode in CheckpointMode::ALL {
        assert_eq!(check("/scratch/a b/c", mode), Ok(()));
        for wrong in ["", "scratch", "/a/../b", "/a\0b", "/a\nb"] {
            let error = check(wrong, mode).unwrap_err();
            assert!(error.starts_with("directory "), "{error}");
        }
        assert!(check(&format!("/{}", "a".repeat(1024)), mode).is_err());
    }
    assert_eq!(check("s3://atlas/web/7", Callback), Ok(()));
    assert_eq!(check("s3://atlas/web/7", SharedMemory), Ok(()));
    let error = check("s3://atlas/web/7", Signal).unwrap_err();
    assert!(error.contains("use shared_memory or callback"), "{error}");
}

#[test]
fn an_order_names_the_field_that_is_wrong() {
    let order = CheckpointOrder::new(1, "/scratch", 1000);
    assert_eq!(order.check(CheckpointMode::Signal), Ok(()));
    assert_eq!((order.extension_ms, order.most_deferrals), (500, 3));
    let wrong = CheckpointOrder {
        number: 0,
        ..order.clone()
    };
    assert_eq!(
        wrong.check(CheckpointMode::Signal),
        Err(InvalidCheckpoint::Number)
    );
    let wrong = CheckpointOrder {
        timeout_ms: 0,
        ..order
    };
    assert_eq!(
        wrong.check(CheckpointMode::Signal),
        Err(InvalidCheckpoint::Timeout)
    );
}

#[test]
fn each_rank_has_a_folder_of_its_own_below_the_checkpoints() {
    let order = CheckpointOrder::new(7, "/scratch/12/", 1000);
    assert_eq!(order.folder(3), "/scratch/12/7/rank-3");
    let restore = Restore {
        number: 7,
        directory: "s3://atlas/12".to_owned(),
    };
    assert_eq!(restore.folder(0), "s3://atlas/12/7/rank-0");
}

#[test]
fn work_is_answering_that_was_heard_of_within_a_quarter_of_its_timeout() {
    let order = CheckpointOrder::new(1, "/scratch", 1000);
    assert!(order.is_answering(UnixMillis(5_000), UnixMillis(5_250)));
    assert!(!order.is_answering(UnixMillis(5_000), UnixMillis(5_251)));
    assert!(order.is_answering(UnixMillis(5_000), UnixMillis(4_000)));
}
