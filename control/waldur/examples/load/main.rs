//! Cost of the rounds with 1,000 resources: calls and seconds, by the time of a call. And of an outage: memory, size of
//! the journal, and time until Waldur has everything.
//!
//! `cargo run --release -p lattice-waldur --example load -- [--url URL --token FILE --offering UUID] [--delays 0,46,170]`
//!
//! Without `--url`, the measured Waldur is the fake one of the tests. A real one must have the resources of
//! `lattice:alps:t000/p0@batch` to `lattice:alps:t199/p4@batch` in its offering; the token's user owns their customers.
#![expect(clippy::unwrap_used, reason = "an example")]

mod proxy;
mod site;

use jiff::tz::TimeZone;
use lattice_fake_waldur::Waldur;
use lattice_waldur::{
    client::{WaldurClient, http_client},
    config::AccountingSettings,
    journal::Bounds,
    secret::{SecretRef, Secrets},
    status::SyncStatus,
    step::NoObserver,
    sync::AccountingSync,
};
use proxy::{Passed, Proxy};
use serde_json::{Value, json};
use site::Site;
use std::{
    collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::PathBuf, sync::Arc,
    time::Duration, time::Instant,
};

const RESOURCES: usize = 1_000;
/// Resources that are ended.
const ENDED: usize = 300;
/// Orders that wait.
const ORDERS: usize = 100;
/// Events during an outage.
const EVENTS: usize = 5_000;
/// Rounds after which a scenario is given up.
const MAX_ROUNDS: usize = 400;

/// Waldur, and the synchronisation that is measured.
struct Bench {
    site: Arc<Site>,
    proxy: Arc<Proxy>,
    settings: AccountingSettings,
    sync: AccountingSync,
    http: reqwest::Client,
    /// Address of Waldur, without a slash at the end.
    upstream: String,
    token: String,
    delay_ms: u64,
    /// `None`: a real one.
    fake: Option<Waldur>,
    folder: tempfile::TempDir,
}

/// Where a real Waldur is.
struct Real {
    url: String,
    token: PathBuf,
    offering: String,
}

/// Cost of the rounds of one scenario.
#[derive(Default)]
struct Cost {
    rounds: usize,
    seconds: f64,
    longest_s: f64,
    passed: Passed,
}

impl Bench {
    async fn new(real: Option<&Real>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let site = Arc::new(Site::new(RESOURCES));
        let http = http_client(&[]).unwrap();
        let (fake, upstream, token) = match real {
            Some(real) => {
                let token = fs::read_to_string(&real.token).unwrap();
                (None, real.url.clone(), token.trim().to_owned())
            }
            None => {
                let fake = Waldur::builder().start().await.unwrap();
                let (url, token) = (fake.url(), fake.token().to_owned());
                (Some(fake), url, token)
            }
        };
        let (proxy, address) = Proxy::start(&upstream, http.clone()).await;
        let file = folder.path().join("token");
        fs::write(&file, &token).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let offerings = real.map(|real| (site::vcluster(), real.offering.clone()));
        let settings = AccountingSettings {
            api: format!("{address}/api/").parse().unwrap(),
            token: SecretRef::File(file),
            interval: Duration::from_secs(60),
            bounds: Bounds {
                memory: 10_000,
                disk: 100_000,
            },
            folder: folder.path().join("wal"),
            zone: TimeZone::UTC,
            ca_file: None,
            vault: None,
            offerings: offerings.into_iter().collect(),
            plans: BTreeMap::new(),
            reconcile_every: None,
            order_check_every: None,
            lower_totals: false,
            provider_customer: None,
            category: "HPC".to_owned(),
            take_limits: true,
            hook_secret: None,
            order_per_allocation: false,
            seed_paths: false,
        };
        Self {
            sync: sync(&site, &settings),
            site,
            proxy,
            settings,
            http,
            upstream: upstream.trim_end_matches('/').to_owned(),
            token,
            delay_ms: 0,
            fake,
            folder,
        }
    }

    fn set_delay(&mut self, ms: u64) {
        self.proxy.set_delay(ms);
        self.delay_ms = ms;
    }

    /// Another control takes over.
    fn restart(&mut self) {
        self.sync = sync(&self.site, &self.settings);
    }

    fn status(&self) -> SyncStatus {
        self.sync.status().lock().clone()
    }

    /// Runs rounds, at least one, until `is_done`.
    async fn rounds(&mut self, is_done: impl AsyncFn(&Self) -> bool) -> Cost {
        let mut cost = Cost::default();
        self.proxy.take();
        let begun = Instant::now();
        loop {
            let begun_round = Instant::now();
            self.sync.round().await;
            cost.longest_s = cost.longest_s.max(begun_round.elapsed().as_secs_f64());
            cost.rounds += 1;
            let status = self.status();
            assert_eq!(status.failure, None);
            cost.seconds = begun.elapsed().as_secs_f64();
            cost.passed = match cost.rounds {
                1 => self.proxy.take(),
                _ => cost.passed,
            };
            if cost.rounds == MAX_ROUNDS || is_done(self).await {
                break;
            }
        }
        cost
    }

    fn print(&self, name: &str, cost: &Cost) {
        let Cost {
            rounds,
            seconds,
            longest_s,
            passed,
        } = cost;
        let (reads, calls) = (passed.reads(), passed.calls());
        println!(
            "| {name} | {} | {rounds} | {reads} | {} | {} | {longest_s:.2} | {seconds:.2} |",
            self.delay_ms,
            calls - reads,
            passed.most_at_once
        );
        if std::env::var_os("LATTICE_PATHS").is_some() {
            for (path, calls) in &passed.by_path {
                println!("    {calls:5} {path}");
            }
        }
    }

    /// Sends a request past the measured proxy. Returns the answer, and the number of objects of a list.
    async fn request(&self, method: &str, path: &str, body: &Value) -> (Value, usize) {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let sent = self
            .http
            .request(method, format!("{}/api/{path}", self.upstream))
            .header("Authorization", format!("Token {}", self.token))
            .json(body)
            .send()
            .await
            .unwrap();
        let status = sent.status();
        let count = sent.headers().get("x-result-count");
        let count = count.and_then(|count| count.to_str().ok()?.parse().ok());
        let answer: Value = sent.json().await.unwrap_or_default();
        assert!(status.is_success(), "{path}: {status} {answer}");
        (answer, count.unwrap_or(0))
    }

    /// Number of the resources that accept usage.
    async fn resources(&self) -> usize {
        let path =
            "marketplace-provider-resources/?state=OK&state=Terminating&page_size=1&field=uuid";
        self.request("GET", path, &json!({})).await.1
    }

    async fn open_orders(&self) -> usize {
        let path =
            "marketplace-orders/?state=pending-provider&state=executing&page_size=1&field=uuid";
        self.request("GET", path, &json!({})).await.1
    }
}

fn sync(site: &Arc<Site>, settings: &AccountingSettings) -> AccountingSync {
    let http = http_client(&[]).unwrap();
    let secrets = Secrets {
        http: http.clone(),
        vault: None,
    };
    let (api, token) = (settings.api.clone(), settings.token.clone());
    let waldur = WaldurClient::new("alps", http, api, secrets, token);
    AccountingSync::new(site.clone(), waldur, settings.clone(), Arc::new(NoObserver))
}

async fn first_round(bench: &mut Bench) {
    bench.site.use_hour(0..RESOURCES);
    let all = async |bench: &Bench| bench.status().reported >= RESOURCES as u64;
    let cost = bench.rounds(all).await;
    let name = match bench.fake {
        Some(_) => "1,000 projects are new",
        None => "1,000 resources without usage",
    };
    bench.print(name, &cost);
}

async fn at_rest(bench: &mut Bench, name: &str) {
    let cost = bench.rounds(async |_| true).await;
    bench.print(name, &cost);
}

async fn changed(bench: &mut Bench) {
    bench.site.use_hour(0..RESOURCES);
    let before = bench.status().reported;
    let all = async |bench: &Bench| bench.status().reported >= before + RESOURCES as u64;
    let cost = bench.rounds(all).await;
    bench.print("1,000 totals changed", &cost);
    bench.site.use_hour(0..RESOURCES);
    bench.restart();
    let all = async |bench: &Bench| bench.status().reported >= RESOURCES as u64;
    let cost = bench.rounds(all).await;
    bench.print("1,000 totals changed, control is new", &cost);
}

async fn limits(bench: &mut Bench) {
    let Some(fake) = &bench.fake else { return };
    for resource in fake.snapshot().resources {
        let limits = serde_json::Map::from_iter([("gpu_hours".to_owned(), json!(1_000))]);
        assert!(fake.set_limits(resource["uuid"].as_str().unwrap(), limits));
    }
    at_rest(bench, "1,000 limits of hours").await;
    assert_eq!(bench.site.credits(), RESOURCES / 5);
}

async fn orders(bench: &mut Bench) {
    let path = "marketplace-provider-resources/?state=OK&page_size=300&field=uuid";
    let (resources, _) = bench.request("GET", path, &json!({})).await;
    let resources = resources.as_array().unwrap().iter();
    for (place, resource) in resources.take(ORDERS).enumerate() {
        let resource = resource["uuid"].as_str().unwrap();
        let path = format!("marketplace-resources/{resource}/update_limits/");
        let nodes = 10 + place + bench.delay_ms as usize * 1_000;
        let body = json!({"limits": {"max_nodes": nodes}});
        bench.request("POST", &path, &body).await;
    }
    let done = async |bench: &Bench| bench.open_orders().await == 0;
    let cost = bench.rounds(done).await;
    bench.print("100 orders wait", &cost);
}

/// Ends the resources of 300 projects more.
async fn ends(bench: &mut Bench, times: usize) {
    let before = bench.resources().await;
    bench.site.set_projects(ENDED * times..RESOURCES);
    let done = async |bench: &Bench| bench.resources().await + ENDED <= before;
    let cost = bench.rounds(done).await;
    bench.print("300 resources end", &cost);
}

fn kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Collects events while Waldur does not answer, in a process that has no free memory to reuse.
async fn events(real: Option<&Real>) {
    let mut bench = Bench::new(real).await;
    bench.proxy.set_down(true);
    bench.sync.round().await;
    bench.site.add_records(EVENTS);
    let before = kib("VmRSS");
    bench.sync.round().await;
    let after = kib("VmRSS");
    let files = fs::read_dir(bench.folder.path().join("wal")).unwrap();
    let bytes: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    let status = bench.status();
    println!(
        "{EVENTS} events in an outage: {} in memory, {} on disk only; VmRSS {before} -> {after} KiB, VmHWM {} KiB, journal \
         {bytes} bytes\n",
        status.in_memory,
        status.on_disk,
        kib("VmHWM")
    );
}

/// Ends an outage with 5,000 events and 1,000 changed totals. Returns a line for the output.
async fn outage(bench: &mut Bench) -> String {
    bench.proxy.set_down(true);
    bench.sync.round().await;
    bench.site.add_records(EVENTS);
    bench.site.use_hour(0..RESOURCES);
    bench.sync.round().await;
    bench.proxy.set_down(false);
    let before = bench.status().reported;
    let begun = Instant::now();
    while bench.site.behind() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        bench.sync.round().await;
    }
    let reported = bench.status().reported - before;
    format!(
        "after an outage, {} ms a call: {EVENTS} events and {reported} totals done after {:.1} s, retry pause included",
        bench.delay_ms,
        begun.elapsed().as_secs_f64()
    )
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let real = value("--url").map(|url| Real {
        url,
        token: value("--token").unwrap().into(),
        offering: value("--offering").unwrap(),
    });
    let delays = value("--delays").unwrap_or_else(|| "0,46,170".to_owned());
    events(real.as_ref()).await;
    println!(
        "| round | ms a call | rounds | reads, first round | writes, first round | most at once | longest round, s | all, s |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    let delays: Vec<u64> = delays.split(',').map(|ms| ms.parse().unwrap()).collect();
    let mut bench = Bench::new(real.as_ref()).await;
    first_round(&mut bench).await;
    for delay in &delays {
        bench.set_delay(*delay);
        at_rest(&mut bench, "nothing changed").await;
    }
    for delay in &delays {
        bench.set_delay(*delay);
        changed(&mut bench).await;
    }
    for delay in &delays {
        bench.set_delay(*delay);
        limits(&mut bench).await;
    }
    for delay in &delays {
        bench.set_delay(*delay);
        orders(&mut bench).await;
    }
    let mut outages = Vec::new();
    for delay in &delays {
        bench.set_delay(*delay);
        outages.push(outage(&mut bench).await);
    }
    for (times, delay) in (1..).zip(&delays) {
        bench.set_delay(*delay);
        ends(&mut bench, times).await;
    }
    println!("\n{}", outages.join("\n"));
}
