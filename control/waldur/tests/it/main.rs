//! Integration tests of accounting.
#![expect(clippy::unwrap_used, reason = "tests")]

mod by_hand;
mod common;
mod crash;
mod found;
mod months;
mod waldur;
