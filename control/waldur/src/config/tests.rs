//! Tests of the section `accounting`.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_config::{Check, Source, load};

#[derive(Deserialize)]
struct File {
    accounting: AccountingConfig,
}
impl Check for File {
    fn check(&self, problems: &mut Problems) {
        problems.check_part("accounting", |problems| self.accounting.check(problems));
    }
    fn check_files(&self, problems: &mut Problems) {
        problems.check_part("accounting", |problems| {
            self.accounting.check_files(problems);
        });
    }
    fn used_variables(&self) -> Vec<String> {
        self.accounting.used_variables()
    }
}

fn read(text: &str) -> Result<AccountingConfig, String> {
    let file: Result<File, _> = load(Source::Text(text), std::iter::empty(), "LATTICE_");
    file.map(|file| file.accounting)
        .map_err(|errors| errors.to_string())
}

/// Configuration block from the accounting specification, unchanged, with an example server.
const DOCUMENT: &str = r#"
accounting:
  enabled: true
  provider: "waldur"
  waldur:
    api_url: "https://waldur.example.com/api/"
    token_secret_ref: "vault://lattice/waldur-token"
    push_interval_seconds: 60
    buffer_size: 10000
    disk_buffer_path: "/var/lib/lattice/accounting-wal"
    disk_buffer_max_events: 100000
"#;

#[test]
fn the_documents_own_block_is_read_and_its_numbers_are_what_is_left_out() {
    let missing = read(DOCUMENT).unwrap_err();
    assert!(missing.contains("accounting.waldur.vault"), "{missing}");
    let text = format!(
        "{DOCUMENT}    vault: {{address: \"https://vault.example.com\", token_ref: \"env://VAULT_TOKEN\"}}\n"
    );
    let settings = read(&text).unwrap().settings().unwrap();
    assert_eq!(settings.api.as_str(), "https://waldur.example.com/api/");
    assert_eq!(settings.interval, Duration::from_secs(60));
    let least = "accounting: {enabled: true, waldur: {api_url: 'https://waldur.example.com', token_secret_ref: 'env://T'}}";
    let left_out = read(least).unwrap().settings().unwrap();
    assert_eq!(left_out.api, settings.api);
    assert_eq!(left_out.bounds, settings.bounds);
    assert_eq!(left_out.folder, settings.folder);
    assert_eq!(left_out.interval, settings.interval);
}

#[test]
fn off_is_what_is_left_out() {
    assert!(AccountingConfig::default().settings().is_none());
    let off = DOCUMENT.replace("enabled: true", "enabled: false");
    let off = off + "    vault: {address: \"https://v\", token_ref: \"env://T\"}\n";
    assert!(read(&off).unwrap().settings().is_none());
    assert!(
        read("accounting: {enabled: true}")
            .unwrap_err()
            .contains("set waldur.api_url and waldur.token_secret_ref")
    );
}

/// The files are not read while accounting is disabled, nor are environment variables, which the daemon may have
/// and the check may lack.
#[test]
fn files_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let text = format!(
        "accounting: {{enabled: true, waldur: {{api_url: 'https://w', \
         token_secret_ref: 'file://{at}/token', hook_secret_ref: 'env://NOT_SET', \
         ca_file: '{at}/ca.pem'}}}}"
    );
    let found = |text: &str| {
        let mut problems = Problems::default();
        read(text).unwrap().check_files(&mut problems);
        problems.is_empty()
    };
    assert!(!found(&text));
    assert!(found(&text.replace("enabled: true", "enabled: false")));
    let mistakes = |text: &str| {
        let source = Source::Text(text);
        let checked = lattice_config::check_all::<File>(source, [], "LATTICE_");
        checked.map(drop).map_err(|errors| errors.to_string())
    };
    let report = mistakes(&text).unwrap_err();
    assert!(report.contains("has 2 mistakes"), "{report}");
    for part in ["waldur.ca_file: ", "waldur.token_secret_ref: cannot read "] {
        assert!(report.contains(part), "{part}: {report}");
    }
    std::fs::write(folder.path().join("ca.pem"), "no certificate").unwrap();
    std::fs::write(folder.path().join("token"), "secret").unwrap();
    let report = mistakes(&text).unwrap_err();
    for part in ["the file contains no certificate", "chmod 600"] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn variables_with_secrets_are_no_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "accounting: {{enabled: true, waldur: {{api_url: 'https://w', disk_buffer_path: '{}', \
         token_secret_ref: 'env://LATTICE_WALDUR_TOKEN', \
         hook_secret_ref: 'env://LATTICE_WALDUR_HOOK', \
         vault: {{address: 'https://v', token_ref: 'env://LATTICE_VAULT_TOKEN'}}}}}}",
        folder.path().display()
    );
    let names = [
        "LATTICE_WALDUR_TOKEN",
        "LATTICE_WALDUR_HOOK",
        "LATTICE_VAULT_TOKEN",
    ];
    let env = names.map(|name| (name.to_owned(), "secret".to_owned()));
    let source = Source::Text(&text);
    let file = lattice_config::check_all::<File>(source, env.clone(), "LATTICE_").unwrap();
    assert_eq!(file.accounting.used_variables(), names);
    assert!(lattice_config::ignored_variables::<File>(source, env, "LATTICE_").is_empty());
}

#[test]
fn every_mistake_is_named_at_once() {
    let text = r#"
accounting:
  enabled: true
  provider: "sun grid"
  waldur:
    api_url: "https://admin:secret@waldur.example.com"
    token_secret_ref: "5fd1deadbeef"
    hook_secret_ref: "plain text"
    reconcile_hours: 18446744073709551615
    push_interval_seconds: 0
    timezone: "Mars/Olympus"
    offerings: {main: "nope"}
    buffersize: 3
"#;
    let said = read(text).unwrap_err();
    for wanted in [
        "sun grid",
        "give secrets by reference",
        "token_secret_ref: the value is not a valid reference to a secret",
        "hook_secret_ref: the value is not a valid reference to a secret",
        "0 to 168 hours",
        "1 to 3600 seconds",
        "Mars/Olympus",
        "offerings.main",
        "buffersize",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // Each may be the secret itself.
    for secret in ["5fd1deadbeef", "plain text", "admin:secret"] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
}
