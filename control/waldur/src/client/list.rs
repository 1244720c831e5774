//! Lists of Waldur, over all their pages.

use super::{WaldurClient, WaldurError};
use futures::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::Value;

/// Objects per page. Waldur 7 returns no more; 8 returns at most 100.
const PAGE_SIZE: usize = 300;
/// Pages of a list that are fetched at the same time.
const MAX_PAGES_AT_ONCE: usize = 8;

impl WaldurClient {
    /// Fetches all pages of a list, some at the same time once the number of objects is known. A list with a missing page
    /// is an error: limits and usage must not be computed from a part of it.
    pub(super) async fn list(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<Value>, WaldurError> {
        let incomplete = |page: usize, fetched: usize, count: usize| WaldurError::Unreached {
            reason: format!(
                "page {page} of {path} is missing: {fetched} of {count} objects were returned"
            ),
        };
        let mut all: Vec<Value> = Vec::new();
        let mut count = None;
        let (mut next, mut at_once) = (1, 1);
        loop {
            let pages: Vec<_> = stream::iter(next..next + at_once)
                .map(|page| self.page(path, query, page))
                .buffered(at_once)
                .collect()
                .await;
            let mut of_page = 0;
            for (page, fetched) in (next..).zip(pages) {
                let Some(fetched) = fetched? else {
                    // Waldur has no page after the last one.
                    return match count {
                        Some(count) => Err(incomplete(page, all.len(), count)),
                        None => Ok(all),
                    };
                };
                count = fetched.count.or(count);
                of_page = fetched.items.len();
                // A server that ignores the page number returns the same page without end.
                if count.is_none() && of_page > 0 && all.ends_with(&fetched.items) {
                    let reason = format!("pages {} and {page} of {path} are the same", page - 1);
                    return Err(WaldurError::Unreached { reason });
                }
                all.extend(fetched.items);
                if is_last_page(of_page, all.len(), count) {
                    return match count {
                        Some(count) if all.len() < count => Err(incomplete(page, all.len(), count)),
                        _ => Ok(all),
                    };
                }
            }
            next += at_once;
            at_once = pages_left(of_page, all.len(), count).clamp(1, MAX_PAGES_AT_ONCE);
        }
    }

    /// Fetches a page of a list; `None` if a page after the first does not exist.
    async fn page(
        &self,
        path: &str,
        query: &[(&str, &str)],
        page: usize,
    ) -> Result<Option<Page>, WaldurError> {
        let request = self.http.request(Method::GET, self.url(path)).query(query);
        let place = [("page", page), ("page_size", PAGE_SIZE)];
        let answer = match self.send(path, request.query(&place)).await {
            Err(WaldurError::Refused { status: 404, .. }) if page > 1 => return Ok(None),
            answer => answer?,
        };
        let Value::Array(items) = answer.body else {
            let reason = format!("the reply to {path} is not a list");
            return Err(WaldurError::Unreached { reason });
        };
        let count = answer.count;
        Ok(Some(Page { items, count }))
    }
}

/// Page of a list.
struct Page {
    items: Vec<Value>,
    /// Number of objects of the list, if the reply contains it.
    count: Option<usize>,
}

/// Number of further pages of a list with `count` objects, of which `fetched` were fetched, the last page with `of_page`
/// objects; 0 if it is unknown.
fn pages_left(of_page: usize, fetched: usize, count: Option<usize>) -> usize {
    match count {
        Some(count) if of_page > 0 => count.saturating_sub(fetched).div_ceil(of_page),
        _ => 0,
    }
}

/// Whether a list has no further page: `of_page` objects are on this page, `fetched` on all pages so far. `count` is
/// the number of objects of the list; a proxy may remove the header that contains it. Without it, any page with objects
/// may have a successor, because a server may return fewer objects per page than requested.
fn is_last_page(of_page: usize, fetched: usize, count: Option<usize>) -> bool {
    of_page == 0 || count.is_some_and(|count| fetched >= count)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{
        client::http_client,
        secret::{SecretRef, Secrets},
    };
    use axum::{
        Json, Router,
        extract::Query,
        http::{HeaderMap, StatusCode as Status},
        routing::get,
    };
    use serde_json::json;
    use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _};

    /// Reply of a test server to the request for a page.
    type Reply = (Status, HeaderMap, Json<Value>);

    /// Fetches a list from a server that returns `replies[page - 1]`, and status 404 after the last of them. A reply is
    /// the number of its objects and the count in its header. Each object is `{"n": …}`, with its place in the list.
    async fn listed(replies: &[(usize, Option<usize>)]) -> Result<Vec<Value>, WaldurError> {
        let replies = replies.to_vec();
        let reply = move |Query(query): Query<BTreeMap<String, String>>| {
            let page: usize = query["page"].parse().unwrap();
            let before: usize = replies.iter().take(page - 1).map(|reply| reply.0).sum();
            let reply: Reply = match replies.get(page - 1) {
                Some((objects, count)) => {
                    let objects = (before..before + objects).map(|n| json!({"n": n}));
                    let mut headers = HeaderMap::new();
                    if let Some(count) = count {
                        headers.insert("x-result-count", count.to_string().parse().unwrap());
                    }
                    (Status::OK, headers, Json(objects.collect()))
                }
                None => {
                    let body = json!({"detail": "Invalid page."});
                    (Status::NOT_FOUND, HeaderMap::new(), Json(body))
                }
            };
            async move { reply }
        };
        list_from(Router::new().route("/api/customers/", get(reply))).await
    }

    async fn list_from(router: Router) -> Result<Vec<Value>, WaldurError> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}/api/", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, "0123456789abcdef").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let http = http_client(&[]).unwrap();
        let secrets = Secrets {
            http: http.clone(),
            vault: None,
        };
        let api = api.parse().unwrap();
        let client = WaldurClient::new("alps", http, api, secrets, SecretRef::File(token));
        let listed = client.list("customers/", &[]).await;
        serving.abort();
        listed
    }

    /// Number of objects on a page, and the count in its header.
    type PageReply = (usize, Option<usize>);

    #[tokio::test]
    async fn complete_list_is_returned() {
        let cases: [(&[PageReply], usize); 7] = [
            (&[(0, Some(0))], 0),
            (&[(100, Some(150)), (50, Some(150))], 150),
            // A server with smaller pages than requested.
            (&[(20, Some(50)), (20, Some(50)), (10, Some(50))], 50),
            (&[(20, None), (20, None), (10, None)], 50),
            // The count may be missing in some replies.
            (&[(100, Some(150)), (50, None)], 150),
            (&[(100, None), (100, None)], 200),
            (&[(20, None), (0, None)], 20),
        ];
        for (replies, expected) in cases {
            let all = listed(replies).await.unwrap();
            let all: Vec<_> = all.iter().map(|one| one["n"].as_u64().unwrap()).collect();
            let expected: Vec<_> = (0..expected as u64).collect();
            assert_eq!(all, expected, "{replies:?}");
        }
    }

    #[tokio::test]
    async fn list_with_missing_page_is_an_error() {
        let cases: [(&[PageReply], &str); 4] = [
            (
                &[(100, Some(250))],
                "page 2 of customers/ is missing: 100 of 250",
            ),
            (
                &[(100, Some(250)), (100, None)],
                "page 3 of customers/ is missing: 200 of 250",
            ),
            (
                &[(100, Some(250)), (0, Some(250))],
                "page 2 of customers/ is missing: 100 of 250",
            ),
            (&[(0, Some(1))], "page 1 of customers/ is missing: 0 of 1"),
        ];
        for (replies, expected) in cases {
            let reason = format!("{expected} objects were returned");
            assert_eq!(
                listed(replies).await,
                Err(WaldurError::Unreached { reason }),
                "{replies:?}"
            );
        }
    }

    #[tokio::test]
    async fn repeated_page_is_an_error() {
        let reply = || async { Json(json!([{"n": 1}, {"n": 2}])) };
        let listed = list_from(Router::new().route("/api/customers/", get(reply))).await;
        let reason = "pages 1 and 2 of customers/ are the same".to_owned();
        assert_eq!(listed, Err(WaldurError::Unreached { reason }));
    }

    /// Without a count in the reply, any page with objects may have a successor.
    #[test]
    fn list_without_count_continues_after_page_with_objects() {
        let cases = [
            ((100, 100, None), false),
            ((99, 199, None), false),
            ((0, 200, None), true),
            ((100, 100, Some(101)), false),
            ((100, 100, Some(100)), true),
            ((20, 20, Some(21)), false),
            ((0, 20, Some(21)), true),
        ];
        for ((of_page, fetched, count), is_last) in cases {
            assert_eq!(
                is_last_page(of_page, fetched, count),
                is_last,
                "{of_page} {fetched} {count:?}"
            );
        }
    }
}
