//! Integration tests of accounting.
#![expect(clippy::unwrap_used, reason = "tests")]

mod by_hand;
mod common;
mod crash;
mod events;
mod found;
mod hostile;
mod limits;
mod load;
mod months;
mod orders;
mod outages;
mod rights;
mod totals;
mod waldur;
