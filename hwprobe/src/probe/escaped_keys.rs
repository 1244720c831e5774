//! Keys of strings of the firmware in which bytes that are no text are escaped, and their finding.

use lattice_conformance::{FindingCode, ProbeResult, Reading, text};

/// Maximum number of keys in a finding; the others are only counted.
const MAX_NAMED: usize = 4;

/// Keys of strings with escapes.
#[derive(Debug, Default)]
pub(super) struct EscapedKeys(Vec<String>);

impl EscapedKeys {
    /// Returns `reading`, and keeps `key` if the text has escapes.
    pub(super) fn note(&mut self, key: &str, reading: Reading<String>) -> Reading<String> {
        if reading
            .present()
            .is_some_and(|text| text::has_escapes(text))
        {
            self.0.push(key.to_owned());
        }
        reading
    }

    /// Adds a finding that names the keys, if there are any.
    pub(super) fn report(self, code: FindingCode, probed: &mut ProbeResult) {
        let Self(keys) = self;
        if keys.is_empty() {
            return;
        }
        let named: Vec<&str> = keys.iter().take(MAX_NAMED).map(String::as_str).collect();
        let named = named.join(", ");
        let more = match keys.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let detail = format!(r"{named}{more}: bytes that are no text are shown as \xff");
        probed.add_finding(code, detail);
    }
}
