//! Usage rows of an offering, read at little cost for Waldur.
//!
//! The resource and the component of a row are other objects, and each costs Waldur a query for each row: seconds for a
//! page. Neither changes, so both are read once. Later reads get the amounts alone.

use super::{MonthUsage, WaldurClient, WaldurError};
use lattice_ledger::Month;
use serde_json::Value;
use std::collections::BTreeMap;

/// Path of the usage rows.
const ROWS: &str = "marketplace-component-usages/";
/// Fields of a row in Waldur's own table of rows.
const AMOUNT_FIELDS: [&str; 3] = ["uuid", "billing_period", "usage"];
/// Fields of a row that never change.
const SUBJECT_FIELDS: [&str; 2] = ["resource_uuid", "type"];
/// Largest number of new rows that are read one by one.
const MAX_SINGLE_READS: usize = 4;

/// Resource and component of a row.
#[derive(Debug)]
struct RowSubject {
    resource: String,
    component: String,
}

/// Known rows by UUID.
type KnownRows = BTreeMap<String, RowSubject>;

/// Known rows by offering and month.
#[derive(Debug, Default)]
pub struct UsageRows(BTreeMap<(String, Month), KnownRows>);

/// Adds the subject of a row that was read with all fields.
fn learn(known: &mut KnownRows, row: &Value) {
    let text = |name: &str| row[name].as_str().map(str::to_owned);
    if let (Some(uuid), Some(resource), Some(component)) =
        (text("uuid"), text("resource_uuid"), text("type"))
    {
        let subject = RowSubject {
            resource,
            component,
        };
        known.insert(uuid, subject);
    }
}

impl WaldurClient {
    /// Usage of a month of all resources of an offering, with few calls. `rows` keeps what never changes.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn usage_of_offering(
        &self,
        offering: &str,
        month: Month,
        rows: &mut UsageRows,
        usage: &mut MonthUsage,
    ) -> Result<(), WaldurError> {
        rows.0.retain(|(_, of), _| *of >= month.previous());
        let known = rows.0.entry((offering.to_owned(), month)).or_default();
        let mut found = self
            .offering_rows(offering, month, known.is_empty())
            .await?;
        found.iter().for_each(|row| learn(known, row));
        let uuids = found.iter().filter_map(|row| row["uuid"].as_str());
        let new = uuids.filter(|uuid| !known.contains_key(*uuid));
        let new: Vec<String> = new.map(str::to_owned).collect();
        if new.len() > MAX_SINGLE_READS {
            found = self.offering_rows(offering, month, true).await?;
            found.iter().for_each(|row| learn(known, row));
        } else {
            for uuid in new {
                let fields = ["uuid", "resource_uuid", "type"].map(|field| ("field", field));
                match self.get(&format!("{ROWS}{uuid}/"), &fields).await {
                    Ok(row) => learn(known, &row),
                    // The row was deleted in the meantime.
                    Err(WaldurError::Refused { status: 404, .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let period = month.first_day();
        for row in &found {
            let subject = row["uuid"].as_str().and_then(|uuid| known.get(uuid));
            if let Some(RowSubject {
                resource,
                component,
            }) = subject
            {
                usage.add(row, &period, resource, component);
            }
        }
        Ok(())
    }

    async fn offering_rows(
        &self,
        offering: &str,
        month: Month,
        with_subjects: bool,
    ) -> Result<Vec<Value>, WaldurError> {
        let period = month.first_day();
        let mut query = vec![("offering_uuid", offering), ("billing_period", &period)];
        query.extend(AMOUNT_FIELDS.map(|field| ("field", field)));
        if with_subjects {
            query.extend(SUBJECT_FIELDS.map(|field| ("field", field)));
        }
        self.list(ROWS, &query).await
    }
}
