//! Structure of the code: dependencies between packages, and what pure crates must not use.

mod arrows;
mod map;
mod purity;
mod sources;
mod versions;
mod workspace;
