//! Limits and deadlines of a mesh endpoint.

use crate::{Clock, RateLimit, SystemClock, Wire};
use std::{fmt, sync::Arc, time::Duration};

/// Limits and deadlines of a mesh endpoint. Each daemon starts from `MeshConfig::default()` and replaces a few values.
#[derive(Clone)]
pub struct MeshConfig {
    /// Longest request body accepted or sent, bytes.
    pub max_request_bytes: usize,
    /// Longest reply or stream item accepted or sent, bytes.
    pub max_reply_bytes: usize,
    /// Longest reply or stream item accepted from an agent, bytes; no effect above `max_reply_bytes`. There are
    /// thousands of agents, and a compromised agent must not fill the memory of this process.
    pub max_agent_reply_bytes: usize,
    /// Longest time to receive a request, and longest duration of a call's handler. On timeout the mesh drops the
    /// handler and returns an error to the caller. The handler of a stream has no time limit.
    pub request_timeout: Duration,
    /// Longest duration of a dial, including its handshake and the peer's acceptance.
    pub connect_timeout: Duration,
    /// Idle timeout: a connection that receives nothing for this long is closed.
    pub idle_timeout: Duration,
    /// Interval between two keep-alives of the dialling side on a quiet connection; well below `idle_timeout`.
    pub keep_alive: Duration,
    /// Idle timeout between two agents. Agents hold many connections for gossip, each used rarely, and no caller waits
    /// for the loss of one to be noticed.
    pub agents_idle_timeout: Duration,
    /// Keep-alive interval between two agents.
    pub agents_keep_alive: Duration,
    /// First wait after a failed dial; doubles up to `max_backoff`.
    pub min_backoff: Duration,
    /// Longest wait after failed dials.
    pub max_backoff: Duration,
    /// Requests that one peer may have open at a time. Each connection reserves memory for its requests, so an agent,
    /// which holds many connections and receives few requests, allows a quarter.
    pub max_streams: u32,
    /// Messages that one peer may have in flight to this process at a time; an agent allows a quarter.
    pub max_message_streams: u32,
    /// Maximum number of open connections. At the maximum, the endpoint refuses incoming connections.
    pub max_connections: usize,
    /// Enrolment rate per source: an IPv4 address, or a /64 of IPv6.
    pub enrol_rate: RateLimit,
    /// Enrolment rate of all sources together. Bounds the load that unenrolled processes can cause.
    pub enrol_rate_total: RateLimit,
    /// Clock for the validity of certificates.
    pub clock: Arc<dyn Clock>,
    /// Transport that replaces QUIC in a simulation. `None` otherwise.
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
            // An enrolment costs about 1 ms, so the limit is an eighth of a core. With three members, ten thousand
            // nodes that boot at once are enrolled within half a minute.
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
