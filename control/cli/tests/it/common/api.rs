//! API on a TLS port that answers with samples made from the OpenAPI document of the product, or refuses every request.

use super::Sandbox;
use axum::{Router, body::Body, extract::Request, http::Method, response::Response};
use axum_server::tls_rustls::RustlsConfig;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Map, Value, json};
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, sync::Arc, thread};

/// Answers of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// Every request succeeds.
    Samples,
    /// Every request is refused because of a limit.
    Refusals,
}

/// Serves the API while the process runs, and returns the path of a context file for it.
pub fn serve(sandbox: &Sandbox, answers: Answers) -> String {
    let folder = sandbox.path("https");
    if !folder.exists() {
        let out = folder.to_str().unwrap();
        let made = sandbox.lattice(&["admin", "https", "--host", "127.0.0.1", "--out", out]);
        assert_eq!(made.code, Some(0), "{made:?}");
    }
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let certificates = CertificateDer::pem_slice_iter(&read("https.pem"))
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_slice(&read("https.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let api = Arc::new(Api {
        document: serde_json::to_value(lattice_http::openapi()).unwrap(),
        answers,
    });
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let app = Router::new().fallback(move |request: Request| {
                let api = api.clone();
                async move { api.answer(request.method(), request.uri().path()) }
            });
            let tls = RustlsConfig::from_config(Arc::new(tls));
            let server = axum_server::from_tcp_rustls(listener, tls).unwrap();
            server.serve(app.into_make_service()).await.unwrap();
        });
    });
    let context = sandbox.path(&format!("context-{answers:?}.json"));
    let text = json!({
        "server": format!("https://{address}"),
        "ca_pem": String::from_utf8(read("https-ca.pem")).unwrap(),
        "token": "t",
    });
    fs::write(&context, text.to_string()).unwrap();
    fs::set_permissions(&context, fs::Permissions::from_mode(0o600)).unwrap();
    context.to_str().unwrap().to_owned()
}

struct Api {
    document: Value,
    answers: Answers,
}

impl Api {
    fn answer(&self, method: &Method, path: &str) -> Response {
        if self.answers == Answers::Refusals {
            let problem = json!({
                "type": "urn:lattice:problem:limit_exceeded", "title": "A limit would be exceeded", "status": 409,
                "detail": "the limit of atlas is 4 nodes", "code": "limit_exceeded",
                "violations": [
                    {"path": "atlas", "limit_name": "max_nodes", "current": 3, "requested": 2, "limit": 4},
                ],
            });
            return response(409, "application/problem+json", problem.to_string());
        }
        match self.sample_answer(method, path) {
            Some(response) => response,
            None => {
                let problem = json!({
                    "type": "urn:lattice:problem:not_found", "title": "Not found", "status": 404,
                    "detail": format!("no operation for {method} {path}"), "code": "not_found",
                });
                response(404, "application/problem+json", problem.to_string())
            }
        }
    }

    /// Answers as the first successful response that the document describes for the operation.
    fn sample_answer(&self, method: &Method, path: &str) -> Option<Response> {
        let paths = self.document["paths"].as_object()?.iter();
        let fitting = paths.filter(|(template, _)| is_of(template, path));
        // The template with the fewest parameters is the most exact one.
        let (_, item) = fitting.min_by_key(|(template, _)| template.matches('{').count())?;
        let operation = item.get(method.as_str().to_lowercase())?;
        let responses = operation["responses"].as_object()?.iter();
        // 200 next to 201 is the answer to a dry run.
        let successes = responses.filter(|(status, _)| status.starts_with('2'));
        let (status, documented) = successes.max_by_key(|(status, _)| *status == "201")?;
        let status = status.parse().ok()?;
        let Some(content) = documented.get("content").and_then(Value::as_object) else {
            return Some(response(status, "text/plain", String::new()));
        };
        if let Some(json) = content.get("application/json") {
            let sample = self.sample(&json["schema"], "", 0);
            return Some(response(status, "application/json", sample.to_string()));
        }
        let media = content.keys().next()?;
        Some(response(status, media, "a line of output\n".to_owned()))
    }

    /// Returns a value of the schema, with all its fields and one item in each list. `name` is that of the field.
    fn sample(&self, schema: &Value, name: &str, depth: usize) -> Value {
        assert!(depth < 30, "schema of {name} contains itself: {schema}");
        let of = |schema: &Value| self.sample(schema, name, depth + 1);
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.document.pointer(reference.trim_start_matches('#'));
            return of(target.unwrap_or_else(|| panic!("{reference} is not in the document")));
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(values) = schema["enum"].as_array() {
            return values[0].clone();
        }
        for variants in ["oneOf", "anyOf"] {
            if let Some(variants) = schema[variants].as_array() {
                let mut present = variants.iter().filter(|one| one["type"] != "null");
                return present.next().map_or(Value::Null, of);
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let mut whole = Map::new();
            for part in parts {
                if let Value::Object(fields) = of(part) {
                    whole.extend(fields);
                }
            }
            return Value::Object(whole);
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null"),
            kind => Some(kind),
        };
        match kind.and_then(Value::as_str) {
            Some("array") => json!([self.sample(&schema["items"], name, depth + 1)]),
            Some("integer") => json!(schema["minimum"].as_u64().unwrap_or(0).max(1)),
            Some("number") => json!(0.5),
            Some("boolean") => json!(true),
            Some("string") => Value::String(text(name).to_owned()),
            _ => self.sample_object(schema, depth),
        }
    }

    fn sample_object(&self, schema: &Value, depth: usize) -> Value {
        let mut fields = Map::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            // A cursor would request further pages without end.
            if name != "next_cursor" {
                fields.insert(name.clone(), self.sample(field, name, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            let value = self.sample(&schema["additionalProperties"], "", depth + 1);
            fields.insert("sample".to_owned(), value);
        }
        Value::Object(fields)
    }
}

/// Returns a text that is valid for most fields of this name: a time, a digest, or the name of a node, which is a
/// hostlist too.
fn text(name: &str) -> &'static str {
    let is_time = ["since", "until", "first", "last", "at"].contains(&name);
    if is_time
        || ["_at", "_since", "_seen", "_until"]
            .iter()
            .any(|end| name.ends_with(end))
    {
        return "2026-11-22T02:12:01.000Z";
    }
    match name {
        "digest" | "fingerprint" | "hash" | "pin" => {
            "7d115cb47f577d115cb47f577d115cb47f577d115cb47f577d115cb47f577d11"
        }
        _ => "gpu001",
    }
}

/// Whether the path is one of the template: `/api/v1/nodes/{name}`.
fn is_of(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template.zip(path).all(|(wanted, given)| {
            match (wanted.split_once('{'), wanted.rsplit_once('}')) {
                (Some((before, _)), Some((_, after))) => {
                    given.len() > before.len() + after.len()
                        && given.starts_with(before)
                        && given.ends_with(after)
                }
                _ => wanted == given,
            }
        })
}

fn response(status: u16, media: &str, body: String) -> Response {
    Response::builder()
        .status(status)
        .header("content-type", media)
        .body(Body::from(body))
        .unwrap()
}
