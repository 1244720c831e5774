//! Writer of a captured tree: each file, folder and link below the output folder, at its original path.

use super::mask::Secrets;
use super::{CaptureError, CaptureSummary, Privacy};
use crate::probe::{nic, software, storage};
use crate::root::{AccessedPath, AccessedPaths, UNREADABLE};
use crate::{Host, HostIdentifiers, commands, smbios};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

pub(super) struct Writer<'a> {
    host: &'a Host,
    out: &'a Path,
    privacy: Privacy,
    secrets: &'a Secrets,
    own: HostIdentifiers,
    pub(super) captured: CaptureSummary,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        host: &'a Host,
        out: &'a Path,
        privacy: Privacy,
        secrets: &'a Secrets,
    ) -> Self {
        Self {
            host,
            out,
            privacy,
            secrets,
            own: HostIdentifiers::read(&host.root),
            captured: CaptureSummary::default(),
        }
    }

    /// Writes every touched path. Links are written last, so that no file is written through a link.
    pub(super) fn tree(&mut self, touched: &AccessedPaths) -> Result<(), CaptureError> {
        for (path, what) in &touched.places {
            match what {
                AccessedPath::Dir(names) => self.folder(touched, path, names)?,
                AccessedPath::File(content) => {
                    let bytes = self.without_identity(path, content.as_bytes());
                    self.bytes(path, &bytes)?;
                }
                AccessedPath::Link(_) => {}
            }
        }
        for (path, what) in &touched.places {
            if let AccessedPath::Link(to) = what {
                self.link(path, to)?;
            }
        }
        Ok(())
    }

    /// A listed folder keeps all its names, because a probe may have counted them. An entry that no probe opened
    /// becomes an empty folder.
    fn folder(
        &self,
        touched: &AccessedPaths,
        path: &Path,
        names: &[String],
    ) -> Result<(), CaptureError> {
        make_dir(&self.output_path(path))?;
        for name in names {
            let entry = path.join(name);
            if !touched.places.contains_key(&entry) {
                make_dir(&self.output_path(&entry))?;
            }
        }
        Ok(())
    }

    fn link(&mut self, path: &Path, to: &Path) -> Result<(), CaptureError> {
        let target = self.output_path(path);
        if let Some(parent) = target.parent() {
            make_dir(parent)?;
        }
        let to = PathBuf::from(self.secrets.mask(&to.to_string_lossy()));
        symlink(relative_target(path, &to), &target).map_err(|source| CaptureError::Write {
            path: target,
            source,
        })?;
        self.captured.links += 1;
        Ok(())
    }

    /// Writes a file at a path of the machine, or under a name next to the tree.
    pub(super) fn bytes(&mut self, path: &Path, bytes: &[u8]) -> Result<(), CaptureError> {
        let target = self.output_path(path);
        if let Some(parent) = target.parent() {
            make_dir(parent)?;
        }
        fs::write(&target, bytes).map_err(|source| CaptureError::Write {
            path: target,
            source,
        })?;
        self.captured.files += 1;
        Ok(())
    }

    /// Writes a JSON file next to the tree, with secrets replaced.
    pub(super) fn json(&mut self, name: &str, what: &impl Serialize) -> Result<(), CaptureError> {
        let mut json = serde_json::to_value(what)?;
        self.secrets.mask_json(&mut json);
        self.bytes(Path::new(name), &serde_json::to_vec_pretty(&json)?)
    }

    /// Writes already encoded JSON next to the tree, with secrets replaced.
    pub(super) fn record(&mut self, name: &str, json: &[u8]) -> Result<(), CaptureError> {
        let json: serde_json::Value = serde_json::from_slice(json)?;
        self.json(name, &json)
    }

    /// Writes the list of unreadable paths, as named in the tree.
    pub(super) fn unread(&mut self, touched: &AccessedPaths) -> Result<(), CaptureError> {
        let unread = touched.unread.iter();
        let unread: BTreeMap<String, _> = unread
            .map(|(path, unread)| (self.secrets.mask(&path.to_string_lossy()), unread))
            .collect();
        self.json(UNREADABLE, &unread)
    }

    /// A name as written in the tree.
    pub(super) fn name(&self, name: &str) -> String {
        self.secrets.mask(name)
    }

    /// Output path of a path of the machine.
    fn output_path(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("/").unwrap_or(path);
        self.out.join(self.secrets.mask(&below.to_string_lossy()))
    }

    /// File content with strings that identify one machine replaced.
    fn without_identity(&self, path: &Path, bytes: &[u8]) -> Vec<u8> {
        // A package list keeps only the relevant packages, with either privacy setting.
        if let Some(kept) = software::kept_file(self.host, path, bytes) {
            return kept;
        }
        if self.privacy == Privacy::Keep {
            return bytes.to_vec();
        }
        let known = self.secrets.mask_bytes(bytes);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match name.as_ref() {
            "DMI" => smbios::without_identity(bytes),
            "cmdline" => self.command_line(bytes),
            // The command line is masked already, so no identifier is compared with these.
            "machine-id" => b"00000000000000000000000000000000\n".to_vec(),
            "fib_trie" | "if_inet6" => Vec::new(),
            "mountinfo" => storage::kept_mounts(&known, &self.own),
            _ if path.starts_with("/sys/module") && has_part(path, "parameters") => {
                self.module_parameter(known)
            }
            // A header, and the length of the following text.
            "vpd_pg80" => b"\0\x80\0\x06MASKED".to_vec(),
            _ if known != bytes => known,
            // These values contain no known secret, but they identify a machine.
            "product_serial" | "board_serial" | "chassis_serial" | "serial" | "wwid" | "nguid"
            | "eui" | "sys_image_guid" => b"MASKED\n".to_vec(),
            "product_uuid" | "boot_id" | "uuid" => {
                b"00000000-0000-4000-8000-000000000000\n".to_vec()
            }
            "hostname" => b"masked\n".to_vec(),
            // The address of a disk is its position on the bus.
            "address" if path.starts_with("/sys/class/nvme") || has_part(path, "nvme") => known,
            "address" | "perm_hwaddr" => b"02:00:00:00:00:00\n".to_vec(),
            "node_guid" => b"0200:0000:0000:0000\n".to_vec(),
            _ => known,
        }
    }

    fn command_line(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(line) = std::str::from_utf8(bytes) else {
            // The line is as unreadable in the capture as on the host.
            return b"\xff\n".to_vec();
        };
        let line = software::kept_command_line(self.host, line);
        let mut line = self.secrets.mask(&line);
        line.push('\n');
        line.into_bytes()
    }

    /// Parameter of a module, with the identifiers masked that the probe masks. The captured host, which has lost its
    /// name, would not recognise them.
    fn module_parameter(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => format!("{}\n", self.own.mask(text.trim())).into_bytes(),
            Err(error) => error.into_bytes(),
        }
    }

    /// Records the output of programs.
    pub(super) fn programs(&mut self) -> Result<(), CaptureError> {
        let folder = self.out.join(commands::RECORDS);
        let keep = |line: &commands::CommandLine, answer: Vec<u8>| {
            let kept = nic::kept_answer(line, software::kept_answer(self.host, line, answer));
            self.secrets.mask_bytes(&kept)
        };
        let files = commands::record(
            &self.host.commands,
            &self.host.outstanding,
            &nic::configurable(&self.host.root),
            nic::CONFIGURATION_WITHIN,
            &folder,
            keep,
        );
        self.captured.files += files.map_err(|source| CaptureError::Write {
            path: folder,
            source,
        })?;
        Ok(())
    }

    pub(super) fn privacy(&self) -> Privacy {
        self.privacy
    }
}

fn has_part(path: &Path, name: &str) -> bool {
    path.components()
        .any(|part| part == Component::Normal(name.as_ref()))
}

/// A link target that stays inside the tree: an absolute target becomes relative to the link's own folder.
fn relative_target(link: &Path, to: &Path) -> PathBuf {
    let Ok(below) = to.strip_prefix("/") else {
        return to.to_owned();
    };
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let depth = link.components().filter(is_name).count();
    let mut way: PathBuf = std::iter::repeat_n("..", depth.saturating_sub(1)).collect();
    way.push(below);
    if way.as_os_str().is_empty() {
        way.push(".");
    }
    way
}

fn make_dir(path: &Path) -> Result<(), CaptureError> {
    fs::create_dir_all(path).map_err(|source| CaptureError::Write {
        path: path.to_owned(),
        source,
    })
}
