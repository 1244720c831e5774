//! Users of scenarios in addition to the administrator, with REST, gRPC and the command line, each with a token of
//! their own.

use crate::world::World;
use lattice_api::Problem;
use lattice_client::{Client, Endpoint};
use lattice_tests::site::token;
use reqwest::{Certificate, Method};
use serde_json::Value;
use std::{
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
};
use tonic::{
    Request,
    transport::{Certificate as Trusted, Channel, ClientTlsConfig},
};

/// CA certificate of the API.
fn ca(world: &World) -> String {
    std::fs::read_to_string(world.site().path("https/https-ca.pem")).unwrap()
}

fn url(world: &World) -> String {
    format!("https://{}", world.site().https()[0])
}

/// API client of a user.
pub fn client(world: &World, user: &str) -> Client {
    Client::new(Endpoint {
        url: url(world),
        ca_pem: ca(world),
        token: token(user).into(),
    })
    .unwrap()
}

/// Path below the API's prefix, unless the path starts with a slash.
fn at(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/api/v1/{path}"),
    }
}

/// Sends a request with this body; returns status and text of the answer.
pub async fn ask(
    world: &World,
    user: &str,
    (method, path): (Method, &str),
    kind: &str,
    body: String,
) -> (u16, String) {
    // Once per process; another caller may have installed the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trusted = Certificate::from_pem(ca(world).as_bytes()).unwrap();
    let http = reqwest::Client::builder().add_root_certificate(trusted);
    let request = http
        .build()
        .unwrap()
        .request(method, format!("{}{}", url(world), at(path)));
    let request = request.bearer_auth(token(user));
    let answer = request.header("content-type", kind).body(body).send();
    let answer = answer.await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// Sends a JSON document that must be refused; returns the problem.
pub async fn refused(world: &World, user: &str, path: &str, body: &Value) -> Problem {
    let (kind, text) = ("application/json", body.to_string());
    let (status, said) = ask(world, user, (Method::POST, path), kind, text).await;
    assert!(
        (400..500).contains(&status),
        "{path} {body}: {status} {said}"
    );
    serde_json::from_str(&said).unwrap()
}

/// gRPC connection.
pub async fn channel(world: &World) -> Channel {
    let tls = ClientTlsConfig::new().ca_certificate(Trusted::from_pem(ca(world)));
    let endpoint = Channel::from_shared(url(world)).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

/// gRPC message of a user.
pub fn by<T>(user: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {}", token(user));
    let metadata = request.metadata_mut();
    metadata.insert("authorization", bearer.parse().unwrap());
    request
}

/// Context file of a user's command line, created as any user creates it.
fn context(world: &World, user: &str) -> PathBuf {
    let site = world.site();
    let context = site.path(&format!("context-{user}.json"));
    if !context.exists() {
        let file = site.path(&format!("{user}.token"));
        std::fs::write(&file, token(user)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (server, token) = (url(world), file.to_str().unwrap());
        let of = ["--server", &server, "--ca", "https/https-ca.pem"];
        let to = ["--token-file", token, "--out", context.to_str().unwrap()];
        site.lattice(&[&["admin", "context"], &of[..], &to].concat());
    }
    context
}

/// Runs the command line as a user, in the scenario's folder.
pub fn cli<S: AsRef<std::ffi::OsStr>>(world: &World, user: &str, args: &[S]) -> Output {
    let mut command = Command::new(lattice_tests::programs!().cli);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LATTICE_")) {
        command.env_remove(name);
    }
    command
        .current_dir(world.scratch())
        .env("HOME", world.scratch())
        .env("XDG_RUNTIME_DIR", world.scratch())
        .env_remove("XDG_CONFIG_HOME")
        .env("LATTICE_CONTEXT", context(world, user))
        .args(args)
        .output()
        .unwrap()
}

/// Output of a command, which must succeed.
pub fn said<S: AsRef<std::ffi::OsStr>>(world: &World, user: &str, args: &[S]) -> String {
    let done = cli(world, user, args);
    let words: Vec<_> = args
        .iter()
        .map(|arg| arg.as_ref().to_string_lossy())
        .collect();
    let (words, error) = (words.join(" "), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "lattice {words}: {error}");
    String::from_utf8(done.stdout).unwrap()
}
