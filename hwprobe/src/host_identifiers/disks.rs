//! References to disks in text: tags (`UUID=…`), links below `/dev/disk`, and ids in the names of devices.
//!
//! A UUID alone is kept: it may be the id of an image, which is configuration.

use std::ops::Range;

/// Tags before the identifier of a disk, as in mount(8) and the kernel's `root=`, in lower case.
const TAGS: [&str; 4] = ["partuuid=", "partlabel=", "uuid=", "label="];

/// Tag of an id from udev, as in mount(8). In lower case it is an ordinary option of other programs.
const UDEV_TAG: &str = "ID=";

/// Folders with one link per disk are `by-uuid`, `by-id`, `by-label` and others of the same form.
const LINK_FOLDERS: &str = "/dev/disk/by-";

/// Folder of links that are named by the position of the disk, which equal nodes share.
const POSITION_FOLDER: &str = "path";

/// Folder of devices. Device mapper, RAID and volume managers put ids of disks into names of devices.
const DEVICES: &str = "/dev/";

/// Names of encrypted volumes before their UUID.
const VOLUME_PREFIXES: [&str; 4] = ["luks-", "luks_", "crypt-", "crypt_"];

/// Text before a world-wide name of a disk.
const WORLD_WIDE_NAME_PREFIXES: [&str; 3] = ["wwn-0x", "eui.", "naa."];

/// Minimum number of hexadecimal digits of an id in the name of a device: a world-wide name has 16 or more, a UUID
/// without dashes has 32.
const MIN_ID_DIGITS: usize = 16;

/// Positions of the dashes in a UUID.
const UUID_DASHES: [usize; 4] = [8, 13, 18, 23];
const UUID_LENGTH: usize = 36;

/// Whether the name of an argument is a tag itself, as in an argument `UUID=…`.
pub(super) fn is_tag(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut tags = TAGS.iter().chain([&UDEV_TAG]);
    tags.any(|tag| match tag.strip_suffix('=') {
        Some(tag) => lower == tag || name == tag,
        None => false,
    })
}

/// Finds the references in `text`; `lower` is the text in lower case.
pub(super) fn find(text: &str, lower: &str, ranges: &mut Vec<Range<usize>>) {
    for tag in TAGS {
        find_tag(lower, tag, ranges);
    }
    find_tag(text, UDEV_TAG, ranges);
    find_links(text, ranges);
    find_device_ids(text, ranges);
    for prefix in VOLUME_PREFIXES {
        find_prefixed(lower, prefix, uuid_length, ranges);
    }
    for prefix in WORLD_WIDE_NAME_PREFIXES {
        find_prefixed(lower, prefix, id_length, ranges);
    }
}

fn find_tag(text: &str, tag: &str, ranges: &mut Vec<Range<usize>>) {
    for (at, _) in text.match_indices(tag) {
        let begin = at + tag.len();
        // A label may begin with a slash: `LABEL=/boot`.
        let value = text[begin..].trim_start_matches('/');
        let end = text.len() - value.len() + length_until(value, is_end);
        if end > begin && !is_joined(&text[..at]) {
            ranges.push(at..end);
        }
    }
}

fn find_links(text: &str, ranges: &mut Vec<Range<usize>>) {
    for (at, _) in text.match_indices(LINK_FOLDERS) {
        let rest = &text[at + LINK_FOLDERS.len()..];
        let Some((kind, name)) = rest.split_once('/') else {
            continue;
        };
        let is_kind = kind.bytes().all(|byte| byte.is_ascii_lowercase());
        let length = length_until(name, is_end);
        if is_kind && kind != POSITION_FOLDER && length > 0 && !is_joined(&text[..at]) {
            ranges.push(at..text.len() - name.len() + length);
        }
    }
}

/// Finds UUIDs, world-wide names and other long ids in paths below `/dev`.
fn find_device_ids(text: &str, ranges: &mut Vec<Range<usize>>) {
    let mut searched = 0;
    for (at, _) in text.match_indices(DEVICES) {
        if at < searched || is_joined(&text[..at]) {
            continue;
        }
        let path = &text[at..];
        let path = &path[..length_until(path, |c| c != '/' && c != ':' && is_end(c))];
        searched = at + path.len();
        for (offset, _) in path.char_indices() {
            let before = &path[..offset];
            let before = before.strip_suffix("0x").unwrap_or(before);
            if before.ends_with(|c: char| c.is_alphanumeric()) {
                continue;
            }
            if let Some(length) = id_length(&path[offset..]) {
                ranges.push(at + offset..at + offset + length);
            }
        }
    }
}

/// Finds ids after `prefix` at the start of a name.
fn find_prefixed(
    lower: &str,
    prefix: &str,
    length: impl Fn(&str) -> Option<usize>,
    ranges: &mut Vec<Range<usize>>,
) {
    for (at, _) in lower.match_indices(prefix) {
        let begin = at + prefix.len();
        let is_part = lower[..at].ends_with(|c: char| c.is_alphanumeric());
        if let (false, Some(length)) = (is_part, length(&lower[begin..])) {
            ranges.push(begin..begin + length);
        }
    }
}

/// Length of the UUID or of the long number at the start of `text`.
fn id_length(text: &str) -> Option<usize> {
    uuid_length(text).or_else(|| {
        let digits = length_until(text, |c| !c.is_ascii_hexdigit());
        (digits >= MIN_ID_DIGITS && ends_word(&text[digits..])).then_some(digits)
    })
}

/// Length of the UUID at the start of `text`, with or without dashes.
fn uuid_length(text: &str) -> Option<usize> {
    let digits = length_until(text, |c| !c.is_ascii_hexdigit());
    if digits == UUID_LENGTH - UUID_DASHES.len() {
        return ends_word(&text[digits..]).then_some(digits);
    }
    let dashed = text.get(..UUID_LENGTH)?;
    let is_uuid = dashed.char_indices().all(|(at, c)| {
        let is_dash = UUID_DASHES.contains(&at);
        (is_dash && c == '-') || (!is_dash && c.is_ascii_hexdigit())
    });
    (is_uuid && ends_word(&text[UUID_LENGTH..])).then_some(UUID_LENGTH)
}

fn ends_word(rest: &str) -> bool {
    !rest.starts_with(|c: char| c.is_alphanumeric())
}

/// Whether the text before a reference continues into it.
fn is_joined(before: &str) -> bool {
    before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

/// Whether the character ends the value of a tag or the name of a link.
fn is_end(c: char) -> bool {
    c.is_whitespace() || ",;:/&\"')".contains(c)
}

/// Length of `text` up to the first character for which `is_end` holds.
fn length_until(text: &str, is_end: impl Fn(char) -> bool) -> usize {
    text.find(is_end).unwrap_or(text.len())
}
