//! Integration tests of accounting.
#![expect(clippy::unwrap_used, reason = "tests")]

mod by_hand;
mod common;
mod crash;
mod events;
mod found;
mod limits;
mod months;
mod outages;
mod totals;
mod waldur;
