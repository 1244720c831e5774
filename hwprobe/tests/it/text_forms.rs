//! A text has the same digest in every encoding: trimmed, whitespace collapsed, composed.

use crate::support::Tree;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use lattice_conformance::{Class, ClassState, Digest, text};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Files of all kinds that provide values: firmware, the kernel, lists.
const PLACES: [&str; 5] = [
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/bios_version",
    "/proc/sys/vm/swappiness",
    "/proc/cmdline",
    "/sys/class/infiniband/mlx5_0/fw_ver",
];

fn digests(written: &str) -> BTreeMap<Class, Digest> {
    let tree = Tree::node();
    for place in PLACES {
        tree.file(place, written);
    }
    let marks = tree.probe().marks().into_iter();
    marks
        .filter_map(|(class, mark)| Some((class, mark.digest()?)))
        .collect()
}

fn composed(text: &str) -> String {
    let composed = ComposingNormalizerBorrowed::new_nfc().normalize(text);
    composed.into_owned()
}

fn decomposed(text: &str) -> String {
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(text);
    decomposed.into_owned()
}

/// Words with accented letters in decomposed and composed form, Hangul, and characters equivalent to others.
fn words() -> impl Strategy<Value = String> {
    let letter = prop_oneof![
        "[A-Za-z0-9._-]",
        "[äöüßéñçåøłžÅÉ]",
        "[aeonuAEO][\u{300}-\u{304}\u{308}\u{323}]{1,3}",
        "[각한글]",
        "[\u{1100}-\u{1105}][\u{1161}-\u{1165}]",
        "[\u{212b}\u{2126}\u{212a}]",
    ];
    let word = prop::collection::vec(letter, 1..8).prop_map(|letters| letters.concat());
    prop::collection::vec(word, 1..4).prop_map(|words| format!("R7 {}", words.join(" ")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn two_encodings_of_a_text_have_one_digest(text in words(), blanks in "[ \t]{1,3}") {
        let plain = digests(&composed(&text));
        prop_assert!(plain.len() >= 4, "{plain:?}");
        prop_assert_eq!(&digests(&decomposed(&text)), &plain);
        let spaced = format!("{blanks}{}{blanks}", text.replace(' ', &blanks));
        prop_assert_eq!(&digests(&spaced), &plain);
    }

    #[test]
    fn normalising_twice_changes_nothing_and_other_texts_stay_others(
        one in words(),
        other in words(),
    ) {
        let once = text::collapse(&one);
        prop_assert_eq!(text::collapse(&once), once.clone());
        prop_assert_eq!(once.clone(), composed(&once));
        let is_same = text::collapse(&other) == once;
        prop_assert_eq!(digests(&one) == digests(&other), is_same);
    }
}

#[test]
fn case_and_what_only_looks_alike_stay_apart() {
    let latin = digests("R7 A");
    for other in [
        "R7 a",
        "R7 \u{391}",
        "R7 \u{410}",
        "R7 A\u{300}",
        "R7 \u{ff21}",
    ] {
        assert_ne!(digests(other), latin, "{other}");
    }
    // An ohm sign equals a Greek letter, but a full-width letter does not equal a Latin one.
    assert_eq!(digests("R7 \u{2126}"), digests("R7 \u{3a9}"));
    assert_eq!(text::collapse(&"e\u{301}".repeat(2)), "\u{e9}\u{e9}");
}

const DISK: &str = "/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0";
const SETTING: &str = "/sys/class/firmware-attributes/dell-wmi-sysman/attributes/LogicProc";

/// Files outside DMI with a text of firmware or of an administrator, and the optional key of each.
const OPTIONAL_TEXTS: [(Class, &str, &str, &str); 8] = [
    (Class::Storage, DISK, "vendor", "storage.disk.0.vendor"),
    (Class::Storage, DISK, "model", "storage.disk.0.model"),
    (Class::Storage, DISK, "rev", "storage.disk.0.firmware"),
    (
        Class::Bios,
        SETTING,
        "current_value",
        "bios.attribute.LogicProc",
    ),
    (
        Class::Nic,
        "/sys/class/infiniband/mlx5_0",
        "board_id",
        "nic.1.board_id",
    ),
    (
        Class::Nic,
        "/sys/class/infiniband/mlx5_0",
        "hca_type",
        "nic.1.hca_type",
    ),
    (
        Class::Kernel,
        "/sys/module/lnet/parameters",
        "config_file",
        "kernel.module.lnet.parameter.config_file",
    ),
    (
        Class::Kernel,
        "/proc/sys/kernel",
        "numa_balancing",
        "kernel.sysctl.kernel.numa_balancing",
    ),
];

/// Two nodes with different bytes must not share a digest, although the keys are optional.
#[test]
fn text_beyond_utf8_leaves_class_incomplete() {
    for (class, folder, file, key) in OPTIONAL_TEXTS {
        let tree = Tree::node();
        tree.file(&format!("{DISK}/type"), "0")
            .link(&format!("{DISK}/block/sda/device"), "../..")
            .link("/sys/block/sda", &format!("..{}/block/sda", &DISK[4..]))
            .file(&format!("{SETTING}/type"), "enumeration");
        for (_, folder, file, _) in OPTIONAL_TEXTS {
            tree.file(&format!("{folder}/{file}"), "A1");
        }
        let before = tree.probe();
        assert_eq!(before.records[&class].get(key).to_string(), "A1");
        tree.bytes(&format!("{folder}/{file}"), b"A\xe9\n");
        let after = tree.probe();
        let ClassState::Incomplete { missing } = after.records[&class].state() else {
            panic!("{key}: {:?}", after.records[&class]);
        };
        let keys: Vec<&String> = missing.keys().collect();
        assert_eq!(keys, [key]);
        assert!(missing[key].to_string().contains(r"A\xe9"), "{missing:?}");
        let (mut before, mut after) = (before.marks(), after.marks());
        assert!(before.remove(&class).is_some() && after.remove(&class).is_some());
        assert_eq!(before, after, "{key}");
    }
}
