//! Notation: values as text, number and name, and the fields of a change.

pub mod amount;
pub mod begin;
pub mod duration;
pub(crate) mod nullable;
pub(crate) mod number;
pub mod schema;
pub mod suggestion;
pub mod text;
pub mod yaml;
