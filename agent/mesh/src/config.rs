//! Limits and deadlines of a mesh endpoint.

use crate::{Clock, RateLimit, SystemClock, Wire};
use std::{fmt, sync::Arc, time::Duration};

/// Limits and deadlines. `MeshConfig::default()` is what the daemons run with.
#[derive(Clone)]
pub struct MeshConfig {
    /// Longest request body accepted or sent, bytes.
    pub max_request_bytes: usize,
    /// Longest reply or stream item accepted or sent, bytes.
    pub max_reply_bytes: usize,
    /// Longest reply or stream item accepted from an agent, bytes, where `max_reply_bytes` is more.
    /// There are thousands of them, and one that is not itself any more must not fill our memory.
    pub max_agent_reply_bytes: usize,
    /// Longest a handler of a call may take before its caller is told and it is dropped.
    pub request_timeout: Duration,
    /// Longest a dial, with its handshake and the peer's acceptance, may take.
    pub connect_timeout: Duration,
    /// A connection that hears nothing for this long is dead.
    pub idle_timeout: Duration,
    /// Between two keep-alives of the dialler on a quiet connection; well below `idle_timeout`.
    pub keep_alive: Duration,
    /// As `idle_timeout`, from agent to agent. They have many connections for gossip, each used
    /// once in a while, where nothing waits for a dead one to be noticed.
    pub agents_idle_timeout: Duration,
    /// As `keep_alive`, from agent to agent.
    pub agents_keep_alive: Duration,
    /// First wait after a failed dial; doubles up to `max_backoff`.
    pub min_backoff: Duration,
    /// Longest wait after failed dials.
    pub max_backoff: Duration,
    /// Requests one peer may have open at a time. Room for each is kept with each connection, so
    /// an agent, which has many and is asked little, allows a quarter.
    pub max_streams: u32,
    /// Messages one peer may have in flight towards us at a time; towards an agent a quarter.
    pub max_message_streams: u32,
    /// Accepted connections held at a time.
    pub max_connections: usize,
    /// Enrolments admitted per source: an IPv4 address, or a /64 of IPv6.
    pub enrol_rate: RateLimit,
    /// Enrolments admitted from all sources together: what strangers may cost, whoever they are.
    pub enrol_rate_total: RateLimit,
    /// What certificates are judged by.
    pub clock: Arc<dyn Clock>,
    /// What carries calls in place of QUIC, in a simulation. `None` everywhere else.
    pub wire: Option<Arc<dyn Wire>>,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self {
            max_request_bytes: 4 << 20,
            max_reply_bytes: 16 << 20,
            max_agent_reply_bytes: 16 << 20,
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(10),
            agents_idle_timeout: Duration::from_secs(300),
            agents_keep_alive: Duration::from_secs(60),
            min_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(2),
            max_streams: 256,
            max_message_streams: 64,
            max_connections: 16_384,
            enrol_rate: RateLimit {
                burst: 10,
                per_second: 1.0,
            },
            // About a millisecond each, so an eighth of a core; a fleet of ten thousand that
            // boots at once is in within half a minute at three members.
            enrol_rate_total: RateLimit {
                burst: 512,
                per_second: 128.0,
            },
            clock: Arc::new(SystemClock),
            wire: None,
        }
    }
}

impl fmt::Debug for MeshConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeshConfig")
            .field("max_request_bytes", &self.max_request_bytes)
            .field("request_timeout", &self.request_timeout)
            .field("max_streams", &self.max_streams)
            .finish_non_exhaustive()
    }
}
