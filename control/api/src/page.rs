//! Pagination of lists.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Items on a page when `limit` is not given.
pub const DEFAULT_LIMIT: u32 = 200;
/// Maximum number of items on a page.
pub const MAX_LIMIT: u32 = 5_000;

/// Page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// Items, in the list's order.
    pub items: Vec<T>,
    /// Cursor of the next page, to be given as `cursor`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// Puts all items on one page.
    pub fn single(items: Vec<T>) -> Self {
        Self {
            items,
            next_cursor: None,
        }
    }
    /// Returns the page with each item converted.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(f).collect(),
            next_cursor: self.next_cursor,
        }
    }
}
