//! Record of one class of one node: keys with readings, canonical bytes, digests and marks.

mod earlier;
mod encode;
mod entries;
mod lookup;
mod mark;
mod parts;
mod schema;
mod schema_conversion;
mod state;

pub use earlier::EarlierDigest;
pub use encode::{PreimageError, verify};
pub use entries::ClassRecord;
pub use mark::{ClassMark, Fingerprint, InvalidMark, fingerprint};
pub(crate) use schema::KeyRelation;
pub use schema::Schemas;
pub use schema_conversion::SchemaMismatch;
pub use state::ClassState;
