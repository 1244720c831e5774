#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use std::fs;
use tempfile::TempDir;

const FIB_TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.1.0.0/16 2 0 2
        |-- 10.1.0.0
           /16 link UNICAST
        |-- 10.1.3.7
           /32 host LOCAL
        |-- 10.1.255.255
           /32 link BROADCAST
Local:
     |-- 127.0.0.1
        /32 host LOCAL
";

/// A tree with these files.
fn tree(files: &[(&str, &str)]) -> (TempDir, Root) {
    let folder = TempDir::new().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    let root = Root::new(folder.path());
    (folder, root)
}

fn own() -> HostIdentifiers {
    let (_folder, root) = tree(&[
        ("proc/sys/kernel/hostname", "gpu017.hpc.example"),
        ("etc/machine-id", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
        (
            "sys/class/dmi/id/product_uuid",
            "4C4C4544-0042-4310-8051-B7C04F4A3233",
        ),
        ("sys/class/dmi/id/product_serial", "ABC1234"),
        ("sys/class/dmi/id/chassis_serial", "Not Specified"),
        ("sys/class/net/lo/address", "00:00:00:00:00:00"),
        ("sys/class/net/eno1/address", "a0:88:c2:00:11:22"),
        (
            "sys/class/net/ib0/address",
            "00:00:10:29:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:ab:cd:ef",
        ),
        ("proc/net/fib_trie", FIB_TRIE),
        (
            "proc/net/if_inet6",
            "fd000000000000000000000000000007 02 40 00 80 eno1\n\
             00000000000000000000000000000001 01 80 10 80 lo",
        ),
    ]);
    HostIdentifiers::read(&root)
}

#[test]
fn masks_identifiers_in_every_notation() {
    let own = own();
    for text in [
        "gpu017",
        "GPU017",
        "gpu017.hpc.example",
        // A name in another domain of the same host.
        "gpu017.ib.hpc.example",
        "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "4c4c4544-0042-4310-8051-b7c04f4a3233",
        "4C4C4544004243108051B7C04F4A3233",
        // In the byte order of SMBIOS, as PXE prints it.
        "44454c4c-4200-1043-8051-b7c04f4a3233",
        "ABC1234",
        "A0:88:C2:00:11:22",
        "a0-88-c2-00-11-22",
        "a088c2001122",
        "a088:c203:00ab:cdef",
        "10.1.3.7",
        "fd00::7",
        "fd00:0:0:0:0:0:0:7",
        "UUID=1b2c3d4e-0000-4000-8000-000000000001",
        "PARTUUID=6f7a8b9c-01",
        "LABEL=scratch017",
        "PARTLABEL=boot",
        "/dev/disk/by-uuid/1B2C-3D4E",
        "/dev/disk/by-id/nvme-eui.0025385b71b01234",
    ] {
        assert_eq!(own.mask(text), MASKED, "{text}");
        assert_eq!(own.mask(&own.mask(text)), MASKED, "{text}");
    }
}

#[test]
fn keeps_the_rest_of_a_value() {
    let own = own();
    for (text, expected) in [
        (
            "http://10.1.0.1/nodes/gpu017/ks",
            "http://10.1.0.1/nodes/<masked>/ks",
        ),
        (
            "6665@10.1.3.7/eno1,6666@10.1.0.1/",
            "6665@<masked>/eno1,6666@10.1.0.1/",
        ),
        ("gpu017-ib0:rack4", "<masked>-ib0:rack4"),
        ("01-a0-88-c2-00-11-22", "01-<masked>"),
        ("[fd00::7]:80", "[<masked>]:80"),
        ("UUID=1b2c:/boot:xfs:ro", "<masked>:/boot:xfs:ro"),
        ("\"gpu017 x\"", "\"<masked> x\""),
        ("a,UUID=1,b", "a,<masked>,b"),
    ] {
        assert_eq!(own.mask(text), expected);
    }
}

#[test]
fn keeps_values_that_only_resemble_identifiers() {
    let own = own();
    for text in [
        "",
        "gpu0170",
        "xgpu017",
        "10.1.3.70",
        "110.1.3.7",
        "10.1.3.7.1",
        "10.1.255.255",
        "127.0.0.1",
        "::1",
        "00:00:00:00:00:00",
        "XABC1234",
        "Not Specified",
        "1b2c3d4e-0000-4000-8000-000000000001",
        "GPT_UUID=1",
        "SELABEL=x",
        "UUID=",
        "/dev/sda2",
        "/dev/disk/by-path/pci-0000:c1:00.0-nvme-1",
        "<masked>",
        "größe=gpu01é",
    ] {
        assert_eq!(own.mask(text), text);
    }
}

#[test]
fn short_and_ordinary_host_names_match_less() {
    let named = |name: &str| HostIdentifiers::read(&tree(&[("proc/sys/kernel/hostname", name)]).1);
    let short = named("n8");
    assert_eq!(short.mask("n8"), MASKED);
    assert_eq!(short.mask("http://head/n8/ks"), "http://head/<masked>/ks");
    assert_eq!(short.mask("build-n8"), "build-n8");
    let word = named("hopper");
    assert_eq!(word.mask("hopper"), MASKED);
    assert_eq!(word.mask("hopper.hpc.example"), MASKED);
    assert_eq!(word.mask("image-hopper/1"), "image-hopper/1");
    for name in ["on", "auto", "localhost", "17", "(none)"] {
        assert_eq!(named(name).mask(name), name);
    }
    // The name in a capture without identities.
    assert_eq!(
        named("masked").mask("http://x/masked/y"),
        "http://x/<masked>/y"
    );
    assert_eq!(named("masked").mask("a=<masked>"), "a=<masked>");
}

#[test]
fn a_host_without_readable_identifiers_masks_disks_only() {
    let nothing = HostIdentifiers::read(&tree(&[]).1);
    assert_eq!(nothing, HostIdentifiers::default());
    assert_eq!(nothing.mask("gpu017 10.1.3.7"), "gpu017 10.1.3.7");
    assert_eq!(nothing.mask("UUID=1b2c"), MASKED);
}
