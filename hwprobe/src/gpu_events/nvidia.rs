//! XIDs of NVIDIA's driver in the kernel log.

use super::kmsg::{KernelLine, shortened};
use crate::pci;
use lattice_conformance::driver_events::EventCode;

/// Parses `NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.`, also without `PCI:` as old drivers write it.
pub(super) fn line(text: &str) -> Option<KernelLine> {
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
