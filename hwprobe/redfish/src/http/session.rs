//! Login and logout on a BMC.

use super::endpoint::{BasicAuth, Endpoint};
use super::error::FetchError;
use super::wire::{Credential, HttpClient, HttpRequest, Reply};
use crate::{ResourcePath, body};
use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use std::time::Duration;

/// Standard path of the login resource (DSP0266, section 13.3.4.2).
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// Login state of this client on the BMC.
#[derive(Clone, Debug, Default)]
pub(super) enum Login {
    /// Not logged in.
    #[default]
    None,
    /// A session.
    Session {
        token: SecretString,
        /// Path for logout; none if the BMC did not return it, in which case the session expires.
        path: Option<String>,
    },
    /// User name and password with each request.
    Basic,
}

impl Login {
    pub fn credential(&self, endpoint: &Endpoint) -> Credential {
        match self {
            Self::None => Credential::None,
            Self::Session { token, .. } => Credential::Token(token.clone()),
            Self::Basic => Credential::Basic(endpoint.user.clone(), endpoint.password.clone()),
        }
    }
}

/// Opens a session, or selects Basic authentication in the cases that [`BasicAuth`] allows.
pub(super) async fn login(
    wire: &HttpClient,
    endpoint: &Endpoint,
    timeout: Duration,
) -> Result<Login, FetchError> {
    let reply = post(wire, endpoint, SESSIONS, timeout).await?;
    match reply.status {
        404 | 405 | 501 => {}
        _ => return evaluate_login(endpoint, reply),
    }
    // Not at the standard path: the service root links to the session service, if there is one.
    let root = HttpRequest::get("/redfish/v1/");
    let root = wire
        .send(endpoint, &Credential::None, &root, timeout)
        .await?;
    let link = root.json().ok().and_then(|mut root| {
        endpoint.shorten_links(&mut root);
        let link = root.pointer("/Links/Sessions/@odata.id")?.as_str()?;
        ResourcePath::parse(link)
    });
    match link {
        Some(path) if path.as_str() != SESSIONS => {
            let reply = post(wire, endpoint, path.as_str(), timeout).await?;
            evaluate_login(endpoint, reply)
        }
        _ if endpoint.basic == BasicAuth::Never => Err(FetchError::NoSessionService),
        _ => Ok(Login::Basic),
    }
}

async fn post(
    wire: &HttpClient,
    endpoint: &Endpoint,
    path: &str,
    timeout: Duration,
) -> Result<Reply, FetchError> {
    let body = json!({
        "UserName": endpoint.user,
        "Password": endpoint.password.expose_secret(),
    });
    let ask = HttpRequest::new(Method::POST, path, Some(body));
    wire.send(endpoint, &Credential::None, &ask, timeout).await
}

/// Evaluates the answer to a login.
fn evaluate_login(endpoint: &Endpoint, reply: Reply) -> Result<Login, FetchError> {
    let status = reply.status;
    let denied = || FetchError::LoginDenied {
        user: endpoint.user.clone(),
        status,
    };
    match status {
        // A token is a session, whether the status is of success or of a redirect to the session.
        200..=399 if reply.token.is_some() => {}
        401 | 403 => return Err(denied()),
        // Some BMCs return 400 for a wrong password, and most do for too many sessions. Others return 200 for both.
        400 | 200..=299 if is_unauthorized(&reply) => return Err(denied()),
        _ if is_exhausted(&reply) => {
            if endpoint.basic == BasicAuth::AlsoWhenExhausted {
                return Ok(Login::Basic);
            }
            let message = reply.message();
            return Err(FetchError::SessionsExhausted { status, message });
        }
        _ => reply.success()?,
    }
    let path = session_path(&reply);
    let message = reply.message();
    let token = reply.token.ok_or_else(|| FetchError::Status {
        status,
        message: match message.is_empty() {
            true => "a session without a token".to_owned(),
            false => format!("a session without a token: {message}"),
        },
    })?;
    Ok(Login::Session { token, path })
}

/// Whether the BMC has no free session.
fn is_exhausted(reply: &Reply) -> bool {
    match reply.status {
        400 | 409 | 429 | 503 => true,
        200..=299 => reply.message().contains("SessionLimitExceeded"),
        _ => false,
    }
}

fn is_unauthorized(reply: &Reply) -> bool {
    let message = reply.message().to_ascii_lowercase();
    let words = ["unauthorized", "invalidcredential", "login", "password"];
    let is_limit = message.contains("limit") || message.contains("exceed");
    !is_limit && words.iter().any(|word| message.contains(word))
}

/// Path of the session: `Location`, as a path or a URL of the BMC, else the `@odata.id` of the body.
fn session_path(reply: &Reply) -> Option<String> {
    let from_header = reply.location.as_deref().and_then(path_of_location);
    let from_body = || {
        let body = body::parse(&reply.body).ok()?;
        let id = body.get("@odata.id")?.as_str()?;
        ResourcePath::parse(id)
    };
    from_header.or_else(from_body).map(|path| path.to_string())
}

/// The path of a `Location`. Its host is ignored, because the same BMC is queried anyway.
pub(super) fn path_of_location(location: &str) -> Option<ResourcePath> {
    let path = match location.split_once("://") {
        Some((_, rest)) => &rest[rest.find('/')?..],
        None => location,
    };
    ResourcePath::parse(path)
}

/// Ends a session. A failure is not an error, because the session expires.
pub(super) async fn logout(
    wire: &HttpClient,
    endpoint: &Endpoint,
    login: Login,
    timeout: Duration,
) {
    let credential = login.credential(endpoint);
    if let Login::Session {
        path: Some(path), ..
    } = login
    {
        let ask = HttpRequest::new(Method::DELETE, path, None);
        let _ = wire.send(endpoint, &credential, &ask, timeout).await;
    }
}

#[cfg(test)]
mod tests {
    use super::path_of_location;

    #[test]
    fn a_location_is_a_path_or_a_url_and_never_another_service() {
        let path = |location| path_of_location(location).map(|path| path.to_string());
        let expected = Some("/redfish/v1/SessionService/Sessions/7".to_owned());
        assert_eq!(path("/redfish/v1/SessionService/Sessions/7/"), expected);
        assert_eq!(
            path("https://[fe80::1]/redfish/v1/SessionService/Sessions/7"),
            expected
        );
        assert_eq!(path("https://bmc/admin"), None);
        assert_eq!(path("https://bmc"), None);
    }
}
