//! Observations of this control in the node history, and the state for its next comparison.

use super::{
    event::{EventContent, NodeObservation},
    store::HistoryStore,
    tables::{AUDIT, HistoryError, MARKS, NOTES},
    writer::NodeTables,
};
use redb::ReadableTable as _;
use std::collections::BTreeMap;

/// Comparison state of each node by name, and the number of the last audit entry that was read.
pub type ComparisonProgress = (BTreeMap<String, Vec<u8>>, Option<u64>);

/// New observations of one node, and the state for its next comparison.
#[derive(Debug, Clone, Default)]
pub struct TimedObservations {
    /// Node name.
    pub node: String,
    /// Observations, each with its time in Unix milliseconds.
    pub happened: Vec<(u64, NodeObservation)>,
    /// Serialized state for the next comparison; `None` keeps the stored state.
    pub comparison_state: Option<Vec<u8>>,
}

impl HistoryStore {
    /// Stores observations of this control and the number of the last audit entry read, in one transaction.
    pub(crate) fn note(
        &self,
        notes: &[TimedObservations],
        audit: Option<u64>,
    ) -> Result<(), HistoryError> {
        self.write(|txn| {
            for note in notes {
                let mut book = NodeTables::open(txn, &note.node)?;
                for (when, noted) in &note.happened {
                    book.event(*when, &EventContent::Noted(noted.clone()))?;
                }
                book.close(None)?;
                if let Some(compared) = &note.comparison_state {
                    let mut table = txn.open_table(NOTES)?;
                    table.insert(note.node.as_str(), compared.as_slice())?;
                }
            }
            if let Some(audit) = audit {
                txn.open_table(MARKS)?.insert(AUDIT, audit)?;
            }
            Ok(())
        })
    }

    /// Comparison state of each node, and the number of the last audit entry read.
    pub(crate) fn comparison_progress(&self) -> Result<ComparisonProgress, HistoryError> {
        self.read(|txn| {
            let mut compared = BTreeMap::new();
            for row in txn.open_table(NOTES)?.iter()? {
                let (node, bytes) = row?;
                compared.insert(node.value().to_owned(), bytes.value().to_vec());
            }
            let audit = txn.open_table(MARKS)?.get(AUDIT)?.map(|read| read.value());
            Ok((compared, audit))
        })
    }
}
