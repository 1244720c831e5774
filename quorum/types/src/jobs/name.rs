//! Names of allocations in texts.

use crate::AllocationId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Position of an allocation in a job array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayElement {
    /// Number of the job array.
    pub array: AllocationId,
    /// Index of the element.
    pub index: u32,
}

impl fmt::Display for ArrayElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.array, self.index)
    }
}

/// Name of an allocation in texts: its number, or `12_7` for the element with index 7 of job array 12, as users write
/// it. The number of an element appears only as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationName {
    id: AllocationId,
    element: Option<ArrayElement>,
}

/// Lookup of names by number, for texts that mention other allocations.
pub type NameLookup<'a> = &'a dyn Fn(AllocationId) -> AllocationName;

impl AllocationName {
    /// Name of the allocation `id`; `element`: its place in a job array.
    pub fn new(id: AllocationId, element: Option<ArrayElement>) -> Self {
        Self { id, element }
    }

    /// Name of an allocation that is not known to be an array element.
    pub fn of_id(id: AllocationId) -> Self {
        Self::new(id, None)
    }

    /// Place of the allocation in a job array.
    pub fn element(self) -> Option<ArrayElement> {
        self.element
    }
}

impl fmt::Display for AllocationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.element {
            Some(element) => element.fmt(f),
            None => self.id.fmt(f),
        }
    }
}
