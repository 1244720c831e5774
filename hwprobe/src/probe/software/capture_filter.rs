//! Filters of the software probe for captures: they keep enough for the same record, and omit the rest.

use super::{image, packages};
use crate::commands::{CommandLine, RPM_PACKAGES};
use crate::{Host, cmdline};
use std::path::Path;

/// Filters dpkg's status files, which contain much more than the probe reads; `None` for any other file.
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

/// The kernel's command line with masked arguments, except those that name the image.
pub(crate) fn command_line(host: &Host, line: &str) -> String {
    cmdline::mask_except(line, &host.masked_arguments, image::masked_image_argument).join(" ")
}
