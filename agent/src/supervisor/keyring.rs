//! Keys that the kernel holds for a session.
//!
//! A session keyring is passed on to every child, whatever user it becomes: what a service manager
//! or an administrator's login put into the agent's would be every job's.

use rustix::io::Errno;

/// Leaves the session keyring of who started this process for an empty one. For between fork and
/// exec, as the job's user, who then owns it: a system call only.
pub(super) fn leave_session() -> rustix::io::Result<()> {
    match join_anonymous() {
        Err(errno) if is_without_keyrings(errno) => Ok(()),
        joined => joined,
    }
}

/// A kernel built without them; a container whose filter refuses the call, to the job as well.
/// Nothing that a user can bring about, as a used up quota would be.
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
