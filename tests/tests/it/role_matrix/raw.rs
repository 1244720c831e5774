//! Caller that ignores all rules: it trusts any server, uses any certificate or none, and names a method with a body
//! that it never sends. A server that answers has not read the body.

#[path = "../../../../agent/mesh/tests/common/raw.rs"]
#[expect(dead_code, reason = "the mesh's own tests do more with it")]
mod peer;

use lattice_mesh::Credentials;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The role may call the method: the server rejected the length of the body next.
    LetIn,
    /// The role may not call the method.
    Denied,
    /// The method is not served there.
    Unknown,
    /// The connection was refused before the call.
    Refused(String),
}

/// Connection of one caller to one daemon, or the reason why there is none.
pub struct Line {
    _endpoint: quinn::Endpoint,
    open: Result<quinn::Connection, String>,
}

impl Line {
    /// Connects to a daemon.
    pub async fn open(own: Option<&Credentials>, to: SocketAddr) -> Self {
        let endpoint = peer::counting_client(own, b"lattice/1", Arc::default());
        let connecting = endpoint.connect(to, "lattice.invalid").unwrap();
        let connected = tokio::time::timeout(PATIENCE, connecting).await.unwrap();
        Self {
            _endpoint: endpoint,
            open: connected.map_err(|error| word(&error)),
        }
    }

    /// Calls a method with the largest possible body length, and sends no body.
    pub async fn ask(&self, method: &str) -> Answer {
        let connection = match &self.open {
            Ok(connection) => connection,
            Err(word) => return Answer::Refused(word.clone()),
        };
        let asked = tokio::time::timeout(PATIENCE, ask(connection, method)).await;
        match asked.expect("an answer before any body came") {
            Some(answer) => answer,
            None => Answer::Refused(word(&connection.closed().await)),
        }
    }
}

/// Calls a method. `None`: the connection is gone.
async fn ask(connection: &quinn::Connection, method: &str) -> Option<Answer> {
    let (mut send, mut recv) = connection.open_bi().await.ok()?;
    let mut request = vec![1];
    request.extend_from_slice(&u16::try_from(method.len()).unwrap().to_be_bytes());
    request.extend_from_slice(method.as_bytes());
    request.extend_from_slice(&u32::MAX.to_be_bytes());
    send.write_all(&request).await.ok()?;
    // Status, length of the rest, and kind of the fault.
    let mut answer = [0; 6];
    recv.read_exact(&mut answer).await.ok()?;
    let [status, .., kind] = answer;
    assert_eq!(status, 2, "{method}: not a fault: {answer:?}");
    Some(match kind {
        0 => Answer::Denied,
        1 => Answer::Unknown,
        2 => Answer::LetIn,
        other => panic!("{method}: fault {other}"),
    })
}

/// Short reason of a refused connection: peers receive only a TLS alert.
fn word(error: &quinn::ConnectionError) -> String {
    let text = error.to_string();
    let alerts = [
        (44, "revoked"),
        (45, "expired"),
        (46, "not of this cluster"),
        (48, "unknown authority"),
        (116, "no certificate"),
    ];
    let alert = alerts
        .iter()
        .find(|(code, _)| format!("{text}:").contains(&format!("error {code}:")));
    match alert {
        Some((_, word)) => (*word).to_owned(),
        None if text.contains("certificate is required") => "no certificate".to_owned(),
        None => text,
    }
}
