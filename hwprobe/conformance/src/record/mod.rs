//! Record of one class of one node: keys with readings, canonical bytes, digests and marks.

mod earlier;
mod encode;
mod entries;
mod lookup;
mod mark;
mod parts;
mod schema;
mod state;
mod under;

pub use earlier::EarlierDigest;
pub use encode::{PreimageError, verify};
pub use entries::ClassRecord;
pub use mark::{BadMark, ClassMark, Fingerprint, fingerprint};
pub use schema::Schemas;
pub(crate) use schema::Shared;
pub use state::ClassState;
pub use under::SchemaMismatch;
