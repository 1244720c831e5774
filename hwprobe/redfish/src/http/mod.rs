//! HTTP access to a BMC: one session per account, one request in flight, every operation within a deadline.
//!
//! [`Bmc`] is the client of one BMC. For a [`crate::Scope`] or a [`crate::Route`] it fetches the resources that the
//! interpreter needs, one at a time. It sets a limit with the only account that may do so ([`LimitWriter`]), and
//! reports the limit as set only after reading it back. Errors are a [`FetchError`], which converts to a
//! [`lattice_conformance::Reading`] with its reason.
//!
//! Links are followed only as [`crate::ResourcePath`]s on the BMC's own address, and redirects only to the same scheme,
//! host and port, so that credentials are sent to no other service. Passwords and tokens appear in no error, no `Debug`
//! output and no log line.

mod bmc;
mod breaker;
mod collect;
mod encoding;
mod endpoint;
mod environment;
mod error;
mod limit;
mod pin;
mod request_handling;
mod session;
mod settings;
mod trust;
mod wire;

pub use bmc::Bmc;
pub use breaker::{Breaker, BreakerOpen, BreakerState};
pub use collect::BmcPass;
pub use endpoint::{BasicAuth, Endpoint, EndpointError, LimitWriter, ReadOnly};
pub use environment::{Clock, Environment, Randomness};
pub use error::{FetchError, RedirectRefusal};
pub use limit::{ConfirmedLimit, LimitRefusal, SafeException, SetLimitError};
pub use pin::{Pin, PinError};
pub use settings::Settings;
pub use trust::{Trust, TrustError};
