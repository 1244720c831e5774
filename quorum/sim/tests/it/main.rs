//! Integration tests of the simulation: seeds, scenes, and planted bugs that must be found.

#[cfg(debug_assertions)]
mod planted;
mod scenes;
mod seeds;
