#![expect(clippy::unwrap_used, reason = "tests")]

mod energy;
mod metrics;
mod online;
mod prices;
mod readiness;
mod readiness_requests;
mod site;
mod solver;
mod storage;
mod storage_usage;
mod token;
