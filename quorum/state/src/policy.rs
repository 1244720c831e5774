//! Limit policies. The policy in force is part of the state. The policies are defined in
//! `lattice_quorum_types::limit_policy`, which the solver uses too. `../0001-limit-policy.md` lists what another policy
//! must provide.

pub use lattice_quorum_types::limit_policy::{
    ChildSum, ChildSums, LimitPolicy as Policy, LimitRules,
};
