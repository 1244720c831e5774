//! Tests of the whole solver on small machines.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod arbitrary;
mod basics;
mod build;
mod claims;
mod earliest;
mod explanations;
mod extremes;
mod layout;
mod loans;
mod oracle;
mod planner_state;
mod power;
mod properties;
mod rationed;
mod reserved;
mod scores;
mod unbounded;
mod windows;

/// Number of random cases of a property: `usual`, times `LATTICE_CASES_FACTOR` (1 without it).
#[expect(
    clippy::disallowed_methods,
    reason = "the number of cases comes from outside; the solver reads nothing"
)]
pub(crate) fn cases(usual: u32) -> u32 {
    let factor = std::env::var("LATTICE_CASES_FACTOR").map_or(1, |text| {
        text.parse().expect("LATTICE_CASES_FACTOR is a number")
    });
    usual.saturating_mul(factor)
}
