//! Structure of the code: dependencies between packages, imports between modules, and what pure crates must not use.

mod arrows;
mod circles;
mod documents;
mod map;
mod purity;
mod regressions;
mod sources;
mod versions;
mod workspace;
