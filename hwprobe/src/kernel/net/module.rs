//! Identity of pluggable modules: the first 256 bytes of the EEPROM, in the layout of three public specifications,
//! selected by the identifier in the first byte (SFF-8024).
//!
//! ```text
//!                  SFF-8472 (SFP)  SFF-8636 (QSFP)  CMIS (QSFP-DD, OSFP)
//! vendor           20..36          148..164         129..145
//! part number      40..56          168..184         148..164
//! revision         56..60          184..186         164..166
//! firmware         -               -                39..41
//! serial, date     68..84, 84..92  196..212, 212..220   166..182, 182..190
//! ```
//!
//! [`Module`] keeps the identifier and the fields of the first four lines. All other bytes are zero, including serial
//! number, date and measured values.

use lattice_conformance::{Reading, text};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Number of bytes read from a module: the part that identifies its type.
pub(super) const MODULE_BYTES: usize = 256;

/// A module's EEPROM, without the values that differ between modules of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Module(Vec<u8>);

/// Identity of a module, with one reading per field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleIdentity {
    /// Name of the vendor.
    pub vendor: Reading<String>,
    /// Part number of the module.
    pub part_number: Reading<String>,
    /// Revision of the part.
    pub revision: Reading<String>,
    /// Running firmware version; unsupported in a module without firmware.
    pub firmware: Reading<String>,
}

/// Field offsets of a specification.
struct Layout {
    vendor: Range<usize>,
    part_number: Range<usize>,
    revision: Range<usize>,
    firmware: Option<Range<usize>>,
}

const SFF_8472: Layout = Layout {
    vendor: 20..36,
    part_number: 40..56,
    revision: 56..60,
    firmware: None,
};
const SFF_8636: Layout = Layout {
    vendor: 148..164,
    part_number: 168..184,
    revision: 184..186,
    firmware: None,
};
const CMIS: Layout = Layout {
    vendor: 129..145,
    part_number: 148..164,
    revision: 164..166,
    firmware: Some(39..41),
};

/// Selects the layout by SFF-8024, table 4-1. The offsets of other identifiers are unknown.
fn layout(identifier: u8) -> Option<Layout> {
    match identifier {
        // SFP, SFP+, SFP28 and later SFP modules with SFF-8472.
        0x03 => Some(SFF_8472),
        // QSFP, QSFP+, QSFP28.
        0x0c | 0x0d | 0x11 => Some(SFF_8636),
        // QSFP-DD, OSFP, DSFP, QSFP+ with CMIS, SFP-DD with CMIS, SFP+ with CMIS.
        0x18 | 0x19 | 0x1b | 0x1e | 0x1f | 0x20 => Some(CMIS),
        _ => None,
    }
}

impl Module {
    /// Keeps only the bytes that identify the type of the module.
    #[must_use]
    pub fn of(read: &[u8]) -> Self {
        let mut kept = vec![0; read.len().min(MODULE_BYTES)];
        let mut keep = |range: Range<usize>| {
            if let (Some(to), Some(from)) = (kept.get_mut(range.clone()), read.get(range)) {
                to.copy_from_slice(from);
            }
        };
        keep(0..1);
        if let Some(layout) = read.first().and_then(|identifier| layout(*identifier)) {
            keep(layout.vendor);
            keep(layout.part_number);
            keep(layout.revision);
            layout.firmware.into_iter().for_each(keep);
        }
        Self(kept)
    }

    /// The identity of the module; unsupported for an identifier that none of the specifications covers.
    #[must_use]
    pub fn identity(&self) -> Reading<ModuleIdentity> {
        let Some(identifier) = self.0.first() else {
            return Reading::failed("the module's EEPROM returned no bytes");
        };
        let Some(layout) = layout(*identifier) else {
            return Reading::Unsupported;
        };
        Reading::Present(ModuleIdentity {
            vendor: self.text(layout.vendor),
            part_number: self.text(layout.part_number),
            revision: self.text(layout.revision),
            firmware: match layout.firmware {
                Some(range) => self.bytes(range).and_then(firmware),
                None => Reading::Unsupported,
            },
        })
    }

    fn bytes(&self, range: Range<usize>) -> Reading<&[u8]> {
        match self.0.get(range) {
            Some(bytes) => Reading::Present(bytes),
            None => Reading::failed(format!(
                "the module's EEPROM returned only {} bytes",
                self.0.len()
            )),
        }
    }

    /// An ASCII field, padded with blanks, or with zeros in some modules.
    fn text(&self, range: Range<usize>) -> Reading<String> {
        self.bytes(range).and_then(|bytes| {
            let end = bytes.iter().rposition(|byte| *byte != 0);
            let bytes = &bytes[..end.map_or(0, |end| end + 1)];
            match std::str::from_utf8(bytes) {
                Ok(text) if text.is_ascii() => text::firmware(text),
                _ => Reading::failed(format!(
                    "the field in the module's EEPROM is not ASCII text: \"{}\"",
                    text::escaped(bytes)
                )),
            }
        })
    }
}

/// Major and minor revision of the active image. Both are zero in a module without firmware, and all ones if the image
/// is not valid.
fn firmware(bytes: &[u8]) -> Reading<String> {
    match bytes {
        [0, 0] => Reading::Unsupported,
        [0xff, 0xff] => Reading::failed("the module's firmware is not valid"),
        [major, minor] => Reading::Present(format!("{major}.{minor}")),
        _ => Reading::failed("the module's firmware has no version"),
    }
}
