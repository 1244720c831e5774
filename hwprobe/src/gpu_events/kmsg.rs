//! Kernel log: its records, and the form of a parsed line.

use lattice_conformance::driver_events::EventCode;

/// A parsed line of the kernel log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLine {
    /// PCI address of the GPU or NIC, as sysfs writes it.
    pub address: String,
    /// Code of the event.
    pub code: EventCode,
    /// Rest of the line, at most 400 characters.
    pub detail: String,
}

/// Maximum length of the detail text, in characters.
const MAX_DETAIL_CHARS: usize = 400;

pub(super) fn shortened(detail: &str) -> String {
    detail.chars().take(MAX_DETAIL_CHARS).collect()
}

/// A record of the kernel log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRecord<'t> {
    /// Sequence number: unique and rising within one boot.
    pub seq: u64,
    /// Microseconds since the boot, by an undisciplined clock.
    pub stamp_us: u64,
    /// Text of the record.
    pub message: &'t str,
}

/// Parses a record of `/dev/kmsg`, `6,339,5140900,-;text`. Returns `None` for continuation lines (` SUBSYSTEM=pci`) and
/// any other text.
#[must_use]
pub fn record(text: &str) -> Option<KernelRecord<'_>> {
    let (head, message) = text.split_once(';')?;
    let mut fields = head.split(',');
    let (priority, sequence, stamp) = (fields.next()?, fields.next()?, fields.next()?);
    priority.parse::<u32>().ok()?;
    Some(KernelRecord {
        seq: sequence.parse().ok()?,
        stamp_us: stamp.parse().ok()?,
        message,
    })
}
