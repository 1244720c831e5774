//! How a source is asked: over HTTP or from a file, within a deadline and a size, whatever it does.

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

/// Why a source gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// It did not answer in time.
    #[error("no answer within {} s", .after.as_secs_f64())]
    Late {
        /// The deadline.
        after: Duration,
    },
    /// No connection, or it broke.
    #[error("no answer: {reason}")]
    Unreached {
        /// The first cause.
        reason: String,
    },
    /// Another answer than 200.
    #[error("it answered with status {status}{}", hint(*.status))]
    Status {
        /// As answered.
        status: u16,
    },
    /// More than is read of an answer.
    #[error("it is longer than {most} bytes")]
    TooLong {
        /// What is read at most.
        most: usize,
    },
    /// The file cannot be read.
    #[error("it cannot be read: {reason}")]
    File {
        /// Why.
        reason: String,
    },
    /// The token cannot be used.
    #[error("token_file: {reason}")]
    Token {
        /// Why.
        reason: String,
    },
}

impl FetchError {
    /// Whether it says that the source is not there for anybody, or not for us, rather than that it
    /// dislikes the question.
    pub(crate) const fn is_outage(&self) -> bool {
        match self {
            Self::Late { .. } | Self::Unreached { .. } | Self::Token { .. } => true,
            // Who is sent elsewhere is mostly sent to a login.
            Self::Status { status } => matches!(*status, 300..=399 | 401 | 403 | 429 | 500..),
            Self::TooLong { .. } | Self::File { .. } => false,
        }
    }
}

const fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed: give the URL it leads to",
        401 | 403 => "; give a `token_file` that it takes",
        _ => "",
    }
}

/// TLS or the HTTP client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The authorities that the system trusts.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The client.
    #[error("the HTTP client cannot be set up")]
    Http(#[from] reqwest::Error),
}

/// Whose certificates a client takes.
#[derive(Debug)]
pub(crate) enum Trust {
    /// Nobody's: it asks nobody that shows one.
    Nobody,
    /// Those of the authorities that the system trusts.
    System,
    /// Those of these authorities.
    Only(Vec<CertificateDer<'static>>),
}

/// A client for sources.
///
/// # Errors
/// Where authorities cannot be read.
pub(crate) fn client(trust: Trust) -> Result<Client, ClientError> {
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
        Trust::Nobody => tls
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    };
    let mut always = HeaderMap::new();
    // Nothing is unpacked here, so that a small answer stays small.
    always.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .default_headers(always)
        // A token goes where the configuration says, and nowhere else.
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .http1_only()
        .build()?;
    Ok(client)
}

/// Something behind a URL.
#[derive(Debug, Clone)]
pub(crate) struct Web {
    client: Client,
    token: Option<Arc<Token>>,
    deadline: Duration,
    /// What is read of an answer at most, bytes.
    most: usize,
}

/// A bearer token, and the file it is read from again when it is no longer taken.
#[derive(Debug)]
struct Token {
    path: PathBuf,
    value: Mutex<HeaderValue>,
    /// A reading that has not come back. One at a time waits for it, and no second one is begun
    /// beside it.
    under_way: Turn<Option<oneshot::Receiver<Result<HeaderValue, FetchError>>>>,
}

impl Web {
    /// Asks nothing yet; reads the token.
    ///
    /// # Errors
    /// A file of the token that cannot be used.
    pub(crate) fn new(
        client: Client,
        token_file: Option<&Path>,
        deadline: Duration,
        most: usize,
    ) -> Result<Self, FetchError> {
        let token = match token_file {
            Some(path) => Some(Arc::new(Token {
                path: path.to_owned(),
                value: Mutex::new(bearer(path)?),
                under_way: Turn::default(),
            })),
            None => None,
        };
        Ok(Self {
            client,
            token,
            deadline,
            most,
        })
    }

    /// The body of the answer, if it is one with status 200.
    pub(crate) async fn get(&self, url: &Url) -> Result<Vec<u8>, FetchError> {
        let (_, body) = self.get_with(url, &[200]).await?;
        Ok(body)
    }

    /// The status and the body of the answer, if its status is one of `taken`.
    pub(crate) async fn get_with(
        &self,
        url: &Url,
        taken: &[u16],
    ) -> Result<(u16, Vec<u8>), FetchError> {
        let after = self.deadline;
        let mut reads = None;
        let got = timeout(after, self.asked(url, taken, &mut reads)).await;
        got.unwrap_or_else(|_| {
            Err(match reads {
                Some(token) => token.late(after),
                None => FetchError::Late { after },
            })
        })
    }

    /// `reads` is the token whose file is waited for.
    async fn asked<'a>(
        &'a self,
        url: &Url,
        taken: &[u16],
        reads: &mut Option<&'a Token>,
    ) -> Result<(u16, Vec<u8>), FetchError> {
        let shown = self.token.as_deref().map(|token| (token, token.value()));
        let mut response = self
            .sent(url, shown.as_ref().map(|(_, value)| value))
            .await?;
        if let (401 | 403, Some((token, shown))) = (response.status().as_u16(), shown) {
            *reads = Some(token);
            let renewed = token.renewed(&shown).await?;
            *reads = None;
            if let Some(value) = renewed {
                response = self.sent(url, Some(&value)).await?;
            }
        }
        let status = response.status().as_u16();
        if !taken.contains(&status) {
            return Err(FetchError::Status { status });
        }
        let most = self.most;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreached)? {
            if body.len() + chunk.len() > most {
                return Err(FetchError::TooLong { most });
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }

    async fn sent(&self, url: &Url, token: Option<&HeaderValue>) -> Result<Response, FetchError> {
        let mut request = self.client.get(url.clone());
        if let Some(token) = token {
            request = request.header(reqwest::header::AUTHORIZATION, token.clone());
        }
        request.send().await.map_err(unreached)
    }
}

impl Token {
    /// The one that is known.
    fn value(&self) -> HeaderValue {
        let known = self.value.lock();
        known.clone()
    }

    /// Another one than that which was shown and is not taken, if there is one by now: others who ask
    /// may have found it, or else the file holds it.
    async fn renewed(&self, shown: &HeaderValue) -> Result<Option<HeaderValue>, FetchError> {
        let mut under_way = self.under_way.lock().await;
        loop {
            let known = self.value();
            if known != *shown {
                return Ok(Some(known));
            }
            let is_left_over = under_way.is_some();
            let begin = || {
                let path = self.path.clone();
                aside("token", move || bearer(&path))
            };
            let read = under_way.get_or_insert_with(begin).await;
            *under_way = None;
            let reason = || "the thread that reads it ended".to_owned();
            let value = read.map_err(|_| FetchError::Token { reason: reason() })?;
            match value {
                Ok(value) if value != *shown => {
                    *self.value.lock() = value;
                }
                // It began before the answer came that this is about.
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

/// The header that shows a token.
fn bearer(path: &Path) -> Result<HeaderValue, FetchError> {
    let wrong = |reason: String| FetchError::Token { reason };
    let token = private_file::read_secret(path).map_err(|error| wrong(with_causes(&error)))?;
    let text = SecretString::from(format!("Bearer {}", token.expose_secret()));
    let value = HeaderValue::from_str(text.expose_secret());
    let mut value = value.map_err(|_| {
        let path = path.display();
        wrong(format!("{path} holds signs that no header may have"))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// What an error of the HTTP client means, without the URL: its query may name people.
fn unreached(error: reqwest::Error) -> FetchError {
    let error = error.without_url();
    FetchError::Unreached {
        reason: innermost(&error).to_string(),
    }
}

/// Runs what may block for ever in a thread of its own: the runtime's threads for such work are
/// waited for when the process ends.
fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, wait) = oneshot::channel();
    let run = move || {
        // Nobody may wait for it any more.
        let _ = done.send(work());
    };
    // Without a thread `done` is dropped, and the receiver knows.
    let _ = thread::Builder::new().name(name.to_owned()).spawn(run);
    wait
}

/// A file, on a disk that may not answer.
#[derive(Debug)]
pub(crate) struct OnDisk {
    path: PathBuf,
    deadline: Duration,
    most: usize,
    /// A reading that has not come back: no second one is begun beside it.
    under_way: Option<oneshot::Receiver<io::Result<Vec<u8>>>>,
}

impl OnDisk {
    pub(crate) const fn new(path: PathBuf, deadline: Duration, most: usize) -> Self {
        Self {
            path,
            deadline,
            most,
            under_way: None,
        }
    }

    /// What is in it.
    pub(crate) async fn read(&mut self) -> Result<Vec<u8>, FetchError> {
        let (path, most, after) = (self.path.clone(), self.most, self.deadline);
        let begin = || aside("source file", move || whole(&path, most));
        let reading = self.under_way.get_or_insert_with(begin);
        let Ok(read) = timeout(after, reading).await else {
            return Err(FetchError::Late { after });
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

/// At most one byte more than `most`.
pub(crate) fn whole(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    // A pipe would be waited for.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
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
    async fn beside_a_reading_that_hangs_no_other_is_begun() {
        let after = Duration::from_secs(5);
        // Were it read, it would be no file, and said so.
        let mut file = OnDisk::new(PathBuf::from("/nowhere"), after, 10);
        let (hangs, wait) = oneshot::channel();
        file.under_way = Some(wait);
        for _ in 0..2 {
            assert_eq!(file.read().await, Err(FetchError::Late { after }));
        }
        assert!(hangs.send(Ok(b"late".to_vec())).is_ok());
        assert_eq!(file.read().await, Ok(b"late".to_vec()));
        // The next one reads anew.
        assert!(file.under_way.is_none());
    }
}
