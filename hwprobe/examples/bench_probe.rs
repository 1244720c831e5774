//! Cost of a full probe: `bench_probe [--host gpu001] [--rounds 200] [--memory-rounds 1000] [--json]`.
//!
//! Probes a captured host of the repository as an agent does: in a separate process, which loads the fake driver in a
//! child process. Prints the times of each probe and of all probes together, and the memory of this process, which
//! stands for the agent, before and after. Fails if the memory grew by more than 1 MiB.

use lattice_conformance::{Inventory, diff};
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::{Host, NvmlSource, child, probe_isolated};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Maximum growth of this process's memory over the memory rounds, in KiB. An allocator may keep some pages more or
/// less; a leaked inventory per probe would make some 50 MiB for 1,000 probes.
const MOST_GROWTH_KIB: u64 = 1024;

struct Args {
    host: String,
    rounds: usize,
    memory_rounds: usize,
    json: bool,
}

fn args() -> Result<Args, String> {
    let mut args = Args {
        host: "gpu001".to_owned(),
        rounds: 200,
        memory_rounds: 1000,
        json: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let mut value = || given.next().ok_or(format!("{flag} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is not a number"));
        match flag.as_str() {
            "--host" => args.host = value()?,
            "--rounds" => args.rounds = number(value()?)?,
            "--memory-rounds" => args.memory_rounds = number(value()?)?,
            "--json" => args.json = true,
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    match args.rounds {
        0 => Err("--rounds: at least 1, for a median".to_owned()),
        _ => Ok(args),
    }
}

fn main() -> ExitCode {
    child::run_if_child();
    match args().map_err(Into::into).and_then(|args| run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_probe: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let amount = line.and_then(|line| line.split_whitespace().next());
    Ok(amount.ok_or("no VmRSS")?.parse()?)
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/hosts")
        .join(&args.host);
    let program = std::env::current_exe()?;
    let nvml = NvmlSource::child(&program, Some(&library_path()?))
        .with_env(DESCRIPTION_ENV, root.join("nvml.json"));
    let host = Host::new(root, nvml);
    let first = probe_isolated(&host, &program);
    let reasons = first.probe_reasons();
    if !reasons.is_empty() || first.resources.gpus().is_none_or(|count| count == 0) {
        return Err(format!("{} cannot be probed here: {reasons:?}", args.host).into());
    }
    let mut whole = Vec::with_capacity(args.rounds);
    let mut each: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for _ in 0..args.rounds {
        let started_at = Instant::now();
        let inventory = probe_isolated(&host, &program);
        whole.push(started_at.elapsed());
        check_same(&first, &inventory)?;
        for probe in inventory.probes {
            let took = Duration::from_micros(probe.duration_us);
            each.entry(probe.name).or_default().push(took);
        }
    }
    let before = resident_kib()?;
    for _ in 0..args.memory_rounds {
        check_same(&first, &probe_isolated(&host, &program))?;
    }
    let after = resident_kib()?;
    each.insert("whole".to_owned(), whole);
    print_table(args, &program, &mut each, (before, after));
    match after.saturating_sub(before) {
        grown if grown > MOST_GROWTH_KIB => Err(format!(
            "memory grew by {grown} KiB in {} probes, {MOST_GROWTH_KIB} allowed",
            args.memory_rounds
        )
        .into()),
        _ => Ok(()),
    }
}

/// Checks that both probes gave the same result: a cost counts only for a correct result.
fn check_same(first: &Inventory, other: &Inventory) -> Result<(), Box<dyn Error>> {
    for (class, record) in &first.records {
        let now = &other.records[class];
        if record.state().mark() != now.state().mark() {
            let differs = diff(record, now);
            return Err(format!("two probes of {class} differ: {differs:?}").into());
        }
    }
    Ok(())
}

fn print_table(
    args: &Args,
    program: &Path,
    each: &mut BTreeMap<String, Vec<Duration>>,
    (before, after): (u64, u64),
) {
    let ms = |took: Duration| took.as_secs_f64() * 1000.0;
    let mut rows = Vec::new();
    for (name, times) in each {
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        rows.push((name.clone(), ms(at(50)), ms(at(95)), ms(at(100))));
    }
    if args.json {
        let probes: serde_json::Map<String, serde_json::Value> = rows
            .into_iter()
            .map(|(name, median, p95, most)| {
                let times = serde_json::json!({"median_ms": median, "p95_ms": p95, "max_ms": most});
                (name, times)
            })
            .collect();
        let out = serde_json::json!({
            "host": args.host, "rounds": args.rounds, "probes": probes,
            "rss_before_kib": before, "rss_after_kib": after,
            "memory_rounds": args.memory_rounds,
        });
        println!("{out}");
        return;
    }
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    println!(
        "{}, {} rounds, {build} build, {}",
        args.host,
        args.rounds,
        program.display()
    );
    println!(
        "{:10} {:>10} {:>10} {:>10}",
        "probe", "median ms", "p95 ms", "max ms"
    );
    for (name, median, p95, most) in rows {
        println!("{name:10} {median:>10.2} {p95:>10.2} {most:>10.2}");
    }
    println!(
        "resident: {before} KiB before {} probes, {after} KiB after",
        args.memory_rounds
    );
}
