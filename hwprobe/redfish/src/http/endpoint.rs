//! Endpoint of a BMC: address, account, trust, and purpose.

use super::error::RedirectRefusal;
use super::trust::{Trust, TrustError};
use reqwest::Url;
use secrecy::SecretString;
use serde_json::Value;

/// One account on one BMC.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Scheme, host and port; a path `/redfish/v1` is accepted and ignored.
    url: Url,
    /// User name.
    pub user: String,
    /// Password of the user.
    pub password: SecretString,
    /// Verification of the BMC's certificate.
    pub trust: Trust,
    /// Rule for Basic authentication, which sends the password with every request.
    pub basic: BasicAuth,
}

/// Cases in which Basic authentication replaces a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BasicAuth {
    /// If the BMC has no session service.
    #[default]
    WithoutSessionService,
    /// Also if the BMC has no free session.
    AlsoWhenExhausted,
    /// Never.
    Never,
}

/// A read-only account, for telemetry.
#[derive(Clone, Debug)]
pub struct ReadOnly(pub Endpoint);

/// An account that may set limits. It is a type of its own, apart from [`ReadOnly`], so that polling code cannot set
/// limits.
#[derive(Clone, Debug)]
pub struct LimitWriter(pub Endpoint);

/// Reason why an endpoint is invalid.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The text is not the URL of a host.
    #[error("\"{url}\" is not a valid BMC address: https://HOST[:PORT] is needed")]
    NoUrl {
        /// The rejected URL, without the part that may be a password.
        url: String,
    },
    /// The password would be sent in clear text.
    #[error(
        "{url}: HTTP without TLS is allowed only for loopback addresses, or with `insecure: true`"
    )]
    ClearText {
        /// The rejected URL, without the part that may be a password.
        url: String,
    },
    /// The accounts for reading and for limits are on different BMCs.
    #[error("the accounts for limits ({caps}) and for reading ({reads}) are on different BMCs")]
    DifferentBmcs {
        /// Address of the read-only account.
        reads: String,
        /// Address of the limit-setting account.
        caps: String,
    },
    /// Trust cannot be set up.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

impl Endpoint {
    /// An account on the BMC at `url` (`https://bmc-gpu001`, optionally with a port).
    ///
    /// # Errors
    /// The URL is not such an address, or contains a user, a password, a query, a fragment or a path other than
    /// `/redfish/v1`. HTTP without TLS is allowed only for a loopback address or with [`Trust::Insecure`].
    pub fn new(
        url: &str,
        user: impl Into<String>,
        password: SecretString,
        trust: Trust,
    ) -> Result<Self, EndpointError> {
        let shown = url.rsplit_once('@').map_or(url, |(_, host)| host);
        let wrong = || EndpointError::NoUrl {
            url: shown.to_owned(),
        };
        let url: Url = url.parse().map_err(|_| wrong())?;
        let host = url.host_str().ok_or_else(wrong)?;
        let is_loopback = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && matches!(url.path(), "" | "/" | "/redfish/v1" | "/redfish/v1/")
            && url.query().is_none()
            && url.fragment().is_none();
        match url.scheme() {
            "https" | "http" if !is_plain => return Err(wrong()),
            "https" => {}
            "http" if is_loopback || trust == Trust::Insecure => {}
            "http" => {
                return Err(EndpointError::ClearText {
                    url: shown.to_owned(),
                });
            }
            _ => return Err(wrong()),
        }
        Ok(Self {
            url,
            user: user.into(),
            password,
            trust,
            basic: BasicAuth::default(),
        })
    }

    /// Replaces the rule for Basic authentication.
    #[must_use]
    pub fn basic(self, basic: BasicAuth) -> Self {
        Self { basic, ..self }
    }

    /// Address of the BMC, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Converts links that are URLs of this address to paths. Links to other addresses stay unchanged and are not
    /// followed.
    pub(super) fn shorten_links(&self, value: &mut Value) {
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            match value {
                Value::Array(items) => left.extend(items),
                Value::Object(members) => {
                    for (name, value) in members {
                        let is_link = name.ends_with("@odata.id")
                            || name.ends_with("@odata.nextLink")
                            || name == "Uri";
                        match value {
                            Value::String(link) if is_link => {
                                if let Some(path) = self.own_path(link) {
                                    *link = path;
                                }
                            }
                            value => left.push(value),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// The path in a URL of this address; `None` for any other link.
    fn own_path(&self, link: &str) -> Option<String> {
        let (_, rest) = link.split_once("://")?;
        let url: Url = link.parse().ok()?;
        let path = rest.find('/').and_then(|at| rest.get(at..))?;
        self.is_own(&url).then(|| path.to_owned())
    }

    /// The URL of a path on this BMC; `None` if it would leave the Redfish service. The parsed URL is checked, because
    /// a URL parser resolves `%2e%2e` and `\`.
    pub(super) fn url_of(&self, path: &str) -> Option<Url> {
        let url = self.url.join(path).ok()?;
        (self.is_own(&url) && is_in_service(&url)).then_some(url)
    }

    /// The target of a redirect, which may be relative to the requested URL, and outside the Redfish service. The same
    /// scheme, host and port are the BMC itself, which receives the credentials with every request anyway.
    ///
    /// # Errors
    /// The target would leave this scheme, host and port, or is not a valid URL.
    pub(super) fn redirect_target(
        &self,
        requested: &Url,
        location: &str,
    ) -> Result<Url, RedirectRefusal> {
        let mut url = match requested.join(location) {
            Ok(url) if !location.trim().is_empty() => url,
            _ => return Err(RedirectRefusal::InvalidTarget),
        };
        if !self.is_own(&url) {
            return Err(RedirectRefusal::OtherOrigin);
        }
        url.set_fragment(None);
        Ok(url)
    }

    /// Whether the URL has the scheme, host and port of this address, and contains no user, which would replace the
    /// configured one.
    fn is_own(&self, url: &Url) -> bool {
        let has_user = !url.username().is_empty() || url.password().is_some();
        url.origin() == self.url.origin() && !has_user
    }
}

fn is_in_service(url: &Url) -> bool {
    let below = url.path().strip_prefix("/redfish/v1");
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn at(url: &str, trust: Trust) -> Result<Endpoint, EndpointError> {
        Endpoint::new(url, "admin", SecretString::from("hunter2"), trust)
    }

    #[test]
    fn clear_text_is_for_loopback_or_must_be_allowed() {
        assert!(at("http://127.0.0.1:8000", Trust::System).is_ok());
        assert!(at("http://[::1]:8000", Trust::System).is_ok());
        let refused = at("http://10.0.0.7", Trust::System).unwrap_err();
        assert!(matches!(refused, EndpointError::ClearText { .. }));
        assert!(at("http://10.0.0.7", Trust::Insecure).is_ok());
    }

    #[test]
    fn an_address_with_a_password_or_a_path_is_refused_and_not_repeated() {
        for url in [
            "https://admin:hunter2@bmc",
            "https://bmc/admin",
            "https://bmc?x=1",
            "ftp://bmc",
            "bmc-gpu001",
        ] {
            let refused = at(url, Trust::System).unwrap_err();
            assert!(!refused.to_string().contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn no_path_leads_off_the_service() {
        let endpoint = at("https://bmc", Trust::System).unwrap();
        assert!(endpoint.url_of("/redfish/v1/Chassis/1").is_some());
        for path in [
            "/redfish/v1/%2e%2e/%2e%2e/admin",
            "/redfish/v1/\\..\\..\\..\\admin",
            "//other.example/redfish/v1",
            "https://other.example/redfish/v1",
            "/redfish/v10/Systems",
            "/redfish/v1.evil",
        ] {
            assert_eq!(endpoint.url_of(path), None, "{path}");
        }
    }

    #[test]
    fn a_url_of_the_bmc_itself_is_its_path_and_no_other_url_is() {
        let endpoint = at("https://bmc:8443", Trust::System).unwrap();
        let link = |link: &str| serde_json::json!({"Members": [{"@odata.id": link}], "Name": link});
        let own = "https://bmc:8443/redfish/v1/Systems/1";
        let mut value = link(own);
        endpoint.shorten_links(&mut value);
        assert_eq!(value["Members"][0]["@odata.id"], "/redfish/v1/Systems/1");
        assert_eq!(value["Name"], own);
        for own in [
            "https://BMC:8443/redfish/v1/Systems/1",
            "HTTPS://bmc:8443/redfish/v1/Systems/1",
        ] {
            let mut value = link(own);
            endpoint.shorten_links(&mut value);
            assert_eq!(value["Members"][0]["@odata.id"], "/redfish/v1/Systems/1");
        }
        for other in [
            "https://bmc/redfish/v1/Systems/1",
            "https://admin@bmc:8443/redfish/v1/Systems/1",
            "https://bmc:84431/redfish/v1/Systems/1",
            "https://bmc:8443.example/redfish/v1/Systems/1",
            "http://bmc:8443/redfish/v1/Systems/1",
            "//bmc:8443/redfish/v1/Systems/1",
        ] {
            let mut value = link(other);
            endpoint.shorten_links(&mut value);
            assert_eq!(value, link(other));
        }
    }

    #[test]
    fn default_port_may_be_written() {
        let endpoint = at("https://bmc", Trust::System).unwrap();
        let mut value = serde_json::json!({"@odata.id": "https://bmc:443/redfish/v1/Systems"});
        endpoint.shorten_links(&mut value);
        assert_eq!(value["@odata.id"], "/redfish/v1/Systems");
    }

    #[test]
    fn redirects_stay_within_scheme_host_and_port() {
        let endpoint = at("https://bmc:8443", Trust::System).unwrap();
        let from = endpoint.url_of("/redfish/v1/Systems/1").unwrap();
        let target = |location: &str| {
            let target = endpoint.redirect_target(&from, location);
            target.map(|url| url.to_string())
        };
        for (location, path) in [
            ("/redfish/v1/Systems/1/", "redfish/v1/Systems/1/"),
            (
                "https://bmc:8443/redfish/v1/Systems/1/",
                "redfish/v1/Systems/1/",
            ),
            (
                "HTTPS://BMC:8443/redfish/v1/Systems/1/",
                "redfish/v1/Systems/1/",
            ),
            ("//bmc:8443/redfish/v1/Systems/1/", "redfish/v1/Systems/1/"),
            ("1/", "redfish/v1/Systems/1/"),
            ("../Systems/1/#part", "redfish/v1/Systems/1/"),
            ("../Chassis/./1", "redfish/v1/Chassis/1"),
            ("/redfish/v1/Systems/a b", "redfish/v1/Systems/a%20b"),
            (" /redfish/v1/Systems/1/\t", "redfish/v1/Systems/1/"),
            ("?x=1", "redfish/v1/Systems/1?x=1"),
            (
                "/redfish/v1/Systems?$skip=50#x",
                "redfish/v1/Systems?$skip=50",
            ),
            // The same origin outside the Redfish service.
            ("/rest/v1/Systems/1", "rest/v1/Systems/1"),
            ("https://bmc:8443/api/Systems/1", "api/Systems/1"),
            ("../../../../../login.html", "login.html"),
            ("/redfish/v1/%2e%2e/%2e%2e/admin", "admin"),
            ("https://bmc:8443", ""),
        ] {
            let expected = format!("https://bmc:8443/{path}");
            assert_eq!(target(location), Ok(expected), "{location}");
        }
        for (location, why) in [
            ("http://bmc:8443/redfish/v1/", RedirectRefusal::OtherOrigin),
            ("https://bmc/redfish/v1/", RedirectRefusal::OtherOrigin),
            ("https://bmc:443/redfish/v1/", RedirectRefusal::OtherOrigin),
            (
                "https://bmc.:8443/redfish/v1/",
                RedirectRefusal::OtherOrigin,
            ),
            (
                "https://bmc:8443.example/redfish/v1/",
                RedirectRefusal::InvalidTarget,
            ),
            ("//other.example/redfish/v1/", RedirectRefusal::OtherOrigin),
            (
                "\\\\other.example/redfish/v1/",
                RedirectRefusal::OtherOrigin,
            ),
            (
                "https://bmc:8443@other.example/redfish/v1/",
                RedirectRefusal::OtherOrigin,
            ),
            (
                "https://x:y@bmc:8443/redfish/v1/",
                RedirectRefusal::OtherOrigin,
            ),
            ("javascript:alert(1)", RedirectRefusal::OtherOrigin),
            ("https://", RedirectRefusal::InvalidTarget),
            ("", RedirectRefusal::InvalidTarget),
            (" ", RedirectRefusal::InvalidTarget),
        ] {
            assert_eq!(target(location), Err(why), "{location}");
        }
    }

    #[test]
    fn equal_origins_may_be_written_in_other_forms() {
        for (configured, location) in [
            ("https://bmc", "https://bmc:443/redfish/v1/Systems/"),
            ("https://bmc:443", "HTTPS://Bmc/redfish/v1/Systems/"),
            (
                "http://127.0.0.1",
                "http://127.0.0.1:80/redfish/v1/Systems/",
            ),
            (
                "https://[fe80::1]:8443",
                "https://[FE80:0:0::1]:8443/redfish/v1/Systems/",
            ),
            (
                "https://[::1]",
                "//[0:0:0:0:0:0:0:1]:443/redfish/v1/Systems/",
            ),
        ] {
            let endpoint = at(configured, Trust::System).unwrap();
            let from = endpoint.url_of("/redfish/v1/Systems").unwrap();
            let target = endpoint.redirect_target(&from, location);
            let path = target.map(|url| url.path().to_owned());
            assert_eq!(path, Ok("/redfish/v1/Systems/".to_owned()), "{location}");
        }
    }

    #[test]
    fn a_password_is_not_in_debug_output() {
        let endpoint = at("https://bmc", Trust::System).unwrap();
        let shown = format!("{endpoint:?} {:?}", LimitWriter(endpoint.clone()));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
