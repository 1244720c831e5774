//! Available resources of one BMC, with the result of each fetch.

use lattice_conformance::Reading;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Path of a resource on its BMC, as written in links (`/redfish/v1/Systems/1`), without a trailing slash and without a
/// fragment.
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
    /// able to direct the client elsewhere.
    #[must_use]
    pub fn parse(link: &str) -> Option<Self> {
        const LONGEST: usize = 1024;
        let path = link.split('#').next()?.trim_end_matches('/');
        let is_below = path == "/redfish/v1" || path.starts_with("/redfish/v1/");
        let is_plain = path.chars().all(|c| !c.is_control() && !c.is_whitespace());
        let climbs = path.split('/').any(|part| part == "..");
        (is_below && is_plain && !climbs && path.len() <= LONGEST).then(|| Self(path.to_owned()))
    }

    /// The part after the last slash: by convention the resource's `Id`.
    #[must_use]
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The part before the last slash, which resources of one collection share.
    #[must_use]
    pub fn parent(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(parent, _)| parent)
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
