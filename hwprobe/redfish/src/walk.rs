//! Traversal of a BMC's resources: available documents, missing documents, and limits.

use crate::documents::{Documents, ResourcePath};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of resources per pass. The largest recorded tree takes about a hundred. A BMC that lists more than
/// the limit is broken or hostile, and each request to it takes seconds.
pub(crate) const MAX_RESOURCES: usize = 512;
/// Maximum number of members read per collection.
const MAX_MEMBERS: usize = 4096;

/// Traversal of the documents for one interpretation.
pub(crate) struct DocumentWalk<'a> {
    documents: &'a Documents,
    touched: BTreeSet<ResourcePath>,
    wanted: BTreeSet<ResourcePath>,
}

/// A member of a collection: a link, or the resource itself if the BMC expanded it.
#[derive(Clone, Debug)]
pub(crate) struct Member<'a> {
    /// Path of the member.
    pub(crate) path: ResourcePath,
    /// The resource, if the list contains it.
    pub(crate) inline: Option<&'a Value>,
}

impl<'a> DocumentWalk<'a> {
    pub(crate) const fn new(documents: &'a Documents) -> Self {
        Self {
            documents,
            touched: BTreeSet::new(),
            wanted: BTreeSet::new(),
        }
    }

    /// The documents that remain to be fetched.
    pub(crate) fn wanted(self) -> BTreeSet<ResourcePath> {
        self.wanted
    }

    /// Whether every requested resource is available, or known to be absent.
    pub(crate) fn is_answered(&self) -> bool {
        let mut touched = self.touched.iter();
        touched.all(|path| match self.documents.get(path) {
            Some(reading) => reading.is_known() || *reading == Reading::Absent,
            None => false,
        })
    }

    /// A resource, or the state of its fetch. A resource that was not fetched yet is added to [`Self::wanted`].
    pub(crate) fn get(&mut self, path: &ResourcePath) -> Reading<&'a Value> {
        if !self.touched.contains(path) {
            if self.touched.len() >= MAX_RESOURCES {
                return over_limit();
            }
            self.touched.insert(path.clone());
        }
        match self.documents.get(path) {
            Some(Reading::Present(value)) if !value.is_object() => {
                Reading::failed(format!("{path}: {}, not a resource", kind(value)))
            }
            Some(reading) => reading.as_ref(),
            // Available documents were fetched for this pass, so they count towards the limit.
            None if !self.wanted.contains(path)
                && self.documents.0.len() + self.wanted.len() >= MAX_RESOURCES =>
            {
                over_limit()
            }
            None => {
                self.wanted.insert(path.clone());
                Reading::disabled(format!("{path}: not fetched yet"))
            }
        }
    }

    /// The resource of a member: from the collection if expanded there, otherwise as [`Self::get`] returns it.
    pub(crate) fn member(&mut self, member: &Member<'a>) -> Reading<&'a Value> {
        match member.inline {
            Some(value) => Reading::Present(value),
            None => self.get(&member.path),
        }
    }

    /// The resource that a property links to; absent without such a property.
    pub(crate) fn follow(&mut self, from: &Value, property: &str) -> Reading<&'a Value> {
        target(from, property).and_then(|path| self.get(&path))
    }

    /// The members of a collection over all its pages, sorted by path, without duplicates. A list with an invalid
    /// member or page link is unknown, because it would lack an existing member.
    pub(crate) fn members(&mut self, path: &ResourcePath) -> Reading<Vec<Member<'a>>> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut pages = BTreeSet::new();
        let mut next = Some(path.clone());
        while let Some(page) = next.take() {
            if !pages.insert(page.clone()) {
                return Reading::failed(format!("{page}: its pages form a loop"));
            }
            let value = match self.get(&page) {
                Reading::Present(value) => value,
                other => return other.map(|_| Vec::new()),
            };
            let listed = match listed(value) {
                Ok(listed) => listed,
                Err(why) => return Reading::failed(format!("{page}: {why}")),
            };
            if found.len() + listed.len() > MAX_MEMBERS {
                let count = found.len() + listed.len();
                return Reading::failed(format!("{page}: {count} members, {MAX_MEMBERS} allowed"));
            }
            for entry in listed {
                match member_of(entry) {
                    Ok(member) if seen.insert(member.path.clone()) => found.push(member),
                    Ok(_) => {}
                    Err(why) => return Reading::failed(format!("{page}: {why}")),
                }
            }
            next = match next_page(value) {
                Ok(next) => next,
                Err(why) => return Reading::failed(format!("{page}: {why}")),
            };
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Reading::Present(found)
    }
}

fn over_limit<T>() -> Reading<T> {
    Reading::failed(format!(
        "not read: more than {MAX_RESOURCES} resources in one pass"
    ))
}

/// The entries of a list page. A page without the property `Members` is valid, and empty, only if its count is zero.
pub(crate) fn listed(page: &Value) -> Result<&[Value], String> {
    match page.get("Members") {
        Some(Value::Array(listed)) => Ok(listed),
        None | Some(Value::Null) => {
            let count = page.get("Members@odata.count").and_then(Value::as_u64);
            let none = (count == Some(0)).then_some(&[][..]);
            none.ok_or_else(|| "no members".to_owned())
        }
        Some(other) => Err(format!("members are {}", kind(other))),
    }
}

/// Path of the next page, if any.
pub(crate) fn next_page(page: &Value) -> Result<Option<ResourcePath>, String> {
    match page.get("Members@odata.nextLink") {
        None | Some(Value::Null) => Ok(None),
        // Some BMCs write an empty link on the last page.
        Some(Value::String(link)) if link.is_empty() => Ok(None),
        Some(Value::String(link)) => match ResourcePath::parse(link) {
            Some(path) => Ok(Some(path)),
            None => Err(format!("the next page is \"{}\"", shown(link))),
        },
        Some(other) => Err(format!("the next page is {}", kind(other))),
    }
}

/// One entry of a list, or the reason why it is invalid.
pub(crate) fn member_of(entry: &Value) -> Result<Member<'_>, String> {
    let Some(link) = string(entry, "@odata.id") else {
        return Err("a member without a link".to_owned());
    };
    let path =
        ResourcePath::parse(link).ok_or_else(|| format!("a member is at \"{}\"", shown(link)))?;
    let is_expanded = entry.get("Id").is_some() || entry.get("Name").is_some();
    Ok(Member {
        path,
        inline: is_expanded.then_some(entry),
    })
}

fn shown(link: &str) -> String {
    lattice_conformance::text::excerpt(link)
}

/// Path in a property: absent without a link, failed if the link is not a path of the BMC.
pub(crate) fn target(value: &Value, property: &str) -> Reading<ResourcePath> {
    if let Some(path) = link(value, property) {
        return Reading::Present(path);
    }
    let told = value.get(property);
    match told.and_then(|told| told.as_str().or_else(|| string(told, "@odata.id"))) {
        None | Some("") => Reading::Absent,
        Some(link) => Reading::failed(format!("{property} is at \"{}\"", shown(link))),
    }
}

/// The JSON type, for messages.
pub(crate) const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The unchanged text of a property.
pub(crate) fn string<'a>(value: &'a Value, property: &str) -> Option<&'a str> {
    value.get(property)?.as_str()
}

/// Path in a property: `{"@odata.id": …}`, or plain text as some BMCs write it.
pub(crate) fn link(value: &Value, property: &str) -> Option<ResourcePath> {
    let target = value.get(property)?;
    let text = target.as_str().or_else(|| string(target, "@odata.id"))?;
    ResourcePath::parse(text)
}

/// Paths of the entries in a list of links.
pub(crate) fn links(value: &Value, property: &str) -> Vec<ResourcePath> {
    let entries = value.get(property).and_then(Value::as_array);
    let entries = entries.into_iter().flatten().take(MAX_MEMBERS);
    entries
        .filter_map(|entry| ResourcePath::parse(string(entry, "@odata.id")?))
        .collect()
}

/// Name of the type without its version: `ComputerSystem` for `#ComputerSystem.v1_5_0.ComputerSystem`.
pub(crate) fn type_name(value: &Value) -> Option<&str> {
    let name = string(value, "@odata.type")?.trim_start_matches('#');
    name.split('.').next().filter(|name| !name.is_empty())
}

/// Text from firmware: placeholders, null and blanks are unsupported, a missing property is absent.
pub(crate) fn text(value: &Value, property: &str) -> Reading<String> {
    /// Maximum length of the unparsed text, in bytes; [`lattice_conformance::text::firmware`] has a lower limit for the
    /// text without superfluous whitespace.
    const LONGEST: usize = 1024;
    match value.get(property) {
        None => Reading::Absent,
        Some(Value::Null) => Reading::Unsupported,
        Some(Value::String(text)) if text.len() > LONGEST => {
            Reading::failed(format!("{property}: {} bytes of text", text.len()))
        }
        Some(Value::String(text)) => lattice_conformance::text::firmware(text),
        Some(other) => Reading::failed(format!("{property} is {}, not text", kind(other))),
    }
}

/// A number; null means that the device cannot provide it.
pub(crate) fn number(value: &Value, property: &str) -> Reading<f64> {
    match value.get(property) {
        None => Reading::Absent,
        Some(Value::Null) => Reading::Unsupported,
        Some(Value::Number(number)) => number.as_f64().map_or_else(
            || Reading::failed(format!("{property} is {number}")),
            Reading::Present,
        ),
        Some(other) => Reading::failed(format!("{property} is {}, not a number", kind(other))),
    }
}
