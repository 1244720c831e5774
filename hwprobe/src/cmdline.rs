//! The kernel command line without what belongs to one host.

/// Arguments that differ between equal nodes, or are secret.
pub const MASKED_ARGUMENTS: &[&str] = &[
    "boot_image",
    "bootif",
    "root",
    "rootfs",
    "initrd",
    "resume",
    "ip",
    "ifname",
    "nameserver",
    "hostname",
    "systemd.hostname",
    "systemd.machine_id",
    "rd.luks*",
    "rd.lvm*",
    "rd.md.uuid",
    "rd.iscsi*",
    "netroot",
    "nfsroot",
    "xname",
    "nid",
    "ds",
    "s3_url",
    "metal.server",
    "url",
    "inst.*",
    "ignition.config.url",
];

/// Words that mark an argument as a secret wherever they occur in its name.
const SECRET_WORDS: &[&str] = &["token", "passw", "secret", "apikey", "credential"];

/// The arguments in order, with the value of each masked one replaced by `<masked>`.
///
/// Secrets are masked in both forms: `name=value`, and `--name value` as init programs
/// take it.
#[must_use]
pub fn mask(line: &str, masked: &[String]) -> Vec<String> {
    let masked: Vec<String> = masked.iter().map(|name| fold(name)).collect();
    let mut is_secret_next = false;
    let mut out = Vec::new();
    for argument in arguments(line) {
        let was_secret = std::mem::take(&mut is_secret_next);
        match argument.split_once('=') {
            _ if was_secret && !argument.starts_with('-') => out.push("<masked>".to_owned()),
            Some((name, _)) if is_masked(name, &masked) => out.push(format!("{name}=<masked>")),
            Some(_) => out.push(argument),
            None => {
                is_secret_next = argument.starts_with("--") && is_secret(&fold(&argument));
                out.push(argument);
            }
        }
    }
    out
}

/// The kernel does not tell `-` and `_` apart.
fn fold(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

fn is_secret(folded: &str) -> bool {
    SECRET_WORDS.iter().any(|word| folded.contains(word))
}

fn is_masked(name: &str, masked: &[String]) -> bool {
    let folded = fold(name);
    is_secret(&folded) || masked.iter().any(|pattern| matches(pattern, &folded))
}

/// Splits as the kernel does: at blanks outside double quotes.
fn arguments(line: &str) -> Vec<String> {
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

/// Whether `pattern`, which may end in `*`, names `name`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}
