//! Actions on existing allocations: extend, checkpoint.

use super::{FieldError, duration, field_error};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request for a different walltime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest {
    /// Total walltime, including the run time in the checkpoint that the allocation resumed from: `3h`. Or an
    /// increment: `+30m`.
    #[schema(example = "+30m")]
    pub walltime: String,
}

/// Requested walltime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalltimeChange {
    /// New walltime, milliseconds.
    Total(u64),
    /// Increment to the present walltime, milliseconds.
    Increment(u64),
}

impl ExtendRequest {
    /// Reads the requested walltime.
    ///
    /// # Errors
    /// A text that is not a duration.
    pub fn read(&self) -> Result<WalltimeChange, FieldError> {
        let text = self.walltime.trim();
        match text.strip_prefix('+') {
            Some(more) => duration::parse(more).map(WalltimeChange::Increment),
            None => duration::parse(text).map(WalltimeChange::Total),
        }
        .map_err(field_error("walltime"))
    }
}

/// Request for a job checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointRequest {
    /// Time the checkpoint may take, in the format of a walltime; `10m` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Target directory, an absolute path. Left out: the directory of the allocation or the site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl CheckpointRequest {
    /// Returns the time that the checkpoint may take, milliseconds; `None` if the request gives none.
    ///
    /// # Errors
    /// A text that is not a duration.
    pub fn timeout_ms(&self) -> Result<Option<u64>, FieldError> {
        let given = self.timeout.as_deref().filter(|text| !text.is_empty());
        let read = |text| duration::parse(text).map_err(field_error("timeout"));
        given.map(read).transpose()
    }
}
