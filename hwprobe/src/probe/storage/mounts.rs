//! How network file systems are mounted: type, mount point and options.
//!
//! The namespace that counts is that of the first process: jobs start from it, while an agent
//! started with private mounts sees its own. Where it may not be read (without root), the agent's
//! own is taken. A file system mounted on demand (below or at an automounter's mount point), for
//! a container, for one job or by an ordinary user comes and goes and is left out.

use crate::probe::Probed;
use crate::{Reading, Root, Value, cmdline};
use std::borrow::Cow;
use std::collections::BTreeMap;

const TABLES: [&str; 2] = ["/proc/1/mountinfo", "/proc/self/mountinfo"];

/// More are no configuration that anyone compares.
const MOST_MOUNTS: usize = 256;

/// Client file systems.
const NETWORK: &[&str] = &[
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

/// Below these, mounts are of jobs, containers and users.
const TRANSIENT: &[&str] = &[
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

/// Options that name this client, or the one of several servers it happens to talk to.
const OF_ONE_HOST: &[&str] = &[
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
    /// Where.
    pub point: String,
    /// File system type.
    pub kind: String,
    /// What is mounted, as the file system calls it.
    pub source: String,
    /// Options of the mount and of the file system, each once, sorted.
    pub options: Vec<String>,
    /// Whether the file system itself is read-only, whatever this mount of it allows.
    pub is_read_only: bool,
    /// Whether all of the line is text. Where it is not, what is not stands replaced.
    pub is_text: bool,
}

pub(super) fn keys(root: &Root, probed: &mut Probed) {
    let mut table = Reading::Absent;
    for path in TABLES {
        table = root.bytes(path);
        if table.is_known() && table != Reading::Absent {
            break;
        }
    }
    let mounts = table.and_then(|table| parse(&table));
    let found = mounts.as_ref().and_then(|mounts| {
        let found = lasting(mounts);
        if found.values().any(|mount| !mount.is_text) {
            return Reading::failed("a network file system is mounted where no text says");
        }
        if found.len() > MOST_MOUNTS {
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
                return Reading::failed("an automounter is mounted where no text says");
            }
            Reading::Present(names(automounts(mounts)))
        }),
    );
    for (point, mount) in found.present().into_iter().flatten() {
        let key = |name: &str| format!("storage.mount.{point}.{name}");
        record.put(key("type"), Reading::Present(mount.kind.clone()));
        record.put(key("export"), export(&mount.source));
        let options: Vec<String> = mount.options.iter().map(|option| masked(option)).collect();
        record.put(key("options"), Reading::Present(Value::from(options)));
    }
    probed
        .vitals
        .put("storage.root_read_only", root_read_only(&mounts));
}

/// Reads a `mountinfo`.
#[must_use]
pub fn parse(table: impl AsRef<[u8]>) -> Reading<Vec<Mount>> {
    let mounts: Option<Vec<Mount>> = lines(table.as_ref()).map(mount).collect();
    mounts.map_or_else(
        || Reading::failed("the mount table has a line of another form"),
        Reading::Present,
    )
}

/// A mount point is whatever bytes somebody called it.
fn lines(table: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

/// `id parent major:minor root point options optional… - type source options`.
fn mount(line: &[u8]) -> Option<Mount> {
    let line = String::from_utf8_lossy(line);
    // What was text is borrowed.
    let is_text = matches!(line, Cow::Borrowed(_));
    let (place, system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(4);
    let (point, own) = (place.next()?, place.next()?);
    let mut system = system.split(' ');
    let (kind, source) = (system.next()?, system.next()?);
    // Some file systems have no options, and no blank before none.
    let super_options = system.next().unwrap_or_default();
    let options = own.split(',').chain(super_options.split(','));
    let mut options: Vec<String> = options
        .filter(|option| !option.is_empty())
        .map(unescaped)
        .collect();
    // A read-only mount of a writable file system is read-only, and so is a writable mount of a
    // file system that turned read-only.
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

/// Blanks, tabs, line ends and backslashes stand as three octal digits.
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

/// The table as a capture keeps it: the lines that count, without addresses.
pub(crate) fn without_identity(table: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines(table) {
        let Some(parsed) = mount(line) else {
            // What could not be read then cannot be read there.
            out.extend_from_slice(b"damaged\n");
            continue;
        };
        let counts = (is_network(&parsed) && !is_of_a_user(&parsed)) || parsed.kind == "autofs";
        if !counts && parsed.point != "/" {
            continue;
        }
        let source = match parsed.source.rsplit_once(":/") {
            Some((_, path)) => format!("masked:/{path}"),
            None => parsed.source,
        };
        let options: Vec<String> = parsed.options.iter().map(|option| masked(option)).collect();
        out.extend_from_slice(b"0 0 0:0 / ");
        out.extend_from_slice(escaped(&parsed.point).as_bytes());
        if !parsed.is_text {
            // Nor is it text there.
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

/// The network mounts that are there as long as the node is up, by mount point; of several at
/// one place the last covers the others.
fn lasting(mounts: &[Mount]) -> BTreeMap<&str, &Mount> {
    let on_demand = automounts(mounts);
    let lasts = |mount: &&Mount| {
        let mut transient = TRANSIENT.iter().chain(&on_demand);
        !transient.any(|folder| is_below(&mount.point, folder))
    };
    let counts = |mount: &&Mount| is_network(mount) && !is_of_a_user(mount);
    let network = mounts.iter().filter(counts).filter(lasts);
    network.map(|mount| (mount.point.as_str(), mount)).collect()
}

fn is_network(mount: &Mount) -> bool {
    let mut kinds = NETWORK.iter();
    kinds.any(|pattern| cmdline::matches(pattern, &mount.kind))
}

/// Whether somebody who is not root mounted it: with `fusermount` anybody does, where they may
/// write and by the name of any type. A capture has no user, and none of these mounts.
fn is_of_a_user(mount: &Mount) -> bool {
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

/// What of the source is the same on every client: the path or name behind the server.
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

/// The option without what belongs to one client or is secret.
fn masked(option: &str) -> String {
    match option.split_once('=') {
        Some((name, _)) if OF_ONE_HOST.contains(&name) || cmdline::is_secret(name) => {
            format!("{name}=<masked>")
        }
        _ => option.to_owned(),
    }
}

/// Whether the root file system is read-only, as it turns after errors. An agent that may not
/// write has a read-only mount of it; that is its own matter.
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
