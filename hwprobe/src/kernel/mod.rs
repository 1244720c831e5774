//! Answers of the running kernel that no file contains: queries by ioctl and netlink, and device events.

mod blocking_call;
mod ioctl;
pub mod ipmi;
pub mod net;
pub mod uevent;
