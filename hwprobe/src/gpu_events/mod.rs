//! Sources of GPU and NIC events: the kernel log ([`line()`]), and the driver's own events.
//!
//! [`GpuEventWatch`] performs the I/O, and receives the driver's events in a child process. The events themselves, and
//! the log that merges the reports of both sources, are defined in `lattice_conformance::driver_events`.

mod amd;
mod kmsg;
mod mlx5;
mod nvidia;
mod watch;

pub use kmsg::{KernelLine, KernelRecord, record};
pub use watch::{GpuEventSources, GpuEventWatch, KernelLog, SourceState};

/// Parses a kernel log line of a driver: an XID, a fatal error of an NVSwitch, an amdgpu event, or a NIC failure reported
/// by mlx5_core. Returns `None` for any other line.
#[must_use]
pub fn line(text: &str) -> Option<KernelLine> {
    nvidia::line(text)
        .or_else(|| amd::line(text))
        .or_else(|| mlx5::line(text))
}

#[cfg(test)]
mod tests;
