//! Kernel command line, with host-specific and secret values masked.
//!
//! An argument is host-specific by its name ([`MASKED_ARGUMENTS`] and the site's list), or by its value, which contains
//! an identifier of the host or of a disk ([`HostIdentifiers`]). Provisioning systems use names of their own
//! (`NODE=gpu001` of xCAT), so names alone do not suffice.

use crate::HostIdentifiers;
use crate::host_identifiers::MASKED;

/// Arguments that differ between equal nodes, or are secret, whatever their value.
pub const MASKED_ARGUMENTS: &[&str] = &[
    // Boot source of the node, and the boot slot of its system.
    "boot_image",
    "bootif",
    "root",
    "rootfs",
    "initrd",
    "resume",
    "resume_offset",
    "ostree",
    "cryptdevice",
    "rd.luks*",
    "luks*",
    "rd.lvm*",
    "rd.md.uuid",
    "rd.iscsi*",
    "iscsi*",
    "rd.nvmf*",
    "nvmf*",
    "netroot",
    "nfsroot",
    // Network settings, names and ids of the node.
    "ip",
    "ifname",
    "nameserver",
    "hostname",
    "hostid",
    "spl.spl_hostid",
    "systemd.hostname",
    "systemd.machine_id",
    "macaddress",
    "mac",
    "hwaddr",
    "netdev",
    "wwid",
    "wwinit.*",
    "xname",
    "nid",
    "bos_session_id",
    // Source from which the node is provisioned.
    "ds",
    "s3_url",
    "metal.server",
    "url",
    "imgurl",
    "fetch",
    "xcat",
    "inst.*",
    "ks",
    "ksdevice",
    "cloud_config_url",
    "ignition.config.url",
];

/// Words that mark an argument as a secret anywhere in its name.
const SECRET_WORDS: &[&str] = &[
    "token",
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "credential",
    "cookie",
    "bearer",
    "key",
];

/// Keyboard terms, ignored in the search for [`SECRET_WORDS`]: the `key` in `keymap` marks no secret.
const KEYBOARD_WORDS: &[&str] = &["keymap", "keyboard", "keytable", "atkbd"];

/// The arguments in order, with each masked value replaced by `<masked>`, for a host of which nothing is known. See
/// [`mask_host`].
#[must_use]
pub fn mask(line: &str, masked: &[String]) -> Vec<String> {
    mask_host(line, masked, &HostIdentifiers::default())
}

/// The arguments in order, with each masked value replaced by `<masked>`. In any other value, identifiers of the host
/// and of disks are replaced by `<masked>`. Names of arguments are kept.
///
/// Secrets are masked in both forms: `name=value`, and `--name value` as init programs accept it.
#[must_use]
pub fn mask_host(line: &str, masked: &[String], own: &HostIdentifiers) -> Vec<String> {
    mask_except(line, masked, own, |_, _| None)
}

/// Masks the command line, except where `keep` returns a replacement value. `keep` receives the name and value of each
/// argument that is masked because of its name or a secret in its value, unless the name itself marks a secret.
pub(crate) fn mask_except(
    line: &str,
    masked: &[String],
    own: &HostIdentifiers,
    keep: impl Fn(&str, &str) -> Option<String>,
) -> Vec<String> {
    let masked: Vec<String> = masked.iter().map(|name| fold(name)).collect();
    let mut is_secret_next = false;
    let mut out = Vec::new();
    for argument in arguments(line) {
        let was_secret = std::mem::take(&mut is_secret_next);
        match argument.split_once('=') {
            _ if was_secret && !argument.starts_with('-') => out.push(MASKED.to_owned()),
            Some((name, value)) if is_masked(name, &masked) || has_secret(value) => {
                let kept = (!is_secret(&fold(name)))
                    .then(|| keep(name, value))
                    .flatten();
                let value = kept.unwrap_or_else(|| MASKED.to_owned());
                out.push(format!("{name}={value}"));
            }
            Some((name, value)) => out.push(format!("{name}={}", own.mask_value(name, value))),
            None => {
                is_secret_next = argument.starts_with("--") && is_secret(&fold(&argument));
                out.push(own.mask(&argument));
            }
        }
    }
    out
}

/// Converts a name to lower case, with `_` for `-`: the kernel treats both characters as equal.
fn fold(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// Whether a folded name marks a secret.
pub(crate) fn is_secret(folded: &str) -> bool {
    let mut rest = folded.to_owned();
    for word in KEYBOARD_WORDS {
        rest = rest.replace(word, "");
    }
    SECRET_WORDS.iter().any(|word| rest.contains(word))
}

/// Whether a value contains a secret of its own: an assignment with a secret's name (`systemd.setenv=API_TOKEN=…`), or
/// a URL with a user or a query.
fn has_secret(value: &str) -> bool {
    if let Some((_, address)) = value.split_once("://") {
        let host = address.split('/').next().unwrap_or_default();
        if host.contains('@') || address.contains('?') {
            return true;
        }
    }
    let parts = value.split([',', ';', '&', '"']);
    let mut names = parts.filter_map(|part| part.split_once('=').map(|(name, _)| name));
    names.any(|name| is_secret(&fold(name)))
}

fn is_masked(name: &str, masked: &[String]) -> bool {
    let folded = fold(name);
    is_secret(&folded) || masked.iter().any(|pattern| matches(pattern, &folded))
}

/// Splits the line as the kernel does: at whitespace outside double quotes.
pub(crate) fn arguments(line: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    for c in line.trim().chars() {
        match c {
            '"' => {
                quoted = !quoted;
                current.push(c);
            }
            c if c.is_whitespace() && !quoted => {
                if !current.is_empty() {
                    arguments.push(std::mem::take(&mut current));
                }
            }
            c => current.push(c),
        }
    }
    if !current.is_empty() {
        arguments.push(current);
    }
    arguments
}

/// Whether `pattern` matches `name`; `*` matches any run of characters.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return name == pattern;
    };
    let Some(mut left) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    // The earliest match of each part leaves the longest rest for the parts after it.
    for part in parts {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(line: &str) -> String {
        let defaults: Vec<String> = MASKED_ARGUMENTS.iter().map(|&n| n.to_owned()).collect();
        mask(line, &defaults).join(" ")
    }

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, name) in [
            ("nvidia*", "nvidia_uvm"),
            ("nvidia*", "nvidia"),
            ("*pyxis*", "nvslurm-plugin-pyxis"),
            ("nvidia-fabric*manager*", "nvidia-fabricmanager-570"),
            ("*", ""),
            ("a*b*b", "abb"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("nvidia*", "nouveau"),
            ("a*b*b", "ab"),
            ("mft", "mft-autocomplete"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn secrets_are_found_in_names_and_in_values() {
        for line in [
            "spire_join_token=8e2f",
            "rd.luks.key=/etc/x",
            "api-key=abc",
            "systemd.setenv=JOIN_TOKEN=abc",
            "systemd.set_credential=a:b",
            "ds=nocloud-net;s=http://h/?token=abc",
            "live.updates=http://user:pw@host/x",
            "image=http://host/x?sig=abc",
            "opts=a=1,password=abc",
            "mount.pwd=abc",
        ] {
            let (name, _) = line.split_once('=').unwrap_or_default();
            assert_eq!(masked(line), format!("{name}=<masked>"));
        }
        assert_eq!(masked("--api-key abc ro"), "--api-key <masked> ro");
    }

    #[test]
    fn disks_are_masked_whatever_the_argument() {
        for (line, expected) in [
            // RHEL with FIPS and a separate /boot.
            ("fips=1 boot=UUID=1b2c3d4e-0000", "fips=1 boot=<masked>"),
            ("data=/dev/disk/by-id/wwn-0x5000 ro", "data=<masked> ro"),
            (
                "systemd.mount-extra=LABEL=scratch1:/scratch:xfs",
                "systemd.mount-extra=<masked>:/scratch:xfs",
            ),
            ("boot=/dev/sda2", "boot=/dev/sda2"),
            // The tag as the argument itself.
            (
                "uuid=1b2c3d4e-0000 UUID=6f7a ro",
                "uuid=<masked> UUID=<masked> ro",
            ),
            (
                "PARTLABEL=swap017 LABEL=x",
                "PARTLABEL=<masked> LABEL=<masked>",
            ),
            ("ID=wwn-0x5000 id=5 uuid=", "ID=<masked> id=5 uuid="),
            (
                "swap=/dev/mapper/luks-1b2c3d4e-0000-4000-8000-000000000001",
                "swap=/dev/mapper/luks-<masked>",
            ),
            (
                "resume=/dev/sda2 rd.luks.uuid=luks-1b2c",
                "resume=<masked> rd.luks.uuid=<masked>",
            ),
        ] {
            assert_eq!(masked(line), expected);
        }
    }

    #[test]
    fn what_is_no_secret_and_of_no_host_is_kept_in_order() {
        let line = "console=tty0 console=ttyS0,115200n8 rd.vconsole.keymap=de iommu=pt quiet";
        assert_eq!(masked(line), line);
        let ostree = "ostree=/ostree/boot.1/rhcos/0123/0 nid=7 xname=x1000c0s0b0n0 rw";
        assert_eq!(
            masked(ostree),
            "ostree=<masked> nid=<masked> xname=<masked> rw"
        );
    }
}
