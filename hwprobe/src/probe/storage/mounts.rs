//! Mounts of network file systems: type, mount point and options.
//!
//! The probe reads the mount table of process 1: jobs start in that mount namespace, while an agent with private mounts
//! has its own. If that table is unreadable (without root), the probe reads the agent's own. Mounts on demand (at or
//! below an automounter's mount point), for a container, for one job or by an ordinary user are temporary and omitted.

use crate::{HostIdentifiers, Root, cmdline};
use lattice_conformance::{ProbeResult, Reading, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

const TABLES: [&str; 2] = ["/proc/1/mountinfo", "/proc/self/mountinfo"];

/// Maximum number of mounts; more cannot be a configuration that operators compare.
const MAX_MOUNTS: usize = 256;

/// Types of network file systems.
const NETWORK_FILE_SYSTEMS: &[&str] = &[
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "fuse.ceph*",
    "cifs",
    "smb3",
    "9p",
    "afs",
    "pvfs2",
    "orangefs",
    "panfs",
    "wekafs",
    "glusterfs",
    "fuse.glusterfs",
    "dvs",
    "fuse.juicefs",
    "fuse.daos*",
    "fuse.dfuse",
    "ocfs2",
    "gfs2",
    "virtiofs",
];

/// Folders below which mounts belong to jobs, containers and users.
const TRANSIENT_FOLDERS: &[&str] = &[
    "/run",
    "/tmp",
    "/proc",
    "/sys",
    "/dev",
    "/var/tmp",
    "/var/run",
    "/var/lib/kubelet",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/enroot",
    "/media",
];

/// Options that name this client, or one of several servers.
const CLIENT_SPECIFIC_OPTIONS: &[&str] = &[
    "addr",
    "clientaddr",
    "mountaddr",
    "mountport",
    "fd",
    "pgrp",
    "pipe_ino",
    "user_id",
    "group_id",
    "fsid",
    "src",
    "mon_addr",
    "username",
    "user",
    "nodeid",
];

/// One line of a mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount point.
    pub point: String,
    /// File system type.
    pub kind: String,
    /// Source of the mount, as named by the file system.
    pub source: String,
    /// Options of the mount and of the file system, without duplicates, sorted.
    pub options: Vec<String>,
    /// Whether the file system itself is read-only, independent of the options of this mount.
    pub is_read_only: bool,
    /// Whether the entire line is UTF-8. Otherwise invalid bytes are replaced.
    pub is_text: bool,
}

pub(super) fn keys(root: &Root, probed: &mut ProbeResult) {
    let mut table = Reading::Absent;
    for path in TABLES {
        table = root.bytes(path);
        if table.is_known() && table != Reading::Absent {
            break;
        }
    }
    let mounts = table.and_then(|table| parse(&table));
    let found = mounts.as_ref().and_then(|mounts| {
        let found = permanent_network_mounts(mounts);
        if found.values().any(|mount| !mount.is_text) {
            return Reading::failed("the mount point of a network file system is not text");
        }
        if found.len() > MAX_MOUNTS {
            return Reading::failed(format!("{} network file systems are mounted", found.len()));
        }
        Reading::Present(found)
    });
    let record = &mut probed.record;
    let names =
        |list: Vec<&str>| Value::from(list.into_iter().map(str::to_owned).collect::<Vec<_>>());
    record.put(
        "storage.mount.names",
        found
            .as_ref()
            .map(|found| names(found.keys().copied().collect())),
    );
    record.put(
        "storage.automount",
        mounts.as_ref().and_then(|mounts| {
            if mounts
                .iter()
                .any(|mount| mount.kind == "autofs" && !mount.is_text)
            {
                return Reading::failed("the mount point of an automounter is not text");
            }
            Reading::Present(names(automounts(mounts)))
        }),
    );
    // A server may give each node a folder of its own (`/state/gpu001`).
    let own = HostIdentifiers::read(&root.bounded());
    for (point, mount) in found.present().into_iter().flatten() {
        let key = |name: &str| format!("storage.mount.{point}.{name}");
        record.put(key("type"), Reading::Present(mount.kind.clone()));
        let exported = export(&mount.source).map(|name| own.mask(&name));
        record.put(key("export"), exported);
        let options = mount.options.iter().map(|option| masked(option));
        let options: Vec<String> = options.map(|option| own.mask(&option)).collect();
        record.put(key("options"), Reading::Present(Value::from(options)));
    }
    probed
        .vitals
        .put("storage.root_read_only", root_read_only(&mounts));
}

/// Parses a `mountinfo` file.
#[must_use]
pub fn parse(table: impl AsRef<[u8]>) -> Reading<Vec<Mount>> {
    let mounts: Option<Vec<Mount>> = lines(table.as_ref()).map(mount).collect();
    mounts.map_or_else(
        || Reading::failed("the mount table has a malformed line"),
        Reading::Present,
    )
}

/// Splits a table by lines, as bytes: a mount point may contain any bytes.
fn lines(table: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

/// Parses `id parent major:minor root point options optional… - type source options`.
fn mount(line: &[u8]) -> Option<Mount> {
    let line = String::from_utf8_lossy(line);
    // Valid UTF-8 is borrowed.
    let is_text = matches!(line, Cow::Borrowed(_));
    let (place, system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(4);
    let (point, own) = (place.next()?, place.next()?);
    let mut system = system.split(' ');
    let (kind, source) = (system.next()?, system.next()?);
    // Some file systems have no options, and no blank before them.
    let super_options = system.next().unwrap_or_default();
    let options = own.split(',').chain(super_options.split(','));
    let mut options: Vec<String> = options
        .filter(|option| !option.is_empty())
        .map(unescaped)
        .collect();
    // A read-only mount of a writable file system is read-only, and so is a writable mount of a file system that became
    // read-only.
    if options.iter().any(|option| option == "ro") {
        options.retain(|option| option != "rw");
    }
    options.sort();
    options.dedup();
    Some(Mount {
        point: unescaped(point),
        kind: kind.to_owned(),
        source: unescaped(source),
        options,
        is_read_only: super_options.split(',').any(|option| option == "ro"),
        is_text,
    })
}

/// Decodes the octal escapes of blanks, tabs, line ends and backslashes.
fn unescaped(raw: &str) -> String {
    let mut out = raw.to_owned();
    for (escaped, plain) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        out = out.replace(escaped, plain);
    }
    out
}

/// The table as a capture keeps it: the relevant lines, without addresses and without identifiers of the host `own`.
pub(crate) fn without_identity(table: &[u8], own: &HostIdentifiers) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines(table) {
        let Some(parsed) = mount(line) else {
            // An unreadable line stays unreadable in the capture.
            out.extend_from_slice(b"damaged\n");
            continue;
        };
        let counts = (is_network(&parsed) && !is_user_mount(&parsed)) || parsed.kind == "autofs";
        if !counts && parsed.point != "/" {
            continue;
        }
        let source = match parsed.source.rsplit_once(":/") {
            Some((_, path)) => format!("masked:{}", own.mask(&format!("/{path}"))),
            None => own.mask(&parsed.source),
        };
        let options = parsed.options.iter().map(|option| masked(option));
        let options: Vec<String> = options.map(|option| own.mask(&option)).collect();
        out.extend_from_slice(b"0 0 0:0 / ");
        out.extend_from_slice(escaped(&parsed.point).as_bytes());
        if !parsed.is_text {
            // Keeps the line invalid as UTF-8.
            out.push(0xff);
        }
        let rest = format!(
            " {} - {} {} {}\n",
            escaped(&options.join(",")),
            parsed.kind,
            escaped(&source),
            if parsed.is_read_only { "ro" } else { "rw" },
        );
        out.extend_from_slice(rest.as_bytes());
    }
    out
}

fn escaped(plain: &str) -> String {
    plain
        .replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012")
}

fn automounts(mounts: &[Mount]) -> Vec<&str> {
    let autofs = mounts.iter().filter(|mount| mount.kind == "autofs");
    let mut points: Vec<&str> = autofs
        .map(|mount| mount.point.as_str())
        .filter(|point| !is_below(point, "/proc"))
        .collect();
    points.sort_unstable();
    points.dedup();
    points
}

/// The permanent network mounts, by mount point; the last of several mounts at one point covers the others.
fn permanent_network_mounts(mounts: &[Mount]) -> BTreeMap<&str, &Mount> {
    let on_demand = automounts(mounts);
    let lasts = |mount: &&Mount| {
        let mut transient = TRANSIENT_FOLDERS.iter().chain(&on_demand);
        !transient.any(|folder| is_below(&mount.point, folder))
    };
    let counts = |mount: &&Mount| is_network(mount) && !is_user_mount(mount);
    let network = mounts.iter().filter(counts).filter(lasts);
    network.map(|mount| (mount.point.as_str(), mount)).collect()
}

fn is_network(mount: &Mount) -> bool {
    let mut kinds = NETWORK_FILE_SYSTEMS.iter();
    kinds.any(|pattern| cmdline::matches(pattern, &mount.kind))
}

/// Whether a user other than root mounted the file system. With `fusermount` any user can mount, at any writable place
/// and with any type name. A capture does not keep the user ids, so it omits these mounts.
fn is_user_mount(mount: &Mount) -> bool {
    let mut options = mount.options.iter();
    let user = options.find_map(|option| option.strip_prefix("user_id="));
    let is_other = user
        .and_then(|id| id.parse().ok())
        .is_some_and(|id: u64| id != 0);
    mount.kind.starts_with("fuse") && is_other
}

/// Whether `path` is `folder` or inside it.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The part of the source that is the same on every client: the path or name after the server.
fn export(source: &str) -> Reading<String> {
    let name = match source.rsplit_once(":/") {
        Some((_, path)) => format!("/{path}"),
        None => source.to_owned(),
    };
    if name.is_empty() || name == "none" {
        Reading::Unsupported
    } else {
        Reading::Present(name)
    }
}

/// The option, with its value masked if it belongs to one client or is secret.
fn masked(option: &str) -> String {
    match option.split_once('=') {
        Some((name, _)) if CLIENT_SPECIFIC_OPTIONS.contains(&name) || cmdline::is_secret(name) => {
            format!("{name}=<masked>")
        }
        _ => option.to_owned(),
    }
}

/// Whether the root file system itself is read-only, as after errors. A read-only mount of the file system in the
/// agent's namespace does not make the value true.
fn root_read_only(mounts: &Reading<Vec<Mount>>) -> Reading<Value> {
    mounts.as_ref().and_then(|mounts| {
        let root = mounts.iter().rev().find(|mount| mount.point == "/");
        root.map_or(Reading::Absent, |root| {
            Reading::Present(Value::Flag(root.is_read_only))
        })
    })
}

#[cfg(test)]
mod tests;
