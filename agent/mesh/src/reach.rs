//! Trial connections: whether a peer answers and accepts this process, before a daemon starts.

use crate::{Credentials, ExpectedIdentity, Identity, Mesh, MeshConfig, MeshError};
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// Dials the address once from a free port, and closes the connection. Returns the identity that answers, after
/// [`MeshConfig::connect_timeout`] at the latest. Must run inside a tokio runtime.
///
/// # Errors
/// No port is free, or no peer with the expected identity answers and accepts these credentials.
pub async fn reach(
    credentials: &Credentials,
    addr: SocketAddr,
    expect: ExpectedIdentity,
    config: &MeshConfig,
) -> Result<Identity, MeshError> {
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let mesh = Mesh::bind(any, credentials.clone(), config.clone())?;
    let answer = mesh.peer(addr, expect).connected().await;
    mesh.shutdown(Duration::ZERO).await;
    answer
}

/// Next step for an operator after a trial connection has failed.
pub fn next_step(error: &MeshError) -> &'static str {
    match error {
        MeshError::Unreachable { .. } | MeshError::BackingOff { .. } => {
            "start the process there, or open its UDP port in the firewall"
        }
        MeshError::NotTrusted { .. } => {
            "compare the authorities of both certificates (`lattice admin certificate show`)"
        }
        MeshError::UnexpectedPeer { .. } => "correct the address",
        _ => "see the error",
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{Authority, Clock as _, Role, Router, SystemClock, Validity};
    use std::net::UdpSocket;

    fn credentials(authority: &Authority, role: Role, id: &str) -> Credentials {
        Credentials::issued_now(authority, "test", role, id, Duration::from_secs(3600)).unwrap()
    }

    fn authority() -> Authority {
        let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(3600));
        Authority::create("test", validity).unwrap()
    }

    #[tokio::test]
    async fn each_peer_has_its_own_answer() {
        let (ours, theirs) = (authority(), authority());
        let member = |authority: &Authority, id: &str| {
            let credentials = credentials(authority, Role::Quorum, id);
            let any = "127.0.0.1:0".parse().unwrap();
            let mesh = Mesh::bind(any, credentials, MeshConfig::default()).unwrap();
            mesh.serve(Router::new()).unwrap();
            mesh
        };
        let (first, other) = (member(&ours, "1"), member(&theirs, "2"));
        // Holds the port, and answers nothing.
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let config = MeshConfig {
            connect_timeout: Duration::from_millis(500),
            ..MeshConfig::default()
        };
        let own = credentials(&ours, Role::Control, "c1");
        let dial = |addr, role| reach(&own, addr, ExpectedIdentity::role(role), &config);
        let (silent_addr, other_addr) = (silent.local_addr().unwrap(), other.local_addr());
        let found = dial(first.local_addr(), Role::Quorum).await;
        assert_eq!(found.unwrap(), first.identity());
        let found = dial(silent_addr, Role::Quorum).await;
        assert!(matches!(found, Err(MeshError::Unreachable { .. })));
        let found = dial(other_addr, Role::Quorum).await;
        assert!(matches!(found, Err(MeshError::NotTrusted { .. })));
        let found = dial(first.local_addr(), Role::Control).await;
        assert!(matches!(found, Err(MeshError::UnexpectedPeer { .. })));
        for mesh in [first, other] {
            mesh.shutdown(Duration::ZERO).await;
        }
    }

    #[tokio::test]
    async fn presented_certificates_include_peers_and_this_process() {
        let authority = authority();
        let serving = |role, id| {
            let credentials = credentials(&authority, role, id);
            let any = "127.0.0.1:0".parse().unwrap();
            let mesh = Mesh::bind(any, credentials, MeshConfig::default()).unwrap();
            mesh.serve(Router::new()).unwrap();
            mesh
        };
        let (member, control) = (serving(Role::Quorum, "1"), serving(Role::Control, "c1"));
        let expect = ExpectedIdentity::role(Role::Quorum);
        control.connect(member.local_addr(), expect).await.unwrap();
        let presented = control.presented_certificates();
        let found: Vec<_> = presented.iter().map(|one| one.identity.clone()).collect();
        assert_eq!(found.len(), 2);
        assert!(found.contains(&control.identity()) && found.contains(&member.identity()));
        for one in presented {
            assert_eq!(one.expires_at.since(one.issued_at) / 1000, 3600, "{one:?}");
        }
        for mesh in [control, member] {
            mesh.shutdown(Duration::ZERO).await;
        }
    }
}
