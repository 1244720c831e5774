//! Tokens for sources, and checks of the configuration.

use super::site::{DEADLINE, PATIENCE, ServiceBehaviour, Site, web_within};
use crate::{
    inputs::sources::check_source_files,
    scheduling_config::SchedulingConfig,
    web_client::{FetchError, Trust, WebClient, client},
};
use futures::future::join_all;
use lattice_config::{Check, PREFIX, Problems, Source, check_all};
use reqwest::Url;
use serde::Deserialize;
use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::Barrier, time::timeout};

/// A token file that only its owner can read.
struct TokenFile {
    path: PathBuf,
    _folder: TempDir,
}

impl TokenFile {
    fn with(token: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = Self {
            path,
            _folder: folder,
        };
        file.put(token);
        file
    }

    fn put(&self, token: &str) {
        fs::write(&self.path, token).unwrap();
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// A client that waits as long as necessary.
fn web(token_file: Option<&Path>) -> WebClient {
    web_within(PATIENCE, token_file, 10)
}

#[tokio::test]
async fn renewed_token_is_shared_at_once() {
    const ASK: usize = 8;
    let token = TokenFile::with("first");
    let asker = web(Some(&token.path));
    let together = Arc::new(Barrier::new(ASK));
    let does = ServiceBehaviour::SaysTogetherTo("second", "2".to_owned(), together);
    let site = Site::that(does).await;
    let url = site.url("/");
    token.put("second");
    let answers = join_all((0..ASK).map(|_| asker.get(&url))).await;
    assert_eq!(answers, vec![Ok(b"2".to_vec()); ASK]);
}

/// Number of threads of this process that read a token.
fn reading() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
    names
        .filter(|name| name.as_ref().is_ok_and(|name| name == "token\n"))
        .count()
}

/// A pipe without a writer simulates a disk that hangs.
#[tokio::test]
async fn a_token_s_file_that_hangs_is_read_once_however_many_ask() {
    let token = TokenFile::with("first");
    let asker = web_within(DEADLINE, Some(&token.path), 10);
    fs::remove_file(&token.path).unwrap();
    let mut mkfifo = std::process::Command::new("mkfifo");
    let made = mkfifo.args(["-m", "600"]).arg(&token.path).status();
    assert!(made.unwrap().success());
    let site = Site::that(ServiceBehaviour::SaysTo("second", "2".to_owned())).await;
    let url = site.url("/");
    for _ in 0..3 {
        for answer in join_all((0..4).map(|_| asker.get(&url))).await {
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("no answer within 0.3 s"), "{error}");
        }
    }
    // Other tests read their tokens for a moment.
    let one = async {
        while reading() != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let came = timeout(PATIENCE / 6, one).await;
    assert!(came.is_ok(), "{} threads", reading());
    // The disk answers again.
    let mut pipe = fs::OpenOptions::new()
        .write(true)
        .open(&token.path)
        .unwrap();
    fs::remove_file(&token.path).unwrap();
    token.put("second");
    pipe.write_all(b"second").unwrap();
    drop(pipe);
    let answers = async {
        while asker.get(&url).await != Ok(b"2".to_vec()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, answers).await.unwrap();
}

#[tokio::test]
async fn a_token_is_shown_and_read_again_when_it_is_no_longer_taken() {
    let token = TokenFile::with("first\n");
    let site = Site::that(ServiceBehaviour::SaysTo("first", "1".to_owned())).await;
    let (asker, url) = (web(Some(&token.path)), site.url("/"));
    assert_eq!(asker.get(&url).await, Ok(b"1".to_vec()));
    site.now(ServiceBehaviour::SaysTo("second", "2".to_owned()));
    let refused = Err(FetchError::Status { status: 401 });
    assert_eq!(asker.get(&url).await, refused);
    token.put("second");
    assert_eq!(asker.get(&url).await, Ok(b"2".to_vec()));
    assert_eq!(web(None).get(&url).await, refused);
    // A file readable by others, or text that is invalid in a header, is rejected as a token.
    let refused = || {
        let web = WebClient::new(
            client(Trust::NoTls).unwrap(),
            Some(&token.path),
            DEADLINE,
            10,
        );
        web.unwrap_err().to_string()
    };
    token.put("two\nlines");
    assert!(refused().contains("not valid in a header"));
    token.put("");
    assert!(refused().contains("is empty"));
    token.put("third");
    fs::set_permissions(&token.path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = refused();
    assert!(
        error.starts_with("token_file: others can read") && error.contains("chmod 600"),
        "{error}"
    );
    assert!(!format!("{asker:?}").contains("second"), "{asker:?}");
}

#[tokio::test]
async fn unreachable_error_omits_query() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let url = Url::parse(&format!("http://{addr}/ready?user=alice")).unwrap();
    let error = web(None).get(&url).await.unwrap_err();
    assert!(error.is_outage(), "{error:?}");
    let error = error.to_string();
    assert!(
        error.starts_with("no answer: ") && !error.contains("alice"),
        "{error}"
    );
}

/// Section `scheduling` by itself.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Section(SchedulingConfig);

impl Check for Section {
    fn check(&self, problems: &mut Problems) {
        self.0.check(problems);
    }
    fn check_files(&self, problems: &mut Problems) {
        check_source_files(&self.0, problems);
    }
}

#[test]
fn a_check_of_the_configuration_reads_what_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let (prices, token) = (folder.path().join("p.csv"), folder.path().join("token"));
    let text = format!(
        "energy_price: {{file: {}}}\ndata_readiness: {{url: 'https://x/{{id}}', token_file: {}}}\n\
         prometheus: {{url: 'https://x', token_file: /nonexistent/token}}\n",
        prices.display(),
        token.display()
    );
    let mistakes = || {
        let checked = check_all::<Section>(Source::Text(&text), [], PREFIX);
        let problems = checked.unwrap_err().problems().to_vec();
        let texts = problems.iter().map(ToString::to_string);
        texts.collect::<Vec<String>>()
    };
    // Each wrong file is named.
    let found = mistakes();
    assert_eq!(found.len(), 3, "{found:?}");
    let begins = format!(
        "data_readiness.token_file: cannot read {}: No such",
        token.display()
    );
    assert!(found[0].starts_with(&begins), "{found:?}");
    assert!(found[1].starts_with("prometheus.token_file: "), "{found:?}");
    let place = format!("energy_price.file: {}: ", prices.display());
    assert!(
        found[2].starts_with(&format!("{place}No such file")),
        "{found:?}"
    );

    fs::write(&token, "secret").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&prices, "1795435200,1\n1795435200,2\n").unwrap();
    let found = mistakes();
    assert_eq!(found.len(), 2, "{found:?}");
    let begins = format!("{place}line 2: timestamp: is not later");
    assert!(found[1].starts_with(&begins), "{found:?}");
    fs::write(&prices, "1795435200,-1\n1795438800,2\n").unwrap();
    assert_eq!(mistakes().len(), 1);
}
