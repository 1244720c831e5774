//! Key patterns of health checks.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A key in which `*` matches any one segment: `gpu.*.remapped_rows.pending`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

impl Pattern {
    /// Parses a pattern. Returns `None` for an empty segment, or a segment that mixes `*` with other characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let segments: Vec<String> = text.split('.').map(str::to_owned).collect();
        let is_plain = |s: &String| s == "*" || (!s.is_empty() && !s.contains('*'));
        segments.iter().all(is_plain).then_some(Self(segments))
    }

    /// First segment of the pattern; `*` if it matches any.
    #[must_use]
    pub fn first_segment(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Prefix of every key that can match: the first segment, or nothing if that is `*`.
    pub(super) fn literal_prefix(&self) -> &str {
        match self.first_segment() {
            "*" => "",
            literal => literal,
        }
    }

    /// The segments matched by each `*`, if `key` matches.
    #[must_use]
    pub fn matches<'k>(&self, key: &'k str) -> Option<Vec<&'k str>> {
        let mut found = Vec::new();
        let mut segments = key.split('.');
        for wanted in &self.0 {
            let segment = segments.next()?;
            if wanted == "*" {
                found.push(segment);
            } else if wanted != segment {
                return None;
            }
        }
        segments.next().is_none().then_some(found)
    }

    /// The part of a matching `key` that names a device: up to the last `*`, or the first segment.
    #[must_use]
    pub fn entity<'k>(&self, key: &'k str) -> &'k str {
        let last = self.0.iter().rposition(|segment| segment == "*");
        let end = key.match_indices('.').nth(last.unwrap_or(0));
        end.map_or(key, |(at, _)| key.get(..at).unwrap_or(key))
    }

    /// The pattern with each `*` replaced by the segments in `with`, in order.
    #[must_use]
    pub fn fill(&self, with: &[&str]) -> String {
        let mut with = with.iter();
        let segments = self.0.iter().map(|segment| match segment.as_str() {
            "*" => with.next().copied().unwrap_or("*"),
            plain => plain,
        });
        segments.collect::<Vec<_>>().join(".")
    }

    /// Number of `*` segments.
    #[must_use]
    pub fn wildcards(&self) -> usize {
        self.0.iter().filter(|segment| *segment == "*").count()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.join("."))
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "\"{text}\" is not a valid key pattern: segments are separated by dots; `*` must be a \
                 segment of its own"
            ))
        })
    }
}
