//! Descriptions in YAML or JSON: of clusters, policies and search spaces. They are read by the rules of the daemons'
//! configuration files.

use lattice_config::{Problems, Source, load_named};
use serde::de::DeserializeOwned;

/// Reads a description.
///
/// # Errors
/// All mistakes of types and names, each with its field, or the place where the text is malformed.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Vec<String>> {
    let no_check = |_: &T, _: &mut Problems| {};
    load_named(Source::Text(text), no_check)
        .map_err(|errors| errors.problems().iter().map(ToString::to_string).collect())
}
