//! Checks of the configuration for `--check-config`: of the files that it names, and with `--online` of the services.

use crate::{
    config::{Config, HttpsConfig, Settings},
    edges::{check_identity, read_tokens},
    join,
    start_error::StartError,
    tls,
};
use futures::future::join_all;
use lattice_config::{
    Check, Problems,
    online::{OnCheck, OnlineCheck},
};
use lattice_engine::{
    bmc::{BmcFileError, BmcPlan, check_access},
    inputs::{check_source_files, check_sources},
};
use lattice_host::error_text::with_causes;
use lattice_http::{AuthError, HttpsIdentity, Issuer, IssuerError};
use lattice_mesh::{
    Clock as _, Credentials, EnrolError, ExpectedIdentity, Identity, JoinToken, MeshConfig, Role,
    SystemClock, next_step, reach, verify_member,
};
use lattice_waldur::{
    client::{ObjectParameters, WaldurClient, WaldurError, http_client},
    config::AccountingSettings,
    secret::Secrets,
};
use std::{net::SocketAddr, path::Path, time::Duration};
use tokio::time::timeout;

/// Longest duration of the check of one web service.
const WEB_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest duration of the checks of all BMCs.
const BMCS_TIMEOUT: Duration = Duration::from_secs(60);

impl Check for Config {
    fn check(&self, problems: &mut Problems) {
        self.check_values(problems);
    }

    fn check_files(&self, problems: &mut Problems) {
        check_files(self, problems);
    }

    fn used_variables(&self) -> Vec<String> {
        self.accounting.used_variables()
    }
}

fn check_files(config: &Config, problems: &mut Problems) {
    if let Some(folder) = &config.data_dir {
        problems.check_folder("data_dir", folder);
    }
    check_credentials(config, problems);
    check_tokens(config, problems);
    if let Some(path) = &config.bmcs {
        check_bmcs(path, problems);
    }
    problems.check_part("scheduling", |problems| {
        check_source_files(&config.scheduling, problems);
    });
    problems.check_part("accounting", |problems| {
        config.accounting.check_files(problems);
    });
    problems.check_part("https", |problems| check_https(&config.https, problems));
}

/// Text of an error without its configuration key, which the report names.
fn reason(error: &StartError) -> String {
    match error {
        StartError::File { path, reason, .. } => format!("{}: {reason}", path.display()),
        StartError::TokensExposed(exposed) => {
            format!("{exposed}; any user that can read the file can use its tokens")
        }
        StartError::TokenExposed(exposed) => {
            format!("{exposed}; any user that can read the file can enrol with its token")
        }
        StartError::KeyExposed(exposed) => {
            format!("{exposed}; any user that can read the key can impersonate this control")
        }
        other => with_causes(other),
    }
}

fn check_credentials(config: &Config, problems: &mut Problems) {
    if let Some(join) = join::is_due(config) {
        if let Err(error) = join::read_token(&join.token) {
            problems.add("join.token", reason(&error));
        }
        return;
    }
    let folder = &config.credentials;
    let missing = Credentials::missing_in(folder);
    let advice = format!(
        "`lattice admin ca issue --role control --out {}` writes it, or set `join`",
        folder.display()
    );
    problems.add_missing_files("credentials", folder, &missing, &advice);
    if !missing.is_empty() {
        return;
    }
    // A wrong name has a mistake of its own.
    let is_named = Identity::new(&config.cluster, Role::Control, "c").is_ok();
    let loaded = Credentials::load(folder).map_err(StartError::from);
    let checked = loaded.and_then(|credentials| match is_named {
        true => check_identity(&config.cluster, credentials.identity()),
        false => Ok(()),
    });
    if let Err(error) = checked {
        problems.add("credentials", reason(&error));
    }
}

fn check_tokens(config: &Config, problems: &mut Problems) {
    match read_tokens(config) {
        Ok(_) => {}
        Err(StartError::TokensFile {
            path,
            source: AuthError::Invalid(errors),
        }) => {
            for problem in errors.problems() {
                problems.add("tokens", format!("{}: {problem}", path.display()));
            }
        }
        Err(StartError::TokensFile { path, source }) => {
            let source = with_causes(&source);
            problems.add("tokens", format!("{}: {source}", path.display()));
        }
        Err(error) => problems.add("tokens", reason(&error)),
    }
}

fn check_bmcs(path: &Path, problems: &mut Problems) {
    match BmcPlan::load(path) {
        Ok(_) => {}
        Err(BmcFileError::Unreadable { path, source }) => {
            problems.add("bmcs", format!("{}: {source}", path.display()));
        }
        Err(BmcFileError::InvalidEntries { path, wrong }) => {
            for why in wrong {
                problems.add("bmcs", format!("{}: {why}", path.display()));
            }
        }
    }
}

fn check_https(config: &HttpsConfig, problems: &mut Problems) {
    match (
        tls::load_chain(&config.certificate),
        tls::load_key(&config.key),
    ) {
        (Ok(chain), Ok(key)) => check_pair(config, HttpsIdentity { chain, key }, problems),
        (chain, key) => {
            for (name, error) in [("certificate", chain.err()), ("key", key.err())] {
                if let Some(error) = error {
                    problems.add(name, reason(&error));
                }
            }
        }
    }
    // Other errors of the issuer are those of values, which have mistakes of their own.
    if let Some(oidc) = &config.oidc
        && let Err(IssuerError::Key {
            key: "ca_file",
            reason,
        }) = Issuer::new(oidc)
    {
        problems.add("oidc.ca_file", reason);
    }
}

fn check_pair(config: &HttpsConfig, identity: HttpsIdentity, problems: &mut Problems) {
    let path = config.certificate.display();
    match identity.into_certificate() {
        Ok(certificate) if certificate.period().expires_at_ms <= SystemClock.now().0 => {
            let text = format!(
                "{path}: the certificate has expired; replace it (`lattice admin https --renew`, or \
                 the site's CA)"
            );
            problems.add("certificate", text);
        }
        Ok(_) => {}
        Err(error) => {
            let key = config.key.display();
            problems.add(
                "certificate",
                format!("{path} with {key}: {}", error.reason),
            );
        }
    }
}

/// Tries the quorum members, the issuer, Waldur, the BMCs and the scheduling sources of a checked configuration, all at
/// the same time, and passes on each check as it ends. Takes a minute at most, some seconds without BMCs, and longer
/// only with a longer `deadline_s` of a source.
pub async fn check_online(config: &Config, settings: &Settings, on_check: OnCheck<'_>) {
    let now = SystemClock.now();
    tokio::join!(
        check_members(config, &settings.quorum, on_check),
        async { check_issuer(settings).await.into_iter().for_each(on_check) },
        check_waldur(&config.cluster, settings, on_check),
        check_all_bmcs(settings, on_check),
        check_sources(&settings.scheduling, now, on_check),
    );
}

fn member_subject(n: usize, addr: SocketAddr) -> String {
    format!("quorum.{n} {addr}")
}

/// Connects to the quorum members with the certificate of this control or, before it has one, with its join token. The
/// token is not used up.
async fn check_members(config: &Config, members: &[SocketAddr], on_check: OnCheck<'_>) {
    if let Some(join) = join::is_due(config) {
        return match join::read_token(&join.token) {
            Ok(token) => check_with_token(&token, members, on_check).await,
            Err(error) => {
                let next = "create a token with `lattice admin token create --role control`";
                on_check(OnlineCheck::failed("join.token", reason(&error), next));
            }
        };
    }
    let credentials = match Credentials::load(&config.credentials) {
        Ok(credentials) => credentials,
        Err(error) => {
            let subject = format!("credentials {}", config.credentials.display());
            let next = "correct the files";
            return on_check(OnlineCheck::failed(subject, with_causes(&error), next));
        }
    };
    let (credentials, mesh) = (&credentials, &MeshConfig::default());
    let dials = members.iter().enumerate().map(|(n, addr)| async move {
        let subject = member_subject(n, *addr);
        let expected = ExpectedIdentity::role(Role::Quorum);
        on_check(match reach(credentials, *addr, expected, mesh).await {
            Ok(identity) => OnlineCheck::passed(subject, identity.uri()),
            Err(error) => OnlineCheck::failed(subject, with_causes(&error), next_step(&error)),
        });
    });
    join_all(dials).await;
}

async fn check_with_token(token: &JoinToken, members: &[SocketAddr], on_check: OnCheck<'_>) {
    let dials = members.iter().enumerate().map(|(n, addr)| async move {
        let subject = member_subject(n, *addr);
        let found = verify_member(*addr, token, &MeshConfig::default()).await;
        on_check(match found {
            Ok(()) => OnlineCheck::passed(subject, "belongs to the cluster of the join token"),
            Err(error) => {
                let next = match &error {
                    EnrolError::Mesh(error) => next_step(error),
                    EnrolError::PinMismatch { .. } => "create a token at this cluster",
                    EnrolError::Refused(_) => "wait some seconds and check again",
                    _ => "check again",
                };
                OnlineCheck::failed(subject, with_causes(&error), next)
            }
        });
    });
    join_all(dials).await;
}

async fn check_issuer(settings: &Settings) -> Option<OnlineCheck> {
    let oidc = settings.oidc.as_ref()?;
    let subject = format!("https.oidc.issuer {}", oidc.issuer);
    let issuer = match Issuer::new(oidc) {
        Ok(issuer) => issuer,
        Err(error) => {
            let next = "correct `https.oidc`";
            return Some(OnlineCheck::failed(subject, with_causes(&error), next));
        }
    };
    Some(match timeout(WEB_TIMEOUT, issuer.check_keys()).await {
        Ok(Ok(keys)) => OnlineCheck::passed(subject, format!("keys read: {keys}")),
        Ok(Err(fault)) => OnlineCheck::failed(subject, fault.cause, fault.next_step),
        Err(_) => OnlineCheck::failed(subject, late(), "check the route to the issuer"),
    })
}

fn late() -> String {
    format!("no answer within {} s", WEB_TIMEOUT.as_secs())
}

/// Checks that Waldur accepts the token, then the rights of its user.
async fn check_waldur(cluster: &str, settings: &Settings, on_check: OnCheck<'_>) {
    let Some(accounting) = settings.accounting.as_ref() else {
        return;
    };
    let subject = format!("accounting.waldur.api_url {}", accounting.api);
    let client = match waldur_client(cluster, accounting) {
        Ok(client) => client,
        Err(why) => {
            let next = "correct `accounting.waldur.ca_file`";
            return on_check(OnlineCheck::failed(subject, why, next));
        }
    };
    match timeout(WEB_TIMEOUT, client.check_access()).await {
        Ok(Ok(version)) => {
            let answer = format!("token accepted, version {version}");
            on_check(OnlineCheck::passed(subject, answer));
            check_waldur_rights(&client, cluster, accounting, on_check).await;
        }
        Ok(Err(error)) => {
            let next = waldur_next_step(&error);
            on_check(OnlineCheck::failed(subject, with_causes(&error), next));
        }
        Err(_) => {
            let next = "check the route to Waldur";
            on_check(OnlineCheck::failed(subject, late(), next));
        }
    }
}

fn waldur_next_step(error: &WaldurError) -> &'static str {
    match error {
        WaldurError::Unreached { .. } => {
            "correct `api_url`, or give the CAs of Waldur in `ca_file`"
        }
        WaldurError::Denied { .. } => "store a valid token at `token_secret_ref`",
        WaldurError::Secret(_) => "correct `token_secret_ref`",
        WaldurError::Busy { .. } => "check again later",
        WaldurError::Refused { .. } | WaldurError::Unusable { .. } => {
            "correct `api_url`, or the permissions of the token"
        }
        WaldurError::MissingRight { right, .. } => right.next_step(),
    }
}

/// Checks the rights of a provider, one line for each that is missing.
async fn check_waldur_rights(
    client: &WaldurClient,
    cluster: &str,
    settings: &AccountingSettings,
    on_check: OnCheck<'_>,
) {
    let subject = "accounting.waldur rights";
    let parameters = ObjectParameters::new(cluster, settings);
    match timeout(WEB_TIMEOUT, client.missing_rights(&parameters)).await {
        Ok(Ok(None)) => {
            let reason = "Waldur does not show the roles of the token's user";
            on_check(OnlineCheck::skipped(subject, reason));
        }
        Ok(Ok(Some(missing))) if missing.is_empty() => {
            on_check(OnlineCheck::passed(subject, "those of a provider"));
        }
        Ok(Ok(Some(missing))) => {
            for (right, places) in missing {
                let places = places.join(", ");
                let cause = match places.is_empty() {
                    true => format!("missing right: {right}: {}", right.effect()),
                    false => format!("missing right: {right} ({places}): {}", right.effect()),
                };
                on_check(OnlineCheck::failed(subject, cause, right.next_step()));
            }
        }
        Ok(Err(error)) => {
            let next = waldur_next_step(&error);
            on_check(OnlineCheck::failed(subject, with_causes(&error), next));
        }
        Err(_) => {
            let next = "check the route to Waldur";
            on_check(OnlineCheck::failed(subject, late(), next));
        }
    }
}

fn waldur_client(cluster: &str, settings: &AccountingSettings) -> Result<WaldurClient, String> {
    let pem = match &settings.ca_file {
        None => Vec::new(),
        Some(path) => std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?,
    };
    let http = http_client(&pem).map_err(|error| with_causes(&error))?;
    let secrets = Secrets {
        http: http.clone(),
        vault: settings.vault.clone(),
    };
    let (api, token) = (settings.api.clone(), settings.token.clone());
    Ok(WaldurClient::new(cluster, http, api, secrets, token))
}

async fn check_all_bmcs(settings: &Settings, on_check: OnCheck<'_>) {
    let Some(path) = &settings.bmcs else {
        return;
    };
    match BmcPlan::load(path) {
        Ok(plan) => check_access(&plan, BMCS_TIMEOUT, on_check).await,
        Err(error) => {
            let subject = format!("bmcs {}", path.display());
            let next = "correct the file";
            on_check(OnlineCheck::failed(subject, with_causes(&error), next));
        }
    }
}
