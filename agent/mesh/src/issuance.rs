//! Contract between a process that needs a certificate or a trust bundle, and the member that issues it: requests,
//! replies, refusals, and the trait of the enroller.
//!
//! Imports [`crate::pki`] and [`crate::trust`]. The exchanges themselves are in [`crate::enrolment`],
//! [`crate::outdated`] and [`crate::renewal`].

pub(crate) mod enroller;
pub(crate) mod rpc;
