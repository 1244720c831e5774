//! Trust: audit, certificates and join tokens.

pub mod audit;
pub mod authority;
pub mod certificate;
pub mod token;
pub mod x509;
