#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

fn table(strings: &[&str]) -> Vec<u8> {
    let mut bytes = vec![0; 0x22];
    bytes[0] = MEMORY_DEVICE;
    bytes[1] = 0x22;
    bytes[0x0c..0x0e].copy_from_slice(&(0x8000u16 | 512).to_le_bytes());
    bytes[0x10] = 1;
    bytes[0x15..0x17].copy_from_slice(&3200u16.to_le_bytes());
    bytes[0x18] = 2;
    for string in strings {
        bytes.extend_from_slice(string.as_bytes());
        bytes.push(0);
    }
    if strings.is_empty() {
        bytes.push(0);
    }
    bytes.push(0);
    bytes
}

fn one(table: &[u8]) -> MemoryDevice {
    match memory_devices(table) {
        Reading::Present(devices) => devices.into_iter().next().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn small_sizes_count_in_kibibytes_and_speed_falls_back() {
    let device = one(&table(&["A1", "12345678"]));
    assert_eq!(device.size, Reading::Present(512 << 10));
    assert_eq!(device.speed, Reading::Present(3_200_000_000));
    assert_eq!(device.serial, Reading::Present("12345678".to_owned()));
    assert_eq!(device.manufacturer, Reading::Unsupported);
}

#[test]
fn a_string_that_is_not_there_is_a_failure() {
    let device = one(&table(&[]));
    assert_eq!(device.size, Reading::Present(512 << 10));
    assert!(matches!(device.serial, Reading::Failed { .. }));
    assert!(!device.has_undecodable_string);
}

#[test]
fn a_string_beyond_utf8_is_quoted_and_marks_its_slot() {
    let mut bytes = table(&["A1", "12345678"]);
    let locator = bytes.len() - "A1\u{0}12345678\u{0}\u{0}".len();
    bytes[locator] = 0xff;
    let device = one(&bytes);
    assert_eq!(
        device.locator,
        Reading::failed(r#"SMBIOS string 1: not UTF-8: "\xff1""#)
    );
    assert_eq!(device.serial, Reading::Present("12345678".to_owned()));
    assert!(device.has_undecodable_string);
    // The serial number is no conformance value.
    let mut bytes = table(&["A1", "12345678"]);
    bytes[locator + 3] = 0xff;
    let device = one(&bytes);
    assert!(matches!(device.serial, Reading::Failed { .. }));
    assert!(!device.has_undecodable_string);
}

#[test]
fn table_without_identity_keeps_all_but_serial() {
    let mut full = vec![1, 5, 0, 0, 1];
    full.extend_from_slice(b"SERIAL-OF-SYSTEM\0\0");
    full.extend(table(&["A1", "12345678"]));
    full.extend(table(&[]));
    let bare = without_identity(&full);
    let text = String::from_utf8_lossy(&bare).into_owned();
    assert!(
        !text.contains("12345678") && !text.contains("SERIAL"),
        "{text}"
    );
    let (full, bare) = (memory_devices(&full), memory_devices(&bare));
    let (full, bare) = (full.present().unwrap(), bare.present().unwrap());
    assert_eq!(bare.len(), 2);
    assert_eq!(bare[0].locator, full[0].locator);
    assert_eq!(bare[0].size, full[0].size);
    assert_eq!(bare[1].size, full[1].size);
}

#[test]
fn a_damaged_table_ends_and_never_panics() {
    let full = table(&["A1", "12345678"]);
    for end in 0..full.len() {
        let _ = memory_devices(&full[..end]);
    }
    for at in 0..full.len() {
        let mut damaged = full.clone();
        damaged[at] ^= 0xff;
        let _ = memory_devices(&damaged);
    }
    assert_eq!(memory_devices(&[]), Reading::Absent);
}

#[test]
fn damage_in_the_middle_is_no_smaller_machine() {
    const END: [u8; 6] = [END_OF_TABLE, 4, 0, 0, 0, 0];
    let one = table(&["A1", "12345678"]);
    let mut array = vec![MEMORY_ARRAY, 0x17, 0, 0, 3, 3, 6];
    array.resize(0x17, 0);
    array.extend_from_slice(&[0, 0]);
    let whole = [array, one.clone(), one.clone(), END.to_vec()].concat();
    let count = |table: &[u8]| memory_devices(table).map(|devices| devices.len());
    assert_eq!(count(&whole), Reading::Present(2));
    assert_eq!(
        error_correction(&whole),
        Reading::Present("multi-bit".to_owned())
    );
    // Without an end-of-table structure, and with one that has only a header.
    assert_eq!(count(&whole[..whole.len() - 6]), Reading::Present(2));
    assert_eq!(count(&whole[..whole.len() - 2]), Reading::Present(2));
    // Padded with zeros in place of the end.
    for zeros in [1, 2, 64] {
        let mut padded = whole[..whole.len() - END.len()].to_vec();
        padded.resize(padded.len() + zeros, 0);
        assert_eq!(count(&padded), Reading::Present(2), "{zeros}");
        padded.push(1);
        assert!(matches!(count(&padded), Reading::Failed { .. }), "{zeros}");
    }
    assert!(matches!(count(&[0; 64]), Reading::Failed { .. }));
    // The second device has a length below its header size, or is truncated.
    let second = whole.len() - END.len() - one.len();
    let mut damaged = whole.clone();
    damaged[second + 1] = 3;
    for table in [&damaged[..], &whole[..second + 20], &whole[..second + 1]] {
        assert!(matches!(count(table), Reading::Failed { .. }));
        assert!(matches!(error_correction(table), Reading::Failed { .. }));
        let kept = without_identity(table);
        assert!(matches!(count(&kept), Reading::Failed { .. }), "{kept:?}");
    }
}
