//! Who may call what: the specification, written by hand. A method that a daemon serves and that is
//! not here, or the other way round, is a failure of the test.

use lattice_mesh::Role::{self, Agent, Control, Quorum};

/// Which daemon serves a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    Quorum,
    Control,
    Agent,
}

/// What a caller could name that is not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// The request names no node that could be another's, or the caller answers for all of them.
    Nobody,
    /// The name is the certificate's, whatever the request says.
    OwnOnly,
}

/// One method.
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
    // Raft is the members' own.
    rule(Server::Quorum, "raft.append.1", &[Quorum]),
    rule(Server::Quorum, "raft.campaign.1", &[Quorum]),
    rule(Server::Quorum, "raft.segment.1", &[Quorum]),
    rule(Server::Quorum, "raft.snapshot.1", &[Quorum]),
    rule(Server::Quorum, "raft.take_over.1", &[Quorum]),
    rule(Server::Quorum, "raft.vote.1", &[Quorum]),
    // The state is control's to change and read; members propose for strangers that enrol.
    rule(Server::Quorum, "quorum.propose", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.read", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.sign_audit", &[Control]),
    rule(Server::Quorum, "quorum.status", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.watch", &[Control, Quorum]),
    // Members tell of themselves and of each other; who they are is changed on a person's behalf.
    rule(Server::Quorum, "quorum.member", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.overview", &[Control, Quorum]),
    rule(Server::Quorum, "quorum.change", &[Control]),
    rule(Server::Quorum, "quorum.backup", &[Control]),
    // Everybody learns whom to trust, and renews its own certificate.
    rule(Server::Quorum, "mesh.trust", &[Agent, Quorum, Control]),
    rule(Server::Quorum, "mesh.push_trust", &[Quorum, Control]),
    own_only(Server::Quorum, "mesh.renew", &[Agent, Quorum, Control]),
    // Agents tell control what became of their ranks, and of no other's.
    own_only(Server::Control, "control.report", &[Agent]),
    rule(Server::Control, "mesh.trust", &[Agent, Quorum, Control]),
    rule(Server::Control, "mesh.push_trust", &[Quorum, Control]),
    // Only control makes agents do something.
    rule(Server::Agent, "agent.launch", &[Control]),
    rule(Server::Agent, "agent.checkpoint", &[Control]),
    rule(Server::Agent, "agent.terminate", &[Control]),
    rule(Server::Agent, "agent.walltime", &[Control]),
    rule(Server::Agent, "agent.attempts", &[Control]),
    rule(Server::Agent, "agent.log", &[Control]),
    rule(Server::Agent, "agent.inventory", &[Control]),
    rule(Server::Agent, "agent.history", &[Control]),
    // It clears reasons too.
    rule(Server::Agent, "agent.health", &[Control]),
    rule(Server::Agent, "agent.usage", &[Control]),
    rule(Server::Agent, "agent.claim", &[Control]),
    rule(Server::Agent, "agent.gate", &[Control]),
    rule(Server::Agent, "agent.wipe", &[Control]),
    rule(Server::Agent, "agent.ping_peer", &[Control]),
    // Agents vouch for each other's life, and share preimages that carry their own proof.
    rule(Server::Agent, "agent.ping", &[Control, Agent]),
    rule(Server::Agent, "agent.preimage", &[Control, Agent]),
    // Signed, and no secret: an agent tells whom it trusts.
    rule(Server::Agent, "mesh.trust", &[Agent, Quorum, Control]),
    rule(Server::Agent, "mesh.push_trust", &[Quorum, Control]),
];

/// Kinds of messages, who takes them and from whom: gossip alone, and no quorum member takes part.
pub const MESSAGES: &[(Server, u16, &[Role])] = &[
    (Server::Control, 1, &[Agent, Control]),
    (Server::Agent, 1, &[Agent, Control]),
];
