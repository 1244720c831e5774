//! Checks of the tree as a whole; what spans crates and needs no daemon's own folder comes here.
#![forbid(unsafe_code)]
