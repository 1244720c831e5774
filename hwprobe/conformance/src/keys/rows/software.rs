//! Rows of class `software`: operating system image and packages.

use crate::keys::{KeyRow, row};

const OS: &str = "os-release";

pub(super) const ROWS: &[KeyRow] = &[
    row("software.os.id", "distribution", "", OS).required(),
    row(
        "software.os.<name>",
        "version, variant, build and image ids",
        "",
        OS,
    ),
    row(
        "software.image.<name>",
        "name of the image the node booted, by source",
        "",
        "kernel arguments, /etc",
    ),
    row(
        "software.package.names",
        "installed packages of the site's list",
        "",
        "dpkg, rpm",
    )
    .required(),
    row(
        "software.package.<name>",
        "version of that package",
        "",
        "dpkg, rpm",
    ),
    row(
        "software.file.<name>",
        "hash of a configuration file of the site's list",
        "",
        "the file",
    )
    .needs_hardware(),
    row(
        "software.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
];
