//! Request extractors: unreadable input becomes a problem that names the field.

use super::{answer::ProblemResponse, state::Api};
use crate::caller::Caller;
use axum::{
    Json,
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, rejection::JsonRejection},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE, request::Parts},
};
use lattice_api::{
    problem::{Kind, Problem},
    suggestion::nearest,
    yaml,
};
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

/// Maximum bytes of a request body: a workload has at most 64 KiB, and a batch of limits for thousands of projects fits
/// too.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;
/// Longest idempotency key, bytes.
const MAX_KEY_BYTES: usize = 255;

impl FromRequestParts<Api> for Caller {
    type Rejection = ProblemResponse;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ProblemResponse> {
        let header = parts.headers.get("authorization");
        let text = header.and_then(|value| value.to_str().ok());
        Ok(api.authenticate(text).await?.check_not_accounting()?)
    }
}

/// Caller that may also be an accounting system. The extractor [`Caller`] rejects accounting systems.
pub(crate) struct CallerOrAccounting(pub(crate) Caller);

impl FromRequestParts<Api> for CallerOrAccounting {
    type Rejection = ProblemResponse;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ProblemResponse> {
        let header = parts.headers.get("authorization");
        let text = header.and_then(|value| value.to_str().ok());
        Ok(Self(api.authenticate(text).await?))
    }
}

/// Caller of a route that answers also while this control has no view, because the answer does not derive from it. The
/// other extractors of callers reject the request with `no_view`.
pub(crate) struct CallerWithoutView(pub(crate) Caller);

impl FromRequestParts<Api> for CallerWithoutView {
    type Rejection = ProblemResponse;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ProblemResponse> {
        let header = parts.headers.get("authorization");
        let text = header.and_then(|value| value.to_str().ok());
        let caller = api.authenticate_without_view(text).await?;
        Ok(Self(caller.check_not_accounting()?))
    }
}

/// JSON body.
pub(crate) struct Input<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Api> for Input<T> {
    type Rejection = ProblemResponse;
    async fn from_request(request: Request, api: &Api) -> Result<Self, ProblemResponse> {
        if !is_json(request.headers()) {
            let detail = "send the body as JSON with Content-Type: application/json";
            return Err(Problem::new(Kind::MediaType, "media_type", detail).into());
        }
        let bytes = body(request, api).await?;
        Ok(Self(from_json(&bytes)?))
    }
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    match Json::<T>::from_bytes(bytes) {
        Ok(Json(value)) => Ok(value),
        Err(JsonRejection::JsonSyntaxError(e)) => {
            let detail = format!("the body is not JSON: {}", cause(&e));
            Err(Problem::new(Kind::Invalid, "not_json", detail))
        }
        Err(e) => Err(unreadable(&cause(&e))),
    }
}

/// Converts YAML to the equivalent JSON before decoding, so that both formats report the same errors.
fn from_yaml<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let wrong = |reason: String| {
        let detail = format!("the body is not YAML: {reason}");
        Problem::new(Kind::Invalid, "not_yaml", detail)
    };
    let value: serde_yaml_ng::Value =
        serde_yaml_ng::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    yaml::all_finite(&value)?;
    let json = serde_json::to_vec(&value).map_err(|error| wrong(error.to_string()))?;
    from_json(&json)
}

/// JSON or YAML body.
pub(crate) struct Document<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Api> for Document<T> {
    type Rejection = ProblemResponse;
    async fn from_request(request: Request, api: &Api) -> Result<Self, ProblemResponse> {
        if is_json(request.headers()) {
            let Input(value) = Input::from_request(request, api).await?;
            return Ok(Self(value));
        }
        if !is_yaml(request.headers()) {
            let detail = "send the body with Content-Type: application/json or application/yaml";
            return Err(Problem::new(Kind::MediaType, "media_type", detail).into());
        }
        let bytes = body(request, api).await?;
        Ok(Self(from_yaml(&bytes)?))
    }
}

async fn body(request: Request, api: &Api) -> Result<Bytes, Problem> {
    Bytes::from_request(request, api).await.map_err(|e| {
        let kind = match e.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Kind::TooLarge,
            _ => Kind::Invalid,
        };
        let detail = match kind {
            Kind::TooLarge => format!(
                "request body exceeds {MAX_BODY_BYTES} bytes (1 MiB); send fewer items per request, and store long \
                 scripts in a file on the nodes"
            ),
            _ => e.body_text(),
        };
        Problem::new(kind, "body", detail)
    })
}

/// Media type without its parameters.
fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next()?.trim())
}

/// Whether the body is YAML: the media type of RFC 9512 or an older name of it.
fn is_yaml(headers: &HeaderMap) -> bool {
    const NAMES: [&str; 3] = ["application/yaml", "application/x-yaml", "text/yaml"];
    media_type(headers).is_some_and(|e| NAMES.iter().any(|name| e.eq_ignore_ascii_case(name)))
}

fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers)
        .is_some_and(|e| e.eq_ignore_ascii_case("application/json") || e.ends_with("+json"))
}

/// Text of the innermost cause, which names the field.
fn cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        // The layer above the error of the JSON parser prefixes the path to its text.
        if source.source().is_none() && deepest.to_string().ends_with(&source.to_string()) {
            break;
        }
        deepest = source;
    }
    deepest.to_string()
}

/// Converts a text such as ``constraints.gpus: unknown field `gpus`, expected …`` to a problem.
fn unreadable(text: &str) -> Problem {
    let quoted = text
        .split_once("unknown field `")
        .and_then(|(_, rest)| rest.split_once('`'));
    let missing = text
        .split_once("missing field `")
        .and_then(|(_, rest)| rest.split_once('`'));
    let twice = text
        .split_once("duplicate field `")
        .and_then(|(_, rest)| rest.split_once('`'));
    let leading = text.split_once(": ").map(|(path, _)| path);
    let path = leading.filter(|p| !p.is_empty() && !p.contains(' '));
    // If two forms are allowed at this place, the parser reports the field only relative to the inner form.
    let inner = path.and_then(|path| {
        text.strip_prefix(path)?
            .strip_prefix(": ")?
            .split_once(": ")
    });
    let inner = inner
        .map(|(inner, _)| inner)
        .filter(|inner| !inner.contains(' '));
    let joined = path
        .zip(inner)
        .map(|(path, inner)| format!("{path}.{inner}"));
    let path = joined.as_deref().or(path);
    let field = match (quoted.or(missing).or(twice), path) {
        (Some((name, _)), Some(path)) if !path.ends_with(name) && path != "." => {
            Some(format!("{path}.{name}"))
        }
        (Some((name, _)), None) => Some(name.to_owned()),
        (Some((name, _)), Some(".")) => Some(name.to_owned()),
        (_, path) => path.map(str::to_owned),
    };
    let hint = quoted.and_then(|(name, rest)| suggested_field(name, rest));
    let hint = hint.map(|name| format!("{text}; did you mean `{name}`?"));
    let mut problem = Problem::new(Kind::Invalid, "invalid", hint.as_deref().unwrap_or(text));
    problem.field = field;
    problem
}

/// Field that may be meant, from the expected fields quoted in the parser error.
fn suggested_field<'a>(name: &str, rest: &'a str) -> Option<&'a str> {
    let expected = rest.split('`').skip(1).step_by(2);
    nearest(name, expected)
}

/// Query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Params<T> {
    type Rejection = ProblemResponse;
    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ProblemResponse> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Self(value)),
            Err(e) => Err(unreadable(&cause(&e)).into()),
        }
    }
}

/// Variable parts of the path.
pub(crate) struct PathParameter<T = String>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for PathParameter<T> {
    type Rejection = ProblemResponse;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ProblemResponse> {
        match Path::<T>::from_request_parts(parts, api).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(e) => Err(Problem::new(Kind::Invalid, "path", e.body_text()).into()),
        }
    }
}

/// `Idempotency-Key` header.
#[derive(IntoParams)]
#[into_params(names("Idempotency-Key"), parameter_in = Header)]
pub(crate) struct Key(
    /// Idempotency key, printable ASCII characters. A repeated request returns the first outcome, for 24 hours.
    #[param(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    pub(crate) Option<String>,
);

impl FromRequestParts<Api> for Key {
    type Rejection = ProblemResponse;
    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ProblemResponse> {
        let Some(value) = parts.headers.get("idempotency-key") else {
            return Ok(Self(None));
        };
        let text = value.to_str().unwrap_or_default();
        Ok(Self(Some(check_key(text)?)))
    }
}

/// Checks an idempotency key; used by REST and gRPC.
pub(crate) fn check_key(text: &str) -> Result<String, Problem> {
    let is_plain = |b: u8| b.is_ascii_graphic() || b == b' ';
    if text.is_empty() || text.len() > MAX_KEY_BYTES || !text.bytes().all(is_plain) {
        let reason = format!("give 1 to {MAX_KEY_BYTES} printable ASCII characters");
        return Err(Problem::field("Idempotency-Key", reason));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_printable_ascii() {
        for good in ["k", "a b", "{~}", &"k".repeat(MAX_KEY_BYTES)] {
            assert_eq!(check_key(good).ok().as_deref(), Some(good));
        }
        for bad in ["", "a\tb", "a\nb", "a\u{7f}", "k\u{e9}y", "\u{202e}"] {
            let problem = check_key(bad).err();
            let field = problem.and_then(|p| p.field);
            assert_eq!(field.as_deref(), Some("Idempotency-Key"), "{bad:?}");
        }
        assert!(check_key(&"k".repeat(MAX_KEY_BYTES + 1)).is_err());
    }

    #[test]
    fn finds_field_in_reader_error() {
        for (text, field) in [
            ("unknown field `a`, expected `b`", Some("a")),
            (
                "constraints: unknown field `gpus`, expected x",
                Some("constraints.gpus"),
            ),
            (
                "constraints.gpus: unknown field `gpus`, expected x",
                Some("constraints.gpus"),
            ),
            (
                "nodes: invalid type: string \"two\", expected u32",
                Some("nodes"),
            ),
            (
                "missing field `project` at line 1 column 2",
                Some("project"),
            ),
            (
                "members[0]: duplicate field `nodes` at line 1",
                Some("members[0].nodes"),
            ),
            (
                "members[1]: nodes: invalid type: x",
                Some("members[1].nodes"),
            ),
            ("expected value at line 1 column 1", None),
        ] {
            assert_eq!(unreadable(text).field.as_deref(), field, "{text}");
        }
    }

    #[test]
    fn the_field_that_may_be_meant_is_named() {
        let text = "unknown field `lend_limit`, expected one of `allow_lending`, `lending_limit`";
        let detail = unreadable(text).detail;
        assert_eq!(detail, format!("{text}; did you mean `lending_limit`?"));
        let text = "unknown field `quota`, expected `nodes` at line 1";
        assert_eq!(unreadable(text).detail, text);
    }
}
