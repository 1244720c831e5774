//! ethtool by ioctl: one command, one structure of `include/uapi/linux/ethtool.h`, one answer.

use super::module::{MODULE_BYTES, Module};
use super::netlink::string;
use crate::kernel::ioctl::{self, ETHTOOL_BYTES};
use lattice_conformance::{Reading, text};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixDatagram;

const GDRVINFO: u32 = 0x03;
const GRINGPARAM: u32 = 0x10;
const GPAUSEPARAM: u32 = 0x12;
const GSTRINGS: u32 = 0x1b;
const GPFLAGS: u32 = 0x27;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const GCHANNELS: u32 = 0x3c;
const GLINKSETTINGS: u32 = 0x4c;
const GFECPARAM: u32 = 0x50;
const GMODULEINFO: u32 = 0x42;
const GMODULEEEPROM: u32 = 0x43;
/// `ETH_SS_PRIV_FLAGS` and `ETH_SS_FEATURES`.
const PRIVATE_FLAGS: u32 = 2;
const FEATURES: u32 = 4;
/// `ETH_GSTRING_LEN`.
const STRING_BYTES: usize = 32;
/// Maximum number of names read from one set; the kernel has at most 64 in the sets used here.
const MAX_STRINGS: usize = 1024;
/// Number of `struct ethtool_get_features_block`s requested: 32 features each.
const FEATURE_BLOCKS: usize = 8;

/// Driver and firmware of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverInfo {
    /// Name of the driver.
    pub driver: Reading<String>,
    /// Version of the driver; drivers without their own version return the kernel's release.
    pub version: Reading<String>,
    /// Firmware version of the device.
    pub firmware: Reading<String>,
    /// Version of the device's expansion ROM.
    pub option_rom: Reading<String>,
}

/// Sizes of the descriptor rings, in entries; a kind that the device lacks is unsupported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingSizes {
    /// Receive ring.
    pub rx: Reading<u32>,
    /// Receive ring for small frames.
    pub rx_mini: Reading<u32>,
    /// Receive ring for jumbo frames.
    pub rx_jumbo: Reading<u32>,
    /// Transmit ring.
    pub tx: Reading<u32>,
}

/// Numbers of queues with their own interrupt; a kind that the device lacks is unsupported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channels {
    /// Receive channels.
    pub rx: Reading<u32>,
    /// Transmit channels.
    pub tx: Reading<u32>,
    /// Channels for other purposes, such as link events and management.
    pub other: Reading<u32>,
    /// Combined channels, which receive and transmit.
    pub combined: Reading<u32>,
}

/// Configured flow control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether receive and transmit pause are negotiated.
    pub autoneg: bool,
    /// Whether received pause frames are obeyed.
    pub rx: bool,
    /// Whether pause frames are sent.
    pub tx: bool,
}

/// The answers for one interface, each with its own state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Driver and firmware.
    pub driver: Reading<DriverInfo>,
    /// Ring sizes.
    pub rings: Reading<RingSizes>,
    /// Channel counts.
    pub channels: Reading<Channels>,
    /// Flow control.
    pub pause: Reading<Pause>,
    /// Names of the offload features that are enabled and can be disabled, sorted.
    pub features: Reading<Vec<String>>,
    /// The configured forward error corrections (`none auto off rs baser llrs`), sorted.
    pub fec: Reading<Vec<String>>,
    /// The enabled private flags of the driver, sorted.
    pub private_flags: Reading<Vec<String>>,
    /// Whether speed and duplex are negotiated.
    pub autoneg: Reading<bool>,
    /// Priorities with priority flow control (PFC), sorted.
    #[serde(default)]
    pub pfc: Reading<Vec<u8>>,
    /// Mapping of DSCP values to priorities, such as `26:3`, sorted by value.
    #[serde(default)]
    pub dscp: Reading<Vec<String>>,
    /// The module in the interface's cage, if modules were queried.
    #[serde(default)]
    pub module: Reading<Module>,
}

impl InterfaceReport {
    /// A report with the same state for all answers; `state` must not be present.
    pub(crate) fn with_state(state: &Reading<()>) -> Self {
        fn unknown<T>(state: &Reading<()>) -> Reading<T> {
            let why = || Reading::failed("not queried");
            state.clone().and_then(|()| why())
        }
        Self {
            driver: unknown(state),
            rings: unknown(state),
            channels: unknown(state),
            pause: unknown(state),
            features: unknown(state),
            fec: unknown(state),
            private_flags: unknown(state),
            autoneg: unknown(state),
            pfc: unknown(state),
            dscp: unknown(state),
            module: unknown(state),
        }
    }
}

/// ethtool queries over one socket, with one buffer for the answers.
pub(super) struct EthtoolQuery {
    socket: io::Result<UnixDatagram>,
    buffer: Box<[u8; ETHTOOL_BYTES]>,
}

/// An answer of the kernel.
type Answer<'a> = Reading<&'a [u8]>;

impl EthtoolQuery {
    pub(super) fn open() -> Self {
        Self {
            // Any socket works; one of this family exists in every sandbox.
            socket: UnixDatagram::unbound(),
            buffer: Box::new([0; ETHTOOL_BYTES]),
        }
    }

    /// Queries everything about one interface, except the module and DCB.
    pub(super) fn report(&mut self, name: &str) -> InterfaceReport {
        InterfaceReport {
            driver: self.send_command(name, &[GDRVINFO]).map(driver_info),
            rings: self.send_command(name, &[GRINGPARAM]).map(rings),
            channels: self.send_command(name, &[GCHANNELS]).map(channels),
            pause: self.send_command(name, &[GPAUSEPARAM]).map(pause),
            features: self.features(name),
            fec: self.send_command(name, &[GFECPARAM]).map(fec),
            private_flags: self.private_flags(name),
            autoneg: self.autoneg(name),
            pfc: Reading::default(),
            dscp: Reading::default(),
            module: Reading::default(),
        }
    }

    /// Reads the module in the interface's cage. This needs `CAP_NET_ADMIN`.
    pub(super) fn module(&mut self, name: &str) -> Reading<Module> {
        const LENGTH_AT: usize = 8;
        const DATA_AT: usize = 16;
        let length = self.send_command(name, &[GMODULEINFO]);
        let length = length.map(|answer| word(answer, LENGTH_AT));
        let length = length.map(|length| length.min(MODULE_BYTES as u32));
        // cmd, magic, offset, length.
        let request = length.map(|length| [GMODULEEEPROM, 0, 0, length]);
        match request {
            Reading::Present(request) => {
                let answer = self.send_command(name, &request);
                // The kernel returns the actual length.
                answer.map(|answer| {
                    let length = (word(answer, 12) as usize).min(request[3] as usize);
                    Module::of(&answer[DATA_AT..DATA_AT + length])
                })
            }
            other => other.and_then(|_| Reading::Absent),
        }
    }

    /// Sends a command, given as the first words of its structure.
    fn send_command(&mut self, name: &str, words: &[u32]) -> Answer<'_> {
        let socket = match &self.socket {
            Ok(socket) => socket,
            Err(error) => return Reading::from_io("socket for ethtool", error),
        };
        self.buffer.fill(0);
        for (place, word) in self.buffer.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        match ioctl::ethtool(socket, name, &mut self.buffer) {
            Ok(()) => Reading::Present(&self.buffer[..]),
            Err(error) => Reading::from_io("ethtool", &error),
        }
    }

    fn features(&mut self, name: &str) -> Reading<Vec<String>> {
        let names = match self.strings(name, FEATURES) {
            Reading::Present(names) => names,
            other => return other,
        };
        let blocks = FEATURE_BLOCKS as u32;
        let answer = self.send_command(name, &[GFEATURES, blocks]);
        answer.map(|answer| active_features(answer, &names))
    }

    fn private_flags(&mut self, name: &str) -> Reading<Vec<String>> {
        let names = match self.strings(name, PRIVATE_FLAGS) {
            Reading::Present(names) => names,
            other => return other,
        };
        let answer = self.send_command(name, &[GPFLAGS]);
        answer.map(|answer| {
            let flags = word(answer, 4);
            let on = |(bit, _): &(usize, String)| *bit < 32 && flags >> bit & 1 == 1;
            let mut names: Vec<String> = names
                .into_iter()
                .enumerate()
                .filter(on)
                .map(second)
                .collect();
            names.sort();
            names
        })
    }

    /// Names of a string set, in the order of their bits; unsupported if the set is empty.
    fn strings(&mut self, name: &str, set: u32) -> Reading<Vec<String>> {
        // cmd, reserved, the mask in two words, space for one count.
        let mask = 1_u64 << set;
        let halves = mask.to_ne_bytes();
        let (first, second) = (word(&halves, 0), word(&halves, 4));
        let count = self
            .send_command(name, &[GSSET_INFO, 0, first, second])
            .and_then(|answer| {
                // The kernel clears the bits of sets that the driver lacks.
                let found = u64::from_ne_bytes(bytes(answer, 8));
                if found & mask == 0 {
                    return Reading::Unsupported;
                }
                match word(answer, 16) as usize {
                    0 => Reading::Unsupported,
                    count if count > MAX_STRINGS => Reading::failed(format!(
                        "string set has {count} names, limit {MAX_STRINGS}"
                    )),
                    count => Reading::Present(count),
                }
            });
        let asked = match count {
            Reading::Present(count) => count,
            other => return other.map(|_| Vec::new()),
        };
        let answer = self.send_command(name, &[GSTRINGS, set, asked as u32]);
        answer.map(|answer| {
            let count = (word(answer, 8) as usize).min(asked);
            let strings = answer[12..].chunks_exact(STRING_BYTES).take(count);
            strings.map(string).collect()
        })
    }

    /// Reads the negotiation setting in two calls: the first one returns the length of the answer.
    fn autoneg(&mut self, name: &str) -> Reading<bool> {
        const WORDS_AT: usize = 0x0f;
        const AUTONEG_AT: usize = 0x0b;
        let words = self
            .send_command(name, &[GLINKSETTINGS])
            .and_then(|answer| match i8::from_ne_bytes(bytes(answer, WORDS_AT)) {
                negative @ ..0 => Reading::Present(negative.unsigned_abs()),
                _ => {
                    Reading::failed("ethtool: the kernel returned no length of the link mode masks")
                }
            });
        let words = match words {
            Reading::Present(words) => words,
            other => return other.map(|_| false),
        };
        let mut request = [0; 4];
        request[0] = GLINKSETTINGS;
        let mut place = [0; 4];
        place[WORDS_AT % 4] = words;
        request[WORDS_AT / 4] = u32::from_ne_bytes(place);
        let answer = self.send_command(name, &request);
        answer.and_then(|answer| match answer[AUTONEG_AT] {
            0 => Reading::Present(false),
            1 => Reading::Present(true),
            _ => Reading::Unsupported,
        })
    }
}

fn second<A, B>((_, second): (A, B)) -> B {
    second
}

/// `N` bytes of an answer. Every answer buffer is much longer than any offset used here.
fn bytes<const N: usize>(answer: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    if let Some(there) = answer.get(at..at + N) {
        found.copy_from_slice(there);
    }
    found
}

fn word(answer: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes(answer, at))
}

/// `struct ethtool_drvinfo`: cmd, driver[32], version[32], fw_version[32], bus_info[32],
/// erom_version[32], …
fn driver_info(answer: &[u8]) -> DriverInfo {
    let field = |at: usize| {
        let place = &answer[at..at + STRING_BYTES];
        let end = place.iter().position(|byte| *byte == 0);
        let value = text::decode("ethtool", &place[..end.unwrap_or(STRING_BYTES)]);
        value.and_then(text::firmware)
    };
    DriverInfo {
        driver: field(0x04),
        version: field(0x24),
        firmware: field(0x44),
        option_rom: field(0x84),
    }
}

/// The value at `current`, if the device has this kind (the maximum at `most` is not zero).
fn unless_max_zero(answer: &[u8], most: usize, current: usize) -> Reading<u32> {
    if word(answer, most) == 0 {
        Reading::Unsupported
    } else {
        Reading::Present(word(answer, current))
    }
}

/// `struct ethtool_ringparam`: cmd, the four maxima, the four values: rx, mini, jumbo, tx.
fn rings(answer: &[u8]) -> RingSizes {
    RingSizes {
        rx: unless_max_zero(answer, 4, 20),
        rx_mini: unless_max_zero(answer, 8, 24),
        rx_jumbo: unless_max_zero(answer, 12, 28),
        tx: unless_max_zero(answer, 16, 32),
    }
}

/// `struct ethtool_channels`: cmd, the four maxima, the four counts: rx, tx, other, combined.
fn channels(answer: &[u8]) -> Channels {
    Channels {
        rx: unless_max_zero(answer, 4, 20),
        tx: unless_max_zero(answer, 8, 24),
        other: unless_max_zero(answer, 12, 28),
        combined: unless_max_zero(answer, 16, 32),
    }
}

/// `struct ethtool_pauseparam`: cmd, autoneg, rx, tx.
fn pause(answer: &[u8]) -> Pause {
    Pause {
        autoneg: word(answer, 4) != 0,
        rx: word(answer, 8) != 0,
        tx: word(answer, 12) != 0,
    }
}

/// `struct ethtool_fecparam`: cmd, active, configured, reserved; bits from `ETHTOOL_FEC_NONE_BIT`.
fn fec(answer: &[u8]) -> Vec<String> {
    const NAMES: [&str; 6] = ["none", "auto", "off", "rs", "baser", "llrs"];
    let configured = word(answer, 8);
    let names = NAMES.iter().enumerate();
    let on = names.filter(|(bit, _)| configured >> bit & 1 == 1);
    let mut on: Vec<String> = on.map(|(_, name)| (*name).to_owned()).collect();
    on.sort();
    on
}

/// `struct ethtool_gfeatures`: cmd, number of blocks, blocks of available, requested, active, never_changed. A feature
/// is fixed if it is not available for change or never changes.
fn active_features(answer: &[u8], names: &[String]) -> Vec<String> {
    let blocks = (word(answer, 4) as usize).min(FEATURE_BLOCKS);
    let is_on = |bit: usize| {
        let (block, bit) = (bit / 32, bit % 32);
        let part = |index: usize| word(answer, 8 + 16 * block + 4 * index) >> bit & 1 == 1;
        let (available, active, never_changed) = (part(0), part(2), part(3));
        block < blocks && available && active && !never_changed
    };
    let on = names.iter().enumerate().filter(|(bit, _)| is_on(*bit));
    let mut on: Vec<String> = on
        .map(second)
        .filter(|name| !name.is_empty())
        .cloned()
        .collect();
    on.sort();
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(words: &[u32]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.resize(ETHTOOL_BYTES, 0);
        bytes
    }

    #[test]
    fn ignores_version_placeholders() {
        let mut bytes = answer(&[GDRVINFO]);
        bytes[0x04..0x07].copy_from_slice(b"ice");
        bytes[0x24..0x2c].copy_from_slice(b"1.14.9\0x");
        bytes[0x44..0x44 + 32].copy_from_slice(b"4.60 0x8001e8b3 1.3682.0,further");
        bytes[0x84..0x87].copy_from_slice(b"N/A");
        assert_eq!(
            driver_info(&bytes),
            DriverInfo {
                driver: Reading::Present("ice".to_owned()),
                version: Reading::Present("1.14.9".to_owned()),
                // The kernel's field has 32 bytes; a version that fills the field has no NUL.
                firmware: Reading::Present("4.60 0x8001e8b3 1.3682.0,further".to_owned()),
                option_rom: Reading::Unsupported,
            }
        );
        bytes[0x44] = 0xff;
        let firmware = driver_info(&bytes).firmware;
        assert!(matches!(firmware, Reading::Failed { .. }), "{firmware:?}");
    }

    #[test]
    fn a_kind_of_ring_the_device_has_not_is_no_zero() {
        let found = rings(&answer(&[GRINGPARAM, 8192, 0, 0, 8192, 1024, 0, 0, 512]));
        assert_eq!(found.rx, Reading::Present(1024));
        assert_eq!(found.tx, Reading::Present(512));
        assert_eq!(found.rx_jumbo, Reading::Unsupported);
        let found = channels(&answer(&[GCHANNELS, 0, 0, 1, 63, 0, 0, 1, 63]));
        assert_eq!(found.combined, Reading::Present(63));
        assert_eq!(found.rx, Reading::Unsupported);
    }

    #[test]
    fn features_that_are_fixed_are_left_out_and_the_rest_is_sorted() {
        let names: Vec<String> = (0..40).map(|bit| format!("f{:02}", 39 - bit)).collect();
        // Bits 0 to 2 of the first block are available, but bit 2 never changes; bit 0 of the second block is available
        // too.
        let bytes = answer(&[GFEATURES, 2, 0b0111, 0, 0b1111, 0b0100, 0b1, 0, 0b1, 0]);
        assert_eq!(active_features(&bytes, &names), ["f07", "f38", "f39"]);
        // A kernel that filled one block returned no values for the second one.
        let mut fewer = bytes;
        fewer[4] = 1;
        assert_eq!(active_features(&fewer, &names), ["f38", "f39"]);
    }

    #[test]
    fn error_correction_is_what_is_configured_and_not_what_was_negotiated() {
        assert_eq!(
            fec(&answer(&[GFECPARAM, 0b1000, 0b01_0010, 0])),
            ["auto", "baser"]
        );
    }
}
