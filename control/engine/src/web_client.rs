//! Fetching of source data over HTTP or from a file, with a deadline and a size limit.

use lattice_host::{
    error_text::{innermost, with_causes},
    private_file,
};
use parking_lot::Mutex;
use reqwest::{
    Client, Response, Url,
    header::{ACCEPT_ENCODING, HeaderMap, HeaderValue},
};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::{
    sync::{Mutex as Turn, oneshot},
    time::timeout,
};

/// Reason why a source returned no data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The source did not answer in time.
    #[error("no answer within {} s", .after.as_secs_f64())]
    TimedOut {
        /// Deadline of the request.
        after: Duration,
    },
    /// The connection failed or broke.
    #[error("no answer: {reason}")]
    Unreachable {
        /// Innermost cause of the failure.
        reason: String,
    },
    /// The reply has a status that the caller does not accept.
    #[error("HTTP status {status}{}", hint(*.status))]
    Status {
        /// HTTP status of the reply.
        status: u16,
    },
    /// The reply exceeds the size limit.
    #[error("longer than the limit of {most} bytes")]
    TooLong {
        /// Size limit in bytes.
        most: usize,
    },
    /// The file cannot be read.
    #[error("it cannot be read: {reason}")]
    File {
        /// I/O error text.
        reason: String,
    },
    /// The token cannot be used.
    #[error("token_file: {reason}")]
    Token {
        /// Why the token cannot be used.
        reason: String,
    },
}

impl FetchError {
    /// Whether the error means that the source is unavailable, to all clients or to this control, rather than that it
    /// rejects this request.
    pub(crate) const fn is_outage(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Unreachable { .. } | Self::Token { .. } => true,
            // A redirect mostly leads to a login page.
            Self::Status { status } => matches!(*status, 300..=399 | 401 | 403 | 429 | 500..),
            Self::TooLong { .. } | Self::File { .. } => false,
        }
    }
}

const fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed: configure the target URL",
        401 | 403 => "; set `token_file` to a token that the source accepts",
        _ => "",
    }
}

/// Failure to set up TLS or the HTTP client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The CAs cannot be loaded, or TLS cannot be configured.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be created.
    #[error("the HTTP client cannot be set up")]
    Http(#[from] reqwest::Error),
}

/// Certificates that a client accepts.
#[derive(Debug)]
pub enum Trust {
    /// No certificate; for clients that use plain HTTP only.
    NoTls,
    /// Certificates signed by the system's CAs.
    System,
    /// Certificates signed by these CAs.
    Only(Vec<CertificateDer<'static>>),
}

/// Creates an HTTP client for sources.
///
/// # Errors
/// Returns an error when the CAs cannot be loaded or the HTTP client cannot be created.
pub fn client(trust: Trust) -> Result<Client, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider.clone());
    let tls = tls.with_safe_default_protocol_versions()?;
    let tls = match trust {
        Trust::System => {
            let verifier = rustls_platform_verifier::Verifier::new(provider)?;
            tls.dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth()
        }
        Trust::Only(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority)?;
            }
            tls.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::NoTls => tls
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    };
    let mut always = HeaderMap::new();
    // No compression is accepted, so that a small reply cannot expand.
    always.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .default_headers(always)
        // A token is sent only to the configured URL.
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .http1_only()
        .build()?;
    Ok(client)
}

/// HTTP client of a source, with an optional token, a deadline and a size limit.
#[derive(Debug, Clone)]
pub struct WebClient {
    client: Client,
    token: Option<Arc<Token>>,
    deadline: Duration,
    /// Largest reply that is read, in bytes.
    max_bytes: usize,
}

/// Bearer token, with the file that is read again when the token is rejected.
#[derive(Debug)]
struct Token {
    path: PathBuf,
    value: Mutex<HeaderValue>,
    /// A pending read of the token file. One caller at a time waits for it, and no second read is started meanwhile.
    pending_read: Turn<Option<oneshot::Receiver<Result<HeaderValue, FetchError>>>>,
}

impl WebClient {
    /// Reads the token and creates the client without sending a request.
    ///
    /// # Errors
    /// Returns an error when the token file cannot be used.
    pub fn new(
        client: Client,
        token_file: Option<&Path>,
        deadline: Duration,
        most: usize,
    ) -> Result<Self, FetchError> {
        let token = match token_file {
            Some(path) => Some(Arc::new(Token {
                path: path.to_owned(),
                value: Mutex::new(bearer(path)?),
                pending_read: Turn::default(),
            })),
            None => None,
        };
        Ok(Self {
            client,
            token,
            deadline,
            max_bytes: most,
        })
    }

    /// Body of a reply with status 200.
    pub async fn get(&self, url: &Url) -> Result<Vec<u8>, FetchError> {
        let (_, body) = self.get_with(url, &[200]).await?;
        Ok(body)
    }

    /// Status and body of a reply with one of the statuses in `taken`.
    pub(crate) async fn get_with(
        &self,
        url: &Url,
        taken: &[u16],
    ) -> Result<(u16, Vec<u8>), FetchError> {
        let after = self.deadline;
        let mut reads = None;
        let got = timeout(after, self.send_with_renewal(url, taken, &mut reads)).await;
        got.unwrap_or_else(|_| {
            Err(match reads {
                Some(token) => token.late(after),
                None => FetchError::TimedOut { after },
            })
        })
    }

    /// Sends the request. `reads` is set to the token while its file is being read.
    async fn send_with_renewal<'a>(
        &'a self,
        url: &Url,
        taken: &[u16],
        reads: &mut Option<&'a Token>,
    ) -> Result<(u16, Vec<u8>), FetchError> {
        let shown = self.token.as_deref().map(|token| (token, token.value()));
        let mut response = self
            .send(url, shown.as_ref().map(|(_, value)| value))
            .await?;
        if let (401 | 403, Some((token, shown))) = (response.status().as_u16(), shown) {
            *reads = Some(token);
            let renewed = token.renew(&shown).await?;
            *reads = None;
            if let Some(value) = renewed {
                response = self.send(url, Some(&value)).await?;
            }
        }
        let status = response.status().as_u16();
        if !taken.contains(&status) {
            return Err(FetchError::Status { status });
        }
        let most = self.max_bytes;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreached)? {
            if body.len() + chunk.len() > most {
                return Err(FetchError::TooLong { most });
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }

    async fn send(&self, url: &Url, token: Option<&HeaderValue>) -> Result<Response, FetchError> {
        let mut request = self.client.get(url.clone());
        if let Some(token) = token {
            request = request.header(reqwest::header::AUTHORIZATION, token.clone());
        }
        request.send().await.map_err(unreached)
    }
}

impl Token {
    /// Authorization header with the present token.
    fn value(&self) -> HeaderValue {
        let known = self.value.lock();
        known.clone()
    }

    /// A token other than `shown`, which was rejected, if there is one: another request may have read it already, or
    /// the file contains it now.
    async fn renew(&self, shown: &HeaderValue) -> Result<Option<HeaderValue>, FetchError> {
        let mut under_way = self.pending_read.lock().await;
        loop {
            let known = self.value();
            if known != *shown {
                return Ok(Some(known));
            }
            let is_left_over = under_way.is_some();
            let begin = || {
                let path = self.path.clone();
                spawn_blocking_thread("token", move || bearer(&path))
            };
            let read = under_way.get_or_insert_with(begin).await;
            *under_way = None;
            let reason = || "the thread that reads it ended".to_owned();
            let value = read.map_err(|_| FetchError::Token { reason: reason() })?;
            match value {
                Ok(value) if value != *shown => {
                    *self.value.lock() = value;
                }
                // This read began before the rejection and may be outdated.
                _ if is_left_over => {}
                Ok(_) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn late(&self, after: Duration) -> FetchError {
        let (path, after) = (self.path.display(), after.as_secs_f64());
        FetchError::Token {
            reason: format!("no answer within {after} s; the token in {path} was being read again"),
        }
    }
}

/// Checks that a token can be read from the file; the error names the file.
pub(crate) fn check_token(path: &Path) -> Result<(), String> {
    match bearer(path) {
        Ok(_) => Ok(()),
        Err(FetchError::Token { reason }) => Err(reason),
        Err(error) => Err(error.to_string()),
    }
}

/// Authorization header with the token from a file.
fn bearer(path: &Path) -> Result<HeaderValue, FetchError> {
    let wrong = |reason: String| FetchError::Token { reason };
    let token = private_file::read_secret(path).map_err(|error| wrong(with_causes(&error)))?;
    let text = SecretString::from(format!("Bearer {}", token.expose_secret()));
    let value = HeaderValue::from_str(text.expose_secret());
    let mut value = value.map_err(|_| {
        let path = path.display();
        wrong(format!(
            "{path} has characters that are not valid in a header"
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Error of the HTTP client without the URL, because its query may contain names of users.
fn unreached(error: reqwest::Error) -> FetchError {
    let error = error.without_url();
    FetchError::Unreachable {
        reason: innermost(&error).to_string(),
    }
}

/// Runs a possibly endless blocking operation in a thread of its own: the process waits at exit for the runtime's
/// blocking threads.
fn spawn_blocking_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, wait) = oneshot::channel();
    let run = move || {
        // The receiver may have stopped waiting.
        let _ = done.send(work());
    };
    // If the thread cannot start, `done` is dropped and the receiver gets an error.
    let _ = thread::Builder::new().name(name.to_owned()).spawn(run);
    wait
}

/// File source on a disk that may hang.
#[derive(Debug)]
pub(crate) struct DiskFile {
    path: PathBuf,
    deadline: Duration,
    most: usize,
    /// A pending read of the file: no second read is started meanwhile.
    under_way: Option<oneshot::Receiver<io::Result<Vec<u8>>>>,
}

impl DiskFile {
    pub(crate) const fn new(path: PathBuf, deadline: Duration, most: usize) -> Self {
        Self {
            path,
            deadline,
            most,
            under_way: None,
        }
    }

    /// Content of the file.
    pub(crate) async fn read(&mut self) -> Result<Vec<u8>, FetchError> {
        let (path, most, after) = (self.path.clone(), self.most, self.deadline);
        let begin = || spawn_blocking_thread("source file", move || read_regular_file(&path, most));
        let reading = self.under_way.get_or_insert_with(begin);
        let Ok(read) = timeout(after, reading).await else {
            return Err(FetchError::TimedOut { after });
        };
        self.under_way = None;
        let reason = |error: io::Error| FetchError::File {
            reason: error.to_string(),
        };
        let lost = io::Error::other("the thread that reads it ended");
        let bytes = read.map_err(|_| reason(lost))?.map_err(reason)?;
        if bytes.len() > most {
            return Err(FetchError::TooLong { most });
        }
        Ok(bytes)
    }
}

/// Reads a file, at most one byte beyond `most`.
pub(crate) fn read_regular_file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    // Reading a pipe could block for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    File::open(path)?
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hanging_read_starts_no_second() {
        let after = Duration::from_secs(5);
        // A read of this path would fail at once, since it is not a file.
        let mut file = DiskFile::new(PathBuf::from("/nowhere"), after, 10);
        let (hangs, wait) = oneshot::channel();
        file.under_way = Some(wait);
        for _ in 0..2 {
            assert_eq!(file.read().await, Err(FetchError::TimedOut { after }));
        }
        assert!(hangs.send(Ok(b"late".to_vec())).is_ok());
        assert_eq!(file.read().await, Ok(b"late".to_vec()));
        // The next call reads again.
        assert!(file.under_way.is_none());
    }
}
