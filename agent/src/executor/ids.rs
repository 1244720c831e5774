//! Numbers of users and groups: those to become, and the agent's own.

/// What the kernel takes for "do not change this id".
pub(super) const NO_ID: u32 = u32::MAX;

/// A uid and gid to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// User.
    pub uid: u32,
    /// Primary group; there are no others.
    pub gid: u32,
}

/// Who the agent itself is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentUser {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

impl Ids {
    /// Whether the kernel can be told to become them.
    pub(crate) fn are_real(self) -> bool {
        self.uid != NO_ID && self.gid != NO_ID
    }
}

impl AgentUser {
    /// This process.
    pub fn current() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}
