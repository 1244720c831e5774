//! Jobs: what users submit, and the records of allocations, job arrays and DAGs.

pub mod allocation;
pub mod array;
pub mod checkpoint;
pub mod dag;
pub mod name;
pub mod origin;
pub mod progress;
pub mod scale;
pub mod spec;
mod state;
pub mod terms;
