//! A real Prometheus that scrapes a page written by a test. It counts its queries, so a test for the absence of an
//! effect can count queries instead of seconds.

use crate::{site::free_addresses, wait::eventually};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command},
    sync::{Arc, Mutex},
    time::Duration,
};

/// Program of the Prometheus package.
const PROGRAM: &str = "prometheus";
/// Scrape interval.
const SCRAPES: &str = "200ms";

/// Values by series name, as text in the exposition format.
type Page = Arc<Mutex<BTreeMap<String, String>>>;

/// Running Prometheus with its page. Dropping the value ends it.
#[derive(Debug)]
pub struct Prometheus {
    addr: SocketAddr,
    child: Child,
    page: Page,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Whether Prometheus is installed. Without it prints that `what` is skipped.
    ///
    /// # Panics
    /// When Prometheus is not installed and `LATTICE_REQUIRE_PEERS` is set.
    pub fn is_installed_or_skips(what: &str) -> bool {
        match Command::new(PROGRAM).arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let required = std::env::var_os("LATTICE_REQUIRE_PEERS").is_some();
                assert!(!required, "{PROGRAM} is not installed");
                eprintln!("SKIPPED: {what}: {PROGRAM} is not installed");
                false
            }
            _ => true,
        }
    }

    /// Starts Prometheus and waits until it answers. `None` where it is not installed.
    ///
    /// # Panics
    /// When Prometheus is not installed and `LATTICE_REQUIRE_PEERS` is set, or when it does not start.
    pub async fn start() -> Option<Self> {
        let folder = tempfile::Builder::new()
            .prefix("lattice-prometheus-")
            .tempdir()
            .unwrap();
        let page = Page::default();
        let target = serve(page.clone());
        let addr = free_addresses(1).remove(0);
        let config = format!(
            "scrape_configs:\n- {{job_name: page, scrape_interval: {SCRAPES}, scrape_timeout: {SCRAPES}, \
             static_configs: [{{targets: [\"{target}\"]}}]}}\n"
        );
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let child = match run(folder.path(), addr) {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let required = std::env::var_os("LATTICE_REQUIRE_PEERS").is_some();
                assert!(!required, "{PROGRAM} is not installed");
                return None;
            }
            Err(error) => panic!("{PROGRAM}: {error}"),
        };
        let started = Self {
            addr,
            child,
            page,
            _folder: folder,
        };
        eventually("Prometheus answers", || async { started.asked().await }).await;
        Some(started)
    }

    /// URL of the Prometheus API.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Sets the value of a series from the next scrape on, as text of the exposition format: a number, or `NaN`.
    pub fn says(&self, series: &str, value: &str) {
        let mut page = self.page.lock().unwrap();
        page.insert(series.to_owned(), value.to_owned());
    }

    /// Removes a series from the next scrape on.
    pub fn is_silent(&self, series: &str) {
        self.page.lock().unwrap().remove(series);
    }

    /// Number of queries that Prometheus has answered, with any result; `None` while it starts.
    pub async fn asked(&self) -> Option<u64> {
        let addr = self.addr;
        let own = tokio::task::spawn_blocking(move || get(addr, "/metrics"));
        let own = own.await.unwrap()?;
        let counts = own.lines().filter(|line| {
            line.starts_with("prometheus_http_requests_total{")
                && line.contains("handler=\"/api/v1/query\"")
        });
        let count = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
        Some(counts.filter_map(count).sum::<f64>() as u64)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(folder: &Path, addr: SocketAddr) -> std::io::Result<Child> {
    let at = |name: &str, file: &str| format!("--{name}={}", folder.join(file).display());
    let log = File::create(folder.join("prometheus.log")).unwrap();
    Command::new(PROGRAM)
        .arg(at("config.file", "prometheus.yml"))
        .arg(at("storage.tsdb.path", "data"))
        .arg(format!("--web.listen-address={addr}"))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
}

/// Answers every request with the page, until the page has no other owner.
fn serve(page: Page) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if Arc::strong_count(&page) == 1 {
                return;
            }
            let mut text = String::new();
            for (series, value) in &*page.lock().unwrap() {
                writeln!(text, "{series} {value}").unwrap();
            }
            // A client that closes the connection before the answer repeats its request.
            let _ = stream.and_then(|stream| answer(stream, &text));
        }
    });
    addr
}

fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut asked: Vec<u8> = Vec::new();
    let mut bytes = [0; 1024];
    while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            n => asked.extend(&bytes[..n]),
        }
    }
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
    let length = text.len();
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{text}")
}

/// Gets a page over plain HTTP.
fn get(addr: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {addr}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split_whitespace().nth(1)?;
    (status == "200").then_some(text)
}
