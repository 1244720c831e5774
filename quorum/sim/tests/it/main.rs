//! Integration tests of the simulation: seeds, scenes, and bugs that must be found.

#[cfg(debug_assertions)]
mod planted;
mod scenes;
mod seeds;
