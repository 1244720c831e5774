//! On-disk storage of a member. The data directory contains a marker with format and owner, and the log with vote and
//! commit point (one redb file). It also contains snapshots (checksummed files), and the segments that they name.
//!
//! ```text
//! <data_dir>/FORMAT            {"format":1,"cluster":"site","voter":1,"incarnation":{…},"blank":false}
//! <data_dir>/log.redb          log entries, vote, commit point
//! <data_dir>/snapshots/*.snap  the newest two
//! <data_dir>/segments/*.seg    rows of the append-only tables, such as ended allocations; named by digest
//! ```
//!
//! A failed opening changes no log entry, snapshot or named segment.

mod dir;
mod error;
mod incarnation_marker;
mod index;
mod log;
mod marker;
mod recover;
mod restored;
mod row;
mod segments;
mod snapshot;
mod writer;

#[cfg(test)]
mod tests;

pub use dir::DataDir;
pub use error::OpenError;
pub use incarnation_marker::DirectoryIncarnation;
pub use log::LogStore;
pub use marker::FORMAT;
pub use restored::RestoredContent;
pub use segments::SegmentDir;
pub use snapshot::SnapshotDir;
