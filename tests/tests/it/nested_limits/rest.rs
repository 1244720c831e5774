//! Plain REST client, which can also send values that the project's own client cannot express.

use lattice_tests::{
    quota::{Actor, Kind, Refused, Violated},
    site::Site,
    wait::{LOOK_EVERY, PATIENCE},
};
use reqwest::Method;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::Value;
use std::{sync::Arc, time::Instant};

/// REST interface of a control.
pub struct Rest {
    http: reqwest::Client,
    url: String,
}

impl Rest {
    pub fn new(site: &Site) -> Self {
        let pem = std::fs::read(site.path("https/https-ca.pem")).unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            http: reqwest::Client::builder()
                .tls_backend_preconfigured(tls)
                .build()
                .unwrap(),
            url: format!("https://{}/api/v1", site.https()[0]),
        }
    }

    /// GET request of the administrator: status and body.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(&Actor::System, Method::GET, path, None).await
    }

    /// Changing request; without an actor, of the administrator.
    pub async fn ask(
        &self,
        actor: Option<&Actor>,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Refused> {
        let actor = actor.unwrap_or(&Actor::System);
        let (status, reply) = self.send(actor, method, path, body).await;
        match status {
            200 | 201 => Ok(reply),
            _ => Err(refused(status, &reply)),
        }
    }

    /// Sends a request; repeats it while the control limits the rate or has no quorum.
    async fn send(
        &self,
        actor: &Actor,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let token = match actor {
            Actor::System => lattice_tests::site::token("ada"),
            Actor::User(name) => lattice_tests::site::token(name),
        };
        let begun = Instant::now();
        loop {
            let url = format!("{}/{path}", self.url);
            let mut request = self.http.request(method.clone(), url).bearer_auth(&token);
            if let Some(body) = &body {
                request = request.json(body);
            }
            let reply = match request.send().await {
                Ok(answer) => {
                    let status = answer.status().as_u16();
                    let reply = answer.json().await.unwrap_or(Value::Null);
                    if !matches!(status, 429 | 503) {
                        return (status, reply);
                    }
                    reply.to_string()
                }
                Err(error) => error.to_string(),
            };
            assert!(begun.elapsed() < PATIENCE, "{path}: {reply}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Converts a problem to the words of the cases; the problem must be complete.
fn refused(status: u16, reply: &Value) -> Refused {
    let text = |field: &str| reply[field].as_str().unwrap_or_default().to_owned();
    let (code, detail) = (text("code"), text("detail"));
    assert_eq!(reply["status"].as_u64(), Some(status.into()), "{reply}");
    assert_eq!(text("type"), format!("urn:lattice:problem:{code}"));
    assert!(!text("title").is_empty() && !detail.is_empty(), "{reply}");
    let kind = match (status, code.as_str()) {
        (409, "limit_exceeded") => Kind::OverLimit,
        (409, "limit_conflict") => Kind::LimitsConflict,
        (404, "unknown_project") => Kind::UnknownProject,
        (409, "project_exists") => Kind::Exists,
        (409, "project_not_empty") => Kind::NotEmpty,
        (403, "forbidden") => Kind::Forbidden,
        (400, _) => {
            assert!(!text("field").is_empty(), "no field is named: {reply}");
            Kind::Invalid
        }
        _ => panic!("unexpected: {reply}"),
    };
    let numbers = kind == Kind::OverLimit;
    let level = |level: &Value| Violated {
        project: level["path"].as_str().unwrap().to_owned(),
        quota: level["limit_name"].as_str().unwrap().to_owned(),
        current: level["current"].as_u64().filter(|_| numbers),
        requested: level["requested"].as_u64().filter(|_| numbers),
        limit: level["limit"].as_u64().filter(|_| numbers),
    };
    let levels = reply["violations"].as_array();
    Refused {
        kind,
        text: detail,
        levels: levels.into_iter().flatten().map(level).collect(),
    }
}
