//! Usage reports: absolute totals of a calendar month.

use super::{WaldurClient, WaldurError};
use crate::decimal::{decimal, read_decimal};
use lattice_ledger::Month;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Usage by component, in hundredths of an hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Total of `node_hours`.
    pub node: u64,
    /// Total of `gpu_hours`.
    pub gpu: u64,
}

/// Names of the components in offerings.
pub(super) const NODE_HOURS: &str = "node_hours";
pub(super) const GPU_HOURS: &str = "gpu_hours";

impl Amounts {
    /// Amounts from totals by component name, in hundredths of an hour. Negative totals count as 0.
    pub fn of(rows: &BTreeMap<String, i64>) -> Self {
        let of = |kind: &str| u64::try_from(rows.get(kind).copied().unwrap_or(0)).unwrap_or(0);
        Self {
            node: of(NODE_HOURS),
            gpu: of(GPU_HOURS),
        }
    }

    /// Sum of two amounts.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            node: self.node.saturating_add(other.node),
            gpu: self.gpu.saturating_add(other.gpu),
        }
    }

    /// Difference of two amounts; 0 for a component of which `other` is larger.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            node: self.node.saturating_sub(other.node),
            gpu: self.gpu.saturating_sub(other.gpu),
        }
    }

    /// Amounts with the names of their components.
    pub fn named(self) -> [(&'static str, u64); 2] {
        [(GPU_HOURS, self.gpu), (NODE_HOURS, self.node)]
    }
}

impl WaldurClient {
    /// Usage of a resource in a month by component, in hundredths of an hour. A component without a report is left out.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn usages(
        &self,
        resource: &str,
        month: Month,
    ) -> Result<BTreeMap<String, i64>, WaldurError> {
        let period = month.first_day();
        let rows = self
            .list(
                "marketplace-component-usages/",
                &[("resource_uuid", resource), ("billing_period", &period)],
            )
            .await?;
        let mut usages = BTreeMap::new();
        for row in &rows {
            // Some versions ignore the filter by period.
            if row["billing_period"].as_str() != Some(period.as_str()) {
                continue;
            }
            let text = match &row["usage"] {
                Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            if let (Some(kind), Some(amount)) = (row["type"].as_str(), read_decimal(&text)) {
                *usages.entry(kind.to_owned()).or_default() += amount;
            }
        }
        Ok(usages)
    }

    /// Reports the totals of a resource in a month. A report has all components, because Waldur removes components that
    /// are not in the last report. Without a `month`, the report counts for the present month.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn set_usage(
        &self,
        resource: &str,
        amounts: Amounts,
        description: &str,
        month: Option<Month>,
    ) -> Result<(), WaldurError> {
        let usages = amounts.named().map(|(kind, hundredths)| {
            json!({"type": kind, "amount": decimal(hundredths), "description": description})
        });
        let mut body = json!({"resource": resource, "usages": usages});
        if let Some(month) = month {
            body["date"] = json!(format!("{}T12:00:00Z", month.middle()));
        }
        let path = "marketplace-component-usages/set_usage/";
        self.post(path, &body).await.map(drop)
    }
}
