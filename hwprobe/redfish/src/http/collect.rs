//! Collection loop: fetches the resources that the interpreter requests until it requests no more.

use super::bmc::{AccountRole, Bmc};
use super::error::FetchError;
use crate::power::{Route, RoutedPower, read_by_route};
use crate::report::{Breadth, Interpretation, Scope};
use crate::{Documents, ResourcePath, interpret};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Approximate memory limit for the resources of one pass, in bytes. The complete tree of a blade takes a hundredth of
/// it. Many BMCs are read at a time, and any of them may send false data.
const MAX_PASS_BYTES: usize = 32 << 20;

/// Approximate memory of a value, in bytes. The recursion depth is bounded by the JSON parser.
fn approximate_bytes(value: &Value) -> usize {
    let own = size_of::<Value>();
    own + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(approximate_bytes).sum(),
        Value::Object(members) => {
            let one = |(name, value): (&String, &Value)| name.len() + 24 + approximate_bytes(value);
            members.iter().map(one).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Result of one pass over a BMC.
#[derive(Clone, Debug, PartialEq)]
pub struct BmcPass {
    /// Interpretation of the resources.
    pub interpretation: Interpretation,
    /// The resources as received.
    pub documents: Documents,
    /// Duration of the pass.
    pub took: Duration,
}

impl Bmc {
    /// Reads the data that `scope` selects, resource by resource. A resource that is not fetched by the deadline of the
    /// pass is included as [`Reading::Timeout`], one beyond a limit of the pass as [`Reading::Failed`].
    pub async fn read(&self, scope: &Scope) -> BmcPass {
        let began_at = Instant::now();
        let mut documents = Documents::default();
        let wanted = |documents: &Documents| interpret(documents, scope).wanted;
        let within = match scope.breadth {
            Breadth::Everything => self.settings.full_pass_timeout,
            _ => self.settings.pass_timeout,
        };
        self.collect_within(within, &mut documents, wanted).await;
        BmcPass {
            interpretation: interpret(&documents, scope),
            documents,
            took: began_at.elapsed(),
        }
    }

    /// Reads power by a route found before, usually with one or two requests.
    pub async fn read_power(&self, route: &Route) -> RoutedPower {
        let mut documents = Documents::default();
        let wanted = |documents: &Documents| read_by_route(documents, route).wanted;
        self.collect(&mut documents, wanted).await;
        read_by_route(&documents, route)
    }

    /// Fetches the resources named by `wanted` until all of them have been requested.
    pub async fn collect(
        &self,
        documents: &mut Documents,
        wanted: impl Fn(&Documents) -> BTreeSet<ResourcePath> + Send,
    ) {
        let within = self.settings.pass_timeout;
        self.collect_within(within, documents, wanted).await;
    }

    async fn collect_within(
        &self,
        whole: Duration,
        documents: &mut Documents,
        wanted: impl Fn(&Documents) -> BTreeSet<ResourcePath> + Send,
    ) {
        self.begin_pass();
        let deadline = Instant::now() + whole;
        let mut requests = 0;
        let mut weight = 0;
        loop {
            let named = wanted(documents);
            let missing = documents.missing(&named);
            if missing.is_empty() {
                return;
            }
            for path in missing {
                requests += 1;
                let reading = if requests > self.settings.resource_limit {
                    let limit = self.settings.resource_limit;
                    Reading::failed(format!(
                        "not requested: one pass makes at most {limit} requests"
                    ))
                } else if weight > MAX_PASS_BYTES {
                    Reading::failed(format!(
                        "not requested: one pass reads at most {} MiB",
                        MAX_PASS_BYTES >> 20
                    ))
                } else {
                    self.fetch_by(&path, deadline, whole).await
                };
                weight += reading.present().map_or(0, approximate_bytes);
                documents.0.insert(path, reading);
            }
        }
    }

    async fn fetch_by(
        &self,
        path: &ResourcePath,
        deadline: Instant,
        whole: Duration,
    ) -> Reading<Value> {
        let late = FetchError::Timeout { after: whole };
        if Instant::now() >= deadline {
            return late.into_reading();
        }
        let own = self.settings.timeout_of(path.as_str());
        let own_deadline = Instant::now() + own;
        match self
            .get(AccountRole::Reader, path, own_deadline.min(deadline))
            .await
        {
            Ok(fetched) => Reading::Present(fetched.value),
            Err(FetchError::Timeout { .. }) if deadline <= own_deadline => late.into_reading(),
            Err(FetchError::Timeout { .. }) => FetchError::Timeout { after: own }.into_reading(),
            Err(error) => error.into_reading(),
        }
    }
}
