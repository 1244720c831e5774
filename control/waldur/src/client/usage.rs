//! Usage reports: absolute totals of a calendar month.

use super::{Right, WaldurClient, WaldurError};
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

    /// The larger one of each amount.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        Self {
            node: self.node.max(other.node),
            gpu: self.gpu.max(other.gpu),
        }
    }

    /// Whether any amount is larger than that of `other`.
    pub fn exceeds(self, other: Self) -> bool {
        self.node > other.node || self.gpu > other.gpu
    }

    /// Amounts with the names of their components.
    pub fn named(self) -> [(&'static str, u64); 2] {
        [(GPU_HOURS, self.gpu), (NODE_HOURS, self.node)]
    }
}

/// Usage of one month by resource, over all plan periods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MonthUsage(BTreeMap<String, Amounts>);

impl MonthUsage {
    /// Usage of a resource; 0 without a report.
    pub fn of(&self, resource: &str) -> Amounts {
        self.0.get(resource).copied().unwrap_or_default()
    }

    /// UUIDs of the resources with rows.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds the amount of a usage row of Waldur, unless it is of another month: some versions ignore the filter by period.
    pub(super) fn add(&mut self, row: &Value, period: &str, resource: &str, component: &str) {
        if row["billing_period"].as_str() != Some(period) {
            return;
        }
        if let Some(amounts) = amounts(component, &row["usage"]) {
            let sum = self.0.entry(resource.to_owned()).or_default();
            *sum = sum.with(amounts);
        }
    }
}

/// Amounts of a usage row; `None` for a row without a component of ours. A negative amount counts as 0.
fn amounts(component: &str, usage: &Value) -> Option<Amounts> {
    let text = match usage {
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    let rows = BTreeMap::from([(component.to_owned(), read_decimal(&text)?)]);
    Some(Amounts::of(&rows))
}

/// Fields of a usage row that are read.
const ROW_FIELDS: [(&str, &str); 3] = [
    ("field", "billing_period"),
    ("field", "type"),
    ("field", "usage"),
];

impl WaldurClient {
    /// Usage of a month of one resource.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn usage_of_resource(
        &self,
        resource: &str,
        month: Month,
        usage: &mut MonthUsage,
    ) -> Result<(), WaldurError> {
        let period = month.first_day();
        let of = [("resource_uuid", resource), ("billing_period", &period)];
        let query = [&of[..], &ROW_FIELDS[..]].concat();
        for row in self.list("marketplace-component-usages/", &query).await? {
            if let Some(component) = row["type"].as_str() {
                usage.add(&row, &period, resource, component);
            }
        }
        Ok(())
    }

    /// Usage of a month of a resource in plan periods that have ended. Waldur keeps usage by plan period, and bills each
    /// by the prices of its plan. A report goes to the present period; one for an ended period would be billed twice.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn closed_usage(&self, resource: &str, month: Month) -> Result<Amounts, WaldurError> {
        let ended = self.ended_periods(resource).await?;
        let billed = month.first_day();
        let rows = ended
            .iter()
            .filter_map(|period| period["components"].as_array());
        Ok(rows
            .flatten()
            .filter(|row| is_of_period(row, &billed))
            .filter_map(|row| amounts(row["type"].as_str()?, &row["usage"]))
            .fold(Amounts::default(), Amounts::with))
    }

    /// Whether the plan of a resource was changed in this month of Waldur.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn has_new_plan(&self, resource: &str) -> Result<bool, WaldurError> {
        Ok(!self.ended_periods(resource).await?.is_empty())
    }

    /// Plan periods of a resource that have ended. Waldur shows those of this month alone.
    async fn ended_periods(&self, resource: &str) -> Result<Vec<Value>, WaldurError> {
        let path = format!("marketplace-provider-resources/{resource}/plan_periods/");
        let Value::Array(mut periods) = self.get(&path, &[]).await? else {
            return Err(WaldurError::Unusable {
                what: path,
                reason: "the reply is not a list".to_owned(),
            });
        };
        periods.retain(|period| !period["end"].is_null());
        Ok(periods)
    }

    /// Reports the totals of a resource in a month. A report has all components, because Waldur removes components that
    /// are not in the last report. Without a `month`, the report counts for the present month. Returns `false` if `may_send`
    /// was false when the turn of the report had come.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn set_usage(
        &self,
        resource: &str,
        amounts: Amounts,
        description: &str,
        month: Option<Month>,
        may_send: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<bool, WaldurError> {
        let usages = amounts.named().map(|(kind, hundredths)| {
            json!({"type": kind, "amount": decimal(hundredths), "description": description})
        });
        let mut body = json!({"resource": resource, "usages": usages});
        if let Some(month) = month {
            body["date"] = json!(format!("{}T12:00:00Z", month.middle()));
        }
        let path = "marketplace-component-usages/set_usage/";
        let sent = self.post_if(path, &body, may_send).await;
        match month {
            Some(_) => sent.map_err(|error| error.for_right(Right::BookEndedMonths)),
            None => sent,
        }
    }
}

/// Whether a row of a plan period is of the month that begins on `billed`. A row without a month is taken as one of the
/// present month.
fn is_of_period(row: &Value, billed: &str) -> bool {
    let of = row["billing_period"].as_str().or(row["date"].as_str());
    of.is_none_or(|of| of.get(..7) == billed.get(..7))
}
