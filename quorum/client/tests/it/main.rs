//! Integration tests of the client.
#![expect(clippy::unwrap_used, reason = "tests")]

mod scripted;
