//! Leadership: elections and handovers, and the leaders that a member without a log may follow.

pub(crate) mod election_gate;
pub(crate) mod handover;
pub(crate) mod vote_guard;
pub(crate) mod watchdog;
