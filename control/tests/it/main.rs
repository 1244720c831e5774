//! Integration tests of the `lattice-control` program.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod daemon;
