//! Software: the system image, selected packages, and the configuration files listed by the site.
//!
//! Install times, build dates and packages outside the list are omitted: they differ between nodes that should be
//! equal. For a listed configuration file, only its hash leaves the node.

mod capture_filter;
mod image;
mod packages;

pub(crate) use capture_filter::{
    answer as kept_answer, command_line as kept_command_line, file as kept_file,
};
pub use packages::{Packages, dpkg_packages, rpm_packages};

use super::ProbeResult;
use crate::commands::RPM_PACKAGES;
use crate::{Host, Root};
use lattice_conformance::{Class, ClassRecord, Reading, Value, text};
use std::collections::BTreeMap;

/// Maximum number of packages that one node reports, as a bound for an overly broad list.
const MAX_PACKAGES: usize = 1000;

const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// Fields of `os-release` that are part of conformance; display names and web addresses are omitted.
const OS_FIELDS: &[(&str, &str)] = &[
    ("software.os.version_id", "VERSION_ID"),
    ("software.os.build_id", "BUILD_ID"),
    ("software.os.variant_id", "VARIANT_ID"),
    ("software.os.image_id", "IMAGE_ID"),
    ("software.os.image_version", "IMAGE_VERSION"),
];

/// Reads image, packages and listed files.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Software);
    let record = &mut probed.record;
    os_release(&host.root, record);
    image::keys(&host.root, record);
    let found = packages::installed(&host.root, || {
        host.commands.output(&RPM_PACKAGES, &host.outstanding)
    });
    package_keys(found, &host.packages, record);
    for path in &host.hashed_files {
        record.put(format!("software.file.{path}"), host.root.hash(path));
    }
    probed
}

fn os_release(root: &Root, record: &mut ClassRecord) {
    let [first, second] = OS_RELEASE.map(|path| root.text(path));
    let text = match first {
        Reading::Absent => second,
        first => first,
    };
    let fields = text.map(|text| assignments(&text));
    let field = |name: &str| {
        fields.as_ref().and_then(|fields| {
            let value = fields.get(name).map(|value| text::firmware(value));
            value.unwrap_or(Reading::Absent)
        })
    };
    record.require("software.os.id", field("ID"));
    for (key, name) in OS_FIELDS {
        record.put(*key, field(name));
    }
}

/// Parses a file in the form of `os-release`: a name, `=`, and a value that may be quoted as in a shell. The last
/// assignment of a name applies; lines of any other form are ignored.
#[must_use]
pub fn assignments(text: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim();
        let Some((name, raw)) = line.split_once('=') else {
            continue;
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(is_name) {
            out.insert(name.to_owned(), unquoted(raw));
        }
    }
    out
}

fn unquoted(raw: &str) -> String {
    let raw = raw.trim();
    let inner = |quote: char| raw.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(literal) = inner('\'') {
        return literal.to_owned();
    }
    let quoted = inner('"').unwrap_or(raw);
    let mut out = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}

/// Adds `software.package.names`, and one key per installed package that matches the list `wanted`. A listed package
/// that is not installed has no key.
fn package_keys(found: Reading<Packages>, wanted: &[String], record: &mut ClassRecord) {
    let mut found = found.map(|found| found.matching(wanted));
    if let Reading::Present(packages) = &found
        && packages.0.len() > MAX_PACKAGES
    {
        found = Reading::failed(format!(
            "{} packages match the list, more than {MAX_PACKAGES}",
            packages.0.len()
        ));
    }
    let names = found.as_ref().map(|found| {
        let names = found.0.keys().cloned();
        Value::List(names.collect())
    });
    record.require("software.package.names", names);
    let Reading::Present(found) = found else {
        return;
    };
    for (name, versions) in found.0 {
        let mut versions: Vec<String> = versions.into_iter().collect();
        let value = match versions.len() {
            1 => versions.pop().map(Value::Text),
            _ => Some(Value::List(versions)),
        };
        record.put(
            format!("software.package.{name}"),
            value.map_or(Reading::Absent, Reading::Present),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_is_read_as_a_shell_would() {
        let text = "# a comment\nID=rocky\nVERSION_ID=\"9.5\"\nNAME='Rocky \"Linux\"'\n\
                    PRETTY_NAME=\"a \\\"b\\\" \\$c\"\nbroken line\n=x\nBAD NAME=1\nID=\"alma\"\n";
        let found = assignments(text);
        assert_eq!(found["ID"], "alma");
        assert_eq!(found["VERSION_ID"], "9.5");
        assert_eq!(found["NAME"], "Rocky \"Linux\"");
        assert_eq!(found["PRETTY_NAME"], "a \"b\" $c");
        assert_eq!(found.len(), 4);
        assert!(assignments("").is_empty());
        assert_eq!(assignments("A=\"\nB=\\")["A"], "\"");
    }
}
