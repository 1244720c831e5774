//! XIDs of NVIDIA's GPU driver and fatal errors of NVSwitches (SXids) in the kernel log.

use super::kmsg::{KernelLine, shortened};
use crate::pci;
use lattice_conformance::driver_events::{EventCode, MessageSeverity};

/// Parses a line with an XID or with a fatal SXid. Returns `None` for any other line.
pub(super) fn line(text: &str) -> Option<KernelLine> {
    xid(text).or_else(|| sxid(text))
}

/// Parses `NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.`, also without `PCI:` as old drivers write it.
fn xid(text: &str) -> Option<KernelLine> {
    let (_, rest) = text.split_once("NVRM: Xid (")?;
    let (address, number, detail) = numbered_message(rest)?;
    Some(KernelLine {
        address,
        code: EventCode::Xid(number),
        detail: shortened(detail),
    })
}

/// Parses `nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up`. The driver handles errors
/// that it calls `Non-fatal`, and writes registers on further lines with the same number; neither is an event.
fn sxid(text: &str) -> Option<KernelLine> {
    let (device, rest) = text.split_once("SXid (")?;
    if !device.contains("nvswitch") {
        return None;
    }
    let (address, number, detail) = numbered_message(rest)?;
    if MessageSeverity::of(detail) != Some(MessageSeverity::Fatal) {
        return None;
    }
    Some(KernelLine {
        address,
        code: EventCode::Sxid(number),
        detail: shortened(detail),
    })
}

/// PCI address, number and message of `PCI:0000:5d:00): 79, GPU has fallen off the bus.` With MIG, the names of the
/// instances follow the address: `PCI:0000:01:00 GPU-I:05): 145, …`.
fn numbered_message(text: &str) -> Option<(String, u32, &str)> {
    let (place, rest) = text.split_once("): ")?;
    let place = place.trim_start();
    let place = place.strip_prefix("PCI:").unwrap_or(place);
    let place = place.split_whitespace().next()?;
    // The driver of GPUs omits the function number.
    let place = match place.rsplit_once('.') {
        Some(_) => place.to_owned(),
        None => format!("{place}.0"),
    };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = rest.split_at(digits);
    let detail = rest.trim_start_matches([',', ' ']).trim();
    let address = pci::address(&place).present()?.clone();
    Some((address, number.parse().ok()?, detail))
}
