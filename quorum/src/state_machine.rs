//! State machine of a member, and the feed of its events.

pub(crate) mod feed;
pub(crate) mod replica;
