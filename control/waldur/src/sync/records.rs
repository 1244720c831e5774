//! Usage records of the quorum: read into the journal as events, and acknowledged when Waldur has their usage.

use super::{AccountingSync, RoundError, USAGE_RECORDS_PER_READ};
use crate::{
    config::AccountingSettings,
    event::Event,
    journal::{Journal, JournalError, JournalRecovery},
    step::Step,
};
use lattice_quorum_types::{
    UnixMillis,
    usage_record::{UsageRecord, UsageRecordsHead},
};

impl AccountingSync {
    /// Reads new usage records and appends their events to the journal.
    pub(super) async fn collect(&mut self) -> Result<(), RoundError> {
        loop {
            let after = self.collected;
            let (records, head) = self
                .cluster
                .usage_records(after, USAGE_RECORDS_PER_READ, UnixMillis(0))
                .await?;
            if self.journal.is_none() {
                self.open(head.acknowledged)?;
                if self.collected != after {
                    continue;
                }
            }
            if head.is_restored_since(self.collected, self.seen) {
                self.begin_restored(&head)?;
                continue;
            }
            self.seen = Some(head.revision);
            self.note(|status| {
                status.last = head.last;
                status.acknowledged = head.acknowledged;
            });
            let Some(last) = records.last() else {
                let now = self.cluster.now();
                self.note(|status| status.collected_at = Some(now));
                return Ok(());
            };
            self.journal_events(&records)?;
            self.collected = last.number;
            self.count_events();
        }
    }

    /// Begins again after a restore of the cluster from a backup. The events in the journal are either in the usage
    /// records that are read again, or belong to usage that the restored cluster has lost.
    fn begin_restored(&mut self, head: &UsageRecordsHead) -> Result<(), JournalError> {
        tracing::warn!(
            read = self.collected,
            last = head.last,
            revision = head.revision.0,
            "quorum has other usage records than were read; was it restored from a backup?"
        );
        if let Some(journal) = &mut self.journal {
            journal.clear()?;
        }
        self.collected = head.acknowledged;
        self.seen = Some(head.revision);
        // The restored cluster may have lost the acceptance of a month, and usage of it.
        self.closed.clear();
        // The same applies to rejected events, except those of acknowledged records, which are not read again.
        self.refused
            .retain(|_, event| event.number <= head.acknowledged);
        let refused = &self.refused;
        self.note(|status| {
            status.retain(|name| !is_event(name) || refused.contains_key(name));
        });
        self.count_events();
        Ok(())
    }

    fn journal_events(&mut self, records: &[UsageRecord]) -> Result<(), JournalError> {
        let cluster = self.cluster.clone();
        let events: Vec<Event> = records
            .iter()
            .filter_map(|record| Event::of(record, &*cluster))
            .collect();
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        let dropped = journal.append(&events, &*self.steps)?;
        if dropped > 0 {
            tracing::error!(
                dropped,
                "accounting buffers in memory and on disk are full; the newest events are dropped"
            );
        }
        self.note(|status| status.dropped += dropped as u64);
        Ok(())
    }

    fn open(&mut self, acknowledged: u64) -> Result<(), JournalError> {
        let AccountingSettings { folder, bounds, .. } = &self.settings;
        let (journal, recovered) = Journal::open(folder, *bounds, acknowledged)?;
        if recovered != JournalRecovery::default() {
            tracing::info!(?recovered, "earlier events found in the journal");
        }
        self.collected = journal.last().max(acknowledged);
        self.seen = journal.last_event()?.and_then(|event| event.revision());
        self.journal = Some(journal);
        self.count_events();
        Ok(())
    }

    fn count_events(&self) {
        let Some(journal) = &self.journal else { return };
        let (in_memory, on_disk) = (journal.in_memory() as u64, journal.on_disk() as u64);
        let dropped_unacknowledged = journal.dropped() as u64;
        let is_full = on_disk >= self.settings.bounds.disk as u64;
        self.note(|status| {
            status.in_memory = in_memory;
            status.on_disk = on_disk;
            status.is_full = is_full;
            status.dropped_unacknowledged = dropped_unacknowledged;
        });
    }

    /// Acknowledges usage records to the quorum, then removes their events from the journal.
    pub(super) async fn acknowledge(&mut self, through: u64) -> Result<(), RoundError> {
        let known = self.note(|status| status.acknowledged);
        if through <= known {
            return Ok(());
        }
        let dropped = self
            .journal
            .as_ref()
            .map_or(0, |journal| journal.dropped_through(through));
        self.steps.at(Step::BeforeAcknowledge);
        self.cluster.acknowledge(through, dropped).await?;
        self.steps.at(Step::AfterAcknowledge);
        if let Some(journal) = &mut self.journal {
            journal.acknowledge(through, &*self.steps)?;
        }
        self.note(|status| status.acknowledged = through);
        self.count_events();
        Ok(())
    }
}

/// Whether a key of a rejected request is that of an event.
fn is_event(name: &str) -> bool {
    name.starts_with("event ")
}
