//! Text parsers with arbitrary input: they terminate, and their results are in the input.

use lattice_conformance::{Reading, text};
use lattice_hwprobe::probe::software::{assignments, dpkg_packages, rpm_packages};
use lattice_hwprobe::probe::{cpu::CpuInfo, kernel, memory, storage};
use lattice_hwprobe::{cmdline, smbios};
use proptest::prelude::*;

/// Text with the characters that are special for one of the parsers.
fn noise() -> impl Strategy<Value = String> {
    let sign = prop_oneof![
        Just(": ".to_owned()),
        Just("\n\n".to_owned()),
        Just("\n".to_owned()),
        Just("=".to_owned()),
        Just("\"".to_owned()),
        Just("'".to_owned()),
        Just("\\".to_owned()),
        Just("\t".to_owned()),
        Just(" - ".to_owned()),
        Just(" ".to_owned()),
        Just(",".to_owned()),
        Just("Package".to_owned()),
        Just("Version".to_owned()),
        Just("Architecture".to_owned()),
        Just("processor".to_owned()),
        Just("flags".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just("--token".to_owned()),
        "[0-9]{1,24}",
        "\\PC{0,6}",
    ];
    prop::collection::vec(sign, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_text_brings_a_parser_down(text in noise()) {
        let _ = assignments(&text);
        let _ = dpkg_packages(&text);
        let _ = rpm_packages(text.as_bytes());
        let _ = storage::parse_mounts(&text);
        let _ = CpuInfo::parse(&text);
        let _ = memory::meminfo_bytes(&text, "MemTotal");
        let _ = text::firmware(&text);
        let _ = text::plain(&text);
        let _ = text::selected_word(&text);
        let _ = text::list_length(&text);
        let _ = text::hex_number(&text);
        let _ = text::hex_id(&text, 4);
        let masked = cmdline::mask(&text, &["root".to_owned(), "*x*y*".to_owned()]);
        prop_assert!(masked.len() <= text.len());
    }

    #[test]
    fn no_bytes_bring_a_parser_down(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = rpm_packages(&bytes);
        let _ = smbios::memory_devices(&bytes);
        let _ = smbios::error_correction(&bytes);
        let _ = kernel::build_id(&bytes);
        // The filtered table parses if the original does, and fails if the original is damaged.
        let kept = smbios::without_identity(&bytes);
        let is_failure =
            |table: &[u8]| matches!(smbios::memory_devices(table), Reading::Failed { .. });
        prop_assert_eq!(is_failure(&kept), is_failure(&bytes));
    }

    #[test]
    fn a_value_in_any_quotes_is_read_as_written(value in "[A-Za-z0-9 ._:/-]{0,20}") {
        for quoted in [format!("\"{value}\""), format!("'{value}'")] {
            let read = assignments(&format!("A={quoted}\n"));
            prop_assert_eq!(read.get("A").unwrap(), &value);
        }
    }

    #[test]
    fn a_secret_never_gets_through(secret in "[a-z0-9]{12}", place in 0..6_usize) {
        let line = [
            format!("ro my_token={secret} quiet"),
            format!("ro -- --api-key {secret} x"),
            format!("systemd.setenv=DB_PASSWORD={secret}"),
            format!("live.updates=https://u:{secret}@host/x"),
            format!("image=https://host/x?sig={secret}"),
            format!("a=b,secret={secret}"),
        ];
        let masked = cmdline::mask(&line[place], &[]).join(" ");
        prop_assert!(!masked.contains(&secret), "{}", masked);
    }
}
