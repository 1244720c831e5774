//! Installed packages, from dpkg's status files and `rpm`'s output. Pure, except for [`installed`], which reads the
//! sources.

use crate::Root;
use crate::cmdline::matches;
use lattice_conformance::Reading;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const STATUS: &str = "/var/lib/dpkg/status";
/// Folder with one file per package, in images built without dpkg itself.
pub(super) const STATUS_FOLDER: &str = "/var/lib/dpkg/status.d";
/// Maximum length of a name or version, in bytes; a longer one indicates damage.
const MAX_FIELD_BYTES: usize = 256;

/// Package versions by name, each as `epoch:version-release.arch` (in dpkg, the version contains the release).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages(pub BTreeMap<String, BTreeSet<String>>);

impl Packages {
    fn add(&mut self, name: &str, version: String) {
        self.0.entry(name.to_owned()).or_default().insert(version);
    }

    fn extend(&mut self, other: Self) {
        for (name, versions) in other.0 {
            self.0.entry(name).or_default().extend(versions);
        }
    }

    /// The packages that match one of the patterns.
    pub(super) fn matching(mut self, wanted: &[String]) -> Self {
        self.0.retain(|name, _| is_wanted(name, wanted));
        self
    }
}

fn is_wanted(name: &str, wanted: &[String]) -> bool {
    wanted.iter().any(|pattern| matches(pattern, name))
}

/// The packages of all package managers on the node; absent without any. If one is unreadable, the whole result is
/// unknown: an incomplete list would look like missing packages.
pub(super) fn installed(root: &Root, rpm: impl FnOnce() -> Reading<Vec<u8>>) -> Reading<Packages> {
    let status = root.text(STATUS).and_then(|status| dpkg_packages(&status));
    let rpm = rpm().and_then(|answer| rpm_packages(&answer));
    let mut all: Option<Packages> = None;
    for source in [status, status_folder(root), rpm] {
        match source {
            Reading::Present(packages) => all.get_or_insert_default().extend(packages),
            Reading::Absent => {}
            unknown => return unknown,
        }
    }
    all.map_or(Reading::Absent, Reading::Present)
}

fn status_folder(root: &Root) -> Reading<Packages> {
    root.list(STATUS_FOLDER).and_then(|names| {
        let mut all = Packages::default();
        for name in names.iter().filter(|name| !name.ends_with(".md5sums")) {
            let file = root.text(format!("{STATUS_FOLDER}/{name}"));
            match file.and_then(|stanza| dpkg_packages(&stanza)) {
                Reading::Present(packages) => all.extend(packages),
                Reading::Absent => {}
                unknown => return unknown,
            }
        }
        Reading::Present(all)
    })
}

/// The installed packages in dpkg's status text. A stanza without `Status` (in `status.d`) describes an installed
/// package; one with a state other than `installed` (removed with configuration left, half unpacked) does not.
#[must_use]
pub fn dpkg_packages(status: &str) -> Reading<Packages> {
    let mut all = Packages::default();
    for stanza in status.split("\n\n") {
        let Some(package) = PackageStanza::of(stanza) else {
            continue;
        };
        let (Some(name), Some(version), Some(arch)) = (package.name, package.version, package.arch)
        else {
            return Reading::failed("a package in dpkg's status has no name or version");
        };
        if [name, version, arch]
            .iter()
            .any(|field| !is_valid_field(field))
        {
            return Reading::failed("a package in dpkg's status has a damaged name or version");
        }
        if package.is_installed {
            let epoch = if version.contains(':') { "" } else { "0:" };
            all.add(name, format!("{epoch}{version}.{arch}"));
        }
    }
    Reading::Present(all)
}

/// The relevant fields of one package.
struct PackageStanza<'a> {
    name: Option<&'a str>,
    version: Option<&'a str>,
    arch: Option<&'a str>,
    is_installed: bool,
}

impl<'a> PackageStanza<'a> {
    /// Parses a stanza; `None` for a blank one.
    fn of(text: &'a str) -> Option<Self> {
        let mut stanza = Self {
            name: None,
            version: None,
            arch: None,
            is_installed: true,
        };
        // Lines that start with a blank or tab continue a field that is not needed.
        let fields = text.lines().filter(|line| !line.starts_with([' ', '\t']));
        let mut is_blank = true;
        for (field, value) in fields.filter_map(|line| line.split_once(':')) {
            is_blank = false;
            let value = value.trim();
            match field {
                "Package" => stanza.name = Some(value),
                "Version" => stanza.version = Some(value),
                "Architecture" => stanza.arch = Some(value),
                "Status" => {
                    stanza.is_installed = value.split_whitespace().nth(2) == Some("installed");
                    // A removed package may have lost its version.
                    if !stanza.is_installed {
                        stanza.version = stanza.version.or(Some("0"));
                        stanza.arch = stanza.arch.or(Some("all"));
                    }
                }
                _ => {}
            }
        }
        (!is_blank).then_some(stanza)
    }
}

fn is_valid_field(field: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_graphic();
    !field.is_empty() && field.len() <= MAX_FIELD_BYTES && field.bytes().all(is_usual)
}

/// The packages in the output of [`crate::commands::RPM_PACKAGES`]. RPM lists the signing keys (`gpg-pubkey`) as
/// packages; they are skipped.
#[must_use]
pub fn rpm_packages(answer: &[u8]) -> Reading<Packages> {
    let mut all = Packages::default();
    for line in answer.split(|&byte| byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let fields = std::str::from_utf8(line).ok();
        match fields.and_then(|line| line.split_once('\t')) {
            Some(("gpg-pubkey", _)) => {}
            Some((name, version)) if is_valid_field(name) && is_valid_field(version) => {
                all.add(name, version.to_owned());
            }
            _ => {
                return Reading::failed(
                    "rpm's output has a line without a valid package name and version",
                );
            }
        }
    }
    Reading::Present(all)
}

/// dpkg's status text reduced to the fields that [`dpkg_packages`] needs for the wanted packages, for a capture.
pub(super) fn only_wanted(status: &str, wanted: &[String]) -> String {
    const KEPT: [&str; 4] = ["Package", "Status", "Architecture", "Version"];
    let mut out = String::new();
    for stanza in status.split("\n\n") {
        let name = PackageStanza::of(stanza).and_then(|stanza| stanza.name);
        if !name.is_some_and(|name| is_wanted(name, wanted)) {
            continue;
        }
        let fields = stanza.lines().filter(|line| {
            let field = line.split_once(':').map(|(field, _)| field);
            field.is_some_and(|field| KEPT.contains(&field))
        });
        for line in fields {
            out.push_str(line);
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

/// The lines of rpm's output about the wanted packages, and the lines that name no package, because of which the
/// reading fails.
pub(super) fn only_wanted_lines(answer: &[u8], wanted: &[String]) -> Vec<u8> {
    let counts = |line: &&[u8]| {
        let name = line.split(|&byte| byte == b'\t').next().unwrap_or_default();
        !line.contains(&b'\t')
            || std::str::from_utf8(name).map_or(true, |name| is_wanted(name, wanted))
    };
    let lines = answer.split_inclusive(|&byte| byte == b'\n');
    lines.filter(counts).flatten().copied().collect()
}

#[cfg(test)]
mod tests;
