//! Kernel arguments, folders and file names that identify one host are masked, so that equal nodes share their digests.

use crate::{probes::shown, support::Tree};
use lattice_conformance::{Class, Reading, Value};
use lattice_hwprobe::probe_all;

#[test]
fn the_kernel_command_line_keeps_its_order_and_loses_what_is_of_one_host() {
    let tree = Tree::node();
    let inventory = tree.probe();
    assert_eq!(
        shown(&inventory, Class::Kernel, "kernel.cmdline"),
        "BOOT_IMAGE=<masked> root=<masked> ro iommu=pt hugepagesz=1G"
    );
    assert_eq!(
        shown(&inventory, Class::Kernel, "kernel.thp.enabled"),
        "madvise"
    );
    assert_eq!(
        inventory.records[&Class::Kernel].get("kernel.sysctl.vm.swappiness"),
        Reading::Present(Value::Number(60))
    );
}

#[test]
fn a_site_can_add_masked_arguments_and_secrets_are_masked_anyway() {
    let tree = Tree::node();
    tree.file(
        "/proc/cmdline",
        "rack=r07 api-token=abc \"opt=a b\" -- --join-token s3cr3t --verbose",
    );
    let mut host = tree.host();
    host.masked_arguments.push("rack".to_owned());
    let inventory = probe_all(&host);
    assert_eq!(
        inventory.records[&Class::Kernel].get("kernel.cmdline"),
        Reading::Present(Value::List(
            [
                "rack=<masked>",
                "api-token=<masked>",
                "\"opt=a b\"",
                "--",
                "--join-token",
                "<masked>",
                "--verbose"
            ]
            .map(str::to_owned)
            .to_vec()
        ))
    );
}

/// Arguments that identify one of two equal nodes, with the recorded form of both.
const OWN_ARGUMENTS: &[(&str, &str, &str)] = &[
    ("quiet", "quiet", "quiet"),
    // xCAT, for diskless nodes.
    ("NODE=gpu001", "NODE=gpu002", "NODE=<masked>"),
    (
        "provision.node=gpu001.hpc.example",
        "provision.node=gpu002.hpc.example",
        "provision.node=<masked>",
    ),
    ("-- --name gpu001", "-- --name gpu002", "-- --name <masked>"),
    // RHEL with FIPS and a separate /boot.
    (
        "fips=1 boot=UUID=1b2c3d4e-0000-4000-8000-000000000001",
        "fips=1 boot=UUID=6f7a8b9c-0000-4000-8000-000000000002",
        "fips=1 boot=<masked>",
    ),
    (
        "swap=PARTUUID=1b2c3d4e-02",
        "swap=PARTUUID=6f7a8b9c-02",
        "swap=<masked>",
    ),
    ("site.id=ABC1234", "site.id=ABC1235", "site.id=<masked>"),
    (
        "uuid=4c4c4544-0042-4310-8051-b7c04f4a3201",
        "uuid=4C4C4544-0042-4310-8051-B7C04F4A3202",
        "uuid=<masked>",
    ),
    (
        "machine=0f1e2d3c4b5a69788796a5b4c3d2e101",
        "machine=0f1e2d3c4b5a69788796a5b4c3d2e102",
        "machine=<masked>",
    ),
    (
        "boot.nic=a0:88:c2:00:11:01",
        "boot.nic=a0-88-c2-00-11-02",
        "boot.nic=<masked>",
    ),
    // A member of a bond: the address of its interface is that of the bond.
    (
        "boot.nic=a0:88:c2:77:66:01",
        "boot.nic=a0:88:c2:77:66:02",
        "boot.nic=<masked>",
    ),
    (
        "boot.hca=a0:88:c2:00:cc:01",
        "boot.hca=a0:88:c2:00:cc:02",
        "boot.hca=<masked>",
    ),
    (
        "swap=/dev/mapper/luks-1b2c3d4e-0000-4000-8000-000000000001",
        "swap=/dev/mapper/luks-6f7a8b9c-0000-4000-8000-000000000002",
        "swap=/dev/mapper/luks-<masked>",
    ),
    (
        "boot=uuid=1b2c3d4e000040008000000000000001",
        "boot=uuid=6f7a8b9c000040008000000000000002",
        "boot=<masked>",
    ),
    (
        "netconsole=6665@10.1.3.1/eno1,6666@10.1.0.1/",
        "netconsole=6665@10.1.3.2/eno1,6666@10.1.0.1/",
        "netconsole=6665@<masked>/eno1,6666@10.1.0.1/",
    ),
];

/// The first or second of two equal nodes, with this argument.
fn equal_node(number: usize, argument: &str) -> Tree {
    let tree = Tree::node();
    let line = format!("BOOT_IMAGE=/vmlinuz-6.8 root=UUID=1234 ro {argument}");
    tree.file("/proc/cmdline", &line)
        .file("/proc/sys/kernel/hostname", &format!("gpu00{number}"))
        .file(
            "/etc/machine-id",
            &format!("0f1e2d3c4b5a69788796a5b4c3d2e10{number}"),
        )
        .file(
            "/sys/class/dmi/id/product_serial",
            &format!("ABC123{}", number + 3),
        )
        .file(
            "/sys/class/dmi/id/product_uuid",
            &format!("4c4c4544-0042-4310-8051-b7c04f4a320{number}"),
        )
        .file(
            "/sys/class/net/eno1/address",
            &format!("a0:88:c2:00:11:0{number}"),
        )
        .file(
            "/sys/class/net/eno1/bonding_slave/perm_hwaddr",
            &format!("a0:88:c2:77:66:0{number}"),
        )
        .file(
            "/sys/class/net/ens3/address",
            &format!("a0:88:c2:00:cc:0{number}"),
        )
        .file(
            "/proc/net/fib_trie",
            &format!("Local:\n     |-- 10.1.3.{number}\n        /32 host LOCAL"),
        );
    tree
}

#[test]
fn equal_nodes_share_a_digest_whatever_argument_identifies_them() {
    for (first, second, recorded) in OWN_ARGUMENTS {
        let [first, second] = [(1, first), (2, second)]
            .map(|(number, argument)| equal_node(number, argument).probe());
        assert_eq!(first.marks(), second.marks(), "{recorded}");
        for inventory in [&first, &second] {
            assert_eq!(
                shown(inventory, Class::Kernel, "kernel.cmdline"),
                format!("BOOT_IMAGE=<masked> root=<masked> ro {recorded}")
            );
        }
        assert_eq!(first.fingerprint(), second.fingerprint(), "{recorded}");
    }
    // A configuration is compared, and so is the identifier of another host.
    for (first, second) in [
        ("fips=1", "fips=0"),
        ("NODE=gpu001", "NODE=gpu001"),
        ("head=10.1.0.1", "head=10.1.0.2"),
    ] {
        let [first, second] = [(1, first), (2, second)]
            .map(|(number, argument)| equal_node(number, argument).probe());
        assert_ne!(
            first.marks()[&Class::Kernel],
            second.marks()[&Class::Kernel]
        );
    }
}

#[test]
fn a_folder_of_one_node_is_no_difference_of_an_image_a_mount_or_a_module() {
    let node = |number: usize| {
        let name = format!("gpu00{number}");
        let tree = equal_node(
            number,
            &format!("imgurl=http://10.1.0.1/state/{name}/rootimg.sfs"),
        );
        tree.file(
            "/proc/1/mountinfo",
            &format!("31 22 0:51 / /var/state rw,relatime - nfs nfs01:/state/{name} rw,vers=3,nodename={name}"),
        )
        .file("/sys/module/lnet/parameters/config_file", &format!("/etc/lnet/{name}.conf"));
        tree.probe()
    };
    let (first, second) = (node(1), node(2));
    assert_eq!(first.marks(), second.marks());
    assert_eq!(
        shown(&first, Class::Software, "software.image.name"),
        "state/<masked>/rootimg.sfs"
    );
    assert_eq!(
        shown(&first, Class::Storage, "storage.mount./var/state.export"),
        "/state/<masked>"
    );
    assert_eq!(
        shown(
            &first,
            Class::Kernel,
            "kernel.module.lnet.parameter.config_file"
        ),
        "/etc/lnet/<masked>"
    );
}
