//! Kernel log lines, parsed as text.

use super::{EventCode, amd, mlx5};
use crate::pci;

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
const MOST_DETAIL_CHARS: usize = 400;

/// Parses a kernel log line of a driver: an XID, an amdgpu event, or a NIC failure reported by mlx5_core. Returns
/// `None` for any other line.
#[must_use]
pub fn line(text: &str) -> Option<KernelLine> {
    nvidia(text)
        .or_else(|| amd::line(text))
        .or_else(|| mlx5::line(text))
}

pub(super) fn shortened(detail: &str) -> String {
    detail.chars().take(MOST_DETAIL_CHARS).collect()
}

/// Parses `NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.`, also without `PCI:` as old drivers write it.
fn nvidia(text: &str) -> Option<KernelLine> {
    let (_, rest) = text.split_once("NVRM: Xid (")?;
    let (place, rest) = rest.split_once("): ")?;
    let place = place.strip_prefix("PCI:").unwrap_or(place).trim();
    // The driver omits the function number.
    let place = match place.rsplit_once('.') {
        Some(_) => place.to_owned(),
        None => format!("{place}.0"),
    };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = rest.split_at(digits);
    let detail = rest.trim_start_matches([',', ' ']).trim();
    Some(KernelLine {
        address: pci::address(&place).present()?.clone(),
        code: EventCode::Xid(number.parse().ok()?),
        detail: shortened(detail),
    })
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
