//! Health table of a site: the shipped table, with the changes from the site's file.

use lattice_config::{ConfigErrors, Problems, Source};
use lattice_conformance::health::{SiteTable, Table};
use std::path::Path;

/// Applies the changes in the file at `path` to the shipped table.
///
/// # Errors
/// The file cannot be read, or has mistakes; all of them are listed.
pub(crate) fn read(path: &Path, shipped: Table) -> Result<Table, ConfigErrors> {
    let check = |site: &SiteTable, problems: &mut Problems| {
        let (_, mistakes) = shipped.clone().with_changes(site.clone());
        for mistake in mistakes {
            problems.add(mistake.key, mistake.reason);
        }
    };
    let site = lattice_config::load_named(Source::File(path), check)?;
    Ok(shipped.with_changes(site).0)
}
