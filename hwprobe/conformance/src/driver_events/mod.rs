//! GPU and NIC events reported by drivers, as a log with sequence numbers and times: NVIDIA XIDs, fatal errors of
//! NVSwitches (SXids), amdgpu events, and NIC events of mlx5_core.
//!
//! Two sources report the same XID: the driver's own events, and the kernel log. Each source alone loses some events.
//! NVML reports only events that it considers critical, and the kernel log may be overwritten or unreadable.
//! [`GpuEventLog`] merges both reports of one occurrence into one event and records the sources. Other drivers report
//! through the kernel log only.
//!
//! Start at [`GpuEventLog::record`], which documents the merge rule.

mod code;
mod log;
mod severity;

pub use code::{AmdEvent, EventCode, Mlx5Event};
pub use log::{EventReport, GpuEvent, GpuEventLog, GpuEventSource, MERGE_WINDOW_MS, RecordOutcome};
pub use severity::MessageSeverity;
