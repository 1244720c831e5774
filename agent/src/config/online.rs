//! Checks of the configuration against the quorum members and controls that it names, for `--check-config --online`.

use super::Config;
use crate::data_dir::{DataDir, EnrolmentRecord};
use crate::with_causes;
use futures::future::join_all;
use lattice_config::online::{OnCheck, OnlineCheck};
use lattice_mesh::{
    Credentials, EnrolError, ExpectedIdentity, JoinToken, MeshConfig, Role, next_step, reach,
    verify_member,
};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the resolver.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A peer of the configuration.
struct ConfiguredPeer {
    /// Configuration key with the name as written, for the report.
    subject: String,
    role: Role,
    /// First address of the name, or the reason that there is none.
    addr: Result<SocketAddr, String>,
}

/// Tries every quorum member and control of a checked configuration, with the certificate of this node or, before it
/// has one, with the join token. The token is not used up. Passes on each check as it ends; takes some seconds at most.
pub async fn check_online(config: &Config, on_check: OnCheck<'_>) {
    let join = config.join.as_ref();
    let mut members = match join {
        Some(join) => resolve("join.quorum", Role::Quorum, &join.quorum).await,
        None => recorded_members(&config.data_dir),
    };
    let controls = resolve("control", Role::Control, &config.control).await;
    if DataDir::is_enrolled(&config.data_dir) {
        members.extend(controls);
        return match Credentials::load(&config.data_dir.join("identity")) {
            Ok(credentials) => with_certificate(&credentials, members, on_check).await,
            Err(error) => {
                let subject = format!("data_dir {}", config.data_dir.display());
                let next = "enrol this node again";
                on_check(OnlineCheck::failed(subject, with_causes(&error), next));
            }
        };
    }
    let reason = "this node is not enrolled yet";
    for peer in controls {
        on_check(match peer.addr {
            Ok(_) => OnlineCheck::skipped(peer.subject, reason),
            Err(why) => unresolved(peer.subject, why),
        });
    }
    match join.map(super::Join::read_token) {
        Some(Ok(token)) => with_token(&token, members, on_check).await,
        Some(Err(error)) => {
            let next = "create a token with `lattice admin token create`";
            on_check(OnlineCheck::failed("join", with_causes(&error), next));
        }
        None => on_check(OnlineCheck::failed(
            "join",
            "this node is not enrolled, and no join token is configured",
            "set join.token_file and join.quorum",
        )),
    }
}

async fn resolve(key: &str, role: Role, names: &[String]) -> Vec<ConfiguredPeer> {
    let peers = names.iter().enumerate().map(|(n, name)| async move {
        let found = timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host(name.as_str())).await;
        let addr = match found {
            Ok(Ok(mut addrs)) => addrs.next().ok_or_else(|| "it has no address".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!(
                "the resolver did not answer within {} s",
                RESOLVE_TIMEOUT.as_secs()
            )),
        };
        ConfiguredPeer {
            subject: format!("{key}.{n} {name}"),
            role,
            addr,
        }
    });
    join_all(peers).await
}

/// Quorum members that the node recorded at its enrolment; none if the record cannot be read.
fn recorded_members(data_dir: &Path) -> Vec<ConfiguredPeer> {
    let record = std::fs::read(data_dir.join("membership.json")).ok();
    let record: Option<EnrolmentRecord> =
        record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let members = record.unwrap_or_default().quorum.into_iter();
    members
        .map(|addr| ConfiguredPeer {
            subject: format!("quorum member {addr}"),
            role: Role::Quorum,
            addr: Ok(addr),
        })
        .collect()
}

fn unresolved(subject: String, why: String) -> OnlineCheck {
    let next = "correct the name, or the resolver of this host";
    OnlineCheck::failed(subject, why, next)
}

async fn with_certificate(
    credentials: &Credentials,
    peers: Vec<ConfiguredPeer>,
    on_check: OnCheck<'_>,
) {
    let dials = peers.into_iter().map(|peer| async move {
        let addr = match peer.addr {
            Ok(addr) => addr,
            Err(why) => return on_check(unresolved(peer.subject, why)),
        };
        let expected = ExpectedIdentity::role(peer.role);
        let found = reach(credentials, addr, expected, &MeshConfig::default()).await;
        on_check(match found {
            Ok(identity) => OnlineCheck::passed(peer.subject, identity.uri()),
            Err(error) => OnlineCheck::failed(peer.subject, with_causes(&error), next_step(&error)),
        });
    });
    join_all(dials).await;
}

async fn with_token(token: &JoinToken, members: Vec<ConfiguredPeer>, on_check: OnCheck<'_>) {
    let dials = members.into_iter().map(|peer| async move {
        let addr = match peer.addr {
            Ok(addr) => addr,
            Err(why) => return on_check(unresolved(peer.subject, why)),
        };
        let found = verify_member(addr, token, &MeshConfig::default()).await;
        on_check(match found {
            Ok(()) => {
                let answer = "belongs to the cluster of the join token";
                OnlineCheck::passed(peer.subject, answer)
            }
            Err(error) => {
                let next = match &error {
                    EnrolError::Mesh(error) => next_step(error),
                    EnrolError::PinMismatch { .. } => "create a token at this cluster",
                    EnrolError::Refused(_) => "wait some seconds and check again",
                    _ => "check again",
                };
                OnlineCheck::failed(peer.subject, with_causes(&error), next)
            }
        });
    });
    join_all(dials).await;
}
