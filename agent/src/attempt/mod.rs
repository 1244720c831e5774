//! Attempt folder: the complete on-disk state of one rank.
//!
//! `<data_dir>/executor/attempts/<allocation>.<attempt>/` contains:
//!
//! | file | written by | content |
//! |---|---|---|
//! | `launch.json` | agent, durably, before anything starts | what to run (holds the user's environment: mode 0600) |
//! | `lock` | supervisor | POSIX record lock, held while the supervisor lives |
//! | `supervisor.json` | supervisor, first | supervisor process; a second supervisor never starts the job again |
//! | `starting.json` | supervisor, while a start hangs | where the start hangs |
//! | `started.json` | supervisor | the job's process is running |
//! | `stop` | agent | a stop was requested |
//! | `reserve`, `reserve.2` | agent, before anything starts | no data: space for the end records on a full disk |
//! | `job.json` | supervisor, durably; agent where no supervisor is left | result of the job; hooks are left to run |
//! | `exit.json` | supervisor, durably; agent where no supervisor is left | result of the rank; no step is left |
//! | `orphan.json` | agent | processes of the attempt were found without a record |
//! | `checkpoint.json` | agent, durably, before the job receives the request | the last requested checkpoint |
//! | `checkpoint.state.json` | supervisor; an end durably, before it is reported | status of that checkpoint |
//! | `walltime.json` | agent, durably, before it confirms the change | walltime in force, if changed after launch |
//! | `acknowledged` | agent | control has the result; the agent then removes the records that it no longer needs |
//! | `stdout`, `stderr` | supervisor | captured output, up to half of its limit |
//! | `stdout.<position>`, `stderr.<position>` | supervisor | the last part of a longer output, in segments |
//! | `supervisor.log` | supervisor | messages of the supervisor |
//! | `prolog.log`, `epilog.log`, `wipe.log` | supervisor | output of the site's hooks |
//!
//! Invariant: each file is complete or absent, so a reader may trust any file that exists.

mod checkpoint;
mod checkpoint_plan;
mod durable;
mod folder;
mod lock;
mod output;
mod record;
#[cfg(test)]
mod tests;
mod walltime;

pub use checkpoint::{CheckpointState, OrderRecord, job_ended};
pub use checkpoint_plan::CheckpointPlan;
pub use durable::{write_durably, write_durably_from_reserve};
pub(crate) use folder::foreign_write_access;
pub use folder::{AttemptDir, Attempts};
pub use lock::{Lock, holder};
pub use output::{CapturedOutput, OutputReader, open_output};
pub(crate) use record::write_access_advice;
pub use record::{
    CgroupRecord, ExitRecord, FORMAT, GpuChoice, GpuVendor, Hook, HookName, LaunchRecord,
    LocalUser, OrphanRecord, RankHooks, RecordError, StartedRecord, StartingRecord,
    SupervisorRecord,
};
pub use walltime::WalltimeRecord;
