//! Firmware configuration of NICs, as printed by the vendor's tools.

use super::*;
use lattice_hwprobe::Commands;
use lattice_hwprobe::probe::nic::{Setting, parse_settings};
use proptest::prelude::*;

/// Output of `mlxconfig -d 0000:5e:00.0 -e q`, written here in the form of publicly posted output (ConnectX-4 to
/// ConnectX-7, MFT 4.22 to 4.30), with the settings shortened.
const ANSWER: &str = "
Device #1:
----------

Device type:        ConnectX7
Name:               MCX75310AAS-NEA_Ax
Description:        NVIDIA ConnectX-7 HHHL Adapter card; 400GbE / NDR IB (default mode);
Device:             0000:5e:00.0

Configurations:                                          Default             Current             Next Boot
        MEMIC_BAR_SIZE                              0                   0                   0
        HOST_CHAINING_DESCRIPTORS                   Array[0..7]         Array[0..7]         Array[0..7]
*       LINK_TYPE_P1                                IB(1)               IB(1)               ETH(2)
        SRIOV_EN                                    False(0)            True(1)             True(1)
*       NUM_OF_VFS                                  0                   16                  16
RO      NUM_PF_MSIX                                 63                  63                  63
        PCI_WR_ORDERING                             per_mkey(0)         per_mkey(0)         per_mkey(0)
        ATS_ENABLED                                 N/A                 N/A                 N/A
*       BOOT_VLAN                                   1                   1                   1207
        LEGACY_BOOT_PROTOCOL                        PXE(1)              PXE(1)              PXE(1)
The '*' shows parameters with next value different from default/current value.
The 'RO' shows parameters which are for read only and cannot be changed
";

/// Output of a tool run without `-e`, or for firmware without the other columns.
const NEXT_ONLY: &str = "
Configurations:                              Next Boot
         LINK_TYPE_P1                        IB(1)
         SRIOV_EN                            True(1)
";

const ONE: &str = "0000:5e:00.0";

/// A card with two functions, another card, and one of another vendor.
fn tree() -> Tree {
    let tree = Tree::new();
    tree.pci(ONE, "020700", "15b3", "1021")
        .pci("0000:5e:00.1", "020700", "15b3", "1021")
        .pci("0000:9b:00.0", "020000", "15b3", "101d")
        .pci("0000:c1:00.0", "020000", "8086", "159b");
    for address in [ONE, "0000:5e:00.1", "0000:9b:00.0", "0000:c1:00.0"] {
        let function = format!("/sys/devices/pci{}/{address}", &address[..7]);
        tree.link(
            &format!("{function}/driver"),
            "../../../bus/pci/drivers/some",
        );
    }
    for (name, address) in [
        ("mlx5_0", ONE),
        ("mlx5_1", "0000:5e:00.1"),
        ("mlx5_2", "0000:9b:00.0"),
    ] {
        tree.rdma(name, Some(address), "28.41.1000");
    }
    tree
}

fn record(tree: &Tree, tool: &str, address: &str, answer: &str) {
    let name = address.replace(':', "-");
    tree.bytes(&format!("/commands/{tool}-{name}.out"), answer.as_bytes());
}

fn state(tree: &Tree, tool: &str, address: &str, state: &Reading<Vec<u8>>) {
    let name = address.replace(':', "-");
    let json = serde_json::to_vec(state).unwrap();
    tree.bytes(&format!("/commands/{tool}-{name}.state.json"), &json);
}

fn config_keys(inventory: &Inventory) -> Vec<&str> {
    let keys = inventory.records[&Class::Nic].entries.keys();
    let ours = keys.filter(|key| key.contains(".config."));
    ours.map(String::as_str).collect()
}

fn digest(inventory: &Inventory) -> Option<Digest> {
    inventory.marks()[&Class::Nic].digest()
}

#[test]
fn what_runs_is_a_key_and_what_waits_is_a_finding_of_the_whole_card() {
    let tree = tree();
    record(&tree, "mlxconfig", ONE, ANSWER);
    // Without the vendor's tool, the distribution's tool is queried.
    record(&tree, "mstconfig", "0000:9b:00.0", NEXT_ONLY);
    let inventory = tree.probe();
    for (key, value) in [
        ("nic.0.config.link_type_p1", "IB(1)"),
        ("nic.0.config.sriov_en", "True(1)"),
        ("nic.0.config.num_of_vfs", "16"),
        ("nic.0.config.num_pf_msix", "63"),
        ("nic.0.config.pci_wr_ordering", "per_mkey(0)"),
        ("nic.0.config.ats_enabled", "<unsupported>"),
        ("nic.2.config.link_type_p1", "<unsupported>"),
        ("nic.2.config.names", "link_type_p1 sriov_en"),
    ] {
        assert_eq!(shown(&inventory, key), value, "{key}");
    }
    // The boot source of a host is not part of the class, and the second function adds no keys.
    let keys = config_keys(&inventory);
    assert_eq!(keys.len(), 11, "{keys:?}");
    assert!(keys.iter().all(|key| !key.contains("boot")));
    assert_eq!(codes(&inventory), ["nic_config_pending"]);
    let detail = &inventory.findings[0].detail;
    assert_eq!(
        detail,
        "nic.0 (0000:5e:00.0): LINK_TYPE_P1 is IB(1), ETH(2) after a reboot"
    );
    assert_eq!(vital(&inventory, "nic.0.config.pending"), "1");
    // The running values are unknown, so whether a change is pending is unknown too.
    assert_eq!(vital(&inventory, "nic.2.config.pending"), "<unsupported>");
    assert!(!inventory.vitals.0.contains_key("nic.1.config.pending"));
    assert!(!inventory.vitals.0.contains_key("nic.3.config.pending"));
}

#[test]
fn only_what_runs_is_in_the_digest() {
    let of = |answer: &str| {
        let tree = tree();
        record(&tree, "mlxconfig", ONE, answer);
        digest(&tree.probe()).unwrap()
    };
    let now = of(ANSWER);
    let others = [
        ("ETH(2)", "IB(1)"),
        ("1207", "1"),
        ("IB(1)               IB(1)", "ETH(2)              IB(1)"),
    ];
    for (from, to) in others {
        assert_ne!(ANSWER.replace(from, to), ANSWER);
        assert_eq!(of(&ANSWER.replace(from, to)), now, "{from}");
    }
    assert_ne!(
        of(&ANSWER.replace("16                  16", "8                   16")),
        now
    );
    assert_ne!(
        of(&ANSWER.replace("MEMIC_BAR_SIZE  ", "MEMIC_BAR_SIZES ")),
        now
    );
}

#[test]
fn missing_tool_is_no_error() {
    let inventory = tree().probe();
    assert_eq!(config_keys(&inventory), Vec::<&str>::new());
    assert_eq!(vital(&inventory, "nic.0.config.pending"), "<unsupported>");
    assert!(digest(&inventory).is_some());
    assert_eq!(codes(&inventory), Vec::<&str>::new());
    // A pass over live values runs no tool, even if one is installed.
    let tree = tree();
    record(&tree, "mlxconfig", ONE, ANSWER);
    let mut host = tree.host();
    host.is_live_only = true;
    let pass = probe_all(&host);
    assert_eq!(config_keys(&pass), Vec::<&str>::new());
    assert!(!pass.vitals.0.contains_key("nic.0.config.pending"));
    host.is_live_only = false;
    host.commands = Commands::Disabled;
    let off = probe_all(&host);
    assert!(shown(&off, "nic.0.config.names").starts_with("<disabled"));
    assert_eq!(digest(&off), digest(&inventory));
}

#[test]
fn denied_tool_costs_keys_and_hang_costs_class() {
    let tree = tree();
    let refused =
        Reading::failed("/usr/bin/mlxconfig ended with exit status: 3: -E- Failed to open");
    state(&tree, "mlxconfig", ONE, &refused);
    let inventory = tree.probe();
    assert_eq!(config_keys(&inventory), ["nic.0.config.names"]);
    assert!(shown(&inventory, "nic.0.config.names").contains("Failed to open"));
    assert!(vital(&inventory, "nic.0.config.pending").starts_with("<failed"));
    assert!(digest(&inventory).is_some());

    state(
        &tree,
        "mlxconfig",
        ONE,
        &Reading::Timeout { after_ms: 6000 },
    );
    let inventory = tree.probe();
    assert_eq!(
        shown(&inventory, "nic.0.config.names"),
        "<timeout after 6000 ms>"
    );
    assert_eq!(digest(&inventory), None);
    assert_eq!(codes(&inventory), Vec::<&str>::new());
}

#[test]
fn no_pending_change_needs_reported_settings() {
    const HEADING: &str = "Configurations: Default Current Next Boot\n";
    let of = |settings: &str| {
        let tree = tree();
        record(&tree, "mlxconfig", ONE, &format!("{HEADING}{settings}"));
        vital(&tree.probe(), "nic.0.config.pending")
    };
    assert_eq!(of("SRIOV_EN False(0) True(1) True(1)\n"), "0");
    assert_eq!(of("SRIOV_EN False(0) True(1) False(0)\n"), "1");
    for nothing in [
        "",
        "BOOT_VLAN 1 1 1207\n",
        "SRIOV_EN N/A N/A N/A\n",
        "PCI_BUS00_SPEED Array[0..7] Array[0..7] Array[0..7]\n",
    ] {
        assert_eq!(of(nothing), "<unsupported>", "{nothing}");
    }
    let torn = "SRIOV_EN False(0) True(1) True(1)\nNUM_OF_VFS 0 1616\n";
    assert_eq!(
        of(torn),
        "<failed: 2 values for 3 columns in the tool's output>"
    );
    // Known pending changes are counted in spite of the unknown ones.
    let both = "SRIOV_EN False(0) True(1) False(0)\nNUM_OF_VFS 0 1616\n";
    assert_eq!(of(both), "1");
}

#[test]
fn a_capture_keeps_the_settings_that_count_and_no_others() {
    let tree = tree();
    record(&tree, "mlxconfig", ONE, ANSWER);
    for privacy in [Privacy::Keep, Privacy::Mask] {
        let out = tempfile::tempdir().unwrap();
        capture_tree(&tree.host(), out.path(), privacy).unwrap();
        let kept = out.path().join("commands/mlxconfig-0000-5e-00.0.out");
        let kept = std::fs::read_to_string(kept).unwrap();
        assert!(
            kept.contains("LINK_TYPE_P1") && !kept.contains("BOOT_VLAN"),
            "{kept}"
        );
        let again = probe_all(&host_of(out.path()).unwrap());
        assert_eq!(again.marks(), tree.probe().marks());
        assert_eq!(again.findings, tree.probe().findings);
        assert_eq!(vital(&again, "nic.2.config.pending"), "<unsupported>");
    }
}

#[test]
fn damaged_answers_are_failures_or_less_and_never_other_values() {
    for text in [
        "",
        "-E- Unknown device\n",
        &ANSWER.replace("Configurations:", "Configuration"),
    ] {
        assert!(
            matches!(parse_settings(text), Reading::Failed { .. }),
            "{text}"
        );
    }
    let of = |text: &str, name: &str| {
        let settings = parse_settings(text);
        settings.present().and_then(|all| all.get(name).cloned())
    };
    // A value joined with the next one, and one that contains blanks.
    let torn = ANSWER.replace("True(1)             True(1)", "True(1)True(1)");
    let torn = of(&torn, "SRIOV_EN").unwrap();
    assert!(matches!(torn.current, Reading::Failed { .. }), "{torn:?}");
    assert_eq!(of(ANSWER, "BOOT_VLAN"), None);
    // Zeros are a chosen value.
    let zero = of("Configurations: Current\nSRIOV_EN 0x0\n", "SRIOV_EN");
    assert_eq!(zero.unwrap().current, Reading::Present("0x0".to_owned()));
    assert_eq!(
        of("Configurations:\nSRIOV_EN\n", "SRIOV_EN"),
        Some(Setting {
            current: Reading::Unsupported,
            next: Reading::Unsupported,
        })
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Truncated, repeated, shuffled and garbled output is parsed or rejected, within the existing columns.
    #[test]
    fn reads_arbitrary_answers_without_panic(
        cuts in prop::collection::vec((0_usize..2000, "[ \\t\\n*A-Z0-9_():]{0,12}"), 0..6),
        keep in prop::collection::vec(any::<bool>(), 32),
        junk in "\\PC{0,64}",
    ) {
        let lines = ANSWER.lines().zip(keep.iter().cycle());
        let mut text: String = lines
            .filter(|(line, keep)| **keep || line.starts_with("Configurations"))
            .map(|(line, _)| format!("{line}\n"))
            .collect();
        for (at, put) in &cuts {
            let at = at % (text.len() + 1);
            if text.is_char_boundary(at) {
                text.insert_str(at, put);
            }
        }
        text.push_str(&junk);
        if let Reading::Present(settings) = parse_settings(&text) {
            for (name, setting) in settings {
                prop_assert!(text.contains(&name));
                for value in [setting.current, setting.next] {
                    if let Reading::Present(value) = value {
                        prop_assert!(text.contains(&value), "{name} {value}");
                    }
                }
            }
        }
    }
}
