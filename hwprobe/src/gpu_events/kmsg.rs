//! The kernel's log, as text.

use super::{EventCode, amd, mlx5};
use crate::pci;

/// What a line of the kernel's log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLine {
    /// The PCI address of the GPU or NIC, as sysfs writes it.
    pub address: String,
    /// What happened.
    pub code: EventCode,
    /// The rest of the line.
    pub detail: String,
}

/// What is kept of a line.
const MOST_DETAIL_CHARS: usize = 400;

/// What a driver says with a line of the kernel's log: an XID, what AMD's driver has instead, or
/// that a NIC of mlx5_core failed. Any other line is none.
#[must_use]
pub fn line(text: &str) -> Option<KernelLine> {
    nvidia(text)
        .or_else(|| amd::line(text))
        .or_else(|| mlx5::line(text))
}

pub(super) fn shortened(detail: &str) -> String {
    detail.chars().take(MOST_DETAIL_CHARS).collect()
}

/// Reads `NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.`, also without `PCI:` as old
/// drivers write it.
fn nvidia(text: &str) -> Option<KernelLine> {
    let (_, rest) = text.split_once("NVRM: Xid (")?;
    let (place, rest) = rest.split_once("): ")?;
    let place = place.strip_prefix("PCI:").unwrap_or(place).trim();
    // The driver leaves out the function.
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

/// A record of the kernel's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRecord<'t> {
    /// Its number: each record of a boot has one of its own, and later ones have higher ones.
    pub seq: u64,
    /// Microseconds since the boot, by a clock that nobody disciplines.
    pub stamp_us: u64,
    /// What it says.
    pub message: &'t str,
}

/// Reads a record of `/dev/kmsg`, `6,339,5140900,-;text`. Continuation lines (` SUBSYSTEM=pci`) and
/// anything else are none.
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
