//! JSON bodies of a BMC: parsing that tolerates damage, and detection of errors in place of resources.
//!
//! BMCs copy asset tags, serial numbers and part numbers from FRU memory into their documents without checking them,
//! and send parts of old buffers around a document. Such damage must not make the rest of the document unknown. Bytes of
//! a string that are not UTF-8 become U+FFFD, and the interpreter treats a text with that character as unreadable.
//! Foreign bytes between tokens become blanks, and bytes behind the document are ignored. A number is never repaired,
//! because a damaged number would become a wrong one.

mod repair;

use crate::walk::type_name;
use serde_json::Value;

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 200;
/// Properties that identify a resource (DSP0266, section 9.5); each resource has at least one of them.
const IDENTITY: [&str; 5] = ["@odata.id", "@odata.type", "Id", "Name", "Members"];
/// Properties without content, in lower case: of an error, or of any resource.
const NO_CONTENT: [&str; 9] = [
    "id",
    "name",
    "description",
    "type",
    "error",
    "errors",
    "code",
    "message",
    "messages",
];

/// Parses a document. A byte-order mark at its start and foreign bytes behind it are ignored, UTF-16 is accepted with
/// such a mark, and damage that changes no value is repaired.
///
/// # Errors
/// The body is not a JSON document, also after the repair.
pub(crate) fn parse(body: &[u8]) -> Result<Value, serde_json::Error> {
    let text = repair::plain_text(body);
    let strict = serde_json::from_slice(&text);
    if strict.is_ok() {
        return strict;
    }
    match repair::repair(&text) {
        Some(repaired) if !repaired.is_continued() => {
            // The error of the original text names the place of the damage.
            serde_json::from_slice(&repaired.document).or(strict)
        }
        _ => strict,
    }
}

/// Whether the body is an object without any property that identifies a resource.
pub(crate) fn is_anonymous(body: &Value) -> bool {
    let members = body.as_object();
    members.is_some_and(|members| IDENTITY.iter().all(|name| !members.contains_key(*name)))
}

/// Whether the body is an error and not a resource, whatever the status of the answer is: an error object (DSP0266,
/// section 8.6) in any case, its messages alone, or a code with a message. The properties of a resource begin with a
/// capital letter.
pub(crate) fn is_error(body: &Value) -> bool {
    let Some(members) = body.as_object() else {
        return false;
    };
    // The form of an iLO 4, and a message in place of a resource.
    let kind = body["Type"].as_str();
    if kind.is_some_and(|kind| kind.starts_with("ExtendedError."))
        || type_name(body).is_some_and(|kind| kind == "Message" || kind == "ExtendedError")
    {
        return true;
    }
    let is_capital = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase());
    let error = error_of(body);
    if error.is_object() || error.is_array() || error.is_string() {
        // An error about a part of a complete resource.
        let is_content = |(name, value): (&String, &Value)| {
            let is_empty = value.as_array().is_some_and(Vec::is_empty);
            let lower = name.to_ascii_lowercase();
            let is_value = is_capital(name) && !name.contains('@') && !is_empty;
            is_value && !NO_CONTENT.contains(&lower.as_str())
        };
        return !members.iter().any(is_content);
    }
    if is_anonymous(body)
        && ["code", "message"]
            .iter()
            .any(|name| !member(body, name).is_null())
    {
        return true;
    }
    members.contains_key("@Message.ExtendedInfo") && !members.keys().any(|name| is_capital(name))
}

/// Whether the body is an error with one of these messages. The id of a message contains the name and the version of
/// its registry before its own name: `Base.1.8.NoValidSession`.
pub(crate) fn is_error_with(body: &Value, names: &[&str]) -> bool {
    if !is_error(body) {
        return false;
    }
    let error = error_of(body);
    let codes = [member(error, "code"), error, member(body, "code")];
    let ids = messages(body)
        .into_iter()
        .chain([body])
        .flat_map(|info| [&info["MessageId"], &info["MessageID"]]);
    let mut ids = ids.chain(codes).filter_map(Value::as_str);
    ids.any(|id| {
        let last = id.rsplit('.').next().unwrap_or(id);
        names.iter().any(|name| name.eq_ignore_ascii_case(last))
    })
}

/// The first message id and text of an error, shortened; empty if there is none.
pub(crate) fn message(body: &Value) -> String {
    let error = error_of(body);
    let info = messages(body).into_iter().next().unwrap_or(body);
    let parts = [
        &info["MessageId"],
        &info["MessageID"],
        &info["Message"],
        member(error, "message"),
        member(error, "code"),
        error,
        member(body, "code"),
        member(body, "message"),
    ];
    let mut texts = parts.into_iter().filter_map(Value::as_str);
    let text = match (texts.next(), texts.next()) {
        (Some(id), Some(message)) if id != message => format!("{id}: {message}"),
        (Some(only), _) => only.to_owned(),
        _ => String::new(),
    };
    let plain = |letter: &char| !letter.is_control();
    text.chars().filter(plain).take(MAX_MESSAGE_CHARS).collect()
}

/// The messages of an error, in every place where BMCs write them.
fn messages(body: &Value) -> Vec<&Value> {
    let places = [
        &error_of(body)["@Message.ExtendedInfo"],
        &body["@Message.ExtendedInfo"],
        &body["Messages"],
    ];
    let entries = places.into_iter().flat_map(|place| match place {
        Value::Array(entries) => entries.as_slice(),
        single => std::slice::from_ref(single),
    });
    entries.filter(|entry| entry.is_object()).collect()
}

/// The error object of a body, or its text; null if there is none.
fn error_of(body: &Value) -> &Value {
    match member(body, "error") {
        Value::Null => member(body, "errors"),
        error => error,
    }
}

/// The member with this name in any case; null if there is none.
fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    let members = value.as_object().into_iter().flatten();
    let mut named = members.filter(|(own, _)| own.eq_ignore_ascii_case(name));
    named.next().map_or(&Value::Null, |(_, value)| value)
}

#[cfg(test)]
#[path = "body/tests.rs"]
mod tests;
