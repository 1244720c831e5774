#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

// As written by dpkg 1.21 and rpm 4.16.
const DPKG: &str = "\
Package: libnccl2
Status: install ok installed
Priority: optional
Section: devel
Installed-Size: 384123
Maintainer: cudatools <cudatools@nvidia.com>
Architecture: amd64
Multi-Arch: same
Source: nccl
Version: 2.23.4-1+cuda12.6
Depends: libc6 (>= 2.17)
Description: NVIDIA Collective Communication Library (NCCL) Runtime
 Package: not-a-package
 Version: 9

Package: docker.io
Status: hold ok installed
Architecture: amd64
Version: 1:26.1.3-0ubuntu1

Package: slurm-wlm
Status: deinstall ok config-files
Architecture: amd64
Version: 21.08.5-2

Package: libnccl2
Status: install ok installed
Architecture: arm64
Version: 2.23.4-1+cuda12.6

";

fn names(packages: &Reading<Packages>) -> Vec<String> {
    packages.present().unwrap().0.keys().cloned().collect()
}

#[test]
fn dpkg_reports_epoch_and_architecture() {
    let found = dpkg_packages(DPKG);
    assert_eq!(names(&found), ["docker.io", "libnccl2"]);
    let found = found.present().unwrap();
    let versions = |name: &str| found.0[name].iter().cloned().collect::<Vec<_>>();
    assert_eq!(versions("docker.io"), ["1:26.1.3-0ubuntu1.amd64"]);
    let nccl = ["0:2.23.4-1+cuda12.6.amd64", "0:2.23.4-1+cuda12.6.arm64"];
    assert_eq!(versions("libnccl2"), nccl);
}

#[test]
fn rpm_matches_dpkg_and_ignores_keys() {
    let answer = b"gpg-pubkey\t0:350d275d-6279464b.(none)\nkernel\t0:5.14.0-1.el9.x86_64\n\
                   kernel\t0:5.14.0-2.el9.x86_64\nmunge\t0:0.5.13-13.el9.x86_64\n";
    let found = rpm_packages(answer);
    assert_eq!(names(&found), ["kernel", "munge"]);
    assert_eq!(found.present().unwrap().0["kernel"].len(), 2);
    assert_eq!(rpm_packages(b""), Reading::Present(Packages::default()));
    for damaged in [
        &b"error: no such db\n"[..],
        b"a\t\xff\n",
        b"\t1\n",
        b"a b\t1\n",
    ] {
        assert!(matches!(rpm_packages(damaged), Reading::Failed { .. }));
    }
}

#[test]
fn a_damaged_status_is_a_failure_and_not_a_shorter_list() {
    for damaged in [
        "Package: a\nArchitecture: all\n",
        "Version: 1\n\n",
        "Package: \nVersion: 1\nArchitecture: all",
    ] {
        let found = dpkg_packages(damaged);
        assert!(
            matches!(found, Reading::Failed { .. }),
            "{damaged:?}: {found:?}"
        );
    }
    // A removed package may have no version left.
    let gone = "Package: a\nStatus: purge ok not-installed\nArchitecture: all\n";
    assert_eq!(dpkg_packages(gone), Reading::Present(Packages::default()));
    assert_eq!(
        dpkg_packages("\n\n\n"),
        Reading::Present(Packages::default())
    );
}

#[test]
fn capture_preserves_selected_packages() {
    let wanted = vec!["libnccl*".to_owned()];
    let kept = only_wanted(DPKG, &wanted);
    assert!(
        !kept.contains("Maintainer") && !kept.contains("docker"),
        "{kept}"
    );
    let full = dpkg_packages(DPKG).map(|found| found.matching(&wanted));
    assert_eq!(dpkg_packages(&kept), full);
}

#[test]
fn capture_preserves_rpm_answer() {
    let wanted = vec!["munge".to_owned()];
    let answer = b"bash\t0:5-1.x86_64\nmunge\t0:0.5-1.x86_64\n";
    assert_eq!(
        only_wanted_lines(answer, &wanted),
        b"munge\t0:0.5-1.x86_64\n"
    );
    let damaged = only_wanted_lines(b"error\nbash\t0:5-1.x86_64", &wanted);
    assert!(matches!(rpm_packages(&damaged), Reading::Failed { .. }));
}

#[test]
fn no_package_manager_means_none_and_failure_hides_all() {
    let tree = tempfile::tempdir().unwrap();
    let root = Root::new(tree.path());
    let nothing = installed(&root, || Reading::Absent);
    assert_eq!(nothing, Reading::Absent);
    let folder = tree.path().join("var/lib/dpkg/status.d");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("base"),
        "Package: base\nVersion: 1\nArchitecture: all\n",
    )
    .unwrap();
    std::fs::write(folder.join("base.md5sums"), "0123  usr/bin/x\n").unwrap();
    let one = installed(&root, || Reading::Absent);
    assert_eq!(names(&one), ["base"]);
    let failed = installed(&root, || Reading::Timeout { after_ms: 1 });
    assert_eq!(failed, Reading::Timeout { after_ms: 1 });
}
