//! Paging: a limit, and a cursor that names the last item of the previous page.

use lattice_api::{
    page::{DEFAULT_LIMIT, MAX_LIMIT, Page},
    problem::Problem,
};

/// Checks `limit`: 1 to [`MAX_LIMIT`], or [`DEFAULT_LIMIT`] if left out.
pub(crate) fn limit(asked: Option<u32>) -> Result<usize, Problem> {
    match asked.unwrap_or(DEFAULT_LIMIT) {
        limit if (1..=MAX_LIMIT).contains(&limit) => Ok(limit as usize),
        _ => {
            let reason = format!("give 1 to {MAX_LIMIT}");
            Err(Problem::field("limit", reason))
        }
    }
}

/// Parses `cursor`; an empty one starts at the beginning.
pub(crate) fn after<T: std::str::FromStr>(cursor: Option<&str>) -> Result<Option<T>, Problem> {
    let Some(cursor) = cursor.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    cursor.parse().map(Some).map_err(|_| {
        let reason = format!("{cursor:?} did not come from `next_cursor` of this list");
        Problem::field("cursor", reason)
    })
}

/// Takes one page from an ordered list; the cursor is present if more items follow.
pub(crate) fn page<T>(
    items: impl Iterator<Item = T>,
    limit: usize,
    name: impl Fn(&T) -> String,
) -> Page<T> {
    let mut items = items.fuse();
    let page: Vec<T> = items.by_ref().take(limit).collect();
    let more = items.next().is_some();
    Page {
        next_cursor: page.last().filter(|_| more).map(name),
        items: page,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn pages_put_together_are_the_list() {
        let list: Vec<u64> = (1..=10).collect();
        for size in 1..=11 {
            let mut seen = Vec::new();
            let mut cursor: Option<String> = None;
            loop {
                let from = after::<u64>(cursor.as_deref()).unwrap().unwrap_or(0);
                let rest = list.iter().copied().filter(|n| *n > from);
                let page = page(rest, size, u64::to_string);
                assert!(page.items.len() <= size);
                seen.extend(page.items);
                match page.next_cursor {
                    Some(next) => cursor = Some(next),
                    None => break,
                }
            }
            assert_eq!(seen, list, "pages of {size}");
        }
    }

    #[test]
    fn limits_and_cursors_that_make_no_sense_are_refused() {
        assert_eq!(limit(Some(0)).unwrap_err().field.as_deref(), Some("limit"));
        assert!(limit(Some(MAX_LIMIT + 1)).is_err());
        assert_eq!(limit(None).unwrap(), DEFAULT_LIMIT as usize);
        let error = after::<u64>(Some("x")).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("cursor"));
        assert_eq!(after::<u64>(Some("")).unwrap(), None);
    }
}
