//! Priority of jobs: the factors of a score, and the policy that weighs them.

pub mod factors;
pub(crate) mod policy;
