//! Logging of all daemons: the key `log`, and output to standard error.

use std::{env, io::IsTerminal as _};
use tracing_subscriber::EnvFilter;

/// A text that is not a log filter.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not a valid log filter; write it like info or info,lattice_mesh=debug")]
pub struct InvalidFilter {
    /// Text as configured.
    pub text: String,
    /// Parse error.
    pub source: tracing_subscriber::filter::ParseError,
}

/// Parses the log filter. `base_directives` holds built-in directives of the daemon, for libraries that log ordinary
/// events as errors. The configured directives follow and take precedence.
///
/// # Errors
/// A text that is not a filter.
pub fn filter(base_directives: &str, text: &str) -> Result<EnvFilter, InvalidFilter> {
    let both = if base_directives.is_empty() {
        text.to_owned()
    } else {
        format!("{base_directives},{text}")
    };
    EnvFilter::try_new(both).map_err(|source| InvalidFilter {
        text: text.to_owned(),
        source,
    })
}

/// Starts logging to standard error through `filter`, in colour on a terminal unless `NO_COLOR` is set. A process has
/// one log: only the first call has an effect.
pub fn start(filter: EnvFilter) {
    let coloured = std::io::stderr().is_terminal()
        && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // With internal errors enabled, a failed write, for example to a full disk, would write to standard error again
        // and panic.
        .log_internal_errors(false)
        .with_ansi(coloured)
        .try_init();
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_filter_is_read_below_and_above() {
        let read = filter("quinn=warn", "info,quinn=debug")
            .unwrap()
            .to_string();
        assert!(
            read.contains("quinn=debug") && !read.contains("quinn=warn"),
            "{read}"
        );
        let error = filter("quinn=warn", "info,=,").unwrap_err().to_string();
        assert!(
            error.contains("\"info,=,\" is not a valid log filter"),
            "{error}"
        );
    }
}
