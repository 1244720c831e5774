//! Source of answers that no file contains: the live machine, or a record next to a captured tree. All such sources
//! have the same type and the same record format.

use crate::root::read_record;
use lattice_conformance::Reading;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Source of answers. `L` identifies the live interface, such as a device path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source<L> {
    /// The running machine.
    Live(L),
    /// A file with the bytes of [`Answers::encode`].
    Recorded(PathBuf),
    /// No source.
    Disabled,
}

/// Recordable answers, with the version of their fields.
pub trait Answers: Serialize + DeserializeOwned {
    /// File name of the record next to a captured tree.
    const FILE: &'static str;
    /// Version of the fields that this build writes and accepts.
    const VERSION: u32;

    /// Encodes the answers as a record.
    ///
    /// # Errors
    /// None with the current fields: all of them can be encoded as JSON.
    fn encode(self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(&Envelope {
            version: Self::VERSION,
            report: self,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    report: T,
}

impl<L> Source<L> {
    /// `live` for the running machine, the record for a captured tree with one, and disabled for any other tree: an
    /// answer of this machine must never stand for another one.
    pub(crate) fn for_root<T: Answers>(root: &Path, live: L) -> Self {
        let recorded = root.join(T::FILE);
        if root == Path::new("/") {
            Self::Live(live)
        } else if recorded.is_file() {
            Self::Recorded(recorded)
        } else {
            Self::Disabled
        }
    }

    /// Maximum duration of a query: `live` for the running machine, zero for a record or a disabled source.
    pub(crate) const fn query_deadline(&self, live: Duration) -> Duration {
        match self {
            Self::Live(_) => live,
            Self::Recorded(_) | Self::Disabled => Duration::ZERO,
        }
    }

    /// The answer of `live`, or the recorded answer. A disabled source returns `disabled_reason`.
    pub(crate) fn query<T: Answers>(
        &self,
        disabled_reason: &str,
        live: impl FnOnce(&L) -> T,
    ) -> Reading<T> {
        match self {
            Self::Disabled => Reading::disabled(disabled_reason),
            Self::Recorded(path) => recorded(path),
            Self::Live(handle) => Reading::Present(live(handle)),
        }
    }
}

/// Maximum size of a record, in bytes; an interface or a GPU takes a few KiB.
const MAX_RECORD_BYTES: u64 = 4 << 20;

/// The bytes of a record. A missing record is a failure, and not an absent value.
pub(crate) fn bytes(path: &Path) -> Reading<Vec<u8>> {
    match read_record(path, MAX_RECORD_BYTES) {
        Ok(bytes) => Reading::Present(bytes),
        Err(error) => match Reading::from_io(&path.to_string_lossy(), &error) {
            Reading::Absent => Reading::failed(format!("{}: no such record", path.display())),
            other => other,
        },
    }
}

fn recorded<T: Answers>(path: &Path) -> Reading<T> {
    let shown = path.display();
    bytes(path).and_then(
        |bytes| match serde_json::from_slice::<Envelope<T>>(&bytes) {
            Ok(envelope) if envelope.version == T::VERSION => Reading::Present(envelope.report),
            Ok(envelope) => Reading::failed(format!(
                "{shown} has report version {}, expected {}",
                envelope.version,
                T::VERSION
            )),
            Err(error) => Reading::failed(format!("{shown}: {error}")),
        },
    )
}
