#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_quorum_types::AllocationId;

#[test]
fn version_2_is_found_among_the_mounts() {
    let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime shared:9 - cgroup2 c rw\n";
    let found = mount_point(mounts).unwrap();
    assert_eq!(found, Path::new("/sys/fs/cgroup/uni fied"));
    assert_eq!(mount_point("32 31 0:29 / / rw - ext4 /dev/vda rw\n"), None);
}

/// Folder that imitates the cgroup filesystem's files: written values stay, and the controllers in `passed` are enabled
/// already.
fn played(passed: &str) -> tempfile::TempDir {
    let mount = tempfile::tempdir().unwrap();
    let folder = mount.path().join("site/lattice/n1-0a");
    std::fs::create_dir_all(&folder).unwrap();
    for group in folder.ancestors().take(4) {
        for name in ["cgroup.kill", "cgroup.procs"] {
            std::fs::write(group.join(name), "").unwrap();
        }
        std::fs::write(group.join("cgroup.subtree_control"), passed).unwrap();
    }
    mount
}

fn settings(using: CgroupUse) -> CgroupSettings {
    CgroupSettings {
        use_of_cgroups: using,
        parent: "/site".into(),
        memory_reserve_bytes: Some(64 << 20),
        cpus: Some("2-7".to_owned()),
    }
}

fn key() -> AttemptKey {
    AttemptKey {
        allocation: AllocationId(5),
        attempt: 2,
    }
}

#[test]
fn limits_are_written_into_the_ranks_group() {
    let mount = played("");
    let opened =
        Cgroups::create_below(mount.path(), &settings(CgroupUse::Required), "n1-0a").unwrap();
    let record = opened.record_for(key());
    assert_eq!(record.path, mount.path().join("site/lattice/n1-0a/5.2"));
    std::fs::create_dir(&record.path).unwrap();
    std::fs::write(record.path.join("cgroup.procs"), "").unwrap();
    let (group, _procs) = Cgroup::create(&record).unwrap();
    let read = |name| std::fs::read_to_string(group.path.join(name)).unwrap();
    let expected = total_memory().unwrap() - (64 << 20);
    assert_eq!(read("memory.max"), expected.to_string());
    assert_eq!(read("memory.oom.group"), "1");
    assert_eq!(read("cpuset.cpus"), "2-7");
    std::fs::write(record.path.join("memory.events"), "oom 2\noom_kill 3\n").unwrap();
    assert_eq!(group.killed_for_memory(), 3);
    let passed = mount.path().join("site/cgroup.subtree_control");
    assert_eq!(std::fs::read_to_string(passed).unwrap(), "+cpuset");
    let found: Vec<_> = opened.list().unwrap().iter().map(|(key, _)| *key).collect();
    assert_eq!(found, [key()]);
}

#[test]
fn unenforceable_limit_stops_only_required_cgroups() {
    let mount = played("");
    let top = mount.path().join("cgroup.subtree_control");
    std::fs::remove_file(&top).unwrap();
    std::fs::create_dir(&top).unwrap();
    let open = |using| Cgroups::create_below(mount.path(), &settings(using), "n1-0a");
    let error = open(CgroupUse::Required).unwrap_err().to_string();
    assert!(
        error.contains("memory controller") && error.contains("executor.memory"),
        "{error}"
    );
    let record = open(CgroupUse::Auto).unwrap().record_for(key());
    assert_eq!((record.memory_max, record.cpus), (None, None));
}

#[test]
fn missing_setting_names_remedy() {
    let mount = tempfile::tempdir().unwrap();
    let open = || Cgroups::create_below(mount.path(), &settings(CgroupUse::Required), "n1-0a");
    let error = open().unwrap_err().to_string();
    assert!(error.contains("older than 5.14"), "{error}");
    let text = CgroupError::NotMounted.to_string();
    assert!(text.contains("executor.cgroup"), "{text}");
}
