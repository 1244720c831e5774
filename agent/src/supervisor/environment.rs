//! What a job's processes find in their environment.

use crate::attempt::LaunchRecord;
use lattice_quorum_types::hostlist;

/// Where programs are looked for unless the user says otherwise.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The variable with [`LaunchRecord::mark`].
pub(super) const MARK: &str = "LATTICE_ATTEMPT_MARK";

/// A minimal environment, then the user's, then what only we may say.
pub(super) fn environment(launch: &LaunchRecord) -> Result<Vec<(String, String)>, String> {
    let account = &launch.account;
    let mut all = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOME".to_owned(), account.home.display().to_string()),
        ("SHELL".to_owned(), account.shell.display().to_string()),
        ("USER".to_owned(), account.name.clone()),
        ("LOGNAME".to_owned(), account.name.clone()),
    ];
    for (name, value) in &launch.workload.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("{name:?} cannot be an environment variable"));
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
    for (name, value) in ours {
        all.push((name.to_owned(), value));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::testing::launch;
    use super::*;
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

    #[test]
    fn a_name_that_is_no_variable_is_refused() {
        for name in ["", "A=B", "A\0"] {
            assert!(environment(&launch(&[(name, "x")])).is_err(), "{name:?}");
        }
    }
}
