//! Identifiers of this host in text: names, ids, serial numbers and addresses, and references to disks.
//!
//! Each provisioning system writes the node's name or address into kernel arguments under a name of its own, so a list
//! of argument names is never complete. The value itself identifies the host. Such a value differs between equal nodes
//! and is no configuration, so it is replaced before a comparison.

mod disks;
mod hardware_address;

pub(crate) use hardware_address::NAMED_BY_ADDRESS;

use crate::Root;
use lattice_conformance::Reading;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Replacement of an identifier.
pub(crate) const MASKED: &str = "<masked>";

/// Host name in a capture without identities.
const MASKED_HOST: &str = "masked";

const DMI: &str = "/sys/class/dmi/id";
const NET: &str = "/sys/class/net";

/// Addresses of an interface. All members of a bond have the address of the bond, and their own in the second file.
const ADDRESS_FILES: [&str; 2] = ["address", "bonding_slave/perm_hwaddr"];

/// Serial numbers of the machine; readable by root only.
const SERIAL_FILES: [&str; 3] = ["product_serial", "board_serial", "chassis_serial"];

/// Network state of the host, and of the agent if that of process 1 is unreadable.
const NETWORK_STATE: [&str; 2] = ["/proc/1/net", "/proc/net"];

/// Maximum number of interfaces; a large node with virtual functions has a few hundred.
const MAX_INTERFACES: usize = 512;

/// Host names that are ordinary values of kernel arguments (`iommu=on`) or the kernel's text for no name (`(none)`), and
/// so identify nothing.
const COMMON_VALUES: [&str; 15] = [
    "(none)", "active", "always", "auto", "debug", "default", "force", "full", "never", "none",
    "off", "on", "passive", "quiet", "strict",
];

/// Host names that are also ordinary folders. In a path such a name is not masked.
const COMMON_FOLDERS: [&str; 24] = [
    "bin", "boot", "data", "dev", "etc", "export", "exports", "home", "image", "images", "lib",
    "media", "mnt", "nfs", "opt", "proc", "root", "run", "scratch", "shared", "srv", "tmp", "usr",
    "var",
];

/// Length in bytes below which a host name with a digit may be part of another term that `-` or `_` joins (`build-n8`).
/// Only at the start of a value or of a part of it does such a name have a suffix (`n8-ib0`).
const SHORT_NAME_BYTES: usize = 5;

/// Characters between the parts of a value: of paths, addresses, lists and assignments.
const PART_SEPARATORS: &str = "/:,;=@[(\"'";

/// Minimum length of a serial number, in bytes; without a letter, a number of this kind is longer.
const MIN_SERIAL_BYTES: usize = 5;
const MIN_NUMERIC_SERIAL_BYTES: usize = 8;

/// Bytes of a UUID in the order in which SMBIOS stores them: the first three fields have their lowest byte first. PXE
/// and some firmware print the UUID in this order.
const SMBIOS_ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

/// Names, ids, serial numbers and addresses of one host, in the notations in which programs write them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostIdentifiers {
    words: BTreeSet<Identifier>,
    addresses: BTreeSet<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identifier {
    /// In lower case.
    text: String,
    kind: IdentifierKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IdentifierKind {
    /// A host name with a digit: found anywhere in a text, as a whole word.
    NumberedHost,
    /// A host name without a digit. It may be an ordinary word, so it matches only as the complete text, or as a
    /// complete part of a path or URL.
    NamedHost,
    /// An id, a serial number or a hardware address: found anywhere in a text, as a whole word.
    Id,
}

impl HostIdentifiers {
    /// Reads the identifiers of the host below `root`. An identifier that cannot be read is missing: without root, serial
    /// numbers and the product UUID are.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        let mut own = Self::default();
        if let Reading::Present(name) = root.line("/proc/sys/kernel/hostname") {
            own.add_host_name(&name);
        }
        if let Reading::Present(id) = root.line("/etc/machine-id") {
            own.add_uuid(&id);
        }
        if let Reading::Present(uuid) = root.firmware(format!("{DMI}/product_uuid")) {
            own.add_uuid(&uuid);
        }
        for file in SERIAL_FILES {
            if let Reading::Present(serial) = root.firmware(format!("{DMI}/{file}")) {
                own.add_serial(&serial);
            }
        }
        for name in names(root, NET) {
            for file in ADDRESS_FILES {
                if let Reading::Present(address) = root.line(format!("{NET}/{name}/{file}")) {
                    own.add_hardware_address(&address);
                }
            }
        }
        // The GUID of an RDMA device is derived from an address above. Its own file is not read: a driver that hangs
        // there must not hang the probes of other classes, which read this too.
        let state = |file: &str| {
            let mut readings = NETWORK_STATE
                .iter()
                .map(|folder| root.text(format!("{folder}/{file}")));
            let found = readings.find_map(|reading| reading.present().cloned());
            found.unwrap_or_default()
        };
        own.add_addresses(ipv4_addresses(&state("fib_trie")));
        own.add_addresses(ipv6_addresses(&state("if_inet6")));
        own
    }

    /// Replaces each identifier of this host, and each identifier of a disk, by `<masked>`.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        let lower = text.to_ascii_lowercase();
        let mut ranges = Vec::new();
        disks::find(text, &lower, &mut ranges);
        for identifier in &self.words {
            identifier.find(&lower, &mut ranges);
        }
        self.find_addresses(text, &mut ranges);
        ranges.retain(|range| !is_masked(text, range));
        replace(text, ranges)
    }

    /// As [`HostIdentifiers::mask`], for the value of the argument `name`, which may itself refer to a disk.
    pub(crate) fn mask_value(&self, name: &str, value: &str) -> String {
        match disks::is_tag(name) && !value.is_empty() {
            true => MASKED.to_owned(),
            false => self.mask(value),
        }
    }

    fn add_host_name(&mut self, name: &str) {
        let name = name.trim().trim_end_matches('.').to_ascii_lowercase();
        let short = name.split('.').next().unwrap_or_default().to_owned();
        for name in [name, short] {
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
            let is_ambiguous = name == "localhost" || COMMON_VALUES.contains(&name.as_str());
            if is_number || is_ambiguous {
                continue;
            }
            let has_digit = name.bytes().any(|byte| byte.is_ascii_digit());
            let kind = match has_digit || name == MASKED_HOST {
                true => IdentifierKind::NumberedHost,
                false => IdentifierKind::NamedHost,
            };
            self.words.insert(Identifier { text: name, kind });
        }
    }

    fn add_id(&mut self, text: String) {
        let kind = IdentifierKind::Id;
        self.words.insert(Identifier { text, kind });
    }

    /// Adds a UUID or machine id: with and without dashes, and in the byte order of SMBIOS.
    fn add_uuid(&mut self, text: &str) {
        let digits = text.trim().to_ascii_lowercase().replace('-', "");
        if digits.len() != 32 || !is_hex(&digits) || is_filler(&digits) {
            return;
        }
        let bytes: Vec<&str> = (0..16).map(|n| &digits[2 * n..2 * n + 2]).collect();
        let swapped: String = SMBIOS_ORDER.iter().map(|&n| bytes[n]).collect();
        for digits in [digits.clone(), swapped] {
            self.add_id(format!(
                "{}-{}-{}-{}-{}",
                &digits[..8],
                &digits[8..12],
                &digits[12..16],
                &digits[16..20],
                &digits[20..]
            ));
            self.add_id(digits);
        }
    }

    fn add_serial(&mut self, text: &str) {
        let serial = text.trim_matches('.').to_ascii_lowercase();
        let has = |is: fn(&u8) -> bool| serial.as_bytes().iter().any(is);
        let min = match has(u8::is_ascii_alphabetic) {
            true => MIN_SERIAL_BYTES,
            false => MIN_NUMERIC_SERIAL_BYTES,
        };
        if serial.len() >= min && has(u8::is_ascii_digit) {
            self.add_id(serial);
        }
    }

    /// Adds a MAC, an InfiniBand address or a GUID in every notation.
    fn add_hardware_address(&mut self, text: &str) {
        for notation in hardware_address::notations(text) {
            self.add_id(notation);
        }
    }

    fn add_addresses(&mut self, addresses: Vec<IpAddr>) {
        let is_own = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
        for address in addresses.into_iter().filter(is_own) {
            // PXELINUX names the configuration of a node so.
            if let IpAddr::V4(address) = address {
                self.add_id(format!("{:08x}", u32::from(address)));
            }
            self.addresses.insert(address);
        }
    }

    /// Finds the host's IP addresses in any notation.
    fn find_addresses(&self, text: &str, ranges: &mut Vec<Range<usize>>) {
        if self.addresses.is_empty() {
            return;
        }
        let is_own = |word: &str| {
            let address = word.parse::<IpAddr>();
            address.is_ok_and(|address| self.addresses.contains(&address))
        };
        let is_of_ipv4 = |c: char| c.is_ascii_digit() || c == '.';
        let is_of_ipv6 = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
        for run in runs(text, is_of_ipv4)
            .into_iter()
            .chain(runs(text, is_of_ipv6))
        {
            let word = text[run.clone()].trim_end_matches('.');
            if is_own(word) {
                ranges.push(run.start..run.start + word.len());
            }
        }
    }
}

impl Identifier {
    /// Finds the identifier in `lower`, a text in lower case.
    fn find(&self, lower: &str, ranges: &mut Vec<Range<usize>>) {
        for (at, _) in lower.match_indices(self.text.as_str()) {
            let end = at + self.text.len();
            if !self.is_word(lower, at..end) {
                continue;
            }
            let end = match self.kind {
                IdentifierKind::Id => end,
                _ => end_of_domain(lower, end),
            };
            let around = (&lower[..at], &lower[end..]);
            if self.kind != IdentifierKind::NamedHost || is_all(around) || self.is_path_part(around)
            {
                ranges.push(at..end);
            }
        }
    }

    /// Whether no other part of a word is next to the match.
    fn is_word(&self, lower: &str, found: Range<usize>) -> bool {
        let (before, after) = (&lower[..found.start], &lower[found.end..]);
        if after.starts_with(char::is_alphanumeric) {
            return false;
        }
        let letters = before.trim_end_matches(char::is_alphanumeric).len();
        let joined = &before[letters..];
        if !joined.is_empty() {
            let is_prefix = joined == "0x" || NAMED_BY_ADDRESS.contains(&joined);
            return self.kind == IdentifierKind::Id && is_prefix;
        }
        let is_short =
            self.kind == IdentifierKind::NumberedHost && self.text.len() < SHORT_NAME_BYTES;
        let is_dash = |c: char| matches!(c, '-' | '_');
        !is_short
            || (!before.ends_with(is_dash) && (!after.starts_with(is_dash) || begins_part(before)))
    }

    /// Whether the text between `before` and `after` is a complete part of a path or URL.
    fn is_path_part(&self, (before, after): (&str, &str)) -> bool {
        let is_first = before.trim_start_matches('"').is_empty() && after.starts_with('/');
        let is_end = |c: char| c.is_whitespace() || "/:,;?#\"'".contains(c);
        let ends = after.is_empty() || after.starts_with(is_end);
        let is_common = COMMON_FOLDERS.contains(&self.text.as_str());
        (is_first || before.ends_with('/')) && ends && !is_common
    }
}

/// Whether the text between `before` and `after` is the complete text, apart from quotes.
fn is_all((before, after): (&str, &str)) -> bool {
    before.trim_start_matches('"').is_empty() && after.trim_end_matches('"').is_empty()
}

/// Whether a part of a value begins after `before`.
fn begins_part(before: &str) -> bool {
    let is_separator = |c: char| c.is_whitespace() || PART_SEPARATORS.contains(c);
    before.is_empty() || before.ends_with(is_separator)
}

/// End of the fully qualified domain name that begins with a host name ending at `end`.
fn end_of_domain(lower: &str, end: usize) -> usize {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let rest = &lower[end..];
    let length = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
    let domain = rest[..length].trim_end_matches(['.', '-']);
    match domain.starts_with('.') {
        true => end + domain.len(),
        false => end,
    }
}

/// The longest runs of characters of one kind, without letters and digits next to them.
fn runs(text: &str, is_part: impl Fn(char) -> bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(&is_part) {
        let begin = at + start;
        let length = text[begin..].find(|c: char| !is_part(c));
        at = length.map_or(text.len(), |length| begin + length);
        let is_joined = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let before = text[..begin].chars().next_back();
        if !is_joined(before) && !is_joined(text[at..].chars().next()) {
            found.push(begin..at);
        }
    }
    found
}

/// Whether the range is the word in `<masked>`, which another pass has written.
fn is_masked(text: &str, range: &Range<usize>) -> bool {
    text[..range.start].ends_with('<') && text[range.end..].starts_with('>')
}

/// Replaces the ranges, which may overlap.
fn replace(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_by_key(|range| (range.start, Reverse(range.end)));
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for range in ranges {
        if range.start >= copied {
            out.push_str(&text[copied..range.start]);
            out.push_str(MASKED);
        }
        copied = copied.max(range.end);
    }
    out.push_str(&text[copied..]);
    out
}

/// Local addresses in `fib_trie`, where each address is followed by its routes.
fn ipv4_addresses(trie: &str) -> Vec<IpAddr> {
    let mut last = None;
    let mut found = Vec::new();
    for line in trie.lines().map(str::trim) {
        if let Some(leaf) = line.strip_prefix("|-- ") {
            last = leaf.parse::<Ipv4Addr>().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(last.map(IpAddr::V4));
        }
    }
    found
}

/// Addresses in `if_inet6`: 32 hexadecimal digits at the start of each line.
fn ipv6_addresses(table: &str) -> Vec<IpAddr> {
    let digits = table
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let numbers = digits.filter_map(|digits| u128::from_str_radix(digits, 16).ok());
    numbers
        .map(|number| IpAddr::V6(Ipv6Addr::from(number)))
        .collect()
}

/// Names in a folder of `/sys/class`, at most [`MAX_INTERFACES`].
fn names(root: &Root, folder: &str) -> Vec<String> {
    let names = root.list(folder);
    let names = names.present().into_iter().flatten();
    names.take(MAX_INTERFACES).cloned().collect()
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether all characters are equal, as in an id that was never written.
fn is_filler(text: &str) -> bool {
    text.chars().all(|c| text.starts_with(c))
}

#[cfg(test)]
mod tests;
