#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

#[test]
fn mode_parses_and_error_lists_modes() {
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
