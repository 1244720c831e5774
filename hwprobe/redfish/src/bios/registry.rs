//! BIOS attribute registry: properties of each setting, and the settings that are specific to one host.

use super::flag;
use crate::documents::ResourcePath;
use crate::selection::SystemName;
use crate::walk::{DocumentWalk, Member, MemberList, UnusableEntry, string, target, text};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::BTreeSet;

/// An attribute registry, reduced to the data needed for a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registry {
    /// Registry id with its version: settings are compared only within one registry.
    pub(super) key: String,
    dropped: BTreeSet<String>,
}

impl Registry {
    /// The registry that a BIOS names; absent if it names none, or if the BMC does not provide it.
    pub(super) fn find(walk: &mut DocumentWalk<'_>, root: &Value, bios: &Value) -> Reading<Self> {
        let name = match text(bios, "AttributeRegistry") {
            Reading::Present(name) => name,
            other => return other.and_then(|_| Reading::Absent),
        };
        let list = target(root, "Registries").and_then(|path| walk.members(&path));
        let list = match list {
            Reading::Present(list) => list,
            other => return other.and_then(|_| Reading::Absent),
        };
        let member = match select_registry(walk, &list, &name) {
            Reading::Present(member) => member,
            other => return other.and_then(|_| Reading::Absent),
        };
        let file = walk.member(member);
        file.and_then(|file| {
            // Some BMCs serve the registry itself in place of the file that refers to it.
            if file.get("RegistryEntries").is_some() {
                return Reading::Present(Self::read(file, &name));
            }
            location(file).and_then(|path| walk.get(&path).map(|value| Self::read(value, &name)))
        })
    }

    fn read(value: &Value, name: &str) -> Self {
        let entries = value.pointer("/RegistryEntries/Attributes");
        let entries = entries.and_then(Value::as_array);
        let dropped = entries.into_iter().flatten().filter(|entry| {
            [
                "ReadOnly",
                "Hidden",
                "Immutable",
                "WriteOnly",
                "IsSystemUniqueProperty",
            ]
            .iter()
            .any(|property| flag(entry, property))
                || string(entry, "Type") == Some("Password")
        });
        let dropped = dropped.filter_map(|entry| string(entry, "AttributeName"));
        let key = match text(value, "RegistryVersion").present() {
            Some(version) if !contains_version(name, version) => format!("{name} {version}"),
            _ => name.to_owned(),
        };
        Self {
            key,
            dropped: dropped.map(str::to_owned).collect(),
        }
    }

    /// Whether the registry excludes a setting from comparison, because it cannot be made equal.
    pub(super) fn excludes(&self, name: &str) -> bool {
        self.dropped.contains(name)
    }
}

/// Whether a registry's name already contains its version (`…U58.v1_2_44` and `1.2.44`).
fn contains_version(name: &str, version: &str) -> bool {
    name.replace('_', ".").contains(&version.replace('_', "."))
}

/// Selects the registry that a BIOS refers to by `name`: the one with this name at the end of its path, else the only
/// one of that name in another version, else the only one with this `Registry` or `Id`. An iDRAC9 raises the version in
/// the BIOS only (`BiosAttributeRegistry.v1_0_3`, listed as `….v1_0_0`), and an X14 lists its registry without a
/// version. If several registries match, or one that may match cannot be read, the result is unknown: without the
/// registry, unsuitable settings would be compared.
fn select_registry<'a, 'm>(
    walk: &mut DocumentWalk<'a>,
    list: &'m MemberList<'a>,
    name: &str,
) -> Reading<&'m Member<'a>> {
    /// Maximum number of registries opened; an iDRAC has an attribute registry for each NIC.
    const MAX_OPENED: usize = 32;
    let members = list.members.as_slice();
    let called = |member: &Member<'_>| {
        let last = member.path.decoded_last();
        last.strip_suffix(".json").unwrap_or(&last).to_owned()
    };
    let mut named = members.iter();
    if let Some(member) = named.find(|member| called(member).eq_ignore_ascii_case(name)) {
        return Reading::Present(member);
    }
    let base = base_of(name);
    let is_version = |member: &&Member<'_>| base_of(&called(member)).eq_ignore_ascii_case(base);
    let versions: Vec<&Member<'a>> = members.iter().filter(is_version).collect();
    let unusable_version = unusable(list, |other| base_of(other).eq_ignore_ascii_case(base));
    if let ([only], None) = (&versions[..], &unusable_version) {
        return Reading::Present(*only);
    }
    let names_attributes = |name: &str| name.to_ascii_lowercase().contains("attribute");
    let is_of_attributes = |member: &&Member<'_>| names_attributes(&called(member));
    let asked: Vec<&Member<'a>> = match versions.is_empty() {
        true => members.iter().filter(is_of_attributes).collect(),
        false => versions.clone(),
    };
    let unusable_entry = unusable_version.or_else(|| unusable(list, names_attributes));
    let mut unread =
        unusable_entry.map(|entry| entry.reading.clone().and_then(|()| Reading::Absent));
    let mut found = Vec::new();
    for member in asked.into_iter().take(MAX_OPENED) {
        match walk.member(member) {
            Reading::Present(file) => {
                let own = ["Registry", "Id"].map(|property| string(file, property));
                let mut own = own.into_iter().flatten();
                found.extend(
                    own.any(|own| own.eq_ignore_ascii_case(name))
                        .then_some(member),
                );
            }
            Reading::Absent => {}
            unknown => unread = Some(unknown.map(|_| member)),
        }
    }
    match (found[..].first(), unread) {
        (Some(only), _) if found.len() == 1 => Reading::Present(only),
        (_, Some(unknown)) => unknown,
        (None, None) if versions.is_empty() => Reading::Absent,
        _ => Reading::failed(format!(
            "the BMC has several registries that could be {name}"
        )),
    }
}

/// The first list entry without a valid link that may have a name selected by `is_selected`.
fn unusable<'m>(
    list: &'m MemberList<'_>,
    is_selected: impl Fn(&str) -> bool,
) -> Option<&'m UnusableEntry> {
    let mut entries = list.unusable.iter();
    entries.find(|entry| entry.name.as_deref().is_none_or(&is_selected))
}

/// The name of a registry without its version, which vendors append as `.v` or `_v`.
fn base_of(name: &str) -> &str {
    let bytes = name.as_bytes();
    let begins = |at: &usize| {
        matches!(
            bytes.get(*at..*at + 3),
            Some([b'.' | b'_', b'v' | b'V', b'0'..=b'9'])
        )
    };
    let version = (0..bytes.len()).find(begins);
    version.and_then(|at| name.get(..at)).unwrap_or(name)
}

/// Path of the registry in English, else in the first language listed; the languages differ in display texts only.
/// Absent if the BMC does not store the registry.
fn location(file: &Value) -> Reading<ResourcePath> {
    let Some(listed) = file.get("Location").and_then(Value::as_array) else {
        return Reading::Absent;
    };
    let english = |entry: &&Value| {
        string(entry, "Language").is_some_and(|language| language.starts_with("en"))
    };
    let entry = listed.iter().find(english).or_else(|| listed.first());
    entry.map_or(Reading::Absent, |entry| target(entry, "Uri"))
}

/// Parts of the names, in lower case, of settings that legitimately differ between nodes of one design. The list
/// applies with and without a registry, because vendors do not mark all such settings.
const HOST_SPECIFIC: &[&str] = &[
    "password",
    "passwd",
    "sha256",
    "secret",
    "salt",
    "assettag",
    "asset_tag",
    "serialnumber",
    "serial_number",
    "servicetag",
    "service_tag",
    "macaddr",
    "mac_addr",
    "uuid",
    "duid",
    "nqn",
    "wwn",
    "hostname",
    "servername",
    "otherinfo",
    "adminname",
    "adminemail",
    "adminphone",
    "servicename",
    "serviceemail",
    "servicephone",
    "custompostmessage",
    "iscsi",
    "chapname",
    "ipv4address",
    "ipv6address",
    "ipv4gateway",
    "ipv6gateway",
    "subnet",
    "primarydns",
    "bootorder",
    "boot order",
    "bootseq",
    "hddseq",
    "hddorder",
    "seqdev",
    "bootdev",
    "bootnext",
    "currentdate",
    "currenttime",
    "systemdate",
    "systemtime",
];

/// Parts of the names of settings that contain a word of [`HOST_SPECIFIC`], but are policies.
const NOT_HOST_SPECIFIC: &[&str] = &[
    "bootorderpolicy",
    "assettagprotection",
    "bootseqretry",
    "passwordstatus",
];

/// Whether a setting is specific to this host, by its name or by its value.
pub(super) fn is_host_specific(name: &str, value: Option<&str>, system: &SystemName) -> bool {
    let lower = name.to_ascii_lowercase();
    let holds = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if holds(HOST_SPECIFIC) && !holds(NOT_HOST_SPECIFIC) {
        return true;
    }
    let Some(value) = value.map(str::trim).filter(|value| !value.is_empty()) else {
        return false;
    };
    let own = [&system.serial, &system.uuid, &system.host_name];
    let is_own = |reading: &&Reading<String>| {
        let own = reading.present();
        own.is_some_and(|own| own.eq_ignore_ascii_case(value))
    };
    is_mac_address(value) || own.iter().any(is_own)
}

/// Whether the text is a MAC address: six pairs of hexadecimal digits, separated by colons or dashes.
fn is_mac_address(text: &str) -> bool {
    let pairs: Vec<&str> = text.split([':', '-']).collect();
    pairs.len() == 6
        && pairs
            .iter()
            .all(|pair| pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit()))
}
