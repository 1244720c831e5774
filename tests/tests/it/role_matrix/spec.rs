//! Specification of permitted calls, written by hand. The test fails for a method that is served and not listed here,
//! and for the reverse.

use lattice_mesh::Role::{self, Agent, Control, Quorum};

/// Daemon that serves a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    Quorum,
    Control,
    Agent,
}

/// Names in a request that may belong to another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// The request names no node of another member, or the caller is responsible for all nodes.
    Nobody,
    /// The name in the certificate counts, whatever the request contains.
    OwnOnly,
}

/// Permitted callers of one method.
pub struct Rule {
    pub server: Server,
    pub method: &'static str,
    pub callers: &'static [Role],
    pub names: Names,
}

const fn rule(server: Server, method: &'static str, callers: &'static [Role]) -> Rule {
    Rule {
        server,
        method,
        callers,
        names: Names::Nobody,
    }
}

const fn own_only(server: Server, method: &'static str, callers: &'static [Role]) -> Rule {
    Rule {
        server,
        method,
        callers,
        names: Names::OwnOnly,
    }
}

pub const RULES: &[Rule] = &[
    // Raft is for members only.
    rule(Server::Quorum, "raft.append.1", &[Quorum]),
    rule(Server::Quorum, "raft.campaign.1", &[Quorum]),
    rule(Server::Quorum, "raft.segment.1", &[Quorum]),
    rule(Server::Quorum, "raft.snapshot.1", &[Quorum]),
    rule(Server::Quorum, "raft.take_over.1", &[Quorum]),
    rule(Server::Quorum, "raft.vote.1", &[Quorum]),
    // Control reads and changes the state; members propose enrolments.
    rule(Server::Quorum, "quorum.propose", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.read", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.sign_audit", &[Control]),
    rule(Server::Quorum, "quorum.status", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.watch", &[Control, Quorum]),
    // Members report about themselves and each other; operators change the membership through control.
    rule(Server::Quorum, "quorum.member", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.overview", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.change", &[Control]),
    rule(Server::Quorum, "quorum.backup", &[Control]),
    // Every role reads the trusted authorities, and renews its own certificate.
    rule(Server::Quorum, "mesh.trust", &[Agent, Quorum, Control]),
    rule(Server::Quorum, "mesh.push_trust", &[Quorum, Control]),
    own_only(Server::Quorum, "mesh.renew", &[Agent, Quorum, Control]),
    // Agents report on their own ranks only.
    own_only(Server::Control, "control.report", &[Agent]),
    rule(Server::Control, "mesh.trust", &[Agent, Quorum, Control]),
    rule(Server::Control, "mesh.push_trust", &[Quorum, Control]),
    // Only control gives orders to agents.
    rule(Server::Agent, "agent.launch", &[Control]),
    rule(Server::Agent, "agent.checkpoint", &[Control]),
    rule(Server::Agent, "agent.terminate", &[Control]),
    rule(Server::Agent, "agent.walltime", &[Control]),
    rule(Server::Agent, "agent.attempts", &[Control]),
    rule(Server::Agent, "agent.origin", &[Control]),
    rule(Server::Agent, "agent.log", &[Control]),
    rule(Server::Agent, "agent.inventory", &[Control]),
    rule(Server::Agent, "agent.history", &[Control]),
    // The method also clears reasons.
    rule(Server::Agent, "agent.health", &[Control]),
    rule(Server::Agent, "agent.usage", &[Control]),
    rule(Server::Agent, "agent.attestation", &[Control]),
    rule(Server::Agent, "agent.gate", &[Control]),
    rule(Server::Agent, "agent.wipe", &[Control]),
    rule(Server::Agent, "agent.ping_peer", &[Control]),
    // Agents confirm each other's liveness, and share preimages that are verifiable by themselves.
    rule(Server::Agent, "agent.ping", &[Control, Agent]),
    rule(Server::Agent, "agent.preimage", &[Control, Agent]),
    // The trusted authorities are signed and not secret.
    rule(Server::Agent, "mesh.trust", &[Agent, Quorum, Control]),
    rule(Server::Agent, "mesh.push_trust", &[Quorum, Control]),
];

/// Kinds of messages, with receivers and permitted senders: only gossip, without quorum members.
pub const MESSAGES: &[(Server, u16, &[Role])] = &[
    (Server::Control, 1, &[Agent, Control]),
    (Server::Agent, 1, &[Agent, Control]),
];
