//! Privileges of a supervisor and of a job.

use crate::supervisor::supervisor_log::log_line;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::io;

/// Upper bound of the kernel's capability numbers.
const MAX_CAPABILITY_NUMBER: u32 = 63;

/// Drops all privileges except those needed to end the job's processes, for good: no program executed from here on can
/// gain more. Applies to the calling thread only, so each thread of a supervisor calls it.
pub(in crate::supervisor) fn drop_except_kill() {
    if let Err(error) = keep_kill_capability() {
        log_line(format_args!(
            "privileges that are not needed could not be dropped: {error}"
        ));
    }
}

fn keep_kill_capability() -> io::Result<()> {
    let mut kept = CapabilitySet::KILL;
    if processes_are_hidden() {
        // Without this capability, processes of other users are not even listed.
        kept |= CapabilitySet::SYS_PTRACE;
    }
    set_no_new_privs(true)?;
    empty_bounding_set()?;
    clear_ambient_capability_set()?;
    let kept = capabilities(None)?.permitted & kept;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Empties the bounding set: no program executed from here on gets a capability from its file. Makes system calls only.
pub(in crate::supervisor) fn empty_bounding_set() -> rustix::io::Result<()> {
    for number in 0..=MAX_CAPABILITY_NUMBER {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The previous number was the last capability.
            Err(Errno::INVAL) => return Ok(()),
            // The process lacks CAP_SETPCAP: it runs as a user other than root, or as root of a container. In that case
            // `no_new_privs` alone prevents the gain of capabilities.
            Err(Errno::PERM) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Drops all capabilities. For use between fork and exec, as the job's user: system calls only.
pub(in crate::supervisor) fn drop_all() -> rustix::io::Result<()> {
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)
}

/// Whether `/proc` is mounted with `hidepid`.
fn processes_are_hidden() -> bool {
    crate::supervisor::mounts::find_in_mount_table(hides_processes).unwrap_or(false)
}

/// Parses the mount table; `None` if it has no row for `/proc`.
fn hides_processes(mounts: &str) -> Option<bool> {
    let proc = |line: &&str| line.split(' ').nth(4) == Some("/proc");
    let hides = |option: &str| {
        let how = option.strip_prefix("hidepid=");
        how.is_some_and(|how| how != "0" && how != "off")
    };
    let found = mounts.lines().filter(proc);
    found
        .map(|line| line.split([' ', ',']).any(hides))
        .reduce(|one, other| one || other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_processes_are_seen_in_the_mounts() {
        let line = |options| format!("22 1 0:21 / /proc rw,nosuid - proc proc {options}\n");
        assert_eq!(hides_processes(&line("rw,hidepid=invisible")), Some(true));
        assert_eq!(hides_processes(&line("rw,gid=5,hidepid=2")), Some(true));
        assert_eq!(hides_processes(&line("rw,hidepid=0")), Some(false));
        assert_eq!(hides_processes(&line("rw")), Some(false));
        let elsewhere = "22 1 0:21 / /mnt/proc rw - proc proc rw,hidepid=2\n";
        assert_eq!(hides_processes(elsewhere), None);
    }
}
