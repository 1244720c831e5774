//! What can be asked of an allocation that is there already.

use super::{FieldError, at, duration};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Another walltime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest {
    /// Of each attempt, from its begin on: `3h`; or so much more than now: `+30m`.
    #[schema(example = "+30m")]
    pub walltime: String,
}

/// A walltime that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walltime {
    /// This one, milliseconds.
    Of(u64),
    /// The present one and so much, milliseconds.
    More(u64),
}

impl ExtendRequest {
    /// # Errors
    /// A text that is no duration.
    pub fn read(&self) -> Result<Walltime, FieldError> {
        let text = self.walltime.trim();
        match text.strip_prefix('+') {
            Some(more) => duration::parse(more).map(Walltime::More),
            None => duration::parse(text).map(Walltime::Of),
        }
        .map_err(at("walltime"))
    }
}

/// A checkpoint that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointRequest {
    /// How long it may take, as a walltime is written; `10m` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Where to: a directory from the root. Left out: where the work or the site says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl CheckpointRequest {
    /// How long it may take, milliseconds, where somebody said so.
    ///
    /// # Errors
    /// A text that is no duration.
    pub fn timeout_ms(&self) -> Result<Option<u64>, FieldError> {
        let given = self.timeout.as_deref().filter(|text| !text.is_empty());
        let read = |text| duration::parse(text).map_err(at("timeout"));
        given.map(read).transpose()
    }
}
