//! Checks of the configuration for `--check-config`: of the files that it names, and with `--online` of the other
//! members.

use crate::{
    certificates::authority::authority_folders, config::Config, edges::check_names,
    error::StartError,
};
use futures::future::join_all;
use lattice_config::{
    Check, Problems,
    online::{OnCheck, OnlineCheck},
};
use lattice_host::error_text::with_causes;
use lattice_mesh::{
    Authority, Credentials, ExpectedIdentity, Identity, MeshConfig, Role, next_step, reach,
};
use std::net::SocketAddr;

impl Check for Config {
    fn check(&self, problems: &mut Problems) {
        self.check_values(problems);
    }

    fn check_files(&self, problems: &mut Problems) {
        check_files(self, problems);
    }
}

fn check_files(config: &Config, problems: &mut Problems) {
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

/// Connects to every other member that a checked configuration lists, as this member, and passes on each check as it
/// ends. Takes some seconds at most.
pub async fn check_online(config: &Config, on_check: OnCheck<'_>) {
    let credentials = match Credentials::load(&config.credentials) {
        Ok(credentials) => credentials,
        Err(error) => {
            let subject = format!("credentials {}", config.credentials.display());
            let next = "correct the files";
            return on_check(OnlineCheck::failed(subject, with_causes(&error), next));
        }
    };
    let others = config.members.iter().enumerate().filter_map(|(n, member)| {
        let expected = ExpectedIdentity::exactly(Role::Quorum, member.id.to_string());
        let addr: SocketAddr = member.addr.parse().ok()?;
        (member.id != config.id).then_some((n, addr, expected))
    });
    let (credentials, mesh) = (&credentials, &MeshConfig::default());
    let dials = others.map(|(n, addr, expected)| async move {
        let subject = format!("members.{n} {addr}");
        on_check(match reach(credentials, addr, expected, mesh).await {
            Ok(identity) => OnlineCheck::passed(subject, identity.uri()),
            Err(error) => OnlineCheck::failed(subject, with_causes(&error), next_step(&error)),
        });
    });
    join_all(dials).await;
}
