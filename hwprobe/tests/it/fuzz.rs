//! Arbitrary content of a file, a report or an archive: no panic, a bounded answer, and no value that is not in the
//! content.
//!
//! `LATTICE_FUZZ_CASES=100000 cargo test -p lattice-hwprobe --test it fuzz::` runs more cases.

use crate::support::Tree;
use icu_normalizer::DecomposingNormalizerBorrowed;
use lattice_conformance::{ClassRecord, Reading, Value, text};
use lattice_hwprobe::capture::archive::unpack;
use lattice_hwprobe::capture::{MANIFEST, Privacy, capture, host_of};
use lattice_hwprobe::kernel::net;
use lattice_hwprobe::probe::{cpu, gpu, kernel, memory, nic, software, storage};
use lattice_hwprobe::{Root, cmdline, gpu_events, pci, probe_all, smbios};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use tempfile::TempDir;

/// A few cases in every run, many on request.
fn config() -> ProptestConfig {
    let cases = std::env::var("LATTICE_FUZZ_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(48);
    // No regression file is written next to the sources.
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

/// Bytes similar to what the parsers expect, and arbitrary others.
fn any_text() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "0x",
        "0",
        "-1",
        "65535",
        "4294967295",
        "99999999999999999999",
        "N/A",
        "Unknown",
        " GT/s",
        "32.0",
        "0000:1a:00.0",
        ":",
        "=",
        "\t",
        "\n",
        "\0",
        "\"",
        "--",
        "kB",
        "MemTotal:",
        "processor\t: ",
        "flags\t\t: ",
        "physical id\t: ",
        "0-3,",
        "[",
        "]",
        ".",
        "%",
        "é",
        "\u{202e}",
        "token=",
        "root=",
        "Package: ",
        "Status: install ok installed\n",
        "Version: ",
        "x",
        "-",
    ]);
    prop_oneof![
        3 => prop::collection::vec(words, 0..40).prop_map(|words| words.concat()),
        1 => any::<String>(),
        1 => ".{0,200}",
    ]
}

/// The letters in order without whitespace: values are collapsed and trimmed.
fn letters(text: &str) -> String {
    let plain = |c: &char| !c.is_whitespace() && *c != '\0';
    // Values are composed; their source may be written in either form.
    let text = DecomposingNormalizerBorrowed::new_nfd().normalize(text);
    text.chars()
        .filter(plain)
        .collect::<String>()
        .to_ascii_lowercase()
}

fn is_from(value: &Value, source: &str) -> bool {
    match value {
        Value::Text(text) => letters(source).contains(&letters(text)),
        Value::List(items) => items
            .iter()
            .all(|item| letters(source).contains(&letters(item))),
        Value::Number(_) | Value::Flag(_) => true,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn words_and_numbers(raw in any_text()) {
        for reading in [text::plain(&raw), text::firmware(&raw), text::selected_word(&raw)] {
            if let Reading::Present(value) = reading {
                prop_assert!(!value.is_empty());
                prop_assert!(is_from(&Value::Text(value.clone()), &raw), "{value:?}");
            }
        }
        if let Reading::Present(value) = text::unsigned(&raw) {
            let is_number = raw.trim().trim_start_matches('+').trim_start_matches('0');
            prop_assert!(value == 0 || is_number == value.to_string());
        }
        if let Reading::Present(count) = text::list_length(&raw) {
            prop_assert!(count == 0 || raw.bytes().any(|byte| byte.is_ascii_digit()));
        }
        if let Reading::Present(id) = text::hex_id(&raw, 4) {
            prop_assert!(id.len() >= 4 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        let _ = (text::hex_number(&raw), text::number_or_text(raw.clone()));
    }

    #[test]
    fn what_a_kernel_writes(raw in any_text()) {
        if let Reading::Present(address) = pci::address(&raw) {
            prop_assert_eq!(pci::address(&address), Reading::Present(address.clone()));
        }
        let _ = (pci::address_sort_key(&raw), pci::link_speed(&raw), pci::link_width(&raw));
        if let Some(address) = pci::address_in(&raw) {
            prop_assert!(raw.contains(address));
        }
        let masked = cmdline::mask(&raw, &["root".to_owned(), "x*".to_owned()]);
        prop_assert!(masked.iter().map(String::len).sum::<usize>() <= raw.len() * 9 + 9);
        let _ = cpu::CpuInfo::parse(&raw);
        let _ = memory::meminfo_bytes(&raw, "MemTotal");
        let _ = gpu::flavour(&raw);
        if let Reading::Present(value) = gpu::parameter(&raw, "x") {
            prop_assert!(is_from(&value, &raw), "{value:?}");
        }
        let _ = (nic::parse_stat(&raw), nic::parse_settings(&raw));
        let _ = nic::parse_settings(&format!("Configurations: Current\n* LINK_TYPE_P1 {raw}"));
        let event = gpu_events::line(&format!("amdgpu 0000:c1:00.0: {raw}"));
        prop_assert!(event.is_none_or(|event| event.detail.chars().count() <= 400));
        let _ = (software::assignments(&raw), storage::parse_mounts(&raw));
        let _ = software::dpkg_packages(&raw);
    }

    #[test]
    fn a_secret_of_the_command_line_is_gone(name in "[a-z_.-]{0,8}(token|passw|secret)[a-z]{0,4}", secret in "[!-~&&[^\"=-]]{6,20}") {
        prop_assume!(!name.contains(&secret) && !"<masked>".contains(&secret));
        let masked = cmdline::mask(&format!("quiet {name}={secret} ro"), &[]).join(" ");
        prop_assert!(!masked.contains(&secret), "{masked}");
    }

    #[test]
    fn tables_and_frames(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Reading::Present(devices) = smbios::memory_devices(&bytes) {
            prop_assert!(devices.len() * 4 <= bytes.len());
        }
        let _ = smbios::error_correction(&bytes);
        let bare = smbios::without_identity(&bytes);
        prop_assert!(bare.len() <= bytes.len() * 2 + 8);
        let _ = kernel::build_id(&bytes);
        let _ = software::rpm_packages(&bytes);
        for message in net::netlink::messages(&bytes).take(1000) {
            let _ = message;
        }
        for attribute in net::netlink::attributes(&bytes).take(1000) {
            let _ = attribute;
        }
        let _ = unpack(bytes.as_slice(), TempDir::new().unwrap().path());
    }

    #[test]
    fn preimages(bytes in prop::collection::vec(any::<u8>(), 0..200), key in "[a-z.0-9]{0,9}", cut in any::<prop::sample::Index>()) {
        let mut record = ClassRecord::new(lattice_conformance::Class::Nic);
        record.put(key, Reading::Present(Value::Text(String::from_utf8_lossy(&bytes).into_owned())));
        let mut framed = record.encode();
        for byte in &bytes {
            let at = cut.index(framed.len());
            framed[at] = *byte;
            // A decoded record is canonical: no value comes from bytes that the encoder would not write.
            if let Ok(decoded) = ClassRecord::decode(&framed) {
                prop_assert_eq!(decoded.encode(), framed.clone());
            }
        }
        prop_assert!(ClassRecord::decode(&bytes).is_err());
    }

    #[test]
    fn a_line_of_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let tree = Tree::new();
        tree.bytes("sys/line", &bytes);
        let root = Root::new(tree.path());
        for reading in [root.line("/sys/line"), root.firmware("/sys/line")] {
            if let Reading::Present(value) = reading {
                let text = std::str::from_utf8(&bytes).unwrap();
                prop_assert!(is_from(&Value::Text(value), text));
            }
        }
    }

    #[test]
    fn a_capture_with_one_file_damaged(
        pick in any::<prop::sample::Index>(),
        kind in 0..4,
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let (tree, files) = captured();
        let file = &files[pick.index(files.len())];
        let old = fs::read(file).unwrap();
        let cut = at.index(old.len() + 1);
        let new = match kind {
            0 => bytes.clone(),
            1 => old[..cut].to_vec(),
            2 => [&old[..cut], &bytes, &old[cut..]].concat(),
            _ => old.repeat(40),
        };
        fs::write(file, &new).unwrap();
        let probed = host_of(tree.path()).map(|host| probe_all(&host));
        fs::write(file, &old).unwrap();
        if let Ok(inventory) = probed {
            let json = serde_json::to_vec(&inventory).unwrap();
            prop_assert!(json.len() < 8 << 20, "{}", json.len());
            // Every record can be decoded from its preimage.
            for record in inventory.records.values() {
                prop_assert!(ClassRecord::decode(&record.encode()).is_ok());
            }
        } else {
            prop_assert!(file.ends_with(MANIFEST), "{}", file.display());
        }
    }
}

/// A small captured tree with its files. The cases run one after another.
fn captured() -> &'static (TempDir, Vec<PathBuf>) {
    static CAPTURED: OnceLock<(TempDir, Vec<PathBuf>)> = OnceLock::new();
    CAPTURED.get_or_init(|| {
        let out = TempDir::new().unwrap();
        capture(&Tree::node().host(), out.path(), Privacy::Keep).unwrap();
        let mut files = Vec::new();
        let mut todo = vec![out.path().to_owned()];
        while let Some(folder) = todo.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    todo.push(entry.path());
                } else if kind.is_file() {
                    files.push(entry.path());
                }
            }
        }
        files.sort();
        (out, files)
    })
}
