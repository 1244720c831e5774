//! Items of invoices, for deployments with the paths of Lattice's accounting specification.

use super::{Objects, WaldurClient, WaldurError, objects::address};
use lattice_quorum_types::ProjectPath;
use reqwest::Method;
use serde_json::Value;

impl WaldurClient {
    /// UUID of a tenant's newest pending invoice.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn invoice(
        &self,
        objects: &mut Objects,
        tenant: &ProjectPath,
    ) -> Result<String, WaldurError> {
        let (customer, _) = self.customer(objects, tenant).await?;
        let query = [("customer_uuid", customer.as_str()), ("state", "pending")];
        let all = self.list("invoices/", &query).await?;
        let key = |one: &Value| (one["year"].as_i64(), one["month"].as_i64());
        let newest = all.into_iter().max_by_key(key);
        match newest {
            Some(newest) => Ok(address("invoices/", &newest)?.0),
            None => Err(WaldurError::Unusable {
                what: format!("tenant {tenant}"),
                reason:
                    "it has no pending invoice in Waldur; Waldur makes one with its first usage"
                        .to_owned(),
            }),
        }
    }

    /// Adds an event as an item of an invoice, at a path that Waldur itself does not have
    /// ([`crate::config::WaldurConfig::seed_paths`]). A repeat changes nothing.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn add_item(
        &self,
        invoice: &str,
        key: &str,
        item: &Value,
    ) -> Result<(), WaldurError> {
        let path = format!("invoices/{invoice}/items/");
        let request = self.http.request(Method::POST, self.url(&path));
        let request = request.header("Idempotency-Key", key).json(item);
        let answer = self.send(&path, request).await?;
        tracing::trace!(
            status = answer.status.as_u16(),
            key,
            "accounting event reported"
        );
        Ok(())
    }
}
