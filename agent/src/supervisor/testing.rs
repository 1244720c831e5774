//! Launch record for tests.
#![expect(clippy::unwrap_used, reason = "tests")]

use crate::attempt::{LaunchRecord, LocalUser, RankHooks};
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_types::spec::Workload;
use lattice_quorum_types::{AllocationId, NodeId, Revision, UnixMillis};

/// Launch record of the second of three ranks, with `env` in its workload.
pub(super) fn launch(env: &[(&str, &str)]) -> LaunchRecord {
    let node = |name: &str| NodeId::new(name).unwrap();
    LaunchRecord {
        key: AttemptKey {
            allocation: AllocationId(12),
            attempt: 3,
        },
        epoch: 1,
        revision: Revision(9),
        user: "alice".to_owned(),
        project: "atlas/web".to_owned(),
        name: None,
        element: None,
        nodes: vec![node("gpu002"), node("gpu001"), node("gpu003")],
        node: node("gpu001"),
        rank: 1,
        workload: Workload {
            argv: vec!["true".to_owned()],
            env: env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..Workload::default()
        },
        walltime_ms: None,
        gpus: None,
        sensitive: false,
        hooks: RankHooks::default(),
        cgroup: None,
        checkpoint: None,
        become_user: None,
        account: LocalUser {
            name: "alice".to_owned(),
            uid: 1000,
            gid: 1000,
            groups: Vec::new(),
            home: "/home/alice".into(),
            shell: "/bin/sh".into(),
        },
        output_cap_bytes: 1,
        grace_ms: 1,
        mark: "0a1b".to_owned(),
        boot_id: String::new(),
        recorded_at: UnixMillis(0),
    }
}
