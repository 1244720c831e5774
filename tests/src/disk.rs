//! Disk-full faults: a small disk that a test can fill.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Size in MiB: more than an agent stores in a test.
const MIB: usize = 16;

/// A separate file system in memory. Dropping the value unmounts it.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mounts a disk at the path. Without root returns `None` and prints the reason; with `LATTICE_REQUIRE_PEERS=1`
    /// panics instead.
    pub fn mount(at: &Path) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        let options = format!("size={MIB}m,mode=755");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at);
        let is_root = rustix::process::geteuid().is_root();
        if is_root && mount.status().is_ok_and(|status| status.success()) {
            return Some(Self { at: at.to_owned() });
        }
        let why = "a small disk needs root and mount";
        let required = std::env::var("LATTICE_REQUIRE_PEERS").is_ok_and(|value| value == "1");
        assert!(!required, "{why}");
        eprintln!("SKIPPED: {why}");
        None
    }

    fn file(&self) -> PathBuf {
        self.at.join("fill")
    }

    /// Fills the remaining space.
    pub fn fill(&self) {
        let written = fs::write(self.file(), vec![1; MIB << 20]);
        assert!(written.is_err(), "it is larger than it should be");
    }

    /// Frees the space that [`Disk::fill`] took.
    pub fn free(&self) {
        fs::remove_file(self.file()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
