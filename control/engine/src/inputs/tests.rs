#![expect(clippy::unwrap_used, reason = "tests")]

mod asked;
mod energy;
mod metrics;
mod prices;
mod readiness;
mod site;
mod solver;
mod storage;
mod token;
mod used;
