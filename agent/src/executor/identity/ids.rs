//! User and group ids: of jobs and of the agent.

/// Id that the kernel reads as "do not change this id".
pub(in crate::executor) const NO_ID: u32 = u32::MAX;

/// Uid and gid that a rank switches to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// User id.
    pub uid: u32,
    /// Primary group id; there are no supplementary groups.
    pub gid: u32,
}

/// User of the agent's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentUser {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

impl Ids {
    /// Whether the kernel accepts both ids as a target.
    pub(crate) fn are_real(self) -> bool {
        self.uid != NO_ID && self.gid != NO_ID
    }
}

impl AgentUser {
    /// User of this process.
    pub fn current() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}
