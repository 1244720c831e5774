#![expect(clippy::unwrap_used, reason = "tests")]

mod energy;
mod http;
mod readiness;
mod solver;
mod storage;
