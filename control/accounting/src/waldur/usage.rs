//! Usage: absolute totals of a calendar month.

use super::{Waldur, WaldurError};
use crate::month::{Month, decimal, read_decimal};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Components with a total each, hundredths of an hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// `node_hours`.
    pub node: u64,
    /// `gpu_hours`.
    pub gpu: u64,
}

/// The components, as offerings have them.
pub(super) const NODE_HOURS: &str = "node_hours";
pub(super) const GPU_HOURS: &str = "gpu_hours";

impl Amounts {
    /// Those of rows, by component.
    pub fn of(rows: &BTreeMap<String, i64>) -> Self {
        let of = |kind: &str| u64::try_from(rows.get(kind).copied().unwrap_or(0)).unwrap_or(0);
        Self {
            node: of(NODE_HOURS),
            gpu: of(GPU_HOURS),
        }
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            node: self.node.saturating_add(other.node),
            gpu: self.gpu.saturating_add(other.gpu),
        }
    }

    /// What is left of it; nothing where the other is more.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            node: self.node.saturating_sub(other.node),
            gpu: self.gpu.saturating_sub(other.gpu),
        }
    }

    /// Each with its component.
    pub fn named(self) -> [(&'static str, u64); 2] {
        [(GPU_HOURS, self.gpu), (NODE_HOURS, self.node)]
    }
}

impl Waldur {
    /// What it has of a resource in a month, hundredths by component; nothing of a component that was never told.
    ///
    /// # Errors
    /// See [`WaldurError`].
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
            // Not every version filters by the period.
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

    /// Tells all components of a resource at once, since it forgets those that are not in the last report. Without a
    /// `month` it books into the present one.
    ///
    /// # Errors
    /// See [`WaldurError`].
    pub async fn set_usage(
        &self,
        resource: &str,
        amounts: Amounts,
        said: &str,
        month: Option<Month>,
    ) -> Result<(), WaldurError> {
        let usages = amounts.named().map(|(kind, hundredths)| {
            json!({"type": kind, "amount": decimal(hundredths), "description": said})
        });
        let mut body = json!({"resource": resource, "usages": usages});
        if let Some(month) = month {
            body["date"] = json!(format!("{}T12:00:00Z", month.middle()));
        }
        let path = "marketplace-component-usages/set_usage/";
        self.post(path, &body).await.map(drop)
    }
}
