//! `lattice admin https`: certificate for the web page and the API, and its renewal.

use super::{DAY, write_new};
use crate::{
    output::{self, Format},
    web_tls::{self, ServerPair},
};
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use lattice_api::x509;
use lattice_host::{durable::NewFile, private_file};
use secrecy::ExposeSecret as _;
use serde_json::json;
use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, fchown},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Server certificate.
const CERTIFICATE: &str = "https.pem";
/// Key of the server certificate.
const KEY: &str = "https.key";
/// CA certificate, for clients.
const CA: &str = "https-ca.pem";
/// Key of the CA, for renewals.
const CA_KEY: &str = "https-ca.key";

#[derive(Args)]
pub struct HttpsArgs {
    /// Name or address of the server; repeat for several. With --renew: the names of the present certificate by default.
    #[arg(long = "host", required_unless_present = "renew")]
    hosts: Vec<String>,
    /// Folder for the files; existing files are not replaced without --renew. With --renew: the folder that this command
    /// made.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Validity, days.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=825))]
    days: u32,
    /// Replace `https.pem` and `https.key` by a new certificate and key of the same CA. Clients need no change, and a
    /// control that reads these files presents the new certificate within seconds.
    #[arg(long)]
    renew: bool,
}

/// Creates a certificate for the web page and the API, or renews it.
pub fn run(args: &HttpsArgs, format: Format) -> anyhow::Result<()> {
    match args.renew {
        true => renew(args, format),
        false => create(args, format),
    }
}

fn create(args: &HttpsArgs, format: Format) -> anyhow::Result<()> {
    let web = web_tls::create(args.hosts.clone(), SystemTime::now(), DAY * args.days)?;
    fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    // The key is written first, so that an existing key is found before anything is written.
    let (key, ca_key) = (web.key_pem.expose_secret(), web.ca_key_pem.expose_secret());
    for (name, text, mode) in [
        (KEY, key, 0o600),
        (CA_KEY, ca_key, 0o600),
        (CERTIFICATE, web.certificate_pem.as_str(), 0o644),
        (CA, web.ca_pem.as_str(), 0o644),
    ] {
        write_new(&args.out.join(name), text.as_bytes(), mode)?;
    }
    let folder = args.out.display().to_string();
    let sentence = format!("made {folder} for {}", args.hosts.join(", "));
    let made = json!({"folder": folder, "hosts": args.hosts});
    output::print_done(format, &made, &sentence)
}

fn renew(args: &HttpsArgs, format: Format) -> anyhow::Result<()> {
    let path = |name: &str| args.out.join(name);
    ensure!(
        args.out.is_dir(),
        "{}: no such folder; give with --out the folder that `lattice admin https` made, the one of \
         `https.certificate` in control's configuration",
        args.out.display()
    );
    let ca_key = path(CA_KEY);
    if !ca_key.exists() {
        bail!(
            "{}: no such file: the folder was made by an earlier version, or the CA is not one of \
             `lattice admin https`. Make a new CA with `lattice admin https` in another folder, and \
             give its {CA} to the clients (`lattice admin context`)",
            ca_key.display()
        );
    }
    let ca_key_pem = private_file::read(&ca_key)?;
    let ca_pem = read(&path(CA))?;
    let hosts = match args.hosts.is_empty() {
        true => hosts_of(&path(CERTIFICATE))?,
        false => args.hosts.clone(),
    };
    let (now, lifetime) = (SystemTime::now(), DAY * args.days);
    let renewed = web_tls::renew(&ca_pem, &ca_key_pem, hosts.clone(), now, lifetime);
    let ServerPair {
        certificate_pem,
        key_pem,
    } = renewed.with_context(|| args.out.display().to_string())?;
    // Neither file is replaced before both are written: a full disk must not separate the key from its certificate.
    let key = prepare(&path(KEY), key_pem.expose_secret(), 0o600)?;
    let certificate = prepare(&path(CERTIFICATE), &certificate_pem, 0o644)?;
    for file in [key, certificate] {
        let about = file.path().display().to_string();
        file.commit().context(about)?;
    }
    let folder = args.out.display().to_string();
    let sentence = format!(
        "renewed {folder} for {}, {} days; a control that reads these files presents it within seconds",
        hosts.join(", "),
        args.days
    );
    let renewed = json!({"folder": folder, "hosts": hosts});
    output::print_done(format, &renewed, &sentence)
}

/// Writes the file that is to replace `path`, with the owner of the present file: the control may run as another user
/// than the operator, and must be able to read its key.
fn prepare(path: &Path, text: &str, mode: u32) -> anyhow::Result<NewFile> {
    let about = || path.display().to_string();
    let mut new = NewFile::create(path, mode).with_context(about)?;
    match fs::metadata(path) {
        Ok(present) => {
            let own = new.file().metadata().with_context(about)?;
            let (uid, gid) = (present.uid(), present.gid());
            if (own.uid(), own.gid()) != (uid, gid) {
                fchown(new.file(), Some(uid), Some(gid)).with_context(|| {
                    format!(
                        "{}: the new file cannot have the owner of the present one (uid {uid}, gid {gid}); \
                         run the command as this user or as root",
                        path.display()
                    )
                })?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(about),
    }
    new.write_all(text.as_bytes()).with_context(about)?;
    new.file().sync_all().with_context(about)?;
    Ok(new)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Names in a server certificate.
fn hosts_of(path: &Path) -> anyhow::Result<Vec<String>> {
    let about = || path.display().to_string();
    let all = x509::read_pem(&read(path)?)
        .map_err(anyhow::Error::msg)
        .with_context(about)?;
    let leaf = all.first().with_context(about)?;
    let leaf = x509::parse_certificate(leaf).map_err(anyhow::Error::msg);
    let hosts = leaf.with_context(about)?.hosts;
    ensure!(
        !hosts.is_empty(),
        "{}: the certificate names no server; give --host",
        path.display()
    );
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::chown;

    /// Only root can give a file to another user; for others, the owner is the user of the test.
    #[test]
    fn replaced_file_keeps_its_owner_and_stays_until_the_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(KEY);
        fs::write(&path, "present").unwrap();
        if fs::metadata(&path).unwrap().uid() == 0 {
            chown(&path, Some(1234), Some(1235)).unwrap();
        }
        let before = fs::metadata(&path).unwrap();
        let new = prepare(&path, "new", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "present");
        new.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        assert_eq!(after.mode() & 0o777, 0o600);
    }
}
