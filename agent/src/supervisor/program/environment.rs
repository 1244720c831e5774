//! Environment of a job's processes.

use crate::attempt::{GpuChoice, GpuVendor, LaunchRecord};
use lattice_quorum_types::hostlist;

/// Default search path.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Variable that holds [`LaunchRecord::mark`].
pub(in crate::supervisor) const MARK: &str = "LATTICE_ATTEMPT_MARK";

/// Variables with which a job selects its GPUs itself.
const VISIBILITY: [&str; 5] = [
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
];

/// Variables that make the selected GPUs visible, by UUID if known. Numbers depend on the enumeration order, so for
/// numbers CUDA is set to PCI order.
fn gpu_variables(choice: &GpuChoice) -> Vec<(&'static str, String)> {
    let numbers = || {
        let slots: Vec<String> = choice.slots.iter().map(u32::to_string).collect();
        slots.join(",")
    };
    let has_names = !choice.uuids.is_empty();
    let list = if has_names {
        choice.uuids.join(",")
    } else {
        numbers()
    };
    let mut all = Vec::new();
    if choice.vendor != Some(GpuVendor::Amd) {
        all.push(("CUDA_VISIBLE_DEVICES", list.clone()));
        // Container runtimes read this variable.
        all.push(("NVIDIA_VISIBLE_DEVICES", list.clone()));
        if !has_names {
            all.push(("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()));
        }
    }
    if choice.vendor != Some(GpuVendor::Nvidia) {
        all.push(("ROCR_VISIBLE_DEVICES", list));
    }
    all
}

/// Variables for checkpoint requests, and for the checkpoint to restore.
fn checkpoint_variables(launch: &LaunchRecord) -> Vec<(&'static str, String)> {
    let Some(plan) = &launch.checkpoint else {
        return Vec::new();
    };
    let setup = &plan.setup;
    let mut all = vec![
        ("LATTICE_CHECKPOINT_MODE", setup.mode.to_string()),
        ("LATTICE_CHECKPOINT_DIR", setup.directory.clone()),
    ];
    for (name, path) in [
        ("LATTICE_CHECKPOINT_REQUEST", plan.request_file(launch.rank)),
        ("LATTICE_CHECKPOINT_SHM", plan.shared_file()),
        ("LATTICE_CHECKPOINT_SOCKET", plan.socket()),
    ] {
        all.extend(path.map(|path| (name, path.display().to_string())));
    }
    if let Some(restore) = &setup.restore {
        all.push(("LATTICE_RESTORE_DIR", restore.folder(launch.rank)));
        all.push(("LATTICE_RESTORE_NUMBER", restore.number.to_string()));
    }
    all
}

/// Environment of the job, in order of increasing precedence: defaults, selected GPUs, the user's variables, and
/// variables that only Lattice may set. If the user selects GPUs, the selection here is omitted.
pub(in crate::supervisor) fn environment(
    launch: &LaunchRecord,
) -> Result<Vec<(String, String)>, String> {
    let account = &launch.account;
    let mut all = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOME".to_owned(), account.home.display().to_string()),
        ("SHELL".to_owned(), account.shell.display().to_string()),
        ("USER".to_owned(), account.name.clone()),
        ("LOGNAME".to_owned(), account.name.clone()),
    ];
    let env = &launch.workload.env;
    let is_users_choice = VISIBILITY.iter().any(|name| env.contains_key(*name));
    let gpus = launch.gpus.as_ref().filter(|_| !is_users_choice);
    for (name, value) in gpus.into_iter().flat_map(gpu_variables) {
        all.push((name.to_owned(), value));
    }
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!(
                "environment variable {name:?} is not valid: the name is empty or contains '=' or NUL, or the value \
                 contains NUL"
            ));
        }
        all.push((name.clone(), value.clone()));
    }
    let ours = [
        ("LATTICE_ALLOCATION_ID", launch.key.allocation.to_string()),
        ("LATTICE_ATTEMPT", launch.key.attempt.to_string()),
        ("LATTICE_NODE", launch.node.to_string()),
        ("LATTICE_NODELIST", hostlist::fold(&launch.nodes)),
        ("LATTICE_NODE_RANK", launch.rank.to_string()),
        ("LATTICE_NNODES", launch.nodes.len().to_string()),
        ("LATTICE_PROJECT", launch.project.clone()),
        ("LATTICE_USER", launch.user.clone()),
        (MARK, launch.mark.clone()),
    ];
    for (name, value) in ours.into_iter().chain(checkpoint_variables(launch)) {
        all.push((name.to_owned(), value));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::attempt::CheckpointPlan;
    use crate::supervisor::testing::launch;
    use lattice_agent_rpc::{CheckpointSetup, Restore};
    use lattice_quorum_types::checkpoint::CheckpointMode;
    use std::collections::BTreeMap;

    #[test]
    fn the_user_adds_to_the_environment_but_cannot_forge_our_part() {
        let launch = launch(&[
            ("PATH", "/opt/bin"),
            ("LATTICE_NODE_RANK", "0"),
            ("A", "b=c"),
        ]);
        let all: BTreeMap<_, _> = environment(&launch).unwrap().into_iter().collect();
        assert_eq!(all["PATH"], "/opt/bin");
        assert_eq!(all["A"], "b=c");
        assert_eq!(all["LATTICE_NODE_RANK"], "1");
        assert_eq!(all["LATTICE_NODELIST"], "gpu[001-003]");
        assert_eq!(all["LATTICE_NNODES"], "3");
        assert_eq!(all["LATTICE_ALLOCATION_ID"], "12");
        assert_eq!(all["LATTICE_PROJECT"], "atlas/web");
    }

    fn gpus(env: &[(&str, &str)], choice: GpuChoice) -> BTreeMap<String, String> {
        let mut launch = launch(env);
        launch.gpus = Some(choice);
        let all: BTreeMap<_, _> = environment(&launch).unwrap().into_iter().collect();
        let is_ours = |name: &String| name.contains("DEVICE") || name == "GPU_DEVICE_ORDINAL";
        all.into_iter().filter(|(name, _)| is_ours(name)).collect()
    }

    fn shown(all: &BTreeMap<String, String>) -> Vec<String> {
        all.iter().map(|(k, v)| format!("{k}={v}")).collect()
    }

    #[test]
    fn gpus_are_named_to_the_runtimes_of_their_vendor() {
        let choice = |vendor, uuids: &[&str]| GpuChoice {
            vendor,
            slots: vec![2, 5],
            uuids: uuids.iter().map(|uuid| (*uuid).to_owned()).collect(),
        };
        let cuda = gpus(&[], choice(Some(GpuVendor::Nvidia), &["GPU-a", "GPU-b"]));
        assert_eq!(
            shown(&cuda),
            [
                "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
                "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b"
            ]
        );
        let rocm = gpus(&[], choice(Some(GpuVendor::Amd), &["GPU-a", "GPU-b"]));
        assert_eq!(shown(&rocm), ["ROCR_VISIBLE_DEVICES=GPU-a,GPU-b"]);
        // Numbers are ambiguous without an enumeration order.
        let numbers = gpus(&[], choice(Some(GpuVendor::Nvidia), &[]));
        assert_eq!(
            shown(&numbers),
            [
                "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                "CUDA_VISIBLE_DEVICES=2,5",
                "NVIDIA_VISIBLE_DEVICES=2,5"
            ]
        );
        let unknown = gpus(&[], choice(None, &[]));
        assert_eq!(unknown["ROCR_VISIBLE_DEVICES"], "2,5");
        assert_eq!(unknown["CUDA_VISIBLE_DEVICES"], "2,5");
    }

    /// A mixture of both selections would be inconsistent: a container would see other GPUs than its program.
    #[test]
    fn where_the_user_chooses_gpus_nothing_else_is_chosen() {
        let choice = GpuChoice {
            vendor: Some(GpuVendor::Nvidia),
            slots: vec![0, 1],
            uuids: Vec::new(),
        };
        for (name, value) in [
            ("CUDA_VISIBLE_DEVICES", "7"),
            ("NVIDIA_VISIBLE_DEVICES", "all"),
            ("CUDA_VISIBLE_DEVICES", ""),
        ] {
            let found = gpus(&[(name, value)], choice.clone());
            assert_eq!(shown(&found), [format!("{name}={value}")]);
        }
    }

    #[test]
    fn checkpoint_environment_matches_mode() {
        let checkpoint_variables = |mode, restore| {
            let mut launch = launch(&[("LATTICE_CHECKPOINT_MODE", "forged")]);
            launch.checkpoint = Some(CheckpointPlan {
                setup: CheckpointSetup {
                    mode,
                    directory: "/scratch/12".to_owned(),
                    restore,
                },
                place: "/run/lattice/a/12.3".into(),
                poll_ms: 100,
            });
            let all: BTreeMap<_, _> = environment(&launch).unwrap().into_iter().collect();
            let ours = |name: &String| {
                name.starts_with("LATTICE_CHECKPOINT_") || name.starts_with("LATTICE_RESTORE_")
            };
            let ours: BTreeMap<_, _> = all.into_iter().filter(|(name, _)| ours(name)).collect();
            shown(&ours)
        };
        let restore = Restore {
            number: 4,
            directory: "/scratch/12".to_owned(),
        };
        assert_eq!(
            checkpoint_variables(CheckpointMode::Signal, Some(restore)),
            [
                "LATTICE_CHECKPOINT_DIR=/scratch/12",
                "LATTICE_CHECKPOINT_MODE=signal",
                "LATTICE_CHECKPOINT_REQUEST=/scratch/12/request.rank-1",
                "LATTICE_RESTORE_DIR=/scratch/12/4/rank-1",
                "LATTICE_RESTORE_NUMBER=4",
            ]
        );
        assert_eq!(
            checkpoint_variables(CheckpointMode::SharedMemory, None)[2],
            "LATTICE_CHECKPOINT_SHM=/run/lattice/a/12.3/checkpoint.shm"
        );
        assert_eq!(
            checkpoint_variables(CheckpointMode::Callback, None)[2],
            "LATTICE_CHECKPOINT_SOCKET=/run/lattice/a/12.3/checkpoint.sock"
        );
    }

    #[test]
    fn a_name_that_is_no_variable_is_refused() {
        for name in ["", "A=B", "A\0"] {
            assert!(environment(&launch(&[(name, "x")])).is_err(), "{name:?}");
        }
    }
}
