//! Available resources of one BMC, with the result of each fetch.

use lattice_conformance::Reading;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Path of a resource on its BMC, as written in links (`/redfish/v1/Systems/1`), without a trailing slash and without a
/// fragment. Characters that a URL cannot contain are percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourcePath(String);

impl ResourcePath {
    /// Root of every Redfish service (DSP0266, section 6.4).
    #[must_use]
    pub fn root() -> Self {
        Self("/redfish/v1".to_owned())
    }

    /// Parses the target of a link; `None` if it is not a valid path of the service root or below it. A BMC must not be
    /// able to direct the client elsewhere. Blanks and other characters that a URL cannot contain are percent-encoded,
    /// because some BMCs write them as they are. A path with control characters or damaged text is not valid.
    #[must_use]
    pub fn parse(link: &str) -> Option<Self> {
        const LONGEST: usize = 1024;
        let path = link.split('#').next()?.trim_end_matches('/');
        let is_below = path == "/redfish/v1" || path.starts_with("/redfish/v1/");
        let is_damaged = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
        let climbs = path.split('/').any(|part| part == "..");
        let is_valid = is_below && !path.contains(is_damaged) && !climbs && path.len() <= LONGEST;
        is_valid.then(|| Self(percent_encode(path)))
    }

    /// The part after the last slash: by convention the resource's `Id`, percent-encoded where necessary.
    #[must_use]
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The part after the last slash, with percent-encoded characters decoded.
    pub(crate) fn decoded_last(&self) -> String {
        percent_decode(self.last())
    }

    /// The part before the last slash, which resources of one collection share.
    #[must_use]
    pub fn parent(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    /// Whether both paths are those of one resource. Some BMCs write the same path in upper and in lower case.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    /// Path of a link that may be relative to this resource (RFC 3986, section 5.2): `?$skip=50`, `Sensors?$skip=50`.
    /// `None` as for [`Self::parse`].
    pub(crate) fn join(&self, link: &str) -> Option<Self> {
        if link.starts_with('/') || link.contains("://") {
            return Self::parse(link);
        }
        let own = self.0.split('?').next()?;
        let (path, query) = link.split_at(link.find(['?', '#']).unwrap_or(link.len()));
        if path.is_empty() {
            return Self::parse(&format!("{own}{query}"));
        }
        let mut parts: Vec<&str> = own.split('/').collect();
        parts.pop();
        for part in path.split('/') {
            match part {
                "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        Self::parse(&format!("{}{query}", parts.join("/")))
    }

    /// The path as used in a request line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ResourcePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Encodes the bytes that a path in a URL cannot contain (RFC 3986, section 3.3). Existing encodings stay as they are.
fn percent_encode(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut encoded = String::with_capacity(path.len());
    for (at, byte) in bytes.iter().copied().enumerate() {
        let is_allowed = match byte {
            b'%' => encoded_byte(bytes, at).is_some(),
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            byte => byte.is_ascii_graphic(),
        };
        if is_allowed {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match encoded_byte(bytes, at) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The byte with its percent-encoding (`%20`) at this index.
fn encoded_byte(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    match bytes.get(at..at + 3)? {
        [b'%', high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    }
}

/// Resources by path. A path missing from the map was not requested. 404 and 410 are [`Reading::Absent`]; 401, 403 and
/// a rejected login are [`Reading::Denied`]; a timeout is [`Reading::Timeout`]; any other error is [`Reading::Failed`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Documents(pub BTreeMap<ResourcePath, Reading<Value>>);

impl Documents {
    /// The result of fetching a resource, if it was requested.
    #[must_use]
    pub fn get(&self, path: &ResourcePath) -> Option<&Reading<Value>> {
        self.0.get(path)
    }

    /// The `paths` that have not been requested yet.
    pub fn missing<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a ResourcePath>,
    ) -> BTreeSet<ResourcePath> {
        let paths = paths.into_iter();
        let missing = paths.filter(|path| !self.0.contains_key(*path));
        missing.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_characters_that_a_url_lacks() {
        for (link, path, last) in [
            ("/redfish/v1/S/NIC 1", "/redfish/v1/S/NIC%201", "NIC 1"),
            ("/redfish/v1/S/NIC%201/", "/redfish/v1/S/NIC%201", "NIC 1"),
            ("/redfish/v1/S/100%", "/redfish/v1/S/100%25", "100%"),
            ("/redfish/v1/S/\\a", "/redfish/v1/S/%5Ca", "\\a"),
            ("/redfish/v1/S/é", "/redfish/v1/S/%C3%A9", "é"),
            (
                "/redfish/v1/S/Cage(1)'s:2?$skip=5",
                "/redfish/v1/S/Cage(1)'s:2?$skip=5",
                "Cage(1)'s:2?$skip=5",
            ),
        ] {
            let parsed = ResourcePath::parse(link);
            let found = parsed
                .as_ref()
                .map(|one| (one.as_str(), one.decoded_last()));
            assert_eq!(found, Some((path, last.to_owned())), "{link}");
            // A parsed path is a fixed point.
            let again = parsed
                .as_ref()
                .and_then(|one| ResourcePath::parse(one.as_str()));
            assert_eq!(again, parsed, "{link}");
        }
    }

    #[test]
    fn joins_relative_links() {
        let at = "/redfish/v1/Chassis/1/Sensors";
        let base = ResourcePath(at.to_owned());
        let second = ResourcePath(format!("{at}?$skip=50"));
        for (link, path) in [
            ("/redfish/v1/Systems/1/", "/redfish/v1/Systems/1"),
            ("?$skip=100", "/redfish/v1/Chassis/1/Sensors?$skip=100"),
            (
                "Sensors?$skip=100",
                "/redfish/v1/Chassis/1/Sensors?$skip=100",
            ),
            ("./Sensors/Page 2", "/redfish/v1/Chassis/1/Sensors/Page%202"),
            ("../../Systems", "/redfish/v1/Systems"),
        ] {
            for base in [&base, &second] {
                let joined = base.join(link);
                let joined = joined.as_ref().map(ResourcePath::as_str);
                assert_eq!(joined, Some(path), "{link}");
            }
        }
        for link in [
            "../../../../etc/passwd",
            "../../../v2/Systems",
            "https://192.0.2.1/redfish/v1",
            "//192.0.2.1/redfish/v1",
            "Sensors/a\rb",
        ] {
            assert_eq!(base.join(link), None, "{link:?}");
        }
    }

    #[test]
    fn rejects_damaged_and_foreign_paths() {
        for link in [
            "/redfish/v1/S/a\rb",
            "/redfish/v1/S/a\u{fffd}b",
            "/redfish/v1/../etc/passwd",
            "/redfish/v2/Systems",
            "https://192.0.2.1/redfish/v1",
            "",
        ] {
            assert_eq!(ResourcePath::parse(link), None, "{link:?}");
        }
    }
}
