//! An attempt's folder: everything that is known of one rank, on disk.
//!
//! `<data>/attempts/<allocation>.<attempt>/` holds
//!
//! | file | written by | says |
//! |---|---|---|
//! | `launch.json` | agent, durably, before anything starts | what to run (holds the user's environment: mode 0600) |
//! | `lock` | supervisor | held (POSIX record lock) for as long as it lives |
//! | `supervisor.json` | supervisor, first | its process; a second one never starts the job again |
//! | `starting.json` | supervisor, while it is so | a start hangs, and where |
//! | `started.json` | supervisor | the job's process runs |
//! | `stop` | agent | somebody asked to end it |
//! | `reserve`, `reserve.2` | agent, before anything starts | nothing: room for the ends on a full disk |
//! | `job.json` | supervisor, durably; agent where no supervisor is left | how the job ended; the site's hooks are still to run |
//! | `exit.json` | supervisor, durably; agent where no supervisor is left | how it ended; nothing more is to be done |
//! | `orphan.json` | agent | processes of it were found, and no record |
//! | `checkpoint.json` | agent, durably, before the job is told | the last checkpoint that was asked for |
//! | `checkpoint.state.json` | supervisor; an end durably, before anybody is told | where that one stands |
//! | `walltime.json` | agent, durably, before it says so | the walltime in force, where it is not the launch's |
//! | `acknowledged` | agent | control has it; only output is kept from here on |
//! | `stdout`, `stderr` | supervisor | captured output |
//! | `supervisor.log` | supervisor | what it had to say |
//! | `prolog.log`, `epilog.log`, `wipe.log` | supervisor | what the site's hooks wrote |
//!
//! Whoever finds files is free to believe them: each is complete or not there.

mod checkpoint;
mod durable;
mod folder;
mod lock;
mod record;
#[cfg(test)]
mod tests;
mod walltime;

pub use checkpoint::{CheckpointPlan, CheckpointState, OrderRecord, job_ended};
pub use durable::{write_durably, write_durably_from_reserve};
pub(crate) use folder::others_may_write;
pub use folder::{AttemptDir, Attempts};
pub use lock::{Lock, holder};
pub(crate) use record::open_to_others;
pub use record::{
    CgroupRecord, ExitRecord, FORMAT, GpuChoice, GpuVendor, Hook, HookName, LaunchRecord,
    LocalUser, OrphanRecord, RankHooks, RecordError, StartedRecord, StartingRecord,
    SupervisorRecord,
};
pub use walltime::WalltimeRecord;
