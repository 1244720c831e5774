//! External dependencies of a member: credentials, issuing key and clock.

use crate::{
    Config, Settings, StartError, certificates::authority::authority_folders, load_authorities,
};
use lattice_config::{Problems, online::OnlineCheck};
use lattice_host::error_text::with_causes;
use lattice_mesh::{
    Authority, Clock, Credentials, ExpectedIdentity, Identity, MeshConfig, Role, SystemClock,
    next_step, reach,
};
use lattice_quorum_types::VoterId;
use std::{fmt, net::SocketAddr, sync::Arc};

/// External dependencies of a member; tests and the demo replace them.
pub struct Edges {
    /// Certificate `spiffe://<cluster>/quorum/<id>` and its key.
    pub credentials: Credentials,
    /// CA key at the start, if any; [`crate::App::set_issuing_keys`] replaces it with any number of keys. A member
    /// without a key issues no certificates, and processes request certificates from another member.
    pub authority: Option<Arc<Authority>>,
    /// Clock of the member and of its mesh endpoint.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edges({})", self.credentials.identity())
    }
}

impl Edges {
    /// Loads the credentials and the first CA key that the configuration names, and uses the host's clock.
    ///
    /// # Errors
    /// A file is missing or cannot be used.
    pub fn from_config(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            credentials: Credentials::load(&config.credentials)?,
            authority: authorities(config)?.into_iter().next(),
            clock: Arc::new(SystemClock),
        })
    }

    /// Checks that the credentials belong to the member that the settings describe.
    ///
    /// # Errors
    /// The certificate is another process's.
    pub fn check(&self, settings: &Settings) -> Result<(), StartError> {
        check_identity(settings, self.credentials.identity())
    }
}

/// Loads all CA keys in the configured folder: the folder's own key first, if any, then those of its subfolders by
/// name. Returns an empty list if no folder is configured.
///
/// # Errors
/// The folder contains no key, or one of the keys cannot be used.
pub fn authorities(config: &Config) -> Result<Vec<Arc<Authority>>, StartError> {
    let folder = config.enrolment.authority.as_deref();
    Ok(folder.map_or_else(|| Ok(Vec::new()), load_authorities)?)
}

/// Checks that `found`, the identity in a certificate, is the identity of the member that the settings describe.
pub(crate) fn check_identity(settings: &Settings, found: &Identity) -> Result<(), StartError> {
    check_names(&settings.cluster, settings.id, found)
}

fn check_names(cluster: &str, id: VoterId, found: &Identity) -> Result<(), StartError> {
    let id = id.to_string();
    if found.cluster() == cluster && found.role() == Role::Quorum && found.id() == id {
        return Ok(());
    }
    Err(StartError::WrongIdentity {
        found: found.uri(),
        expected: format!("spiffe://{cluster}/quorum/{id}"),
    })
}

/// Adds every mistake in the files that the configuration names.
pub(crate) fn check_files(config: &Config, problems: &mut Problems) {
    problems.check_folder("data_dir", &config.data_dir);
    let (cluster, id) = (&config.cluster, config.id);
    let folder = &config.credentials;
    let missing = Credentials::missing_in(folder);
    let advice = format!(
        "`lattice admin ca issue --role quorum --id {id} --out {}` writes it",
        folder.display()
    );
    problems.add_missing_files("credentials", folder, &missing, &advice);
    if missing.is_empty() {
        // A wrong name or number has a mistake of its own.
        let is_named = Identity::new(cluster.as_str(), Role::Quorum, "1").is_ok()
            && config.members.iter().any(|member| member.id == id);
        let loaded = Credentials::load(folder).map_err(StartError::from);
        let checked = loaded.and_then(|credentials| match is_named {
            true => check_names(cluster, id, credentials.identity()),
            false => Ok(()),
        });
        if let Err(error) = checked {
            problems.add("credentials", with_causes(&error));
        }
    }
    if let Some(folder) = &config.enrolment.authority {
        problems.check_part("enrolment", |problems| {
            let folders = match authority_folders(folder) {
                Ok(folders) => folders,
                Err(error) => return problems.add("authority", with_causes(&error)),
            };
            for folder in folders {
                let missing = Authority::missing_in(&folder);
                let advice = "`lattice admin ca create` writes it";
                problems.add_missing_files("authority", &folder, &missing, advice);
                if let (true, Err(error)) = (missing.is_empty(), Authority::load(&folder)) {
                    problems.add("authority", with_causes(&error));
                }
            }
        });
    }
}

/// Connects to every other member that a checked configuration lists, as this member. Takes some seconds at most.
pub async fn check_online(config: &Config) -> Vec<OnlineCheck> {
    let credentials = match Credentials::load(&config.credentials) {
        Ok(credentials) => credentials,
        Err(error) => {
            let subject = format!("credentials {}", config.credentials.display());
            let next = "correct the files";
            return vec![OnlineCheck::failed(subject, with_causes(&error), next)];
        }
    };
    let others = config.members.iter().enumerate().filter_map(|(n, member)| {
        let expected = ExpectedIdentity::exactly(Role::Quorum, member.id.to_string());
        let addr: SocketAddr = member.addr.parse().ok()?;
        (member.id != config.id).then_some((n, (addr, expected)))
    });
    let (places, peers): (Vec<usize>, Vec<_>) = others.unzip();
    let found = reach(&credentials, &peers, &MeshConfig::default()).await;
    let lines = places.into_iter().zip(&peers).zip(found);
    let checks = lines.map(|((n, (addr, _)), found)| {
        let subject = format!("members.{n} {addr}");
        match found {
            Ok(identity) => OnlineCheck::passed(subject, identity.uri()),
            Err(error) => OnlineCheck::failed(subject, with_causes(&error), next_step(&error)),
        }
    });
    checks.collect()
}
