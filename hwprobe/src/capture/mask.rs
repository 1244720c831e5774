//! Masking of captures: replacement of strings that identify one machine.

use crate::host_identifiers::NAMED_BY_ADDRESS;
use lattice_conformance::{Inventory, Reading};
use serde::Serialize;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Minimum length of a secret, in bytes. Shorter strings would match text that identifies no machine.
const MIN_SECRET_BYTES: usize = 5;

/// Identity fields with values that many machines share. A field `name` holds a generic name ("System"), never the name
/// of a machine.
const SHARED_FIELDS: &[&str] = &[
    "name",
    "vendor",
    "product",
    "gpu_model",
    "model",
    "address",
    "power_state",
];

/// Strings that identify one machine, each with its replacement. They are matched as whole words, ignoring ASCII case.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Vec<(String, String)>);

/// Every serial number, MAC address, GUID, UUID, world-wide name, fabric address, boot id and host name in the identity
/// of `inventory`, and the identifier of its NVLink fabric. Strings of fewer than five bytes are left out.
#[must_use]
pub fn secrets(inventory: &Inventory) -> Secrets {
    secrets_with(inventory, &())
}

/// Secrets of `inventory`, and the addresses contained in these interface names.
pub(super) fn secrets_with_names<'a>(
    inventory: &Inventory,
    names: impl Iterator<Item = &'a str>,
) -> Secrets {
    let present: Vec<Reading<String>> = names
        .filter_map(address_in_name)
        .map(Reading::Present)
        .collect();
    secrets_with(inventory, &present)
}

/// The MAC or GUID in a name derived from it, such as `enxa088c2001122` and `rocexa088c20300112233`.
fn address_in_name(name: &str) -> Option<String> {
    let mut prefixes = NAMED_BY_ADDRESS.iter();
    let rest = prefixes.find_map(|prefix| name.strip_prefix(prefix))?;
    let end = rest.bytes().position(|byte| !byte.is_ascii_alphanumeric());
    let hex = rest.get(..end.unwrap_or(rest.len()))?;
    if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let part = match hex.len() {
        12 => 2,
        16 => 4,
        _ => return None,
    };
    let parts = hex.as_bytes().chunks(part);
    let parts: Vec<&str> = parts
        .filter_map(|part| std::str::from_utf8(part).ok())
        .collect();
    Some(parts.join(":"))
}

/// Secrets of `inventory`, and every present string in `other`, which also identifies the machine.
#[must_use]
pub fn secrets_with(inventory: &Inventory, other: &impl Serialize) -> Secrets {
    let mut found = BTreeSet::new();
    collect(&inventory.identity, &mut found);
    collect(&inventory.topology.fabric, &mut found);
    collect(other, &mut found);
    let hosts = inventory.identity.hostname.present().into_iter();
    let hosts: BTreeSet<String> = hosts
        .flat_map(|host| [host.as_str(), host.split('.').next().unwrap_or_default()])
        .filter(|host| host.len() >= MIN_SECRET_BYTES && *host != "localhost")
        .map(str::to_ascii_lowercase)
        .collect();
    let mut all: Vec<(String, String)> = found
        .into_iter()
        .filter(|secret| secret.len() >= MIN_SECRET_BYTES && !hosts.contains(secret))
        .enumerate()
        .flat_map(|(number, secret)| {
            let instead = replacement(&secret, number);
            let mut pairs = other_notations(&secret, &instead);
            pairs.push((secret, instead));
            pairs
        })
        .collect();
    all.extend(hosts.into_iter().map(|host| (host, "masked".to_owned())));
    // Longer secrets first: one secret may be part of another.
    all.sort_by_key(|(secret, _)| std::cmp::Reverse(secret.len()));
    Secrets(all)
}

/// Adds every present reading of a string in `plane` to `found`, in lower case, except those in [`SHARED_FIELDS`].
fn collect(plane: &impl Serialize, found: &mut BTreeSet<String>) {
    let Ok(json) = serde_json::to_value(plane) else {
        return;
    };
    let mut todo = vec![&json];
    while let Some(value) = todo.pop() {
        match value {
            Json::Array(items) => todo.extend(items),
            Json::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Json::String(text) if name == "present" => {
                            found.insert(text.trim().to_ascii_lowercase());
                        }
                        _ if SHARED_FIELDS.contains(&name.as_str()) => {}
                        other => todo.push(other),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Lengths of the components of an address; empty if a component is not hexadecimal.
fn component_lengths(text: &str, by: char) -> Vec<usize> {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split(by).collect();
    match parts.iter().all(|part| is_hex(part)) {
        true => parts.iter().map(|part| part.len()).collect(),
        false => Vec::new(),
    }
}

/// Other notations of a MAC, GUID or UUID, and the names derived from it.
fn other_notations(secret: &str, instead: &str) -> Vec<(String, String)> {
    let with = |by: &str, prefix: &str| {
        let plain = |text: &str| format!("{prefix}{}", text.replace([':', '-'], by));
        (plain(secret), plain(instead))
    };
    let named = || NAMED_BY_ADDRESS.iter().map(|prefix| with("", prefix));
    match (
        component_lengths(secret, ':').as_slice(),
        component_lengths(secret, '-').as_slice(),
    ) {
        ([2, 2, 2, 2, 2, 2], _) => {
            let plain = [with("-", ""), with("", ""), with("", "0x")];
            plain.into_iter().chain(named()).collect()
        }
        ([4, 4, 4, 4], _) => {
            let plain = [with("", ""), with("", "0x")];
            plain.into_iter().chain(named()).collect()
        }
        (_, [8, 4, 4, 4, 12]) => vec![with("", "")],
        _ => Vec::new(),
    }
}

/// Replacement text of the same shape, so that parsers accept it.
fn replacement(secret: &str, number: usize) -> String {
    match (
        component_lengths(secret, ':').as_slice(),
        component_lengths(secret, '-').as_slice(),
    ) {
        ([2, 2, 2, 2, 2, 2], _) => {
            format!(
                "02:00:00:00:{:02x}:{:02x}",
                number >> 8 & 0xff,
                number & 0xff
            )
        }
        ([4, 4, 4, 4], _) => format!("0200:0000:0000:{:04x}", number & 0xffff),
        (_, [8, 4, 4, 4, 12]) => format!("00000000-0000-4000-8000-{number:012x}"),
        _ => format!("MASKED-{number}"),
    }
}

impl Secrets {
    /// The secrets in lower case, without their replacements.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(secret, _)| secret.as_str())
    }

    /// Returns `text` with each secret replaced.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        self.mask_matching(text, |_| true)
    }

    fn mask_matching(&self, text: &str, is_meant: impl Fn(&str) -> bool) -> String {
        let mut masked = Cow::Borrowed(text);
        for (secret, instead) in self.0.iter().filter(|(secret, _)| is_meant(secret)) {
            if let Some(other) = replace(&masked, secret, instead) {
                masked = Cow::Owned(other);
            }
        }
        masked.into_owned()
    }

    /// Replaces secrets in a JSON document: in string values, and in field names that contain an identity.
    pub fn mask_json(&self, json: &mut Json) {
        let mut todo = vec![json];
        while let Some(value) = todo.pop() {
            match value {
                Json::String(text) => *text = self.mask(text),
                Json::Array(items) => todo.extend(items),
                Json::Object(fields) => {
                    if fields.keys().any(|name| self.mask_name(name) != *name) {
                        let named = std::mem::take(fields).into_iter();
                        *fields = named
                            .map(|(name, value)| (self.mask_name(&name), value))
                            .collect();
                    }
                    todo.extend(fields.values_mut());
                }
                _ => {}
            }
        }
    }

    /// Replaces secrets in a field name. Field names of Lattice are lower-case words (`model`) or keys
    /// (`nvlink.0.state`). In such names only secrets with a digit are replaced, so that a host called `model` does not
    /// change the field `model`.
    fn mask_name(&self, name: &str) -> String {
        let is_own = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.')
        };
        let is_word = name.bytes().all(is_own);
        let has_digit = |secret: &str| secret.bytes().any(|byte| byte.is_ascii_digit());
        self.mask_matching(name, |secret| !is_word || has_digit(secret))
    }

    /// Replaces secrets in the parts that are UTF-8; other bytes are returned unchanged. One bad byte in a text must not
    /// keep the secrets in the rest of it.
    #[must_use]
    pub fn mask_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        if self.0.is_empty() {
            return bytes.to_vec();
        }
        let mut out = Vec::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            out.extend_from_slice(self.mask(chunk.valid()).as_bytes());
            out.extend_from_slice(chunk.invalid());
        }
        out
    }
}

/// Returns `None` if `secret` does not occur in `text`.
fn replace(text: &str, secret: &str, instead: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let is_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let mut out = String::new();
    let mut copied = 0;
    for (at, _) in lower.match_indices(secret) {
        let before = at.checked_sub(1).and_then(|at| lower.as_bytes().get(at));
        let end = at + secret.len();
        if is_word(before) || is_word(lower.as_bytes().get(end)) {
            continue;
        }
        out.push_str(text.get(copied..at)?);
        out.push_str(instead);
        copied = end;
    }
    if copied == 0 {
        return None;
    }
    out.push_str(text.get(copied..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::{Identity, NicIdentity};

    fn present(text: &str) -> Reading<String> {
        Reading::Present(text.to_owned())
    }

    fn some() -> Secrets {
        secrets(&Inventory {
            identity: Identity {
                hostname: present("gpu001.site.example"),
                vendor: present("Dell Inc."),
                product_serial: present("ABC1234"),
                product_uuid: present("4c4c4544-0042-4310-8051-b7c04f4a3233"),
                board_serial: Reading::Absent,
                nics: vec![NicIdentity {
                    macs: vec![present("a0:88:c2:00:11:22")],
                    node_guid: present("a088:c203:00ab:cdef"),
                    address: present("0000:1a:00.0"),
                    ..NicIdentity::default()
                }],
                ..Identity::default()
            },
            ..Inventory::default()
        })
    }

    #[test]
    fn a_machine_is_named_nowhere_and_its_kind_stays() {
        let secrets = some();
        let text = "gpu001-hsn0 Dell Inc. abc1234 4C4C4544-0042-4310-8051-B7C04F4A3233 \
                    A0:88:C2:00:11:22 a088:c203:00ab:cdef 0000:1a:00.0 absent";
        let masked = secrets.mask(text);
        for secret in secrets.iter() {
            assert!(!masked.to_ascii_lowercase().contains(secret), "{masked}");
        }
        assert!(
            masked.starts_with("masked-hsn0 Dell Inc. MASKED-"),
            "{masked}"
        );
        assert!(masked.contains(" 00000000-0000-4000-8000-"), "{masked}");
        assert!(masked.contains(" 02:00:00:00:"), "{masked}");
        assert!(masked.ends_with(" 0000:1a:00.0 absent"), "{masked}");
    }

    #[test]
    fn a_bad_byte_hides_no_secret() {
        let masked = some().mask_bytes(b"gpu001\xff ABC1234\xfe\n");
        assert!(masked.starts_with(b"masked\xff MASKED-"), "{masked:?}");
        assert!(masked.ends_with(b"\xfe\n"), "{masked:?}");
        assert_eq!(some().mask_bytes(b"\xff\x00x"), b"\xff\x00x");
    }

    #[test]
    fn an_address_is_found_however_it_is_written() {
        let names = [
            "enx02aabbccddee",
            "enxnothexatall0",
            "enx02aabbccddef0",
            "eth0",
        ];
        let inventory = Inventory {
            identity: Identity {
                nics: vec![NicIdentity {
                    macs: vec![present("a0:88:c2:00:11:22")],
                    node_guid: present("a088:c203:00ab:cdef"),
                    ..NicIdentity::default()
                }],
                ..Identity::default()
            },
            ..Inventory::default()
        };
        let secrets = secrets_with_names(&inventory, names.into_iter());
        let text = "enxa088c2001122 A088C2001122 0xa088c20300abcdef a0-88-c2-00-11-22 \
                    ../net/enx02aabbccddee/address 02:aa:bb:cc:dd:ee";
        let masked = secrets.mask(text).to_ascii_lowercase();
        for part in ["a088", "a0-88", "abcdef", "aabbcc", "aa:bb"] {
            assert!(!masked.contains(part), "{part}: {masked}");
        }
        let plain = secrets.mask("a088c2001122");
        assert_eq!(secrets.mask("enxa088c2001122"), format!("enx{plain}"));
        assert_eq!(secrets.mask("a0:88:c2:00:11:22").replace(':', ""), plain);
        for text in ["enxnothexatall0", "enx02aabbccddef0", "eth0"] {
            assert_eq!(secrets.mask(text), text);
        }
    }

    #[test]
    fn an_rdma_device_named_by_its_guid_is_renamed() {
        let names = [
            "rocex0c42a10300aabbcc",
            "ibx506b4b0300cabc01",
            "iwx0c42a1ddeeff",
            "usnicx00",
            "ibp65s0f0",
            "rocex0c42a10300aabbcc0",
        ];
        let inventory = Inventory {
            identity: Identity {
                nics: vec![NicIdentity {
                    node_guid: present("506b:4b03:00ca:bc01"),
                    ..NicIdentity::default()
                }],
                ..Identity::default()
            },
            ..Inventory::default()
        };
        let secrets = secrets_with_names(&inventory, names.into_iter());
        let text = "/sys/class/infiniband/rocex0c42a10300aabbcc/ports ibx506b4b0300cabc01 \
                    iwx0c42a1ddeeff 0c42:a103:00aa:bbcc 0x506b4b0300cabc01 0c:42:a1:dd:ee:ff";
        let masked = secrets.mask(text).to_ascii_lowercase();
        for part in ["0c42", "0c:42", "506b", "aabbcc", "cabc01", "ddeeff"] {
            assert!(!masked.contains(part), "{part}: {masked}");
        }
        let plain = secrets.mask("506b4b0300cabc01");
        assert_eq!(secrets.mask("ibx506b4b0300cabc01"), format!("ibx{plain}"));
        for text in ["usnicx00", "ibp65s0f0", "rocex0c42a10300aabbcc0"] {
            assert_eq!(secrets.mask(text), text);
        }
    }

    #[test]
    fn a_field_named_by_a_serial_number_is_renamed_and_our_own_are_not() {
        let named = serde_json::json!([
            {"present": "ABC1234"},
            {"present": "model"},
            {"present": "nvlink"},
            {"present": "PHOENIX"},
        ]);
        let secrets = secrets_with(&Inventory::default(), &named);
        let mut json = serde_json::json!({
            "model": 1,
            "nvlink.0.state": 2,
            "psu-ABC1234": {"abc1234": [{"of PHOENIX": 3}]},
            "/sys/devices/ABC12345": 4,
        });
        secrets.mask_json(&mut json);
        let text = json.to_string();
        for part in ["ABC1234\"", "abc1234", "PHOENIX"] {
            assert!(!text.contains(part), "{part}: {text}");
        }
        assert_eq!(json["model"], 1);
        assert_eq!(json["nvlink.0.state"], 2);
        assert_eq!(json["/sys/devices/ABC12345"], 4);
        assert_eq!(json.as_object().unwrap().len(), 4);
    }

    #[test]
    fn json_keeps_its_field_names_and_a_kind_is_no_secret() {
        let named = serde_json::json!({
            "name": {"present": "System"},
            "serial": {"present": "serial"},
        });
        let secrets = secrets_with(&Inventory::default(), &named);
        let mut json = serde_json::json!({"serial": "the serial of a System"});
        secrets.mask_json(&mut json);
        assert_eq!(
            json,
            serde_json::json!({"serial": "the MASKED-0 of a System"})
        );
    }

    #[test]
    fn a_name_inside_another_word_is_left_alone() {
        let secrets = some();
        for text in ["xgpu001", "gpu0010", "XABC1234", "ABC12345"] {
            assert_eq!(secrets.mask(text), text);
        }
        let masked = secrets.mask("ABC12345 ABC1234");
        assert!(masked.starts_with("ABC12345 MASKED-"), "{masked}");
    }
}
