//! Prints the inventory of this machine, or of a captured tree.
//!
//! ```text
//! cargo run -p lattice-hwprobe --example probe -- [--root DIR] [--library PATH]
//!     [--fake-nvml JSON] [--summary] [--capture DIR] [--mask]
//! ```

use lattice_conformance::Inventory;
use lattice_hwprobe::capture::{self, Privacy};
use lattice_hwprobe::{Host, NvmlSource, child, probe_all};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Default)]
struct Args {
    root: Option<PathBuf>,
    library: Option<PathBuf>,
    fake_nvml: Option<PathBuf>,
    capture: Option<PathBuf>,
    summary: bool,
    mask: bool,
}

fn args() -> Result<Args, String> {
    let mut args = Args::default();
    let mut given = std::env::args_os().skip(1);
    while let Some(flag) = given.next() {
        let mut path = || given.next().map(PathBuf::from).ok_or("a path must follow");
        match flag.to_str() {
            Some("--root") => args.root = Some(path()?),
            Some("--library") => args.library = Some(path()?),
            Some("--fake-nvml") => args.fake_nvml = Some(path()?),
            Some("--capture") => args.capture = Some(path()?),
            Some("--summary") => args.summary = true,
            Some("--mask") => args.mask = true,
            _ => return Err(format!("unknown argument {}", flag.display())),
        }
    }
    Ok(args)
}

fn main() -> ExitCode {
    child::run_if_child();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("probe: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let args = args()?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut nvml = NvmlSource::child(program, args.library.as_deref());
    if let Some(json) = &args.fake_nvml {
        nvml = nvml.with_env("LATTICE_FAKE_NVML", json);
    }
    let root = args.root.as_deref().unwrap_or(Path::new("/"));
    let host = Host::new(root, nvml);
    if let Some(out) = &args.capture {
        let privacy = if args.mask {
            Privacy::Mask
        } else {
            Privacy::Keep
        };
        let captured = capture::capture(&host, out, privacy).map_err(|e| e.to_string())?;
        eprintln!("{captured:?}");
        return Ok(());
    }
    let inventory = probe_all(&host);
    if args.summary {
        summary(&inventory);
        return Ok(());
    }
    let json = serde_json::to_string_pretty(&inventory).map_err(|error| error.to_string())?;
    println!("{json}");
    Ok(())
}

fn summary(inventory: &Inventory) {
    for probe in &inventory.probes {
        println!(
            "{:8} {:10} {:>7} us {:>4} keys {:>3} unknown",
            probe.name, probe.outcome, probe.duration_us, probe.keys, probe.unknown
        );
    }
    for (class, mark) in inventory.marks() {
        println!("{class:8} {mark}");
    }
    for finding in &inventory.findings {
        println!("! {} {}: {}", finding.class, finding.code, finding.detail);
    }
    println!("{:?}", inventory.fingerprint());
}
