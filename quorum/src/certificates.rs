//! Certificates: enrolment, renewal, the issuing keys, and the trust in force.

pub(crate) mod authority;
pub(crate) mod enrolment;
pub(crate) mod issuer;
pub(crate) mod renewal;
pub(crate) mod trust;
