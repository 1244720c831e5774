#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

const TABLE: &str = "\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
30 22 0:50 / /scratch rw,noatime,flock shared:9 - lustre 10.1.0.1@o2ib:10.1.0.2@o2ib:/scratch rw,lazystatfs,user_xattr
31 22 0:51 / /sw ro,relatime - nfs4 nfs01.site:/export/sw rw,vers=4.2,rsize=1048576,hard,proto=tcp,clientaddr=10.1.3.7,addr=10.1.0.9
32 22 0:52 / /home rw - autofs /etc/auto.home rw,fd=6,pgrp=1,timeout=300,indirect
33 32 0:53 / /home/alice rw - nfs nfs02:/home/alice rw,vers=3,mountaddr=10.1.0.9,addr=10.1.0.9
34 22 0:54 / /var/lib/kubelet/pods/1/volumes/x rw - nfs4 nfs03:/pv rw
35 22 0:55 / /my\\040data rw - ceph 10.0.0.1:6789,10.0.0.2:6789:/ rw,name=admin,secret=<hidden>,acl
36 22 0:56 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw,fd=29
37 22 0:57 / /gpfs/fs1 rw - gpfs gpfs0 rw,relatime";

/// Identifiers of a host of which nothing is known.
fn unnamed() -> HostIdentifiers {
    HostIdentifiers::default()
}

#[test]
fn persistent_network_mounts_differ_from_transient() {
    let mounts = parse(TABLE);
    let mounts = mounts.present().unwrap();
    let points: Vec<&str> = permanent_network_mounts(mounts).into_keys().collect();
    assert_eq!(points, ["/gpfs/fs1", "/my data", "/scratch", "/sw"]);
    assert_eq!(automounts(mounts), ["/home"]);
    assert_eq!(
        root_read_only(&Reading::Present(mounts.clone())),
        Reading::Present(Value::Flag(false))
    );
}

#[test]
fn options_are_sorted_and_those_of_one_host_masked() {
    let mounts = parse(TABLE);
    let found = permanent_network_mounts(mounts.present().unwrap());
    let options = |point: &str| {
        let options = found[point].options.iter();
        options
            .map(|option| masked(option))
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_eq!(
        options("/sw"),
        "addr=<masked>,clientaddr=<masked>,hard,proto=tcp,relatime,ro,rsize=1048576,vers=4.2"
    );
    assert_eq!(options("/my data"), "acl,name=admin,rw,secret=<masked>");
    assert_eq!(
        options("/scratch"),
        "flock,lazystatfs,noatime,rw,user_xattr"
    );
}

#[test]
fn the_export_is_what_every_client_sees() {
    let shown = |source: &str| export(source).to_string();
    assert_eq!(shown("10.1.0.1@o2ib:10.1.0.2@o2ib:/scratch"), "/scratch");
    assert_eq!(shown("nfs01.site:/export/sw"), "/export/sw");
    assert_eq!(shown("[fe80::1]:/x"), "/x");
    assert_eq!(shown("10.0.0.1:6789,10.0.0.2:6789:/"), "/");
    assert_eq!(shown("gpfs0"), "gpfs0");
    assert_eq!(shown("none"), "<unsupported>");
}

#[test]
fn capture_preserves_mount_table() {
    let kept = String::from_utf8(without_identity(TABLE.as_bytes(), &unnamed())).unwrap();
    assert!(!kept.contains("10.1.") && !kept.contains("nfs01"), "{kept}");
    let all = |table: &str| -> Vec<(String, String, String)> {
        let mounts = parse(table);
        let mounts = mounts.present().unwrap();
        let found = permanent_network_mounts(mounts).into_values().map(|mount| {
            let options: Vec<_> = mount.options.iter().map(|o| masked(o)).collect();
            (
                mount.point.clone(),
                export(&mount.source).to_string(),
                options.join(","),
            )
        });
        found.collect()
    };
    assert_eq!(all(&kept), all(TABLE));
    let (kept, table) = (parse(&kept), parse(TABLE));
    let of = |table: &Reading<Vec<Mount>>| table.present().map(|mounts| automounts(mounts).len());
    assert_eq!(of(&kept), of(&table));
    assert_eq!(root_read_only(&kept), root_read_only(&table));
    assert!(matches!(
        parse(without_identity(b"x", &unnamed())),
        Reading::Failed { .. }
    ));
}

#[test]
fn a_damaged_table_is_a_failure() {
    assert_eq!(parse(""), Reading::Present(Vec::new()));
    for table in ["22 1 8:2 / /", "a - b", "22 1 8:2 / / rw - ext4"] {
        assert!(matches!(parse(table), Reading::Failed { .. }), "{table}");
    }
}

#[test]
fn a_mount_without_write_permission_is_no_broken_file_system() {
    let read_only = |line: &str| root_read_only(&parse(line));
    let flag = |flag| Reading::Present(Value::Flag(flag));
    assert_eq!(
        read_only("22 1 8:2 / / ro - ext4 /dev/sda2 rw"),
        flag(false)
    );
    assert_eq!(
        read_only("22 1 8:2 / / rw - ext4 /dev/sda2 ro,errors=remount-ro"),
        flag(true)
    );
}

/// The table with additional lines.
fn with(more: &[&[u8]]) -> Vec<u8> {
    let mut table = TABLE.as_bytes().to_vec();
    for line in more {
        table.push(b'\n');
        table.extend_from_slice(line);
    }
    table
}

#[test]
fn what_an_ordinary_user_mounts_is_no_configuration() {
    let users: [&[u8]; 3] = [
        b"90 22 0:90 / /home2/eve/x rw,nosuid - fuse.juicefs JuiceFS:x rw,user_id=1000,group_id=100",
        b"91 22 0:91 / /home2/eve/\xff\xfe rw,nosuid - fuse.ceph-x y rw,user_id=1000,group_id=100",
        // Over a mount of the site at the same point.
        b"92 22 0:92 / /scratch rw,nosuid - fuse.glusterfs z rw,user_id=1000,group_id=100",
    ];
    let table = with(&users);
    let own = parse(TABLE);
    let seen = parse(&table);
    let kept = parse(without_identity(&table, &unnamed()));
    let found = permanent_network_mounts(seen.present().unwrap());
    assert_eq!(found, permanent_network_mounts(own.present().unwrap()));
    assert!(
        found
            .keys()
            .eq(permanent_network_mounts(kept.present().unwrap()).keys())
    );
    // Mounts by root count, in a capture too.
    let roots = b"93 22 0:93 / /jfs rw - fuse.juicefs JuiceFS:a rw,user_id=0,group_id=0";
    for table in [
        with(&[roots]),
        without_identity(&with(&[roots]), &unnamed()),
    ] {
        let mounts = parse(&table);
        assert!(permanent_network_mounts(mounts.present().unwrap()).contains_key("/jfs"));
    }
}

#[test]
fn a_name_that_is_no_text_hides_nothing_but_itself() {
    let names = |table: &[u8]| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/1")).unwrap();
        std::fs::write(folder.path().join("proc/1/mountinfo"), table).unwrap();
        let mut probed = ProbeResult::new(lattice_conformance::Class::Storage);
        keys(&Root::new(folder.path()), &mut probed);
        let get = |key: &str| probed.record.get(key);
        (get("storage.mount.names"), get("storage.automount"))
    };
    let local = b"94 22 8:3 / /data/\xff rw - ext4 /dev/sdb1 rw";
    assert_eq!(names(&with(&[local])), names(TABLE.as_bytes()));
    let network = b"95 22 0:95 / /data/\xff rw - nfs4 nfs01:/x rw";
    for table in [
        with(&[network]),
        without_identity(&with(&[network]), &unnamed()),
    ] {
        let (mounts, automount) = names(&table);
        assert!(matches!(mounts, Reading::Failed { .. }), "{mounts:?}");
        assert_eq!(automount, names(TABLE.as_bytes()).1);
    }
}
