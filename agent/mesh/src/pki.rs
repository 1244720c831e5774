//! Certificates: identities, the authority that issues certificates, their parsing and verification, and signatures
//! outside TLS.
//!
//! Imports nothing else of this crate. [`crate::trust`] determines the authorities that a process trusts.

pub(crate) mod atomic_file;
pub(crate) mod authority;
pub(crate) mod ca_key_proof;
pub(crate) mod certificate;
pub(crate) mod chain;
pub(crate) mod crypto;
pub(crate) mod identity;
pub(crate) mod pem;
pub(crate) mod pin;
pub(crate) mod signature;
pub(crate) mod validity;
