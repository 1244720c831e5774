use super::*;

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
