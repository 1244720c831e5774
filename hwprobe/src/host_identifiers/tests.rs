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
            "sys/class/net/eno1/bonding_slave/perm_hwaddr",
            "a0:88:c2:77:66:55",
        ),
        ("sys/class/net/ens3/address", "50:6b:4b:ca:bc:01"),
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
        // The MAC that boot firmware derives from a GUID, and the complete address.
        "a0:88:c2:ab:cd:ef",
        "00:00:10:29:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:ab:cd:ef",
        // A member of a bond, and the GUIDs that are derived from a MAC.
        "a0:88:c2:77:66:55",
        "506B:4B03:00CA:BC01",
        "506b4b0300cabc01",
        "506b:4bff:feca:bc01",
        "10.1.3.7",
        "0A010307",
        "fd00::7",
        "fd00:0:0:0:0:0:0:7",
        "UUID=1b2c3d4e-0000-4000-8000-000000000001",
        "PARTUUID=6f7a8b9c-01",
        "LABEL=scratch017",
        "PARTLABEL=boot",
        "LABEL=/scratch017",
        "uuid=1b2c3d4e-0000-4000-8000-000000000001",
        "partlabel=swap017",
        "UUID=1b2c3d4e000040008000000000000001",
        "ID=nvme-eui.0025385b71b01234",
        "/dev/disk/by-label/scratch017",
        "/dev/disk/by-diskseq/17",
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
        ("enxa088c2001122:dhcp", "enx<masked>:dhcp"),
        ("0xa088c20300abcdef", "0x<masked>"),
        (
            "/dev/mapper/luks-1b2c3d4e-0000-4000-8000-000000000001",
            "/dev/mapper/luks-<masked>",
        ),
        (
            "/dev/mapper/luks-1b2c3d4e000040008000000000000001:ext4",
            "/dev/mapper/luks-<masked>:ext4",
        ),
        (
            "/dev/mapper/3600508b400105e210000900000490000-part2",
            "/dev/mapper/<masked>-part2",
        ),
        (
            "/dev/disk/by-path/pci-0000:c1:00.0-sas-0x5000c500a1b2c3d4-lun-0",
            "/dev/disk/by-path/pci-0000:c1:00.0-sas-0x<masked>-lun-0",
        ),
        (
            "luks-1B2C3D4E-0000-4000-8000-000000000001,wwn-0x5000c500a1b2c3d4",
            "luks-<masked>,wwn-0x<masked>",
        ),
        ("01-a0-88-c2-00-11-22", "01-<masked>"),
        ("[fd00::7]:80", "[<masked>]:80"),
        ("pxelinux.cfg/0A010307", "pxelinux.cfg/<masked>"),
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
        "0A010308",
        "0A0103070",
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
        "id=5",
        "xluks-1b2c3d4e-0000-4000-8000-000000000001",
        "luks-1b2c3d4e-0000-4000-8000-00000000000z",
        "/images/1b2c3d4e-0000-4000-8000-000000000001",
        "/dev/sda2",
        "/dev/mapper/vg0-root",
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
    for (text, expected) in [
        ("n8", MASKED),
        ("n8-ib0", "<masked>-ib0"),
        ("n8_ib0.hpc.example", "<masked>_ib0.hpc.example"),
        ("n8-ib0:rack4", "<masked>-ib0:rack4"),
        ("http://head/n8/ks", "http://head/<masked>/ks"),
        ("http://head/n8-boot/ks", "http://head/<masked>-boot/ks"),
        ("a=1,node=n8-ib0", "a=1,node=<masked>-ib0"),
    ] {
        assert_eq!(short.mask(text), expected);
    }
    for text in [
        "build-n8",
        "build-n8-x",
        "n80",
        "n8x",
        "n80-ib0",
        "115200n8",
        "8",
    ] {
        assert_eq!(short.mask(text), text);
    }
    let word = named("hopper");
    for (text, expected) in [
        ("hopper", MASKED),
        ("hopper.hpc.example", MASKED),
        ("http://head/hopper/ks", "http://head/<masked>/ks"),
        ("http://head/state/Hopper", "http://head/state/<masked>"),
        ("nfs:head:/state/hopper:ro", "nfs:head:/state/<masked>:ro"),
        ("http://hopper:8080/ks", "http://<masked>:8080/ks"),
        ("hopper/ks", "<masked>/ks"),
    ] {
        assert_eq!(word.mask(text), expected);
    }
    for text in [
        "image-hopper/1",
        "http://head/hopper-sm90/ks",
        "http://head/my_hopper/ks",
        "/grasshopper/hoppers",
        "arch=hopper",
    ] {
        assert_eq!(word.mask(text), text);
    }
    // A folder that many hosts have.
    assert_eq!(named("home").mask("/home/x"), "/home/x");
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
