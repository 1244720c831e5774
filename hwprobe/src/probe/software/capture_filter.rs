//! Filters for captures: they keep the data from which the software probe produces the same class record as on the
//! captured host, and omit the rest.

use super::{image, packages};
use crate::commands::{CommandLine, RPM_PACKAGES};
use crate::{Host, HostIdentifiers, cmdline};
use std::path::Path;

/// Filters dpkg's status files, which contain much more than the probe reads; `None` for any other file, and
/// for one that is not UTF-8.
pub(crate) fn file(host: &Host, path: &Path, bytes: &[u8]) -> Option<Vec<u8>> {
    if path != Path::new(packages::STATUS) && !path.starts_with(packages::STATUS_FOLDER) {
        return None;
    }
    let status = std::str::from_utf8(bytes).ok()?;
    Some(packages::only_wanted(status, &host.packages).into_bytes())
}

/// Filters the output of a program.
pub(crate) fn answer(host: &Host, line: &CommandLine, answer: Vec<u8>) -> Vec<u8> {
    if *line == RPM_PACKAGES {
        packages::only_wanted_lines(&answer, &host.packages)
    } else {
        answer
    }
}

/// The kernel's command line with host-specific and secret values masked. An argument that names the image keeps
/// the image's name and tag.
pub(crate) fn command_line(host: &Host, line: &str) -> String {
    let own = HostIdentifiers::read(&host.root);
    let keep = |name: &str, value: &str| {
        let kept = image::masked_image_argument(name, value)?;
        // The probe follows the path of a deployment, which must stay as it is.
        Some(match name {
            "ostree" => kept,
            _ => own.mask(&kept),
        })
    };
    cmdline::mask_except(line, &host.masked_arguments, &own, keep).join(" ")
}
