//! Parts of a key: the slot of a device, and the name space of a setting.

/// The key that identifies the name space of `key`, if `key` is a BIOS setting. Names of BIOS settings belong to an
/// attribute registry, or in band to the driver that provides them; under another registry the same name may be another
/// setting. Settings are compared only if the name-space key is known and equal in both records, or missing in both.
/// Otherwise only the name-space key is reported.
pub(crate) fn name_space(key: &str) -> Option<&'static str> {
    const SPACES: &[(&str, &str)] = &[
        ("bios.setting.", "bios.registry"),
        ("bios.attribute.", "bios.attribute_driver"),
    ];
    let mut spaces = SPACES.iter();
    let found = spaces.find(|(prefix, _)| key.starts_with(prefix));
    found.map(|(_, space)| *space)
}

/// Splits `nic.3.firmware` into `("nic", 3)`, at the last all-digit segment that is not the last segment.
pub(crate) fn split_slot(key: &str) -> Option<(&str, i64)> {
    let mut end = key.rfind('.')?;
    loop {
        let start = key[..end].rfind('.')?;
        let segment = &key[start + 1..end];
        if !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some((&key[..start], segment.parse().ok()?));
        }
        end = start;
    }
}
