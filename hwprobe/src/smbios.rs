//! SMBIOS table: memory arrays (type 16) and memory devices (type 17). Pure; the caller provides the bytes.

use lattice_conformance::{Reading, text};

const MEMORY_ARRAY: u8 = 16;
const MEMORY_DEVICE: u8 = 17;
const END_OF_TABLE: u8 = 127;

/// Offsets in a memory device of the string numbers that are compared: locator, bank, manufacturer and part number.
const COMPARED_STRINGS: [usize; 4] = [0x10, 0x11, 0x17, 0x1a];

/// One memory slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryDevice {
    /// Name of the slot on the board.
    pub locator: Reading<String>,
    /// Name of the bank. On boards that number the slots of each processor alike, the bank identifies the processor.
    pub bank: Reading<String>,
    /// Capacity in bytes; absent in an empty slot.
    pub size: Reading<u64>,
    /// Type of the memory: `DDR5` and so on.
    pub kind: Reading<String>,
    /// Configured speed, or the maximum speed of the part if none is configured, in transfers per second.
    pub speed: Reading<u64>,
    /// Number of ranks.
    pub rank: Reading<u64>,
    /// Technology of the part: `DRAM`, `NVDIMM-N` and so on.
    pub technology: Reading<String>,
    /// Manufacturer, as written in the table.
    pub manufacturer: Reading<String>,
    /// Part number, as written in the table.
    pub part_number: Reading<String>,
    /// Serial number (identity).
    pub serial: Reading<String>,
    /// Whether one of the strings other than the serial number is in the table and cannot be decoded.
    pub has_undecodable_string: bool,
}

/// One structure of the table: formatted part and strings.
struct Structure<'a> {
    kind: u8,
    formatted: &'a [u8],
    strings: &'a [u8],
    /// Length in bytes of formatted part, strings and terminator.
    length: usize,
}

impl<'a> Structure<'a> {
    /// The first structure in `table`; `None` if the structure is truncated or shorter than its header.
    fn first(table: &'a [u8]) -> Option<Self> {
        let formatted = table.get(..usize::from(*table.get(1)?))?;
        // A structure has at least a four-byte header; a shorter one would stop the walk from advancing.
        if formatted.len() < 4 {
            return None;
        }
        let rest = &table[formatted.len()..];
        let end = rest.windows(2).position(|pair| pair == [0, 0])?;
        Some(Self {
            kind: table[0],
            formatted,
            strings: &rest[..end],
            length: formatted.len() + end + 2,
        })
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.formatted.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u16> {
        let bytes = self.formatted.get(at..at + 2)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    }

    fn double(&self, at: usize) -> Option<u32> {
        let bytes = self.formatted.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The string with the 1-based number stored at `at`.
    fn string(&self, at: usize) -> Reading<String> {
        let number = match self.byte(at) {
            None | Some(0) => return Reading::Unsupported,
            Some(number) => usize::from(number),
        };
        match self.strings.split(|&byte| byte == 0).nth(number - 1) {
            None => Reading::failed(format!("SMBIOS string {number} is missing")),
            Some(bytes) => {
                text::decode(&format!("SMBIOS string {number}"), bytes).and_then(text::firmware)
            }
        }
    }

    /// Whether the string with the number stored at `at` is there and cannot be decoded.
    fn is_undecodable(&self, at: usize) -> bool {
        let index = self.byte(at).and_then(|number| number.checked_sub(1));
        let mut strings = self.strings.split(|&byte| byte == 0);
        let bytes = index.and_then(|index| strings.nth(usize::from(index)));
        bytes.is_some_and(|bytes| {
            let string = text::decode("SMBIOS", bytes).and_then(text::firmware);
            matches!(string, Reading::Failed { .. })
        })
    }

    fn size(&self) -> Reading<u64> {
        const EXTENDED: u16 = 0x7fff;
        const KIBIBYTES: u16 = 0x8000;
        match self.word(0x0c) {
            Some(0) => Reading::Absent,
            None | Some(0xffff) => Reading::Unsupported,
            Some(EXTENDED) => match self.double(0x1c) {
                Some(mebibytes) => Reading::Present(u64::from(mebibytes & 0x7fff_ffff) << 20),
                None => Reading::Unsupported,
            },
            Some(size) if size & KIBIBYTES != 0 => {
                Reading::Present(u64::from(size & !KIBIBYTES) << 10)
            }
            Some(size) => Reading::Present(u64::from(size) << 20),
        }
    }

    /// The configured speed, else the maximum speed of the part. Converts MT/s to transfers per second.
    fn speed(&self) -> Reading<u64> {
        let field = |at: usize, extended: usize| match self.word(at)? {
            0 => None,
            0xffff => self.double(extended).map(|speed| speed & 0x7fff_ffff),
            speed => Some(u32::from(speed)),
        };
        field(0x20, 0x58)
            .or_else(|| field(0x15, 0x54))
            .map_or(Reading::Unsupported, |speed| {
                Reading::Present(u64::from(speed) * 1_000_000)
            })
    }

    fn memory_kind(&self) -> Reading<String> {
        let name = match self.byte(0x12) {
            Some(0x18) => "DDR3",
            Some(0x1a) => "DDR4",
            Some(0x1b) => "LPDDR",
            Some(0x1c) => "LPDDR2",
            Some(0x1d) => "LPDDR3",
            Some(0x1e) => "LPDDR4",
            Some(0x20) => "HBM",
            Some(0x21) => "HBM2",
            Some(0x22) => "DDR5",
            Some(0x23) => "LPDDR5",
            Some(0x24) => "HBM3",
            None | Some(0x00..=0x02) => return Reading::Unsupported,
            Some(other) => return Reading::Present(format!("type {other:#04x}")),
        };
        Reading::Present(name.to_owned())
    }
}

impl Structure<'_> {
    fn rank(&self) -> Reading<u64> {
        match self.byte(0x1b).map(|attributes| attributes & 0x0f) {
            None | Some(0) => Reading::Unsupported,
            Some(rank) => Reading::Present(rank.into()),
        }
    }

    fn technology(&self) -> Reading<String> {
        let name = match self.byte(0x28) {
            Some(3) => "DRAM",
            Some(4) => "NVDIMM-N",
            Some(5) => "NVDIMM-F",
            Some(6) => "NVDIMM-P",
            Some(7) => "Optane",
            Some(8) => "MRDIMM",
            None | Some(0..=2) => return Reading::Unsupported,
            Some(other) => return Reading::Present(format!("technology {other:#04x}")),
        };
        Reading::Present(name.to_owned())
    }

    /// Error correction of a memory array.
    fn correction(&self) -> Option<&'static str> {
        match self.byte(0x06)? {
            3 => Some("none"),
            4 => Some("parity"),
            5 => Some("single-bit"),
            6 => Some("multi-bit"),
            7 => Some("CRC"),
            _ => None,
        }
    }

    /// Whether this is an array of system memory, and not of cache, video or flash memory.
    fn is_system_memory(&self) -> bool {
        self.kind == MEMORY_ARRAY && self.byte(0x05) == Some(3)
    }
}

/// Error correction of system memory; if arrays differ, each kind once, sorted.
#[must_use]
pub fn error_correction(table: &[u8]) -> Reading<String> {
    structures(table).and_then(|all| correction(&all))
}

fn correction(all: &[Structure<'_>]) -> Reading<String> {
    let arrays = all.iter().filter(|one| one.is_system_memory());
    let mut found: Vec<Option<&str>> = arrays.map(Structure::correction).collect();
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] => Reading::Absent,
        [None, ..] => Reading::Unsupported,
        kinds => {
            let kinds: Vec<&str> = kinds.iter().copied().flatten().collect();
            Reading::Present(kinds.join(" + "))
        }
    }
}

/// All structures before the end-of-table structure. The bytes after damage are unknown. So the last structure must be
/// followed by the end-of-table structure, the end of the table or only zeros; otherwise the number of structures is
/// unknown. Some firmware omits the end-of-table structure and pads with zeros.
fn structures(table: &[u8]) -> Reading<Vec<Structure<'_>>> {
    let mut all = Vec::new();
    let mut rest = table;
    while rest.first().is_some_and(|kind| *kind != END_OF_TABLE) {
        if !all.is_empty() && rest.iter().all(|byte| *byte == 0) {
            break;
        }
        let Some(structure) = Structure::first(rest) else {
            let at = table.len() - rest.len();
            return Reading::failed(format!(
                "the SMBIOS table is cut off or damaged at byte {at}"
            ));
        };
        rest = &rest[structure.length..];
        all.push(structure);
    }
    Reading::Present(all)
}

/// The memory slots, in table order.
#[must_use]
pub fn memory_devices(table: &[u8]) -> Reading<Vec<MemoryDevice>> {
    structures(table).and_then(|all| devices(&all))
}

fn devices(all: &[Structure<'_>]) -> Reading<Vec<MemoryDevice>> {
    let devices = all.iter().filter(|one| one.kind == MEMORY_DEVICE);
    let devices: Vec<MemoryDevice> = devices
        .map(|device| {
            let size = device.size();
            let is_there = size != Reading::Absent;
            let of = |reading: Reading<String>| {
                if is_there { reading } else { Reading::Absent }
            };
            MemoryDevice {
                locator: device.string(0x10),
                bank: device.string(0x11),
                kind: of(device.memory_kind()),
                speed: if is_there {
                    device.speed()
                } else {
                    Reading::Absent
                },
                rank: if is_there {
                    device.rank()
                } else {
                    Reading::Absent
                },
                technology: of(device.technology()),
                manufacturer: of(device.string(0x17)),
                part_number: of(device.string(0x1a)),
                serial: of(device.string(0x18)),
                has_undecodable_string: COMPARED_STRINGS
                    .iter()
                    .any(|&at| device.is_undecodable(at)),
                size,
            }
        })
        .collect();
    if devices.is_empty() {
        Reading::Absent
    } else {
        Reading::Present(devices)
    }
}

/// The table reduced to memory arrays and devices, with serial numbers and asset tags replaced by `X`: enough for
/// [`memory_devices`] and [`error_correction`], without identifying the machine. A damaged table stays unreadable.
#[must_use]
pub fn without_identity(table: &[u8]) -> Vec<u8> {
    let Reading::Present(all) = structures(table) else {
        return vec![MEMORY_DEVICE];
    };
    let mut out = Vec::new();
    let kept = [MEMORY_ARRAY, MEMORY_DEVICE];
    for structure in all.iter().filter(|s| kept.contains(&s.kind)) {
        let secret = |number: usize| {
            let mut places = [0x18, 0x19].iter();
            structure.kind == MEMORY_DEVICE
                && places.any(|&at| structure.byte(at).map(usize::from) == Some(number))
        };
        out.extend_from_slice(structure.formatted);
        if structure.strings.is_empty() {
            out.push(0);
        }
        for (index, string) in structure.strings.split(|&byte| byte == 0).enumerate() {
            if structure.strings.is_empty() {
                break;
            }
            if secret(index + 1) {
                out.extend(std::iter::repeat_n(b'X', string.len()));
            } else {
                out.extend_from_slice(string);
            }
            out.push(0);
        }
        out.push(0);
    }
    out.extend_from_slice(&[END_OF_TABLE, 4, 0, 0, 0, 0]);
    out
}

#[cfg(test)]
mod tests;
