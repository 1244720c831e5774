//! Probe source: this machine, a tree, or an archive.

use anyhow::{Context as _, bail};
use clap::Args;
use lattice_conformance::{Class, Inventory};
use lattice_hwprobe::capture::{archive, host_of};
use lattice_hwprobe::{Host, NvmlSource, probe_isolated};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Reason text of a class that was not requested.
pub(super) const LEFT_OUT: &str = "left out on the command line";

/// Source to probe.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Probe this tree, or archive made by `capture`, in place of this machine.
    #[arg(long, value_name = "DIR|ARCHIVE")]
    root: Option<PathBuf>,
    /// NVML library to load in place of libnvidia-ml.so.1.
    #[arg(long, value_name = "FILE")]
    nvml_lib: Option<PathBuf>,
    /// Probe only these classes: gpu, nic, bios, bmc, kernel, cpu, memory, storage, software; and optics, which is not
    /// probed unless it is named.
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    class: Vec<Class>,
}

/// Host to probe; a temporary tree lives as long as this value.
pub(super) struct Source {
    pub(super) host: Host,
    /// Root of the tree; `None` for this machine.
    pub(super) tree: Option<PathBuf>,
    left_out: BTreeSet<Class>,
    /// Temporary folder of an unpacked archive, removed on drop.
    _unpacked: Option<TempDir>,
}

/// Program to execute for each probe: the running one.
pub(super) const PROGRAM: &str = crate::executor::OWN_PROGRAM;

impl SourceArgs {
    pub(super) fn open(&self) -> anyhow::Result<Source> {
        let root = self.root.as_deref().filter(|root| *root != Path::new("/"));
        let (mut host, tree, unpacked) = match root {
            None => {
                let nvml = NvmlSource::child(PROGRAM, self.nvml_lib.as_deref());
                (Host::new("/", nvml), None, None)
            }
            Some(root) => {
                let (tree, unpacked) = open_tree(root)?;
                let mut host = host_of(&tree)
                    .with_context(|| format!("{} cannot be probed", root.display()))?;
                if let Some(library) = &self.nvml_lib {
                    host.nvml = NvmlSource::child(PROGRAM, Some(library));
                }
                (host, Some(tree), unpacked)
            }
        };
        let asked = self.class.iter().filter(|class| class.is_optional());
        host.also.extend(asked.copied());
        let left_out: BTreeSet<Class> = match self.class.as_slice() {
            [] => BTreeSet::new(),
            wanted => {
                let all = Class::ALL.into_iter();
                all.filter(|class| !wanted.contains(class)).collect()
            }
        };
        host.disabled.extend(left_out.iter().copied());
        Ok(Source {
            host,
            tree,
            left_out,
            _unpacked: unpacked,
        })
    }
}

/// Returns a folder as it is, and an archive as an unpacked temporary folder.
fn open_tree(root: &Path) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
    let shown = root.display();
    if root.is_dir() {
        return Ok((root.to_owned(), None));
    }
    if !root.is_file() {
        bail!("{shown} is neither a folder nor an archive");
    }
    let file = File::open(root).with_context(|| format!("{shown} cannot be read"))?;
    let folder = tempfile::Builder::new()
        .prefix("lattice-probe-")
        .tempdir()
        .context("cannot create a temporary folder")?;
    archive::unpack(file, folder.path()).with_context(|| format!("{shown} cannot be unpacked"))?;
    Ok((folder.path().to_owned(), Some(folder)))
}

impl Source {
    pub(super) fn probe(&self) -> Inventory {
        let mut inventory = probe_isolated(&self.host, Path::new(PROGRAM));
        self.mark_left_out_keys(&mut inventory);
        inventory
    }

    pub(super) fn mark_left_out_keys(&self, inventory: &mut Inventory) {
        for class in &self.left_out {
            if let Some(record) = inventory.records.get_mut(class) {
                record.disabled = Some(LEFT_OUT.to_owned());
            }
        }
    }

    pub(super) fn is_left_out(&self, class: Class) -> bool {
        self.host.disabled.contains(&class)
    }
}
