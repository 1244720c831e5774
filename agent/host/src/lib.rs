//! Local files, error texts and terminal output: code that daemons and commands share.
//!
//! - [`private_file`]: a file with a secret is readable by its owner only.
//! - [`durable`]: a file is replaced atomically, even if the machine crashes.
//! - [`error_text`]: an error and its causes in one line.
//! - [`terminal`]: text of others cannot control the terminal of an operator.
//!
//! Invariant: this crate depends on no other crate of the workspace, so that each of them may use it.
#![forbid(unsafe_code)]

pub mod durable;
pub mod error_text;
pub mod private_file;
pub mod terminal;
