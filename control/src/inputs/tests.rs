#![expect(clippy::unwrap_used, reason = "tests")]

mod asked;
mod energy;
mod prices;
mod readiness;
mod site;
mod solver;
mod storage;
mod token;
mod used;
