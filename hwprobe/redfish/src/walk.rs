//! Traversal of a BMC's resources: available documents, missing documents, and limits.

use crate::documents::{Documents, ResourcePath};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

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

/// The members of a collection, as far as they can be identified.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberList<'a> {
    /// Members with a valid link, sorted by path, without duplicates.
    pub(crate) members: Vec<Member<'a>>,
    /// Entries and pages of the list that cannot be read. Each stands for members that exist and are not known.
    pub(crate) unusable: Vec<UnusableEntry>,
}

/// An entry of a collection without a valid link, or an unreadable page.
#[derive(Clone, Debug)]
pub(crate) struct UnusableEntry {
    /// Last part of the invalid link; `None` for an entry without a link, and for a page.
    pub(crate) name: Option<String>,
    /// State of the entry, with the reason.
    pub(crate) reading: Reading<()>,
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

    /// The members of a collection over all its pages. An invalid member or an unreadable further page does not hide
    /// the other members; it is reported in [`MemberList::unusable`], as are members that are counted and not listed.
    /// The collection is unknown if its first page is.
    pub(crate) fn members(&mut self, path: &ResourcePath) -> Reading<MemberList<'a>> {
        let mut list = MemberList::default();
        let mut seen = BTreeMap::new();
        let mut pages = BTreeSet::new();
        let (mut listed_count, mut promised) = (0, None);
        let mut next = Some(path.clone());
        while let Some(page) = next.take() {
            let is_first = pages.is_empty();
            if !pages.insert(page.clone()) {
                list.add_unusable(None, format!("{page}: its pages form a loop"));
                break;
            }
            let value = match self.get(&page) {
                Reading::Present(value) => value,
                // A page that is not fetched yet may still be readable.
                other if is_first || matches!(other, Reading::Disabled { .. }) => {
                    return other.map(|_| list);
                }
                Reading::Absent => {
                    list.add_unusable(None, format!("{page}: linked, but does not exist"));
                    break;
                }
                other => {
                    let reading = other.map(|_| ());
                    list.unusable.push(UnusableEntry {
                        name: None,
                        reading,
                    });
                    break;
                }
            };
            let entries = match listed(value) {
                Ok(entries) => entries,
                Err(why) if is_first => return Reading::failed(format!("{page}: {why}")),
                Err(why) => {
                    list.add_unusable(None, format!("{page}: {why}"));
                    break;
                }
            };
            let count = list.members.len() + list.unusable.len() + entries.len();
            if count > MAX_MEMBERS {
                return Reading::failed(format!("{page}: {count} members, {MAX_MEMBERS} allowed"));
            }
            listed_count += list.add_page(&page, pages.len(), entries, &mut seen);
            promised = promised.max(counted(value, "Members"));
            match next_page(&page, value) {
                Ok(further) => next = further,
                Err(why) => list.add_unusable(None, format!("{page}: {why}")),
            }
        }
        // An entry without a name, or an unreadable page, already stands for the members that are not listed.
        let is_reported = list.unusable.iter().any(|entry| entry.name.is_none());
        if !is_reported && let Some(why) = shortfall(listed_count, promised) {
            list.add_unusable(None, format!("{path}: {why}"));
        }
        list.members.sort_by(|a, b| a.path.cmp(&b.path));
        Reading::Present(list)
    }
}

impl<'a> MemberList<'a> {
    /// Adds the entries of the page with this number. Returns their count, without the members of earlier pages: a BMC
    /// that ignores the position in the link to a further page sends the first page again.
    fn add_page(
        &mut self,
        page: &ResourcePath,
        number: usize,
        entries: &'a [Value],
        seen: &mut BTreeMap<ResourcePath, usize>,
    ) -> usize {
        let mut count = entries.len();
        for entry in entries {
            match member_of(entry) {
                Ok(member) => match seen.get(&member.path).copied() {
                    None => {
                        seen.insert(member.path.clone(), number);
                        self.members.push(member);
                    }
                    Some(earlier) => count -= usize::from(earlier != number),
                },
                Err(why) => {
                    let name = link_text(entry).and_then(last_part);
                    self.add_unusable(name, format!("{page}: {why}"));
                }
            }
        }
        count
    }

    fn add_unusable(&mut self, name: Option<String>, why: String) {
        let reading = Reading::failed(why);
        self.unusable.push(UnusableEntry { name, reading });
    }

    /// State of the entries that cannot be read; absent if there is none.
    pub(crate) fn unread(&self) -> Reading<()> {
        match self.unusable.as_slice() {
            [] => Reading::Absent,
            [
                UnusableEntry {
                    reading: Reading::Failed { why },
                    ..
                },
                others @ ..,
            ] if !others.is_empty() => {
                Reading::failed(format!("{why}, and {} more such entries", others.len()))
            }
            [first, ..] => first.reading.clone(),
        }
    }
}

/// The last part of an invalid link.
fn last_part(link: &str) -> Option<String> {
    let last = link.trim_end_matches('/').rsplit('/').next();
    let last = last.filter(|last| !last.is_empty());
    last.map(str::to_owned)
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
            let none = (counted(page, "Members") == Some(0)).then_some(&[][..]);
            none.ok_or_else(|| "no members".to_owned())
        }
        Some(other) => Err(format!("members are {}", kind(other))),
    }
}

/// Path of the page after the one at `path`, if any. The link has the prefix `Members` (DSP0266), or none
/// (OData), and may be relative.
pub(crate) fn next_page(path: &ResourcePath, page: &Value) -> Result<Option<ResourcePath>, String> {
    let links = ["Members@odata.nextLink", "@odata.nextLink"];
    // Some BMCs write an empty link on the last page.
    let is_link = |link: &&Value| !link.is_null() && link.as_str() != Some("");
    let mut links = links.iter().filter_map(|name| page.get(name));
    let Some(link) = links.find(is_link) else {
        return Ok(None);
    };
    let Some(text) = link_text(link) else {
        return Err(format!("the next page is {}", kind(link)));
    };
    match path.join(text) {
        Some(next) => Ok(Some(next)),
        None => Err(format!("the next page is \"{}\"", shown(text))),
    }
}

/// Number of entries that a list has according to the annotation of its property, if there is one.
pub(crate) fn counted(value: &Value, property: &str) -> Option<u64> {
    let count = value.get(format!("{property}@odata.count"))?;
    count.as_u64()
}

/// The reason why a list with this number of entries is not complete, if more are counted. A count that is too low
/// hides no entry.
pub(crate) fn shortfall(listed: usize, counted: Option<u64>) -> Option<String> {
    let counted = counted.filter(|counted| *counted > listed as u64)?;
    Some(format!(
        "contains {listed} of {counted} entries, and no link to others"
    ))
}

/// The text of a link: `{"@odata.id": …}`, `{"href": …}` as an iLO 4 also writes it, or plain text as some BMCs
/// write it.
fn link_text(link: &Value) -> Option<&str> {
    let object = || string(link, "@odata.id").or_else(|| string(link, "href"));
    link.as_str().or_else(object)
}

/// One entry of a list, or the reason why it is invalid.
pub(crate) fn member_of(entry: &Value) -> Result<Member<'_>, String> {
    let Some(link) = link_text(entry) else {
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
    match value.get(property).and_then(link_text) {
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

/// Valid path in a property.
pub(crate) fn link(value: &Value, property: &str) -> Option<ResourcePath> {
    ResourcePath::parse(link_text(value.get(property)?)?)
}

/// Valid paths of the entries in a list of links.
pub(crate) fn links(value: &Value, property: &str) -> Vec<ResourcePath> {
    checked_links(value, property).0
}

/// Valid paths of the entries in a list of links, and the state of the others, which are invalid, or counted and not
/// listed; absent if there is none. A single link in place of a list is accepted.
pub(crate) fn checked_links(value: &Value, property: &str) -> (Vec<ResourcePath>, Reading<()>) {
    let (mut paths, mut unusable) = (Vec::new(), Reading::Absent);
    let entries: &[Value] = match value.get(property) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(entries)) => entries.as_slice(),
        Some(single @ (Value::Object(_) | Value::String(_))) => std::slice::from_ref(single),
        Some(other) => {
            unusable = Reading::failed(format!("{property} is {}", kind(other)));
            &[]
        }
    };
    for entry in entries.iter().take(MAX_MEMBERS) {
        match member_of(entry) {
            Ok(member) => paths.push(member.path),
            Err(why) if unusable == Reading::Absent => {
                unusable = Reading::failed(format!("{property}: {why}"));
            }
            Err(_) => {}
        }
    }
    if unusable == Reading::Absent
        && let Some(why) = shortfall(entries.len(), counted(value, property))
    {
        unusable = Reading::failed(format!("{property}: {why}"));
    }
    (paths, unusable)
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
        Some(Value::String(text)) if is_damaged(text) => Reading::failed(damage(property, text)),
        Some(Value::String(text)) => lattice_conformance::text::firmware(text),
        Some(other) => Reading::failed(format!("{property} is {}, not text", kind(other))),
    }
}

/// Whether a text contains bytes that were not UTF-8, so that two damaged texts may look equal.
pub(crate) fn is_damaged(text: &str) -> bool {
    text.contains(char::REPLACEMENT_CHARACTER)
}

/// The reason why a damaged text is not a value.
pub(crate) fn damage(name: &str, text: &str) -> String {
    format!(
        "{name} contains bytes that are not UTF-8: \"{}\"",
        shown(text)
    )
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
