//! Amounts of usage.

/// Amount of usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Node-milliseconds.
    pub node_ms: u64,
    /// GPU-milliseconds, by the present GPU counts of the nodes.
    pub gpu_ms: u64,
}

impl Usage {
    /// Sum of two amounts.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            node_ms: self.node_ms.saturating_add(other.node_ms),
            gpu_ms: self.gpu_ms.saturating_add(other.gpu_ms),
        }
    }
}

/// Usage by allocations and by idle claimed nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageByKind {
    /// Usage by allocations.
    pub work: Usage,
    /// Usage by claimed nodes without an allocation of the claiming user.
    pub idle: Usage,
}

impl UsageByKind {
    /// Sum of two usages, by component.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            work: self.work.with(other.work),
            idle: self.idle.with(other.idle),
        }
    }

    /// Billed usage, which includes idle time of claimed nodes.
    pub fn billed(self) -> Usage {
        self.work.with(self.idle)
    }
}
