//! What a limit means here: which policy is in force is part of the state. What policies say is in
//! `lattice_quorum_types::limit`, where the solver asks it too; `0001-limit-policy.md` says what another one
//! must provide.

pub use lattice_quorum_types::limit::{ChildSum, ChildSums, LimitPolicy as Policy, Rules};
