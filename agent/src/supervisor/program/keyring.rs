//! Session keyring of a job.
//!
//! Every child inherits its parent's session keyring, even if the child changes to another user. Without a new keyring,
//! keys that a service manager or an administrator's login put into the agent's keyring would be available to every
//! job.

use rustix::io::Errno;

/// Replaces the inherited session keyring by an empty one. Succeeds without effect where keyrings are not available.
/// Must run between fork and exec, after the change to the job's user, so that this user owns the keyring. Makes only
/// one system call.
pub(in crate::supervisor) fn leave_session() -> rustix::io::Result<()> {
    match join_anonymous() {
        Err(errno) if is_without_keyrings(errno) => Ok(()),
        joined => joined,
    }
}

/// Whether the error means that the kernel has no keyrings (ENOSYS), or that a container's seccomp filter rejects the
/// call (EPERM), as it also does for the job. A user cannot cause these errors, unlike an exhausted quota (EDQUOT).
fn is_without_keyrings(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::PERM)
}

#[expect(unsafe_code, reason = "keyctl has no wrapper")]
fn join_anonymous() -> rustix::io::Result<()> {
    let operation = libc::c_long::from(libc::KEYCTL_JOIN_SESSION_KEYRING);
    let name = std::ptr::null::<libc::c_char>();
    // SAFETY: this operation takes one pointer, and null means "a new keyring without a name".
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, operation, name) };
    if joined >= 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_without_keyrings_is_excused() {
        assert!(is_without_keyrings(Errno::NOSYS));
        assert!(is_without_keyrings(Errno::PERM));
        for errno in [Errno::DQUOT, Errno::NOMEM, Errno::ACCESS] {
            assert!(!is_without_keyrings(errno), "{errno}");
        }
    }
}
